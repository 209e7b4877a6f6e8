//! Bytes that nobody should have sent: counted under a reason, without a trace in any result.

use proptest::prelude::*;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{ChildId, PortId, TreeId};
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::switchml::wire::{ExponentHint, HEADER_LEN, Header};

use crate::harness::link::{LinkConfig, SplitMix};
use crate::setup::{at_ms, check_sums, collective, job, star};

fn header(wid: u16, idx: u16, phase: u32) -> Header {
    let spec = Spec::allreduce(64, DType::F32, ReduceOp::Sum);
    Header { wid: ChildId(wid), idx, word: ExponentHint::UNKNOWN, phase, spec }
}

/// A packet that is nearly right: the headers of one, with some bytes changed.
fn mutated(rng: &mut SplitMix, key_known: bool) -> Vec<u8> {
    let job = job(3, 8, 64);
    let mut bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.next() as u8).collect();
    if bytes.len() >= 36 && rng.chance(0.9) {
        let kind = 16 + rng.below(7) as u8;
        let key = if key_known { job.key } else { tributary_proto::contract::ids::JobKey(rng.next()) };
        Common { protocol: tributary_proto::switchml::PROTOCOL.code, kind, job: job.job, key }.emit(&mut bytes);
        // A plausible own header: known wid, slot, type and a near phase.
        header(rng.below(4) as u16, rng.below(9) as u16, rng.below(12) as u32).emit(&mut bytes);
        bytes[16..20].copy_from_slice(&[0, 0, rng.below(9) as u8, rng.next() as u8]);
    }
    bytes
}

#[test]
fn a_packet_belongs_to_the_tree_that_owns_its_slot_and_short_ones_to_none() {
    let protocol = &tributary_proto::switchml::PROTOCOL;
    let job = JobConfig { trees: 3, ..job(3, 12, 64) };
    let packet = |slot: u16| {
        let mut bytes = vec![0; 40];
        Common { protocol: protocol.code, kind: 16, job: job.job, key: job.key }.emit(&mut bytes);
        header(0, slot, 0).emit(&mut bytes);
        bytes
    };
    for (slot, tree) in [(0, Some(0)), (3, Some(0)), (4, Some(1)), (11, Some(2)), (12, None)] {
        assert_eq!((protocol.tree_of)(&job, &packet(slot)), tree.map(TreeId), "slot {slot}");
    }
    for len in COMMON_LEN..HEADER_LEN {
        assert_eq!((protocol.tree_of)(&job, &packet(4)[..len]), None, "{len} bytes");
    }
}

#[test]
fn garbage_from_unauthorised_clients_and_without_the_key_changes_nothing() {
    for seed in 0..20 {
        let job = job(3, 8, 64);
        let mut network = star(seed, LinkConfig { loss: 0.02, ..LinkConfig::default() }, &job);
        let mut rng = SplitMix(seed);
        for rank in 0..3 {
            network.submit(usize::from(rank), collective(rank, 0, 20_000, true)).unwrap();
        }
        let memory = network.switches[0].pipelines[0].report(job.job).unwrap().memory_bytes;
        let mut thrown = 0;
        for step in 0..500 {
            network.run_until(tributary_proto::contract::time::Time(step * 5_000_000));
            // With the key from nowhere, or from a member's port without the key.
            let unknown = rng.chance(0.5);
            let bytes = mutated(&mut rng, unknown);
            let ingress = if unknown { PortId::UNKNOWN } else { PortId(rng.below(3) as u16) };
            network.inject_to_switch(0, TreeId(0), ingress, &bytes);
            // And to a host, without the key.
            let bytes = mutated(&mut rng, false);
            network.inject_to_host(rng.below(3) as usize, Addr::Switch(TreeId(0)), &bytes);
            thrown += 1;
        }
        let events = network.run_until_idle(at_ms(100_000));
        check_sums(events, &[(20_000, true)]);
        let pipeline = &network.switches[0].pipelines[0];
        let report = pipeline.report(job.job).unwrap();
        let wrong_key = report.drops.get(tributary_proto::contract::drop_reason::DropReason::WrongKey);
        let not_a_member = report.drops.get(tributary_proto::contract::drop_reason::DropReason::NotAMember);
        assert_eq!(wrong_key + not_a_member + pipeline.rejected().total(), thrown, "each is counted");
        assert_eq!(report.memory_bytes, memory);
    }
}

proptest! {
    /// A member with a broken program can spoil its own job, but no more: nothing panics, nothing grows.
    #[test]
    fn garbage_from_a_member_never_panics(seed in any::<u64>()) {
        let job = job(3, 8, 64);
        let mut network = star(seed, LinkConfig::default(), &job);
        let mut rng = SplitMix(seed);
        for rank in 0..3 {
            let mut collective = collective(rank, 0, 2000, rng.chance(0.5));
            collective.deadline = Some(at_ms(500));
            network.submit(usize::from(rank), collective).unwrap();
        }
        let memory = network.switches[0].pipelines[0].report(job.job).unwrap().memory_bytes;
        for step in 0..300 {
            network.run_until(tributary_proto::contract::time::Time(step * 1_000_000));
            let bytes = mutated(&mut rng, true);
            if rng.chance(0.5) {
                let ingress = PortId(rng.below(3) as u16);
                network.inject_to_switch(0, TreeId(0), ingress, &bytes);
            } else {
                network.inject_to_host(rng.below(3) as usize, Addr::Switch(TreeId(0)), &bytes);
            }
        }
        let events = network.run_until_idle(at_ms(100_000));
        prop_assert!(events.iter().all(|events| events.len() == 1), "every collective ends");
        prop_assert_eq!(network.switches[0].pipelines[0].report(job.job).unwrap().memory_bytes, memory);
    }
}
