//! Sums of floats as floats, and of every other type: the bits depend on the tree alone, and 16-bit floats take two
//! bytes.

use tributary_numeric::{Combine, DType, Element, ReduceOp, bf16, f16, native};
use tributary_proto::aggregation::ordered::reference_of;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::levels::tree;
use crate::setup::{at_ms, in_place, job, numbers, star};

/// Links that lose, double and reorder packets.
pub fn lossy() -> LinkConfig {
    LinkConfig { loss: 0.05, duplicate: 0.05, reorder: 0.1, ..LinkConfig::default() }
}

fn job_of(world_size: u16) -> JobConfig {
    JobConfig { options: numbers("float"), ..job(world_size, 8, 16) }
}

/// Runs one collective over the ranks' data; gives the output's big-endian bytes, the same on every rank.
pub fn reduce<T: Element>(network: &mut Network, inputs: &[Vec<T>], op: ReduceOp) -> Vec<u8> {
    for (rank, input) in inputs.iter().enumerate() {
        network.submit(rank, in_place(input.clone(), op)).unwrap();
    }
    let outputs: Vec<Vec<u8>> = network
        .run_until_idle(at_ms(1_000_000))
        .into_iter()
        .map(|events| {
            let [HostEvent::Done { tensor, .. }] = &events[..] else { panic!("the collective failed") };
            let mut bytes = vec![0; T::DTYPE.size() * inputs[0].len()];
            tensor.read_output(0..inputs[0].len(), &mut bytes);
            bytes
        })
        .collect();
    assert!(outputs.iter().all(|output| output == &outputs[0]), "the same bits on every rank");
    outputs.into_iter().next().unwrap()
}

/// Sums one array from each rank at `root` alone, with success on all ranks; returns the bytes of its result.
pub fn reduce_to<T: Element>(network: &mut Network, inputs: &[Vec<T>], root: Rank) -> Vec<u8> {
    for (rank, input) in inputs.iter().enumerate() {
        let tensor = ElementTensor::new(InPlaceStorage::new(input.clone()), ReduceOp::Sum).to(root);
        network.submit(rank, Collective { tensor: Box::new(tensor), deadline: None }).unwrap();
    }
    let events = network.run_until_idle(at_ms(1_000_000));
    assert!(events.iter().all(|events| matches!(events[..], [HostEvent::Done { .. }])), "the reduce failed");
    let [HostEvent::Done { tensor, .. }] = &events[usize::from(root.0)][..] else { unreachable!("it is done") };
    let mut bytes = vec![0; T::DTYPE.size() * inputs[0].len()];
    tensor.read_output(0..inputs[0].len(), &mut bytes);
    bytes
}

/// A rank's data as vectors of packets hold it.
pub fn vector<T: Element>(input: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; T::DTYPE.size() * input.len()];
    tributary_numeric::codec::write_native(input, &mut bytes);
    bytes
}

/// The result of one switch, computed at home along the tree over the ranks.
fn at_home<T: Element>(inputs: &[Vec<T>], op: ReduceOp) -> Vec<u8> {
    let combine = native(T::DTYPE, op).unwrap();
    let vectors: Vec<Vec<u8>> = inputs.iter().map(|input| vector(input)).collect();
    finished(combine, reference_of(&vectors, combine), op, inputs.len(), vectors[0].len())
}

fn finished(combine: &Combine, mut lanes: Vec<u8>, op: ReduceOp, world_size: usize, len: usize) -> Vec<u8> {
    if op == ReduceOp::Avg {
        (combine.finish)(&mut lanes, world_size as u16);
    }
    let mut bytes = vec![0; len];
    (combine.load)(&lanes, &mut bytes);
    bytes
}

/// Floats of very different magnitudes, whose sum depends on the order, and a few that are not numbers.
pub fn floats(rank: usize, elements: usize) -> Vec<f32> {
    let value = |i: usize| match (rank * 31 + i * 7) % 97 {
        0 => f32::INFINITY,
        1 if rank == 1 => f32::NAN,
        2 => -0.0,
        odd => (odd as f32 - 48.5) * 10f32.powi((i + rank) as i32 % 9 - 4),
    };
    (0..elements).map(value).collect()
}

#[test]
fn a_small_value_beside_a_large_one_is_summed() {
    let mut network = star(1, LinkConfig::default(), &job_of(2));
    let sum = reduce(&mut network, &[vec![2.5f32, 1e9, 1e-4, 1e6], vec![2.5, 1e9, -1e-4, 1e6]], ReduceOp::Sum);
    assert_eq!(sum, vector(&[5.0f32, 2e9, 0.0, 2e6]));
    let negative = reduce(&mut star(1, LinkConfig::default(), &job_of(2)), &vec![vec![-0.0f32]; 2], ReduceOp::Sum);
    assert_eq!(negative, vector(&[-0.0f32]), "IEEE 754's sum of two negative zeros");
}

#[test]
fn the_first_block_takes_one_round_trip() {
    let job = job_of(4);
    let mut network = star(1, LinkConfig::default(), &job);
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| floats(rank, 10)).collect();
    reduce(&mut network, &inputs, ReduceOp::Sum);
    assert!(network.hosts.iter().all(|host| host.machine.stats().packets_sent == 1), "no exponent is asked for");
}

#[test]
fn the_bits_are_those_of_the_tree_whatever_is_lost_or_late() {
    for world_size in [1u16, 2, 3, 5, 8, 13] {
        let inputs: Vec<Vec<f32>> = (0..usize::from(world_size)).map(|rank| floats(rank, 500)).collect();
        for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod] {
            let expected = at_home(&inputs, op);
            for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy()), (4, lossy())] {
                let sum = reduce(&mut star(seed, link, &job_of(world_size)), &inputs, op);
                assert!(sum == expected, "{op} over {world_size} ranks, seed {seed}");
            }
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_size_of_packets() {
    let inputs: Vec<Vec<f32>> = (0..5).map(|rank| floats(rank, 777)).collect();
    for elements_per_packet in [2, 16, 358] {
        let job = JobConfig { elements_per_packet, ..job_of(5) };
        assert!(reduce(&mut star(3, lossy(), &job), &inputs, ReduceOp::Sum) == at_home(&inputs, ReduceOp::Sum));
    }
}

/// Every type with every operator that it takes, against the same along the tree at home.
#[test]
fn every_type_and_operator_is_summed_under_loss() {
    fn check<T: Element>(make: impl Fn(f32) -> T) {
        let inputs: Vec<Vec<T>> = (0..3).map(|rank| floats(rank, 100).into_iter().map(&make).collect()).collect();
        for op in ReduceOp::ALL.into_iter().filter(|&op| op.takes(T::DTYPE)) {
            let sum = reduce(&mut star(7, lossy(), &job_of(3)), &inputs, op);
            assert!(sum == at_home(&inputs, op), "{op} of {}", T::DTYPE);
        }
    }
    check(|value| value);
    check(f64::from);
    check(f16::from_f32);
    check(bf16::from_f32);
    check(|value| value as i8);
    check(|value| value as i16);
    check(|value| value as i32);
    check(|value| value as i64);
    check(|value| value as u8);
    assert!(!ReduceOp::Band.takes(DType::F32));
}

#[test]
fn sixteen_bit_floats_take_half_the_packets() {
    let packets = |network: &Network| network.hosts[0].machine.stats().packets_sent;
    let (mut wide, mut narrow) =
        (star(1, LinkConfig::default(), &job_of(2)), star(1, LinkConfig::default(), &job_of(2)));
    reduce(&mut wide, &vec![vec![1.0f32; 3_200]; 2], ReduceOp::Sum);
    reduce(&mut narrow, &vec![vec![bf16::ONE; 3_200]; 2], ReduceOp::Sum);
    assert_eq!((packets(&wide), packets(&narrow)), (200, 100));
}

/// Partial sums of 16-bit floats are not rounded between switches: 256 and 256 ones are 512, which in bfloat16, one at
/// a time or rack by rack, they would not be.
#[test]
fn in_levels_sixteen_bit_floats_are_rounded_once() {
    let job = JobConfig { levels: true, ..job_of(6) };
    for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
        // Ranks are dealt out to the racks like cards: 0, 2, 4 and 1, 3, 5.
        let inputs: Vec<Vec<bf16>> =
            [256.0, 1.0, 1.0, 1.0, 1.0, 1.0].map(|value| vec![bf16::from_f32(value); 100]).into();
        let sum = reduce(&mut tree(seed, link, &[2, 3], &job), &inputs, ReduceOp::Sum);
        let expected = bf16::from_f32(261.0);
        assert_ne!(bf16::from_f32(257.0), bf16::from_f32(258.0), "what rounding in a rack would lose");
        assert!(sum == vector(&[expected; 100]), "seed {seed}");
    }
}

#[test]
fn in_levels_the_bits_are_those_of_the_tree() {
    let job = JobConfig { levels: true, ..job_of(6) };
    let inputs: Vec<Vec<f32>> = (0..6).map(|rank| floats(rank, 500)).collect();
    let combine = native(DType::F32, ReduceOp::Sum).unwrap();
    let rack = |ranks: [usize; 3]| {
        let lanes = reference_of(&ranks.map(|rank| vector(&inputs[rank])), combine);
        let mut partial = vec![0; lanes.len()];
        (combine.load_partial)(&lanes, &mut partial);
        partial
    };
    let lanes = reference_of(&[rack([0, 2, 4]), rack([1, 3, 5])], combine);
    let expected = finished(combine, lanes, ReduceOp::Sum, 6, 4 * 500);
    for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
        assert!(reduce(&mut tree(seed, link, &[2, 3], &job), &inputs, ReduceOp::Sum) == expected, "seed {seed}");
    }
}
