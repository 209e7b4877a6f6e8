//! What an allreduce through fixed point promises, for every element type: docs/numerics.md.

mod common;

use common::{allreduce, floats, pairs};
use proptest::prelude::*;
use tributary_numeric::{BlockExponent, Element, ReduceOp, Scale, bf16, codec, f16};

/// Appendix E's example: 1.56 + 4.23 = 5.79; the error is at most n/f.
#[test]
fn appendix_e_example() {
    let (output, scale) = allreduce(&[vec![1.56f32], vec![4.23f32]], ReduceOp::Sum);
    assert_eq!(scale.shift, 31 - 2 - 3, "4.23 <= 2^3, two ranks");
    assert!((f64::from(output[0]) - (f64::from(1.56f32) + f64::from(4.23f32))).abs() <= scale.bound() + 2.5e-7);
}

#[test]
fn exponent_is_the_smallest_power_of_two_that_holds_every_element() {
    for (x, m) in [(1.0f32, 0), (1.5, 1), (2.0, 1), (-4.23, 3), (f32::MAX, 128), (f32::MIN_POSITIVE, -126)] {
        assert_eq!(codec::exponent(&[0.0, x, 0.0]), BlockExponent { exponent: m, non_finite: false }, "{x}");
    }
    for (bits, m) in [(1, -149), (2, -148), (3, -147), (4, -147), (5, -146), (0x40_0000, -127), (0x7f_ffff, -126)] {
        assert_eq!(codec::exponent(&[f32::from_bits(bits)]).exponent, m, "{bits:#x} * 2^-149");
    }
    assert_eq!(codec::exponent(&[f16::from_f32(-1.5)]).exponent, 1);
    assert_eq!(codec::exponent(&[f16::from_bits(1)]).exponent, -24);
    assert_eq!(codec::exponent(&[f16::MAX]).exponent, 16);
    assert_eq!(codec::exponent(&[bf16::from_bits(1)]).exponent, -133);
    assert_eq!(codec::exponent(&[bf16::MIN]).exponent, 128);
    assert_eq!(codec::exponent::<f32>(&[]), BlockExponent::ZERO);
    assert_eq!(codec::exponent(&[0.0f32, -0.0]), BlockExponent::ZERO);
    assert_eq!(codec::exponent(&[i32::MIN]), BlockExponent::ZERO);
    assert_eq!(codec::exponent(&[f32::NAN, 3.0]), BlockExponent { exponent: 2, non_finite: true });
    assert_eq!(codec::exponent(&[bf16::NEG_INFINITY]), BlockExponent { non_finite: true, ..BlockExponent::ZERO });
}

/// Theorem 2: the words of `world_size` ranks that all have the block's largest magnitude add up without overflow.
#[test]
fn no_number_of_ranks_overflows() {
    for world_size in 1..=Scale::MAX_WORLD_SIZE {
        for non_finite in [false, true] {
            for exponent in [i16::MIN, -149, -127, -1, 0, 31, 127, 128] {
                let block = BlockExponent { exponent, non_finite };
                let scale = Scale::new(block, world_size);
                let largest_word = 1i64 << (scale.shift + i32::from(exponent.max(BlockExponent::MIN)));
                let limit = 1i64 << (31 - scale.bits_of_counters());
                assert!(largest_word * i64::from(world_size) < limit, "{world_size} ranks, {block:?}");
                assert!(u32::from(world_size) < 1 << scale.counter_bits || !non_finite, "counters hold every rank");
                if !non_finite && exponent != i16::MIN {
                    assert!(scale.bound() <= block.paper_bound(world_size), "{world_size} ranks, {block:?}");
                    let twice = Scale { shift: scale.shift + 1, ..scale };
                    assert!(largest_word * 2 * i64::from(world_size) >= limit, "{twice:?} would do as well");
                }
            }
        }
    }
}

/// Theorem 2 with real data: every rank brings exactly 2^m, and the sum is exact.
#[test]
fn largest_magnitudes_of_all_ranks_add_up_exactly() {
    for world_size in [1u16, 2, 3, 7, 8, 31, 32, 1000, 1023, 1024, 16_384] {
        for exponent in [-149, -126, -1, 0, 100] {
            let x = 2f64.powi(exponent) as f32;
            let ranks = vec![vec![x, -x, 0.0]; usize::from(world_size)];
            let (output, _) = allreduce(&ranks, ReduceOp::Sum);
            let sum = (f64::from(x) * f64::from(world_size)) as f32;
            assert_eq!(output, [sum, -sum, 0.0], "{world_size} ranks, 2^{exponent}");
            assert_eq!(allreduce(&ranks, ReduceOp::Avg).0, [x, -x, 0.0], "{world_size} ranks, 2^{exponent}");
        }
    }
}

#[test]
fn sums_beyond_the_type_become_infinite_and_averages_do_not() {
    let ranks = vec![vec![f32::MAX, f32::MIN]; 3];
    assert_eq!(allreduce(&ranks, ReduceOp::Sum).0, [f32::INFINITY, f32::NEG_INFINITY]);
    let (average, scale) = allreduce(&ranks, ReduceOp::Avg);
    assert!((f64::from(average[0]) - f64::from(f32::MAX)).abs() <= scale.bound() / 3.0 + 2f64.powi(103));
    let (output, _) = allreduce(&vec![vec![f16::MAX, f16::from_f32(-60000.0)]; 2], ReduceOp::Sum);
    assert_eq!(output, [f16::INFINITY, f16::NEG_INFINITY]);
}

#[test]
fn integers_wrap_and_averages_truncate_towards_zero() {
    let ranks = [vec![i32::MIN, i32::MAX, -7, 7, i32::MIN], vec![i32::MIN, 1, 0, 0, 0]];
    assert_eq!(allreduce(&ranks, ReduceOp::Sum).0, [0, i32::MIN, -7, 7, i32::MIN]);
    assert_eq!(allreduce(&ranks, ReduceOp::Avg).0, [0, i32::MIN / 2, -3, 3, i32::MIN / 2]);
    let thirds = [vec![i32::MAX, -2], vec![0, 0], vec![0, 0]];
    assert_eq!(allreduce(&thirds, ReduceOp::Avg).0, [715_827_882, 0]);
}

#[test]
fn zeros_come_out_positive() {
    for ranks in [[vec![-0.0f32], vec![-0.0]], [vec![1.0], vec![-1.0]], [vec![-1e-30, 1.0], vec![0.0, 1.0]]] {
        assert_eq!(allreduce(&ranks, ReduceOp::Sum).0[0].to_bits(), 0);
    }
}

/// One rounding, not two: 1 + 2^-11 is a tie of binary16, and the 2^-30 above it decides.
#[test]
fn sixteen_bit_results_are_rounded_once() {
    let scale = Scale { shift: 30, counter_bits: 0, world_size: 1, codes: None };
    let tie = (1 << 30) + (1 << 19);
    for (word, bits) in [(tie - 1, 0x3c00u16), (tie, 0x3c00), (tie + 1, 0x3c01)] {
        let mut output = [f16::default()];
        codec::decode(&i32::to_be_bytes(word), scale, ReduceOp::Sum, &mut output);
        assert_eq!(output[0].to_bits(), bits, "{word:#x}");
        codec::decode(&i32::to_be_bytes(-word), scale, ReduceOp::Sum, &mut output);
        assert_eq!(output[0].to_bits(), bits | 0x8000, "-{word:#x}");
    }
    let tie = (1 << 30) + (1 << 22);
    for (word, bits) in [(tie - 1, 0x3f80u16), (tie, 0x3f80), (tie + 1, 0x3f81)] {
        let mut output = [bf16::default()];
        codec::decode(&i32::to_be_bytes(word), scale, ReduceOp::Sum, &mut output);
        assert_eq!(output[0].to_bits(), bits, "{word:#x}");
    }
}

#[test]
fn hostile_scales_do_not_panic() {
    for exponent in [i16::MIN, -32_000, -150, 129, 32_000, i16::MAX] {
        for non_finite in [false, true] {
            for world_size in [1, 1023, 1024, 16_384] {
                let scale = Scale::new(BlockExponent { exponent, non_finite }, world_size);
                let mut vector = [0; 12];
                codec::encode(&[f32::MAX, f32::NAN, -1e-45], scale, &mut vector);
                codec::decode(&vector, scale, ReduceOp::Avg, &mut [0f32; 3]);
            }
        }
    }
}

/// The half unit of the result's last place that its own rounding may add; infinities allow for all that is too large.
fn within<T: Element + Into<f64>>(
    result: T,
    exact: f64,
    bound: f64,
    precision: i32,
    smallest: f64,
    largest: f64,
) -> bool {
    let result: f64 = result.into();
    if result.is_infinite() {
        return exact.abs() + bound >= largest;
    }
    let rounding = (result.abs().max(exact.abs()) * 2f64.powi(-precision)).max(smallest / 2.0);
    (result - exact).abs() <= bound + rounding
}

macro_rules! theorem_1 {
    ($name:ident, $type:ty, $precision:literal, $smallest:expr) => {
        proptest! {
            /// Theorem 1, with the paper's `f`, against sums in binary64; and the same for averages.
            #[test]
            fn $name(ranks in floats::<$type>(), average: bool) {
                let world_size = ranks.len() as u16;
                let op = if average { ReduceOp::Avg } else { ReduceOp::Sum };
                let block = ranks.iter().fold(BlockExponent::ZERO, |block, rank| block.join(codec::exponent(rank)));
                let divisor = if average { f64::from(world_size) } else { 1.0 };
                let (output, _) = allreduce(&ranks, op);
                for (i, &result) in output.iter().enumerate() {
                    let exact = ranks.iter().map(|rank| f64::from(rank[i])).sum::<f64>() / divisor;
                    let bound = block.paper_bound(world_size) / divisor;
                    prop_assert!(
                        within(result, exact, bound, $precision, $smallest, f64::from(<$type>::MAX)),
                        "element {i}: {result} for {exact}, bound {bound:e}",
                    );
                }
            }
        }
    };
}

theorem_1!(theorem_1_holds_for_f32, f32, 24, 2f64.powi(-149));
theorem_1!(theorem_1_holds_for_f16, f16, 11, 2f64.powi(-24));
theorem_1!(theorem_1_holds_for_bf16, bf16, 8, 2f64.powi(-133) * (1.0 + 2f64.powi(-16)));

proptest! {
    /// Infinities and NaNs come out where plain sums have them, and nowhere else.
    #[test]
    fn non_finite_elements_keep_their_positions(mut ranks in floats::<f32>(), holes in pairs(64, 12), kinds in pairs(3, 12)) {
        for ((rank, element), (kind, _)) in holes.into_iter().zip(kinds) {
            let rank = rank % ranks.len();
            let element = element % ranks[rank].len();
            ranks[rank][element] = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN][kind];
        }
        let (output, scale) = allreduce(&ranks, ReduceOp::Sum);
        for (i, &result) in output.iter().enumerate() {
            let exact: f64 = ranks.iter().map(|rank| f64::from(rank[i])).sum();
            if exact.is_finite() {
                prop_assert!(within(result, exact, scale.bound(), 24, 2f64.powi(-149), f32::MAX.into()));
            } else {
                prop_assert_eq!(result.is_nan(), exact.is_nan());
                prop_assert!(exact.is_nan() || f64::from(result) == exact);
            }
        }
    }

    /// Every rank non-finite at once, with the most ranks: the counters do not run into each other.
    #[test]
    fn counters_never_overflow(world_size in 1..=Scale::MAX_WORLD_SIZE_WITH_SIGNS, positive in 0..=1023u16, x in -1f32..=1.0) {
        let positive = positive.min(world_size);
        let scale = Scale::new(BlockExponent { exponent: 0, non_finite: true }, world_size);
        for other in [f32::NEG_INFINITY, f32::NAN, x] {
            let mut sum = 0u32;
            for rank in 0..world_size {
                let mut vector = [0; 4];
                codec::encode(&[if rank < positive { f32::INFINITY } else { other }], scale, &mut vector);
                sum = sum.wrapping_add(u32::from_be_bytes(vector));
            }
            let mut output = [0f32];
            codec::decode(&sum.to_be_bytes(), scale, ReduceOp::Sum, &mut output);
            let expected = match (positive, world_size - positive) {
                (0, _) if other.is_finite() => None,
                (0, _) => Some(other),
                (_, 0) => Some(f32::INFINITY),
                _ if other.is_finite() => Some(f32::INFINITY),
                _ => Some(f32::NAN),
            };
            match expected {
                Some(expected) => prop_assert!(output[0] == expected || output[0].is_nan() && expected.is_nan()),
                None => prop_assert!(within(output[0], f64::from(x) * f64::from(world_size), scale.bound(), 24, 0.0, 2e38)),
            }
        }
    }

    /// The same with more ranks, whose one counter holds no sign: what is not finite is NaN, and the rest stays a sum.
    #[test]
    fn one_counter_never_overflows(
        world_size in Scale::MAX_WORLD_SIZE_WITH_SIGNS + 1..=Scale::MAX_WORLD_SIZE, bad in any::<u16>(), x in -1f32..=1.0,
    ) {
        let bad = bad % (world_size + 1);
        let scale = Scale::new(BlockExponent { exponent: 0, non_finite: true }, world_size);
        for element in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let mut sum = 0u32;
            for rank in 0..world_size {
                let mut vector = [0; 4];
                codec::encode(&[if rank < bad { element } else { x }], scale, &mut vector);
                sum = sum.wrapping_add(u32::from_be_bytes(vector));
            }
            let mut output = [0f32];
            codec::decode(&sum.to_be_bytes(), scale, ReduceOp::Sum, &mut output);
            match bad {
                0 => prop_assert!(within(output[0], f64::from(x) * f64::from(world_size), scale.bound(), 24, 0.0, 2e38)),
                _ => prop_assert!(output[0].is_nan()),
            }
        }
    }

    /// Integer sums are exact modulo 2^32.
    #[test]
    fn integers_are_exact(ranks in prop::collection::vec(prop::collection::vec(any::<i32>(), 5), 1..9)) {
        let (output, _) = allreduce(&ranks, ReduceOp::Sum);
        let (average, _) = allreduce(&ranks, ReduceOp::Avg);
        for i in 0..5 {
            let sum = ranks.iter().fold(0i32, |sum, rank| sum.wrapping_add(rank[i]));
            prop_assert_eq!(output[i], sum);
            prop_assert_eq!(average[i], sum / ranks.len() as i32);
        }
    }
}
