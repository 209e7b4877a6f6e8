//! Bytes that nobody should have sent: counted under a reason, without a trace in any result.

use proptest::prelude::*;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::{ChildId, JobKey, PortId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, PacketMut};
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::{HEADER_LEN, Header, Kind, Order, Says};

use crate::harness::link::{LinkConfig, SplitMix};
use crate::harness::reduction::{at_ms, expected, in_place, output, star, switch_config};
use crate::setup::{inputs, job};

fn header(wid: u16, idx: u16, phase: u32) -> Header {
    let spec = Spec::allreduce(64, DType::F32, ReduceOp::Sum);
    Header { wid: ChildId(wid), idx, word: Says::ordered(Order(7)), phase, spec }
}

fn packet(job: &JobConfig, kind: u8, header: Header, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Common { kind, ..job.common() }.emit(&mut bytes);
    header.emit(&mut bytes);
    bytes
}

#[test]
fn a_packet_belongs_to_the_tree_that_owns_its_slot_and_short_ones_to_none() {
    let job = JobConfig { trees: 3, ..job(3, 12, 64, &[]) };
    for (slot, tree) in [(0, Some(0)), (3, Some(0)), (4, Some(1)), (11, Some(2)), (12, None)] {
        let bytes = packet(&job, Kind::Update as u8, header(0, slot, 0), 44);
        assert_eq!((PROTOCOL.tree_of)(&job, &bytes), tree.map(TreeId), "slot {slot}");
        for len in COMMON_LEN..HEADER_LEN {
            assert_eq!((PROTOCOL.tree_of)(&job, &bytes[..len]), None, "{len} bytes");
        }
    }
}

/// Each row is a packet of rank 0, from its port, that a switch must refuse, and why.
#[test]
fn what_is_not_a_contribution_is_refused_for_a_reason() {
    let job = job(2, 4, 64, &[]);
    let update = Kind::Update as u8;
    let full = HEADER_LEN + 4 * 64;
    let rows = [
        (packet(&job, update, header(0, 0, 0), HEADER_LEN)[..HEADER_LEN - 1].to_vec(), DropReason::Truncated),
        (packet(&job, update, header(1, 0, 0), full), DropReason::WrongWorker),
        (packet(&job, update, header(2, 0, 0), full), DropReason::WrongWorker),
        (packet(&job, update, header(0, 4, 0), full), DropReason::BadField),
        (packet(&job, update, header(0, 0, 1), full), DropReason::Ahead),
        (packet(&job, update, header(0, 0, 2), full), DropReason::Ahead),
        (packet(&job, update, header(0, 0, u32::MAX), full), DropReason::Stale),
        (packet(&job, update, header(0, 0, 0), full - 4), DropReason::BadLength),
        (packet(&job, update, header(0, 0, 0), full + 4), DropReason::BadLength),
        (packet(&job, update, header(0, 0, 0), HEADER_LEN), DropReason::BadLength),
        // There is no exponent to ask for.
        (packet(&job, Kind::Probe as u8, header(0, 0, 0), HEADER_LEN), DropReason::BadKind),
        (packet(&job, Kind::Result as u8, header(0, 0, 0), full), DropReason::BadKind),
        (packet(&job, Kind::Mismatch as u8, header(0, 0, 0), full), DropReason::BadKind),
        (packet(&job, 99, header(0, 0, 0), full), DropReason::BadKind),
    ];
    for (at, (mut bytes, reason)) in rows.into_iter().enumerate() {
        let config = switch_config(&job, 0, &tributary_proto::contract::config::Below::workers(2), None);
        let mut switch = PROTOCOL.switch(Values::Elements, &config).unwrap();
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let verdict = switch.process(Time::ZERO, PortId(0), &mut packet, &NoQueues);
        assert_eq!(verdict, Verdict::Drop(reason), "row {at}");
        assert_eq!(switch.report().contributions, 0, "row {at}");
    }
}

#[test]
fn ranks_that_bring_different_things_learn_who_brings_what() {
    let mut network = star(1, LinkConfig::default(), &job(3, 4, 16, &[]));
    for rank in 0..2 {
        network.submit(rank, in_place(&[1i16; 20], ReduceOp::Max)).unwrap();
    }
    network.submit(2, in_place(&[1i16; 20], ReduceOp::Min)).unwrap();
    for events in network.run_until_idle(at_ms(10_000)) {
        let [HostEvent::Failed { error, .. }] = &events[..] else { panic!("it cannot succeed") };
        let sentence = error.to_string();
        assert!(
            sentence.contains("max of 20 i16 elements") && sentence.contains("min of 20 i16 elements"),
            "{sentence}"
        );
    }
}

/// A packet that is nearly right: the headers of one, with some bytes changed.
fn mutated(rng: &mut SplitMix, key_known: bool) -> Vec<u8> {
    let job = job(3, 8, 64, &[]);
    let mut bytes: Vec<u8> = (0..rng.below(300)).map(|_| rng.next() as u8).collect();
    if bytes.len() >= HEADER_LEN && rng.chance(0.9) {
        let key = if key_known { job.key } else { JobKey(rng.next()) };
        Common { kind: 16 + rng.below(7) as u8, key, ..job.common() }.emit(&mut bytes);
        header(rng.below(4) as u16, rng.below(9) as u16, rng.below(12) as u32).emit(&mut bytes);
        bytes[16..20].copy_from_slice(&[0, 0, rng.below(9) as u8, rng.next() as u8]);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Unauthorised clients know the key, and send from no member's port; to hosts they send as if from another rank.
    #[test]
    fn unauthorised_clients_never_change_a_sum(seed: u64) {
        let inputs = inputs(3, 2_000, |value| value);
        let job = job(3, 8, 64, &[("reproducible", "tree")]);
        let mut network = star(seed, LinkConfig::default(), &job);
        for (rank, input) in inputs.iter().enumerate() {
            network.submit(rank, in_place(input, ReduceOp::Sum)).unwrap();
        }
        let mut rng = SplitMix(seed);
        for step in 1..200 {
            let bytes = mutated(&mut rng, step % 2 == 0);
            network.inject_to_switch(0, TreeId(0), PortId::UNKNOWN, &bytes);
            let from = Addr::Worker(tributary_proto::contract::ids::Rank(1));
            network.inject_to_host(rng.below(3) as usize, from, &bytes);
            network.run_until(Time::ZERO + tributary_proto::contract::time::Span::from_micros(5 * step));
        }
        let sum = output(network.run_until_idle(at_ms(10_000)), DType::F32, 2_000);
        prop_assert!(sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(3)));
    }
}
