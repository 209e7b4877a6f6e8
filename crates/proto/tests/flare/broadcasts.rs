//! Broadcasts in every design, in an order of each host's own, and in racks: all get the root's words, whoever sends
//! headers.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::nodes::Node;
use crate::harness::reduction::{at_ms, star};
use crate::setup::{job, lossy, racks};

const SIZES: [usize; 5] = [1, 0, 16, 17, 1_003];
const CHOICES: [&[(&str, &str)]; 6] = [
    &[("design", "single")],
    &[("design", "multi:3")],
    &[("design", "tree")],
    &[("stagger", "false")],
    &[("stagger", "true")],
    &[("reproducible", "ranks")],
];

fn words(rank: u16, elements: usize) -> Vec<i32> {
    (0..elements as i32).map(|i| (i ^ i32::from(rank)).wrapping_mul(0x9E37_79B9_u32 as i32)).collect()
}

fn from(root: u16, values: Vec<i32>) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values), ReduceOp::Sum).from(Rank(root));
    Collective { tensor: Box::new(tensor), deadline: None }
}

fn broadcast(network: &mut Network) {
    let world_size = network.hosts.len() as u16;
    for (op, &elements) in SIZES.iter().enumerate() {
        for rank in 0..world_size {
            network.submit(usize::from(rank), from(op as u16 % world_size, words(rank, elements))).unwrap();
        }
    }
    for (rank, events) in network.run_until_idle(at_ms(1_000_000)).iter().enumerate() {
        assert_eq!(events.len(), SIZES.len());
        for (op, (event, &elements)) in events.iter().zip(&SIZES).enumerate() {
            let HostEvent::Done { tensor, .. } = event else { panic!("rank {rank} failed") };
            let mut bytes = vec![0; 4 * elements];
            tensor.read_output(0..elements, &mut bytes);
            let expected: Vec<u8> =
                words(op as u16 % world_size, elements).iter().flat_map(|word| word.to_be_bytes()).collect();
            assert!(bytes == expected, "rank {rank} of {world_size}, {elements} words");
        }
    }
}

#[test]
fn every_rank_gets_the_roots_words_in_every_design_under_loss() {
    for (seed, given) in (0..).zip(CHOICES) {
        for world_size in [1, 2, 3, 7] {
            broadcast(&mut star(seed, lossy(), &job(world_size, 8, 16, given)));
        }
        broadcast(&mut racks(seed, lossy(), &job(5, 8, 16, given), &[&[0, 3], &[1, 2, 4]]));
    }
}

/// Where what a switch brings are several vectors of one tree over all ranks, others than the root send zeros.
#[test]
fn others_send_headers_but_where_sums_are_the_same_in_every_rack() {
    for (given, others_bring) in [(&[][..], 0), (&[("reproducible", "ranks")], 4 * 16 * 20)] {
        let mut network = racks(1, LinkConfig::default(), &job(4, 8, 16, given), &[&[0, 3], &[1, 2]]);
        network.record_trace();
        for rank in 0..4 {
            network.submit(rank, from(2, words(rank as u16, 16 * 20))).unwrap();
        }
        network.run_until_idle(at_ms(10_000));
        let sent = |rank: usize| -> usize {
            let trace = network.trace.as_ref().unwrap().iter();
            trace.filter(|entry| entry.from == Node::Host(rank)).map(|entry| entry.wire_len).sum()
        };
        assert_eq!([0, 1, 3].map(|rank| sent(2) - sent(rank)), [4 * 16 * 20 - others_bring; 3]);
    }
}
