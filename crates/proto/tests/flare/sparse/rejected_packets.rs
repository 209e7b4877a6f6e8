//! Bytes that nobody should have sent: forged counts, shards and answers never change a sum.

use proptest::prelude::*;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{ChildId, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Switch, Verdict};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::sparse::wire::{HEADER_LEN, Header, Kind};

use super::{drawn, expected, job, whole};
use crate::harness::link::{LinkConfig, SplitMix};
use crate::harness::reduction::{at_ms, star, switch_config};

fn header(wid: u16, phase: u32, shard: u32, count: u32) -> Header {
    let spec = Spec::allreduce(64, DType::F32, ReduceOp::Sum);
    Header { wid: ChildId(wid), idx: 0, phase, shard, count, asks: false, is_finished: false, spec }
}

fn packet(job: &JobConfig, kind: Kind, header: Header, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    Common { kind: kind as u8, ..job.common() }.emit(&mut bytes);
    header.emit(&mut bytes);
    bytes.extend(body);
    bytes
}

fn give(switch: &mut dyn Switch, mut bytes: Vec<u8>, port: u16) -> Verdict {
    switch.process(Time::ZERO, PortId(port), &mut PacketMut::new(&mut bytes, Ecn::NotCapable), &NoQueues)
}

/// Each row is a packet of rank 0, from its port, that a switch must refuse, and why.
#[test]
fn what_is_not_a_shard_is_refused_for_a_reason() {
    let job = job(2, 4, 64, &[("span", "64")]);
    let pair = |offset: u16| [&offset.to_be_bytes()[..], &1.0f32.to_be_bytes()].concat();
    let too_many = vec![0; 6 * 43];
    let rows: [(Kind, Header, &[u8], DropReason); 16] = [
        (Kind::Shard, header(1, 0, 0, 1), &pair(3), DropReason::WrongWorker),
        (Kind::Shard, Header { idx: 4, ..header(0, 0, 0, 1) }, &pair(3), DropReason::BadField),
        (Kind::Shard, header(0, 1, 0, 1), &pair(3), DropReason::Ahead),
        (Kind::Shard, header(0, 2, 0, 1), &pair(3), DropReason::Ahead),
        (Kind::Shard, header(0, u32::MAX, 0, 1), &pair(3), DropReason::Stale),
        (Kind::Shard, header(0, 0, 0, 1), &pair(64), DropReason::BadField),
        (Kind::Shard, header(0, 0, 0, 1), &pair(3)[1..], DropReason::BadLength),
        (Kind::Shard, header(0, 0, 0, 1), &too_many, DropReason::BadLength),
        // The number of shards is the last one's own.
        (Kind::Shard, header(0, 0, 0, 65_535), &pair(3), DropReason::BadField),
        (Kind::Shard, header(0, 0, 5, 3), &pair(3), DropReason::BadField),
        (Kind::Shard, header(0, 0, u32::MAX, 0), &pair(3), DropReason::BadField),
        (Kind::Shard, header(0, 0, 64, 0), &pair(3), DropReason::Ahead),
        (Kind::Want, header(0, 0, 0, 0), &[0; 8], DropReason::Ahead),
        (Kind::Have, header(0, 0, 0, 0), &[0; 7], DropReason::BadLength),
        (Kind::Sum, header(0, 0, 0, 1), &pair(3), DropReason::BadKind),
        (Kind::Taken, header(0, 0, 0, 0), &[0; 8], DropReason::BadKind),
    ];
    for (at, (kind, header, body, reason)) in rows.into_iter().enumerate() {
        let config = switch_config(&job, 0, &Below::workers(2), None);
        let mut switch = PROTOCOL.switch(Values::Elements, &config).unwrap();
        let verdict = give(&mut *switch, packet(&job, kind, header, body), 0);
        assert_eq!(verdict, Verdict::Drop(reason), "row {at}");
        assert_eq!(switch.report().contributions, 0, "row {at}");
    }
}

/// Two counts for one block, a shard beyond the last, and more after all are there.
#[test]
fn a_second_count_and_shards_beyond_the_last_are_refused() {
    let job = job(2, 4, 64, &[("span", "64")]);
    let config = switch_config(&job, 0, &Below::workers(2), None);
    let mut switch = PROTOCOL.switch(Values::Elements, &config).unwrap();
    let mut shard = |shard, count| give(&mut *switch, packet(&job, Kind::Shard, header(0, 0, shard, count), &[]), 0);
    assert_eq!(shard(2, 3), Verdict::Consume);
    assert_eq!(shard(1, 2), Verdict::Drop(DropReason::BadField));
    assert_eq!(shard(3, 4), Verdict::Drop(DropReason::BadField));
    assert_eq!(shard(3, 0), Verdict::Drop(DropReason::BadField));
    assert_eq!(shard(2, 3), Verdict::Drop(DropReason::Duplicate));
    assert_eq!(shard(0, 0), Verdict::Consume);
    assert_eq!(shard(0, 0), Verdict::Drop(DropReason::Duplicate));
    assert_eq!(shard(1, 0), Verdict::Consume);
    assert_eq!(shard(1, 0), Verdict::Drop(DropReason::Duplicate));
}

/// A packet that is nearly right.
fn mutated(rng: &mut SplitMix) -> Vec<u8> {
    let job = job(3, 4, 16, &[]);
    let mut bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.next() as u8).collect();
    if bytes.len() >= HEADER_LEN && rng.chance(0.9) {
        Common { kind: 32 + rng.below(9) as u8, ..job.common() }.emit(&mut bytes);
        let spec = Spec::allreduce(2_000, DType::F32, ReduceOp::Sum);
        let header = Header {
            wid: ChildId(rng.below(4) as u16),
            idx: rng.below(5) as u16,
            phase: rng.below(8) as u32,
            shard: rng.below(70) as u32,
            count: rng.below(3) as u32,
            asks: rng.chance(0.5),
            is_finished: rng.chance(0.5),
            spec,
        };
        header.emit(&mut bytes);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Unauthorised clients know the key, and send from no member's port; to hosts they send as if from another rank.
    #[test]
    fn unauthorised_clients_never_change_a_sum(seed: u64) {
        let job = job(3, 4, 16, &[("sparse", "hash"), ("hash_slots", "16"), ("span", "100")]);
        let inputs = drawn(seed, 3, 2_000, 0.2, whole);
        let mut network = star(seed, LinkConfig::default(), &job);
        for (rank, input) in inputs.iter().enumerate() {
            network.submit(rank, super::collective(input, 2_000, ReduceOp::Sum)).unwrap();
        }
        let mut rng = SplitMix(seed);
        for step in 0..200 {
            network.run_until(at_ms(0) + tributary_proto::contract::time::Span::from_micros(10 * step));
            let bytes = mutated(&mut rng);
            let now = network.now;
            let mut copy = bytes.clone();
            let mut packet = PacketMut::new(&mut copy, Ecn::NotCapable);
            network.switches[0].pipelines[0].process(now, PortId::UNKNOWN, &mut packet, &NoQueues);
            let from = if rng.chance(0.5) { Addr::Worker(Rank(1)) } else { Addr::Switch(TreeId(1)) };
            let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
            prop_assert!(network.hosts[0].machine.handle_packet(now, from, packet).is_err());
        }
        let sum = super::result::<f32>(network.run_until_idle(at_ms(60_000)));
        prop_assert!(sum == expected(&inputs, ReduceOp::Sum));
    }

    /// A member that sends anything harms its own job at most: no machine panics.
    #[test]
    fn whatever_a_member_sends_no_machine_panics(seed: u64) {
        for storage in ["hash", "array"] {
            let job = job(3, 4, 16, &[("sparse", storage), ("hash_slots", "2"), ("spill", "2"), ("span", "100")]);
            let mut network = star(seed, LinkConfig::default(), &job);
            let inputs = drawn(seed, 3, 2_000, 0.2, whole);
            for (rank, input) in inputs.iter().enumerate() {
                network.submit(rank, super::collective(input, 2_000, ReduceOp::Sum)).unwrap();
            }
            let mut rng = SplitMix(seed);
            for step in 0..300 {
                network.run_until(at_ms(0) + tributary_proto::contract::time::Span::from_micros(step));
                let (mut bytes, now) = (mutated(&mut rng), network.now);
                let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
                let _ = network.hosts[0].machine.handle_packet(now, Addr::Switch(TreeId(0)), packet);
                let port = PortId(rng.below(3) as u16);
                let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
                network.switches[0].pipelines[0].process(now, port, &mut packet, &NoQueues);
            }
            network.run_until(at_ms(50));
        }
    }
}
