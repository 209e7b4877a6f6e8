//! Sums of codes (`numbers=int8`): a byte an element up, one or two down, and the same bits on every rank whatever the
//! network does.

use tributary_numeric::{BlockExponent, CodeWidth, Combine, Element, ReduceOp, Scale, bf16, codec, codes, f16};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::options::{OptionError, Options};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::values::Values;
use tributary_proto::switchml::PROTOCOL;
use tributary_proto::tensors::{FingerprintTensor, Roster};

use crate::floats::{floats, lossy, reduce, reduce_to, vector};
use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::levels::tree;
use crate::setup::{at_ms, host_of, job, pipelines, star};

const WIDTHS: [CodeWidth; 2] = [CodeWidth::Eight, CodeWidth::Sixteen];
/// Elements of four bytes in a packet of these tests.
const PACKET: u16 = 16;

fn options(given: &[(&str, &str)]) -> Result<Options, OptionError> {
    let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    PROTOCOL.options.read(&given.collect())
}

fn job_of(world_size: u16, width: CodeWidth) -> JobConfig {
    let down = if width == CodeWidth::Eight { "8" } else { "16" };
    JobConfig { options: options(&[("numbers", "int8"), ("down", down)]).unwrap(), ..job(world_size, 8, PACKET) }
}

/// Elements of a block: as many as both ways have room for; in levels, as many as partial sums have room for.
fn block_elements(width: CodeWidth, levels: bool) -> usize {
    4 * usize::from(PACKET) / if levels || width == CodeWidth::Sixteen { 2 } else { 1 }
}

/// The scale on which ranks agree for a block.
fn agreed<T: Element>(blocks: &[&[T]], width: CodeWidth) -> Scale {
    let exponents = blocks.iter().map(|block| codec::exponent(block));
    Scale::codes(exponents.fold(BlockExponent::ZERO, BlockExponent::join), blocks.len() as u16, width)
}

fn blocks<T: Element>(inputs: &[Vec<T>], size: usize) -> impl Iterator<Item = Vec<&[T]>> {
    let elements = inputs[0].len();
    (0..elements)
        .step_by(size)
        .map(move |start| inputs.iter().map(|input| &input[start..(start + size).min(elements)]).collect())
}

/// The result as one switch makes it, at home.
fn at_home<T: Element>(inputs: &[Vec<T>], op: ReduceOp, width: CodeWidth, size: usize) -> Vec<u8> {
    let combine: &Combine = codes(width);
    let sum = |block: Vec<&[T]>| {
        let (scale, elements) = (agreed(&block, width), block[0].len());
        let (mut lanes, mut vector) = (vec![0; combine.lane_size * elements], vec![0; elements]);
        for (index, input) in block.iter().enumerate() {
            codec::encode(input, scale, &mut vector);
            if index == 0 { (combine.store)(&mut lanes, &vector) } else { (combine.add)(&mut lanes, &vector) }
        }
        (combine.finish)(&mut lanes, inputs.len() as u16);
        let (mut result, mut output) = (vec![0; combine.result_size * elements], vec![T::default(); elements]);
        (combine.load)(&lanes, &mut result);
        codec::decode(&result, scale, op, &mut output);
        output
    };
    vector(&blocks(inputs, size).flat_map(sum).collect::<Vec<T>>())
}

fn inputs<T: Element>(world_size: usize, elements: usize, of: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    (0..world_size).map(|rank| floats(rank, elements).into_iter().map(&of).collect()).collect()
}

#[test]
fn the_bits_are_the_same_whatever_is_lost_doubled_or_late() {
    fn check<T: Element>(of: impl Fn(f32) -> T + Copy) {
        for (world_size, width) in [1usize, 2, 3, 5, 8].into_iter().flat_map(|n| WIDTHS.map(|width| (n, width))) {
            let inputs = inputs(world_size, 500, of);
            for op in [ReduceOp::Sum, ReduceOp::Avg] {
                let expected = at_home(&inputs, op, width, block_elements(width, false));
                for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
                    let sum = reduce(&mut star(seed, link, &job_of(world_size as u16, width)), &inputs, op);
                    let dtype = T::DTYPE;
                    assert!(sum == expected, "{op} of {dtype} over {world_size} ranks, {width:?}, seed {seed}");
                }
            }
        }
    }
    check(|value| value);
    check(f16::from_f32);
    check(bf16::from_f32);
}

#[test]
fn in_levels_partial_sums_are_exact_and_the_root_alone_rounds() {
    for width in WIDTHS {
        let job = JobConfig { levels: true, ..job_of(6, width) };
        let inputs = inputs(6, 300, |value| value);
        for op in [ReduceOp::Sum, ReduceOp::Avg] {
            let expected = at_home(&inputs, op, width, block_elements(width, true));
            for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
                let sum = reduce(&mut tree(seed, link, &[2, 3], &job), &inputs, op);
                assert!(sum == expected, "{op}, {width:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn every_element_is_within_the_bound_or_not_finite_where_an_input_is_not() {
    for width in WIDTHS {
        let inputs = inputs(8, 800, |value| value);
        let sum = reduce(&mut star(1, lossy(), &job_of(8, width)), &inputs, ReduceOp::Sum);
        let size = block_elements(width, false);
        for (index, (block, sums)) in blocks(&inputs, size).zip(sum.chunks(4 * size)).enumerate() {
            let bound = agreed(&block, width).bound();
            for (i, bytes) in sums.as_chunks().0.iter().enumerate() {
                let got = f32::from_be_bytes(*bytes);
                let exact: f64 = block.iter().map(|input| f64::from(input[i])).sum();
                if block.iter().any(|input| !input[i].is_finite()) {
                    assert!(got.is_nan(), "block {index}, {i}: {got}");
                    continue;
                }
                let rounding = (exact.abs() + bound) * 2f64.powi(-24);
                assert!((f64::from(got) - exact).abs() <= bound + rounding, "block {index}, {i}: {got} for {exact}");
            }
        }
    }
}

#[test]
fn a_byte_an_element_takes_a_quarter_of_the_packets_of_f32() {
    let packets = |options: Options| {
        let mut network = star(1, LinkConfig::default(), &JobConfig { options, ..job(2, 8, PACKET) });
        reduce(&mut network, &vec![vec![1.0f32; 6_400]; 2], ReduceOp::Sum);
        network.hosts[0].machine.stats().packets_sent
    };
    // Each of the eight slots asks for an exponent first.
    assert_eq!(packets(options(&[("numbers", "fixed")]).unwrap()), 8 + 400);
    assert_eq!(packets(options(&[("numbers", "int8")]).unwrap()), 8 + 100);
    assert_eq!(packets(options(&[("numbers", "int8"), ("down", "16")]).unwrap()), 8 + 200);
}

/// A result of two bytes an element does not fit into the packet that completes it, also where one rank alone gets it.
#[test]
fn a_reduce_brings_the_sum_to_its_root() {
    for (width, levels) in WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)]) {
        let job = JobConfig { levels, ..job_of(6, width) };
        let inputs = inputs(6, 333, |value| value);
        let expected = at_home(&inputs, ReduceOp::Sum, width, block_elements(width, levels));
        for seed in 1..4 {
            let mut network = if levels { tree(seed, lossy(), &[2, 3], &job) } else { star(seed, lossy(), &job) };
            assert!(reduce_to(&mut network, &inputs, Rank(4)) == expected, "{width:?}, levels: {levels}, seed {seed}");
        }
    }
}

/// Small tensors of changing magnitude follow each other through the same slots: what ranks agreed on for one is the
/// next one's guess.
#[test]
fn a_guess_never_changes_a_result() {
    for (width, link) in WIDTHS.into_iter().flat_map(|width| [(width, LinkConfig::default()), (width, lossy())]) {
        let mut network = star(5, link, &job_of(3, width));
        for round in 0..30usize {
            let scale = [1.0, 1.0, 3e4, 0.0, 1e-5][round % 5];
            let inputs = inputs(3, 1 + round * 37 % 200, |value| if value.is_finite() { value * scale } else { value });
            let expected = at_home(&inputs, ReduceOp::Sum, width, block_elements(width, false));
            assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == expected, "round {round}, {width:?}");
        }
    }
}

#[test]
fn integers_are_summed_as_they_are() {
    let inputs: Vec<Vec<i32>> = (0..3).map(|rank| vec![i32::MAX - rank, rank, -7]).collect();
    for width in WIDTHS {
        let sum = reduce(&mut star(1, lossy(), &job_of(3, width)), &inputs, ReduceOp::Sum);
        assert_eq!(sum, vector(&[i32::MAX.wrapping_mul(3).wrapping_sub(3), 3, -21]));
    }
}

/// A simulation of fingerprints sends the packets of real elements, and proves each contribution once.
#[test]
fn fingerprints_travel_as_codes_do() {
    for width in WIDTHS {
        prove_with_fingerprints(&job_of(4, width));
    }
}

/// Sums fingerprints of 900 elements over a network that loses, doubles and reorders packets: each contribution is there
/// once.
pub fn prove_with_fingerprints(job: &JobConfig) {
    let (spec, world_size) = (Spec::allreduce(900, tributary_numeric::DType::F32, ReduceOp::Sum), job.world_size);
    let hosts = (0..world_size).map(|rank| host_of(Values::Fingerprint, job, rank)).collect();
    let mut network = Network::star(3, lossy(), hosts, pipelines(Values::Fingerprint, job, world_size));
    let roster = Roster::new(world_size);
    for rank in 0..world_size {
        let tensor = FingerprintTensor::new(spec, roster.clone(), rank, 7);
        network.submit(rank.into(), Collective { tensor: Box::new(tensor), deadline: None }).unwrap();
    }
    for events in network.run_until_idle(at_ms(1_000_000)) {
        let [HostEvent::Done { tensor, .. }] = &events[..] else { panic!("the collective failed") };
        let tensor: &dyn std::any::Any = &**tensor;
        let tensor = tensor.downcast_ref::<FingerprintTensor>().expect("a fingerprint");
        assert!(tensor.verification().is_complete(), "{world_size} ranks, {:?}", job.options);
    }
}

#[test]
fn what_codes_cannot_do_is_refused_with_a_sentence() {
    let refused = options(&[("down", "16")]).unwrap_err().to_string();
    assert_eq!(refused, "switchml: down=16 is for sums of codes: add numbers=int8, or leave down out");
    let odd = options(&[("numbers", "int4")]).unwrap_err().to_string();
    assert_eq!(odd, "switchml's option numbers is int4: it may be float or fixed or int8 or thc4");
    let codes = options(&[("numbers", "int8")]).unwrap();
    let largest = Spec::allreduce(5, tributary_numeric::DType::F32, ReduceOp::Max);
    assert_eq!(
        (PROTOCOL.check)(&largest, &codes).unwrap_err().to_string(),
        "switchml cannot do a max of 5 f32 elements in codes of 8 bits: choose numbers=float, or sum or average f32, f16 \
         or bf16"
    );
}
