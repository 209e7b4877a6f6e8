//! A reduce-scatter is a reduce for each rank, and an all-gather a broadcast from each, all submitted together. If the
//! ranks' hosts sum, each link carries what a rank lacks and headers, and no rank's link more than another's.

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::tensors::{ElementTensor, VecStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::nodes::{Node, TraceEntry};
use crate::setup::{at_ms, check, collective, network, network_with};

const CHUNK: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    ReduceScatter,
    AllGather,
}

fn word(rank: u16, at: usize) -> i32 {
    (i32::from(rank) + 1) * 100_003 + at as i32
}

fn of<T: Element>(data: impl Iterator<Item = T>) -> ElementTensor<VecStorage<T>> {
    ElementTensor::new(VecStorage::new(data.collect()), ReduceOp::Sum)
}

/// A rank's collectives of an operation whose chunks have these sizes: sums of floats that are exact, and words.
fn operation(kind: Operation, rank: u16, chunks: &[usize]) -> Vec<Collective> {
    let one = |(root, &len): (u16, &usize)| {
        let data = (0..len).map(|at| word(rank, at));
        let tensor: Box<dyn Tensor> = match kind {
            Operation::ReduceScatter => Box::new(of(data.map(|word| word as f32)).to(Rank(root))),
            Operation::AllGather => Box::new(of(data).from(Rank(root))),
        };
        Collective { tensor, deadline: None }
    };
    (0..).zip(chunks).map(one).collect()
}

fn submit(net: &mut Network, kind: Operation, chunks: &[usize]) {
    for rank in 0..chunks.len() {
        let now = net.now;
        net.hosts[rank].machine.submit_together(now, operation(kind, rank as u16, chunks)).unwrap();
        net.kick(rank);
    }
}

/// What a rank has of an operation, whose collectives ended with these events.
fn check_operation(kind: Operation, rank: u16, chunks: &[usize], events: &[HostEvent]) {
    for ((root, &len), event) in (0u16..).zip(chunks).zip(events) {
        let HostEvent::Done { tensor, .. } = event else { panic!("{kind:?} failed at rank {rank}") };
        let is_wanted = match kind {
            Operation::ReduceScatter => rank == root,
            Operation::AllGather => rank != root,
        };
        let sum = |at: usize| (0..chunks.len() as u16).map(|rank| word(rank, at)).sum::<i32>() as f32;
        let expected = |at: usize| match kind {
            Operation::ReduceScatter => sum(at).to_be_bytes(),
            Operation::AllGather => word(root, at).to_be_bytes(),
        };
        let mut bytes = vec![0; 4 * len];
        tensor.read_output(0..len, &mut bytes);
        let expected: Vec<u8> = (0..len).flat_map(expected).collect();
        assert!(!is_wanted || bytes == expected, "{kind:?}: chunk {root} at rank {rank} of {}", chunks.len());
    }
}

#[test]
fn a_link_carries_what_a_rank_lacks() {
    for kind in [Operation::ReduceScatter, Operation::AllGather] {
        for world_size in [2, 3, 4] {
            let mut net = network(7, LinkConfig::default(), world_size, 0);
            net.record_trace();
            submit(&mut net, kind, &vec![CHUNK; world_size.into()]);
            net.run_until_idle(at_ms(10_000));
            let lacks = f64::from(world_size - 1) * 4.0 * CHUNK as f64;
            for host in 0..usize::from(world_size) {
                let carried = |is_on: &dyn Fn(&TraceEntry) -> bool| -> usize {
                    net.trace.iter().flatten().filter(|sent| is_on(sent)).map(|sent| sent.wire_len).sum()
                };
                let up = carried(&|sent| sent.from == Node::Host(host));
                for (way, bytes) in [("up", up), ("down", carried(&|sent| sent.to == Node::Host(host)))] {
                    // A block of 64 words has a header of 36 bytes, and a packet without words comes back.
                    let with_headers = lacks * (256.0 + 2.0 * 36.0) / 256.0;
                    let is_in = (lacks..=1.02 * with_headers).contains(&(bytes as f64));
                    assert!(is_in, "{kind:?} of {world_size}: {bytes} bytes {way} at {host}, and {lacks} are lacking");
                }
            }
        }
    }
}

#[test]
fn every_rank_gets_its_chunk_whatever_is_lost_and_however_long_chunks_are() {
    let chunks: [&[usize]; 5] = [&[10_000, 10_000], &[1, 3_000, 70], &[64, 0, 64, 65], &[5; 4], &[2_000, 1_999, 2_001]];
    for loss in [0.0, 0.05] {
        for chunks in chunks {
            let world_size = chunks.len() as u16;
            let link = LinkConfig { loss, ..LinkConfig::default() };
            let fixed = network_with(7, link, world_size, 0, &[("numbers", "fixed")]);
            for mut net in [network(7, link, world_size, 0), network(7, link, world_size, 2), fixed] {
                let kinds = [Operation::ReduceScatter, Operation::AllGather, Operation::ReduceScatter];
                for kind in kinds {
                    submit(&mut net, kind, chunks);
                    // Sums of all ranks before and after use the same slots.
                    for rank in 0..world_size {
                        net.submit(rank.into(), collective(rank, 0, 777, None)).unwrap();
                    }
                }
                let events = net.run_until_idle(at_ms(10_000));
                for (rank, events) in (0..world_size).zip(&events) {
                    assert_eq!(events.len(), 3 * (chunks.len() + 1), "{chunks:?}, loss {loss}");
                    for (kind, events) in kinds.into_iter().zip(events.chunks(chunks.len() + 1)) {
                        check_operation(kind, rank, chunks, events);
                        check(&events[chunks.len()], world_size, 0);
                    }
                }
            }
        }
    }
}
