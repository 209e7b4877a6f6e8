//! Bytes that nobody should have sent: counted under a reason, without a trace in any result.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::ids::{ChildId, PortId, TreeId};
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::wire::{COMMON_LEN, Common};
use tributary_proto::panama::PROTOCOL;
use tributary_proto::panama::wire::{HEADER_LEN, Header, Kind, NO_CAP};

use crate::harness::link::{LinkConfig, SplitMix};
use crate::harness::reduction::{at_ms, expected, in_place, output, star};
use crate::setup::{floats, job};

/// A packet that is nearly one of the job's.
fn mutated(rng: &mut SplitMix, key_known: bool) -> Vec<u8> {
    let job = job(3, 2, 8, 16);
    let mut bytes = vec![0; HEADER_LEN + 4 * rng.below(17) as usize];
    bytes.iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
    let key = if key_known { job.key } else { tributary_proto::contract::ids::JobKey(rng.next()) };
    let kind = Kind::ALL[rng.below(Kind::ALL.len() as u64) as usize] as u8;
    Common { protocol: PROTOCOL.code, kind, job: job.job, key }.emit(&mut bytes);
    bytes
}

#[test]
fn a_packet_belongs_to_the_tree_that_it_names_and_others_to_none() {
    let job = job(3, 2, 8, 16);
    let mut bytes = vec![0; HEADER_LEN];
    Common { protocol: PROTOCOL.code, kind: Kind::Lost as u8, job: job.job, key: job.key }.emit(&mut bytes);
    let header = Header {
        vid: 0,
        tid: 0,
        wnd_cap: NO_CAP,
        epoch: 0,
        wid: ChildId(0),
        spec: Spec::allreduce(16, DType::F32, ReduceOp::Sum),
        contributors: 1,
    };
    header.emit(&mut bytes);
    for (tid, tree) in [(0, Some(TreeId(0))), (1, Some(TreeId(1))), (2, None), (255, None)] {
        bytes[20] = tid;
        assert_eq!((PROTOCOL.tree_of)(&job, &bytes), tree, "tree {tid}");
    }
    assert_eq!((PROTOCOL.tree_of)(&job, &bytes[..COMMON_LEN]), None);
}

#[test]
fn garbage_from_unauthorised_clients_and_without_the_key_changes_nothing() {
    for seed in 0..10 {
        let mut rng = SplitMix(seed);
        let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 3_000)).collect();
        let mut network = star(seed, LinkConfig::default(), &job(3, 2, 8, 16));
        for (rank, input) in inputs.iter().enumerate() {
            network.submit(rank, in_place(input, ReduceOp::Sum)).unwrap();
        }
        for us in 0..300u64 {
            network.run_until(tributary_proto::contract::time::Time(us * 5_000_000));
            let shard = TreeId(rng.below(2) as u16);
            let bytes = mutated(&mut rng, false);
            network.inject_to_switch(0, shard, PortId(rng.below(3) as u16), &bytes);
            network.inject_to_host(rng.below(3) as usize, Addr::Switch(shard), &bytes);
            // Who knows the key, but is not a member.
            let bytes = mutated(&mut rng, true);
            network.inject_to_switch(0, shard, PortId::UNKNOWN, &bytes);
        }
        let sum = output(network.run_until_idle(at_ms(1_000_000)), tributary_numeric::DType::F32, 3_000);
        assert!(sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(3)), "seed {seed}");
        assert!(crate::setup::retransmissions(&network) == 0);
    }
}

/// What a member may say about recovery makes the others work in vain, and never a wrong sum.
#[test]
fn a_member_that_complains_without_reason_costs_time_and_no_bit() {
    for seed in 0..10 {
        let mut rng = SplitMix(seed);
        let job = job(3, 2, 8, 16);
        let inputs: Vec<Vec<f32>> = (0..3).map(|rank| floats(rank, 3_000)).collect();
        let mut network = star(seed, LinkConfig::default(), &job);
        for (rank, input) in inputs.iter().enumerate() {
            network.submit(rank, in_place(input, ReduceOp::Sum)).unwrap();
        }
        for us in 0..100u64 {
            network.run_until(tributary_proto::contract::time::Time(us * 20_000_000));
            let (port, tree) = (rng.below(3) as u16, rng.below(2) as u16);
            let kinds = [Kind::Lost, Kind::Gone, Kind::Fin, Kind::Contribution];
            let kind = kinds[rng.below(4) as usize];
            let mut bytes = vec![0; HEADER_LEN];
            Common { kind: kind as u8, ..job.common() }.emit(&mut bytes);
            let spec =
                tributary_proto::contract::tensor::Spec::allreduce(3_000, tributary_numeric::DType::F32, ReduceOp::Sum);
            let wid = tributary_proto::contract::ids::ChildId(port);
            let (vid, epoch) = (rng.below(100) as u32, rng.below(4) as u16);
            Header { vid, tid: tree as u8, wnd_cap: 0, epoch, wid, spec, contributors: 1 }.emit(&mut bytes);
            network.inject_to_switch(0, TreeId(tree), PortId(port), &bytes);
        }
        let sum = output(network.run_until_idle(at_ms(1_000_000)), tributary_numeric::DType::F32, 3_000);
        assert!(sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(3)), "seed {seed}");
    }
}
