//! 16-bit floats in fixed point (§4.6): two bytes each way, brought there and back by the switch, and the same bits as
//! if hosts had encoded four.

use tributary_numeric::{BlockExponent, DType, Element, ReduceOp, Scale, bf16, codec, f16};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{ChildId, GroupId, PortId};
use tributary_proto::contract::packet::{Ecn, PacketMut};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::{FINGERPRINT_LEN, SCALED_FINGERPRINTS, Values};
use tributary_proto::contract::wire::Common;
use tributary_proto::switchml::wire::{ExponentHint, HEADER_LEN, Header, Kind};
use tributary_proto::tensors::{FingerprintTensor, Roster};

use crate::floats::{floats, lossy, reduce};
use crate::harness::Network;
use crate::harness::encoded::encoded_by_hosts;
use crate::harness::link::LinkConfig;
use crate::levels::tree;
use crate::setup::{job, pipelines, star};

fn inputs<T: Element>(world_size: usize, elements: usize, of: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    (0..world_size).map(|rank| floats(rank, elements).into_iter().map(&of).collect()).collect()
}

/// The same without infinities and NaNs.
fn finite<T: Element>(world_size: usize, elements: usize, of: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    inputs(world_size, elements, |value| of(if value.is_finite() { value } else { 0.25 }))
}

#[test]
fn the_bits_are_those_of_words_that_hosts_encode() {
    fn check<T: Element>(of: impl Fn(f32) -> T + Copy) {
        for world_size in [1usize, 2, 3, 5, 8] {
            for inputs in [inputs(world_size, 500, of), finite(world_size, 500, of)] {
                for op in [ReduceOp::Sum, ReduceOp::Avg] {
                    // A packet of 64 bytes: 32 elements.
                    let expected = encoded_by_hosts(&inputs, op, 32);
                    for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
                        let sum = reduce(&mut star(seed, link, &job(world_size as u16, 8, 16)), &inputs, op);
                        assert!(sum == expected, "{op} of {} over {world_size} ranks, seed {seed}", T::DTYPE);
                    }
                }
            }
        }
    }
    check(f16::from_f32);
    check(bf16::from_f32);
}

#[test]
fn in_levels_partial_sums_are_words_and_the_bits_are_the_same() {
    let job = JobConfig { levels: true, ..job(6, 8, 16) };
    for inputs in [inputs(6, 300, bf16::from_f32), finite(6, 300, bf16::from_f32)] {
        for op in [ReduceOp::Sum, ReduceOp::Avg] {
            // What goes from switch to switch takes four bytes an element, so that a packet has room for 16.
            let expected = encoded_by_hosts(&inputs, op, 16);
            for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
                let sum = reduce(&mut tree(seed, link, &[2, 3], &job), &inputs, op);
                assert!(sum == expected, "{op}, seed {seed}");
            }
        }
    }
}

/// Blocks of half the width: those of jobs that want accumulators of half the size.
#[test]
fn where_a_job_wants_half_the_memory_packets_are_half_full() {
    let given = [("numbers", "fixed"), ("narrow_blocks", "half")].map(|(name, value)| (name.into(), value.into()));
    let options = tributary_proto::switchml::PROTOCOL.options.read(&given.into()).unwrap();
    let job = JobConfig { options, ..job(3, 8, 16) };
    let inputs = inputs(3, 300, f16::from_f32);
    let mut network = star(1, lossy(), &job);
    assert!(reduce(&mut network, &inputs, ReduceOp::Sum) == encoded_by_hosts(&inputs, ReduceOp::Sum, 16));
}

#[test]
fn every_element_is_within_the_bound_of_the_exact_sum() {
    let inputs = finite(8, 800, bf16::from_f32);
    let sum = reduce(&mut star(1, lossy(), &job(8, 8, 16)), &inputs, ReduceOp::Sum);
    for (block, sums) in sum.chunks(64).enumerate() {
        let of_block = |rank: usize| &inputs[rank][32 * block..(32 * (block + 1)).min(800)];
        let exponents = (0..8).map(|rank| codec::exponent(of_block(rank)));
        let scale = Scale::new(exponents.fold(BlockExponent::ZERO, BlockExponent::join), 8);
        for (i, bytes) in sums.as_chunks().0.iter().enumerate() {
            let (got, exact) =
                (bf16::from_be_bytes(*bytes), (0..8).map(|rank| of_block(rank)[i].to_f64()).sum::<f64>());
            // Half a unit of the last of bfloat16's eight bits.
            let rounding = (exact.abs() + scale.bound()) * 2f64.powi(-8);
            assert!((got.to_f64() - exact).abs() <= scale.bound() + rounding, "block {block}, {i}: {got} for {exact}");
        }
    }
}

/// All collectives of a network go through the same slots: what ranks agreed on for one type is the next one's guess.
#[test]
fn small_tensors_of_both_widths_follow_each_other_through_the_same_slots() {
    for link in [LinkConfig::default(), lossy()] {
        let mut network = star(5, link, &job(3, 4, 16));
        for round in 0..30usize {
            let elements = 1 + round * 37 % 130;
            let scale = [1.0, 1.0, 3e4, 0.0, 1e-5][round % 5];
            let narrow = |value: f32| bf16::from_f32(if value.is_finite() { value * scale } else { scale });
            let narrow = inputs(3, elements, narrow);
            let sum = reduce(&mut network, &narrow, ReduceOp::Sum);
            assert!(sum == encoded_by_hosts(&narrow, ReduceOp::Sum, 32), "round {round}: bf16");
            let wide = inputs(3, elements, |value| if value.is_finite() { value * scale } else { scale });
            let sum = reduce(&mut network, &wide, ReduceOp::Sum);
            assert!(sum == encoded_by_hosts(&wide, ReduceOp::Sum, 16), "round {round}: f32");
        }
    }
}

#[test]
fn they_take_half_the_packets_of_f32() {
    let packets = |network: &Network| network.hosts[0].machine.stats().packets_sent;
    let (mut wide, mut narrow) =
        (star(1, LinkConfig::default(), &job(2, 8, 16)), star(1, LinkConfig::default(), &job(2, 8, 16)));
    reduce(&mut wide, &vec![vec![1.0f32; 3_200]; 2], ReduceOp::Sum);
    reduce(&mut narrow, &vec![vec![bf16::ONE; 3_200]; 2], ReduceOp::Sum);
    // Each of the eight slots asks for an exponent first.
    assert_eq!((packets(&wide), packets(&narrow)), (8 + 200, 8 + 100));
}

/// A rank that sends a block without having agreed on its exponent cannot make the switch guess one.
#[test]
fn a_block_without_an_agreed_exponent_is_dropped() {
    let job = job(1, 4, 16);
    let mut switch = pipelines(Values::Elements, &job, 1).remove(0);
    for (kind, elements, expected) in [
        (Kind::Update, 8, Verdict::Drop(DropReason::Unexpected)),
        (Kind::Probe, 8, Verdict::Drop(DropReason::Unexpected)),
        (Kind::Probe, 0, Verdict::Group(GroupId(0))),
    ] {
        let mut bytes = [0; HEADER_LEN + 16];
        Common { kind: 0, ..job.common() }.emit(&mut bytes);
        kind.put(&mut bytes);
        let spec = Spec::allreduce(8, DType::BF16, ReduceOp::Sum);
        let word = ExponentHint::known(BlockExponent::ZERO);
        Header { wid: ChildId(0), idx: 0, word, phase: 0, spec }.emit(&mut bytes);
        let len = HEADER_LEN + 2 * elements;
        let mut packet = PacketMut { bytes: &mut bytes, len, wire_len: len, ecn: Ecn::NotCapable };
        let verdict = switch.process(Time::ZERO, PortId(0), &mut packet, &NoQueues);
        assert_eq!(verdict, expected, "{kind:?} of {elements} elements");
    }
}

/// What a simulation proves of a sum includes the scale that its switches used.
#[test]
fn a_fingerprint_that_a_switch_scaled_otherwise_is_faulty() {
    let spec = Spec::allreduce(32, DType::F16, ReduceOp::Sum);
    let roster = Roster::new(2);
    let exponent = |exponent| BlockExponent { exponent, non_finite: false };
    let (agreed, other) = (Scale::new(exponent(16), 2), Scale::new(exponent(15), 2));
    for (scales, is_right) in [([agreed; 2], true), ([agreed, other], false), ([other; 2], false)] {
        let mut tensors = [0, 1].map(|rank| FingerprintTensor::new(spec, roster.clone(), rank, 7));
        let (mut lanes, mut vector) = ([0; FINGERPRINT_LEN], [0; FINGERPRINT_LEN]);
        tensors[0].read_input(0..32, &mut vector);
        (SCALED_FINGERPRINTS.store)(&mut lanes, &vector, scales[0]);
        tensors[1].read_input(0..32, &mut vector);
        (SCALED_FINGERPRINTS.add)(&mut lanes, &vector, scales[1]);
        (SCALED_FINGERPRINTS.load)(&lanes, &mut vector, agreed, spec.op);
        tensors[0].write_scaled(0..32, agreed, &vector);
        assert_eq!(tensors[0].verification().is_complete(), is_right, "{scales:?}");
    }
}
