//! What an allreduce through codes of 8 bits promises, for every float type: docs/numerics.md.

mod common;

use common::floats;
use proptest::prelude::*;
use tributary_numeric::{BlockExponent, CodeWidth, Element, ReduceOp, Scale, bf16, codec, codes, f16};

const WIDTHS: [CodeWidth; 2] = [CodeWidth::Eight, CodeWidth::Sixteen];

/// One block through exponent, codes, the switch's sum and back, with the ranks in this order.
fn allreduce<T: Element>(ranks: &[&Vec<T>], op: ReduceOp, width: CodeWidth) -> (Vec<T>, Scale) {
    let (world_size, elements) = (ranks.len() as u16, ranks[0].len());
    let block = ranks.iter().fold(BlockExponent::ZERO, |block, rank| block.join(codec::exponent(rank)));
    let (scale, combine) = (Scale::codes(block, world_size, width), codes(width));
    let (mut lanes, mut vector) = (vec![0; combine.lane_size * elements], vec![0; combine.wire_size * elements]);
    for (index, rank) in ranks.iter().enumerate() {
        codec::encode(rank, scale, &mut vector);
        if index == 0 { (combine.store)(&mut lanes, &vector) } else { (combine.add)(&mut lanes, &vector) }
    }
    (combine.finish)(&mut lanes, world_size);
    let mut result = vec![0; combine.result_size * elements];
    (combine.load)(&lanes, &mut result);
    let mut output = vec![T::default(); elements];
    codec::decode(&result, scale, op, &mut output);
    (output, scale)
}

/// As Theorem 1: the distance from the exact sum is at most the bound and half of the result's least bit.
fn bounded<T: Element + Into<f64>>(
    ranks: &[Vec<T>],
    precision: i32,
    least: f64,
    largest: f64,
) -> Result<(), TestCaseError> {
    let ranks: Vec<&Vec<T>> = ranks.iter().collect();
    for width in WIDTHS {
        for op in [ReduceOp::Sum, ReduceOp::Avg] {
            let (output, scale) = allreduce(&ranks, op, width);
            let divisor = if op == ReduceOp::Avg { ranks.len() as f64 } else { 1.0 };
            for (index, result) in output.into_iter().enumerate() {
                let exact = ranks.iter().map(|rank| -> f64 { rank[index].into() }).sum::<f64>() / divisor;
                let (result, bound): (f64, f64) = (result.into(), scale.bound() / divisor);
                if result.is_infinite() {
                    prop_assert!(exact.abs() + bound >= largest, "{width:?} {op}: infinite for {exact:e}");
                    continue;
                }
                let rounding = (exact.abs() + bound) * 2f64.powi(-precision) + least;
                let error = (result - exact).abs();
                prop_assert!(error <= bound + rounding, "{width:?} {op}: {result:e} for {exact:e}, bound {bound:e}");
            }
        }
    }
    Ok(())
}

/// What the codes of a block lose.
fn loss_of<T: Element>(block: &[T], scale: Scale, loss: &mut [T]) {
    let (mut vector, mut same) = (vec![1; scale.sent_len(block.len())], vec![2; scale.sent_len(block.len())]);
    codec::encode_with_loss(block, scale, &mut vector, loss);
    codec::encode(block, scale, &mut same);
    assert_eq!(vector, same, "the packet does not depend on it");
}

proptest! {
    #[test]
    fn sums_of_binary32_are_within_the_bound(ranks in floats::<f32>()) {
        bounded(&ranks, 24, f32::from_bits(1).into(), f32::MAX.into())?;
    }

    #[test]
    fn sums_of_binary16_are_within_the_bound(ranks in floats::<f16>()) {
        bounded(&ranks, 11, f16::from_bits(1).into(), f16::MAX.into())?;
    }

    #[test]
    fn sums_of_bfloat16_are_within_the_bound(ranks in floats::<bf16>()) {
        bounded(&ranks, 8, bf16::from_bits(1).into(), bf16::MAX.into())?;
    }

    /// Sums contain what is not finite where the sum of floats does, whatever the order of the ranks.
    #[test]
    fn what_is_not_finite_keeps_its_position(
        ranks in floats::<f32>(),
        odd in proptest::collection::vec((0usize..40, 0usize..24, 0usize..3), 0..5),
    ) {
        let mut ranks = ranks;
        let (world_size, elements) = (ranks.len(), ranks[0].len());
        for (rank, index, which) in odd {
            ranks[rank % world_size][index % elements] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][which];
        }
        for width in WIDTHS {
            let (output, _) = allreduce(&ranks.iter().collect::<Vec<_>>(), ReduceOp::Avg, width);
            let (reversed, _) = allreduce(&ranks.iter().rev().collect::<Vec<_>>(), ReduceOp::Avg, width);
            for (index, result) in output.iter().enumerate() {
                prop_assert_eq!(result.to_bits(), reversed[index].to_bits());
                let is_finite = ranks.iter().all(|rank| rank[index].is_finite());
                prop_assert_eq!(result.is_nan(), !is_finite, "element {} is {}", index, result);
            }
        }
    }
}

/// No number of ranks overflows lanes of 16 bits, nor the narrower steps 8 bits; and a larger code or a narrower step
/// would.
#[test]
fn no_number_of_ranks_overflows() {
    for world_size in 1..=Scale::MAX_WORLD_SIZE {
        let (code, step) = (Scale::largest_code(world_size), Scale::code_step(world_size));
        let largest = u32::from(code) * u32::from(world_size);
        assert!(code >= 1 && largest <= i16::MAX as u32, "{world_size} ranks: {code}");
        assert!(code == 127 || largest + u32::from(world_size) > i16::MAX as u32, "{world_size} ranks: {code}");
        assert!(largest <= 127 * u32::from(step) && largest > 127 * u32::from(step - 1), "{world_size} ranks: {step}");
        assert!(world_size > 258 || (code, step) == (127, world_size));
    }
}

#[test]
fn largest_magnitudes_of_all_ranks_add_up_exactly() {
    for world_size in [1usize, 2, 3, 8, 127, 258] {
        for exponent in [-149, -126, 0, 100] {
            let x = 2f64.powi(exponent) as f32;
            let block = vec![x, -x, 0.0, -0.0];
            for width in WIDTHS {
                let ranks = vec![&block; world_size];
                let sum = (f64::from(x) * world_size as f64) as f32;
                assert_eq!(allreduce(&ranks, ReduceOp::Sum, width).0, [sum, -sum, 0.0, 0.0], "{world_size} ranks");
                assert_eq!(allreduce(&ranks, ReduceOp::Avg, width).0, [x, -x, 0.0, 0.0], "{world_size} ranks");
            }
        }
    }
}

#[test]
fn zeros_come_out_positive() {
    let (minus, tiny) = (vec![-0.0f32, 1.0], vec![-1e-30, 1.0]);
    for width in WIDTHS {
        for ranks in [[&minus, &minus], [&tiny, &minus]] {
            assert_eq!(allreduce(&ranks, ReduceOp::Sum, width).0[0].to_bits(), 0);
        }
    }
}

/// What is fed back arrives: after some steps, what was delivered and what is left over are what ranks brought, to within
/// the rounding of binary32; and nothing is left of what is not finite.
#[test]
fn what_codes_lose_arrives_with_error_feedback() {
    let brought = [1.0f32, 0.3, -0.004, 0.0, 1e-30];
    let (mut delivered, mut left) = ([0f64; 5], vec![0f32; 5]);
    for _ in 0..1000 {
        let input: Vec<f32> = brought.iter().zip(&left).map(|(x, left)| x + left).collect();
        let (output, scale) = allreduce(&[&input], ReduceOp::Sum, CodeWidth::Sixteen);
        loss_of(&input, scale, &mut left);
        for (sum, x) in delivered.iter_mut().zip(output) {
            *sum += f64::from(x);
        }
    }
    for (index, (x, sum)) in brought.into_iter().zip(delivered).enumerate() {
        let error = (1000.0 * f64::from(x) - sum - f64::from(left[index])).abs();
        assert!(error <= 1000.0 * 2f64.powi(-24), "{x:e}: {sum:e} and {:e}", left[index]);
        assert!(left[index].abs() <= 1.1 / 254.0, "{left:?}");
    }
    assert!(delivered[2] < -3.9, "without feedback it would be {}", -1000.0 / 127.0);

    let odd = [f32::NAN, f32::INFINITY, 0.7];
    loss_of(&odd, Scale::codes(codec::exponent(&odd), 2, CodeWidth::Eight), &mut left[..3]);
    assert_eq!((left[0], left[1], left[2] != 0.0), (0.0, 0.0, true));
    loss_of(&odd, Scale::new(codec::exponent(&odd), 2), &mut left[..3]);
    assert_eq!(left[..3], [0.0; 3], "words lose nothing that counts");
}

/// A rank that was told a smaller exponent than its block has sends codes without meaning, but nothing panics.
#[test]
fn hostile_scales_do_not_panic() {
    for exponent in [i16::MIN, -32_000, -150, 129, i16::MAX] {
        for (world_size, width) in [1, 258, 259, 16_384].into_iter().flat_map(|n| WIDTHS.map(|width| (n, width))) {
            let scale = Scale::codes(BlockExponent { exponent, non_finite: true }, world_size, width);
            codec::encode(&[f32::MAX, f32::NAN, -1e-45], scale, &mut [0; 3]);
            codec::decode(&vec![0x80; scale.result_len(3)], scale, ReduceOp::Avg, &mut [0f32; 3]);
        }
    }
}
