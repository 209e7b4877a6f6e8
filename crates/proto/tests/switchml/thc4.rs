//! Sums of rotated codes (`numbers=thc4`): half a byte an element up, one byte down for up to 8 ranks and two above, and the
//! same bits on every rank whatever the network does.

use std::ops::Range;

use tributary_numeric::{
    BlockExponent, CodeWidth, DType, Element, ReduceOp, Scale, bf16, codec, f16, padded, rotated, splitmix64,
};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::tensors::{ElementTensor, Operands, Storage};

use crate::codes::prove_with_fingerprints;
use crate::floats::{floats, lossy, reduce, reduce_to, vector};
use crate::harness::link::LinkConfig;
use crate::levels::tree;
use crate::setup::{at_ms, job, numbers, star};

/// Elements of four bytes in a packet of these tests.
const PACKET: u16 = 16;

fn job_of(world_size: u16) -> JobConfig {
    JobConfig { options: numbers("thc4"), ..job(world_size, 8, PACKET) }
}

/// Elements of a block: the largest power of two whose sums fill a packet at most, on their way down and between switches.
fn block_elements(world_size: usize, levels: bool) -> usize {
    4 * usize::from(PACKET) / if levels || world_size > 8 { 2 } else { 1 }
}

/// The result as one switch makes it, at home, of the blocks of a job from this one on; they are counted.
fn at_home<T: Element>(inputs: &[Vec<T>], op: ReduceOp, size: usize, first: &mut u64) -> Vec<u8> {
    let (world_size, elements) = (inputs.len() as u16, inputs[0].len());
    let combine = rotated(CodeWidth::of_levels(world_size));
    let mut output = vec![T::default(); elements];
    for range in (0..elements).step_by(size).map(|start| start..(start + size).min(elements)) {
        let norms = inputs.iter().map(|input| codec::norm(&input[range.clone()]));
        let norm = norms.fold(BlockExponent::ZERO, BlockExponent::join);
        let signs = splitmix64(*first);
        let scale = |rank: u64| Scale::rotated(norm, world_size, signs, splitmix64(signs ^ (rank + 1)));
        let mut vector = vec![0; padded(range.len()) / 2];
        let mut lanes = vec![0; combine.lane_size * vector.len()];
        for (rank, input) in inputs.iter().enumerate() {
            codec::encode(&input[range.clone()], scale(rank as u64), &mut vector);
            (combine.add)(&mut lanes, &vector);
        }
        let mut result = vec![0; combine.result_size * vector.len()];
        (combine.load)(&lanes, &mut result);
        codec::decode(&result, scale(0), op, &mut output[range]);
        *first += 1;
    }
    vector(&output)
}

/// In the second half are some elements that are not finite.
fn inputs<T: Element>(world_size: usize, elements: usize, of: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    let finite = |(at, x): (usize, f32)| of(if x.is_finite() || at > elements / 2 { x } else { 7.0 });
    (0..world_size).map(|rank| floats(rank, elements).into_iter().enumerate().map(finite).collect()).collect()
}

#[test]
fn the_bits_are_the_same_whatever_is_lost_doubled_or_late() {
    fn check<T: Element>(of: impl Fn(f32) -> T + Copy) {
        for world_size in [1usize, 2, 3, 5, 8, 9] {
            let inputs = inputs(world_size, 777, of);
            for op in [ReduceOp::Sum, ReduceOp::Avg] {
                let expected = at_home(&inputs, op, block_elements(world_size, false), &mut 0);
                for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
                    let sum = reduce(&mut star(seed, link, &job_of(world_size as u16)), &inputs, op);
                    assert!(sum == expected, "{op} of {} over {world_size} ranks, seed {seed}", T::DTYPE);
                }
            }
        }
    }
    check(|value| value);
    check(f16::from_f32);
    check(bf16::from_f32);
}

#[test]
fn in_levels_partial_sums_are_exact() {
    let job = JobConfig { levels: true, ..job_of(6) };
    let inputs = inputs(6, 300, |value| value);
    for op in [ReduceOp::Sum, ReduceOp::Avg] {
        let expected = at_home(&inputs, op, block_elements(6, true), &mut 0);
        for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
            assert!(reduce(&mut tree(seed, link, &[2, 3], &job), &inputs, op) == expected, "{op}, seed {seed}");
        }
    }
}

/// No result fits into the packet that completes it, also where one rank alone gets it.
#[test]
fn a_reduce_brings_the_sum_to_its_root() {
    for levels in [false, true] {
        let job = JobConfig { levels, ..job_of(6) };
        let inputs = inputs(6, 333, |value| value);
        let expected = at_home(&inputs, ReduceOp::Sum, block_elements(6, levels), &mut 0);
        for seed in 1..4 {
            let mut network = if levels { tree(seed, lossy(), &[2, 3], &job) } else { star(seed, lossy(), &job) };
            assert!(reduce_to(&mut network, &inputs, Rank(4)) == expected, "levels: {levels}, seed {seed}");
        }
    }
}

/// Small tensors follow each other through the same slots, some with the norm of the one before: the next one's guess.
#[test]
fn a_guess_never_changes_a_result() {
    for link in [LinkConfig::default(), lossy()] {
        let (mut network, mut block) = (star(5, link, &job_of(3)), 0);
        for round in 0..40usize {
            let scale = [1.0, 1.0, 3e4, 0.0, 1e-5, f32::NAN, f32::INFINITY][round % 7];
            let elements = [5, 5, 64, 65, 129][round % 5];
            let inputs = vec![vec![scale; elements], vec![1.0; elements], vec![-2.0; elements]];
            let expected = at_home(&inputs, ReduceOp::Sum, block_elements(3, false), &mut block);
            assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == expected, "round {round}");
        }
    }
}

#[test]
fn what_is_not_finite_keeps_its_position_and_the_rest_of_its_block_is_zero() {
    let mut inputs = vec![vec![1.0f32; 200]; 3];
    (inputs[1][70], inputs[2][90]) = (f32::INFINITY, f32::NAN);
    let sum = reduce(&mut star(1, lossy(), &job_of(3)), &inputs, ReduceOp::Sum);
    for (index, bytes) in sum.as_chunks().0.iter().enumerate() {
        let x = f32::from_be_bytes(*bytes);
        match index {
            70 | 90 => assert!(x.is_nan(), "{index}: {x}"),
            64..128 => assert!(x.to_bits() == 0, "{index}: {x}"),
            _ => assert!((x - 3.0).abs() < 3.0, "{index}: {x}"),
        }
    }
}

#[test]
fn half_a_byte_an_element_takes_a_quarter_of_the_packets_of_f32() {
    let packets = |kind, world_size| {
        let mut network = star(1, LinkConfig::default(), &JobConfig { options: numbers(kind), ..job_of(world_size) });
        reduce(&mut network, &vec![vec![1.0f32; 6_400]; world_size.into()], ReduceOp::Sum);
        network.hosts[0].machine.stats().packets_sent
    };
    // Each of the eight slots asks for a norm first.
    assert_eq!(packets("fixed", 2), 8 + 400);
    assert_eq!(packets("thc4", 2), 8 + 100);
    assert_eq!(packets("thc4", 9), 8 + 200);
}

/// A rank's elements, and where what its codes lose is written.
struct WithLoss {
    data: Vec<f32>,
    loss: Vec<f32>,
}

impl Storage for WithLoss {
    type Element = f32;

    fn len(&self) -> usize {
        self.data.len()
    }
    fn is_separate(&self) -> bool {
        false
    }
    fn input(&self, block: Range<usize>) -> &[f32] {
        &self.data[block]
    }
    fn output(&self, block: Range<usize>) -> &[f32] {
        &self.data[block]
    }
    fn output_mut(&mut self, block: Range<usize>) -> &mut [f32] {
        &mut self.data[block]
    }
    fn operands(&mut self, block: Range<usize>) -> Operands<'_, f32> {
        Operands::Same(&mut self.data[block])
    }
    fn loss(&mut self, block: Range<usize>) -> Option<Operands<'_, f32>> {
        Some(Operands::Separate(&self.data[block.clone()], &mut self.loss[block]))
    }
}

/// What ranks bring is what arrives and what they know to have lost: the loss is that of the very codes that were sent.
#[test]
fn what_codes_lose_and_what_they_bring_is_what_there_was() {
    let inputs = inputs(3, 400, |value| if value.is_finite() { value } else { 0.0 });
    let mut network = star(1, lossy(), &job_of(3));
    for (rank, data) in inputs.iter().enumerate() {
        let storage = WithLoss { data: data.clone(), loss: vec![9.0; 400] };
        let tensor = Box::new(ElementTensor::new(storage, ReduceOp::Sum));
        network.submit(rank, Collective { tensor, deadline: None }).unwrap();
    }
    let mut all = vec![0f64; 400];
    let mut sums = Vec::new();
    for events in network.run_until_idle(at_ms(1_000_000)) {
        let [HostEvent::Done { tensor, .. }] = &events[..] else { panic!("the collective failed") };
        let tensor: &dyn std::any::Any = &**tensor;
        let storage = tensor.downcast_ref::<ElementTensor<WithLoss>>().expect("its own tensor").storage();
        all.iter_mut().zip(&storage.loss).for_each(|(sum, loss)| *sum += f64::from(*loss));
        sums = storage.data.clone();
    }
    for (index, (loss, sum)) in all.into_iter().zip(sums).enumerate() {
        let exact: f64 = inputs.iter().map(|input| f64::from(input[index])).sum();
        let block = &inputs[2][index / 64 * 64..(index / 64 * 64 + 64).min(400)];
        let largest = block.iter().fold(1.0f32, |largest, x| largest.max(x.abs()));
        assert!((loss + f64::from(sum) - exact).abs() < 1e-4 * f64::from(largest), "{index}: {loss} {sum} {exact}");
    }
}

/// A simulation of fingerprints sends the packets of real elements, and proves each contribution once.
#[test]
fn fingerprints_travel_as_rotated_codes_do() {
    for world_size in [4, 9] {
        prove_with_fingerprints(&job_of(world_size));
    }
}

#[test]
fn integers_are_summed_as_they_are() {
    let inputs: Vec<Vec<i32>> = (0..3).map(|rank| vec![i32::MAX - rank, rank, -7]).collect();
    let sum = reduce(&mut star(1, lossy(), &job_of(3)), &inputs, ReduceOp::Sum);
    assert_eq!(sum, vector(&[i32::MAX.wrapping_mul(3).wrapping_sub(3), 3, -21]));
}

#[test]
fn what_rotated_codes_cannot_do_is_refused_with_a_sentence() {
    let given = [("numbers", "thc4"), ("down", "16")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(
        PROTOCOL.options.read(&given.into()).unwrap_err().to_string(),
        "switchml: with numbers=thc4 the ranks decide how wide sums are, 16 bits above 8 ranks: leave down out"
    );
    let largest = Spec::allreduce(5, DType::F32, ReduceOp::Max);
    assert_eq!(
        (PROTOCOL.check)(&largest, &numbers("thc4")).unwrap_err().to_string(),
        "switchml cannot do a max of 5 f32 elements in codes of 4 bits: choose numbers=float, or sum or average f32, f16 \
         or bf16"
    );
}
