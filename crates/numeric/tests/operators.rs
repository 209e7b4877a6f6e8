//! What each operator gives on each type at hosts: docs/numerics.md, "Types and operators".

mod common;

use common::AnyBits;
use proptest::prelude::*;
use tributary_numeric::{DType, Element, ReduceOp, bf16, codec, f16};

/// The elements of several ranks, folded in the order of the ranks, as a ring does.
fn fold<T: Element>(op: ReduceOp, ranks: &[&[T]]) -> Vec<T> {
    let (first, others) = ranks.split_first().expect("a rank");
    let mut result = first.to_vec();
    let mut bytes = vec![0; size_of_val(*first)];
    for rank in others {
        codec::write_native(rank, &mut bytes);
        let mut separate = result.clone();
        codec::accumulate_native(op, &result, &bytes, &mut separate);
        codec::accumulate_native_in_place(op, &mut result, &bytes);
        assert_eq!(bits(&separate), bits(&result), "{op} out of place and in place");
    }
    if op == ReduceOp::Avg {
        codec::divide(&mut result, ranks.len() as u16);
    }
    result
}

/// Big-endian bytes, in which NaNs and zeros differ.
fn bits<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(elements)];
    codec::write_native(elements, &mut bytes);
    bytes
}

#[test]
fn integers_wrap() {
    assert_eq!(fold(ReduceOp::Sum, &[&[i8::MAX, -128], &[1, -1]]), [i8::MIN, 127]);
    assert_eq!(fold(ReduceOp::Sum, &[&[250u8], &[10]]), [4]);
    assert_eq!(fold(ReduceOp::Sum, &[&[i64::MAX], &[2]]), [i64::MIN + 1]);
    assert_eq!(fold(ReduceOp::Prod, &[&[i16::MAX, 300], &[2, 300]]), [-2, 24_464]);
    assert_eq!(fold(ReduceOp::Prod, &[&[1i64 << 40], &[1 << 30]]), [0]);
}

#[test]
fn averages_of_integers_truncate_towards_zero() {
    assert_eq!(fold(ReduceOp::Avg, &[&[-7i8, 7], &[0, 0]]), [-3, 3]);
    assert_eq!(fold(ReduceOp::Avg, &[&[7u8, 200], &[0, 100]]), [3, 22], "200 + 100 wraps to 44");
    assert_eq!(fold(ReduceOp::Avg, &[&[i64::MAX - 1, -3], &[1, 0]]), [i64::MAX / 2, -1]);
    assert_eq!(fold(ReduceOp::Avg, &[&[-32_768i16], &[0], &[0]]), [-10_922]);
}

#[test]
fn bitwise_operators_are_those_of_the_bits() {
    assert_eq!(fold(ReduceOp::Band, &[&[0b1100u8], &[0b1010]]), [0b1000]);
    assert_eq!(fold(ReduceOp::Bor, &[&[0b1100i16], &[0b1010]]), [0b1110]);
    assert_eq!(fold(ReduceOp::Bxor, &[&[0b1100i64, -1], &[0b1010, 1]]), [0b0110, -2]);
}

#[test]
#[should_panic(expected = "bxor has no meaning for f32")]
fn floats_have_no_bitwise_operators() {
    fold(ReduceOp::Bxor, &[&[1f32], &[1.0]]);
}

#[test]
#[should_panic(expected = "max of f32 does not travel as fixed point")]
fn fixed_point_has_no_maximum() {
    let scale = tributary_numeric::Scale::integer(2);
    codec::decode(&[0; 4], scale, ReduceOp::Max, &mut [0f32]);
}

#[test]
#[should_panic(expected = "sum of i64 does not travel as fixed point")]
fn long_integers_have_no_fixed_point() {
    codec::encode(&[0i64], tributary_numeric::Scale::integer(2), &mut [0; 4]);
}

/// 1 + 2^-8 is halfway between two bf16s: one at a time they vanish, and rounding happens at each combination.
#[test]
fn sixteen_bit_floats_are_rounded_once_a_combination() {
    let [one, tiny] = [bf16::ONE, bf16::from_f32(2f32.powi(-8))];
    assert_eq!(fold(ReduceOp::Sum, &[&[one], &[tiny], &[tiny]]), [one]);
    assert_eq!(fold(ReduceOp::Sum, &[&[tiny], &[tiny], &[one]]), [bf16::from_f32(1.0 + 2f32.powi(-7))]);
    assert_eq!(fold(ReduceOp::Prod, &[&[f16::MAX], &[f16::from_f32(2.0)]]), [f16::INFINITY]);
    assert_eq!(fold(ReduceOp::Avg, &[&[f16::from_f32(1.0)], &[f16::from_f32(2.0)]]), [f16::from_f32(1.5)]);
}

/// Sums of one NaN and another, of opposite infinities, and products of zero with infinity.
#[test]
fn every_nan_that_an_operator_makes_is_the_canonical_one() {
    fn check<T: AnyBits>(canonical: u64, [zero, infinity, minus_infinity]: [T; 3]) {
        let nans: Vec<T> = T::SPECIALS.iter().map(|&bits| T::from_bits64(bits)).filter(|x| x != x).collect();
        assert_eq!(nans.len(), 5);
        for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
            for &nan in &nans {
                for other in nans.iter().copied().chain([zero, infinity]) {
                    for pair in [[nan, other], [other, nan]] {
                        let result = fold(op, &[&[pair[0]; 19], &[pair[1]; 19]]);
                        assert!(
                            result.iter().all(|x| x.bits() == canonical),
                            "{op} of {pair:?}: {:x}",
                            result[0].bits()
                        );
                    }
                }
            }
        }
        assert_eq!(fold(ReduceOp::Sum, &[&[infinity], &[minus_infinity]])[0].bits(), canonical);
        assert_eq!(fold(ReduceOp::Prod, &[&[zero], &[minus_infinity]])[0].bits(), canonical);
    }
    check::<f32>(0x7fc0_0000, [0.0, f32::INFINITY, f32::NEG_INFINITY]);
    check::<f64>(0x7ff8_0000_0000_0000, [0.0, f64::INFINITY, f64::NEG_INFINITY]);
    check::<f16>(0x7e00, [f16::ZERO, f16::INFINITY, f16::NEG_INFINITY]);
    check::<bf16>(0x7fc0, [bf16::ZERO, bf16::INFINITY, bf16::NEG_INFINITY]);
}

#[test]
fn zeros_keep_the_sign_that_ieee_754_gives_them() {
    let folded = |op, a: f32, b: f32| fold(op, &[&[a], &[b]])[0].to_bits();
    assert_eq!(folded(ReduceOp::Sum, -0.0, -0.0), (-0f32).to_bits());
    assert_eq!(folded(ReduceOp::Avg, -0.0, -0.0), (-0f32).to_bits());
    assert_eq!(folded(ReduceOp::Sum, -0.0, 0.0), 0);
    assert_eq!(folded(ReduceOp::Max, -0.0, 0.0), 0);
    assert_eq!(folded(ReduceOp::Max, 0.0, -0.0), 0);
    assert_eq!(folded(ReduceOp::Min, 0.0, -0.0), (-0f32).to_bits());
    assert_eq!(folded(ReduceOp::Prod, -0.0, 3.0), (-0f32).to_bits());
}

/// Element by element against Rust's own arithmetic, in a wider type.
macro_rules! matches_rust {
    ($name:ident, $type:ty, $sum:expr, $product:expr) => {
        proptest! {
            #[test]
            fn $name(pair in (1usize..70).prop_flat_map(|n| (<$type>::blocks(n), <$type>::blocks(n)))) {
                let (a, b) = pair;
                let expect = |op, rust: &dyn Fn($type, $type) -> $type| {
                    let got = fold(op, &[&a, &b]);
                    for ((got, &a), &b) in got.iter().zip(&a).zip(&b) {
                        let expected = rust(a, b);
                        assert!(
                            got.bits() == expected.bits() || (*got != *got && expected != expected),
                            "{op} of {a:?} and {b:?}: {got:?}, not {expected:?}"
                        );
                    }
                };
                expect(ReduceOp::Sum, &$sum);
                expect(ReduceOp::Prod, &$product);
                let nan = |a: $type, b: $type| if a != a { Some(a) } else { Some(b).filter(|b| b != b) };
                let ordered = |a: $type, b: $type| a < b || a == b && is_minus(a);
                expect(ReduceOp::Min, &|a, b| nan(a, b).unwrap_or(if ordered(a, b) { a } else { b }));
                expect(ReduceOp::Max, &|a, b| nan(a, b).unwrap_or(if ordered(a, b) { b } else { a }));
            }
        }
    };
}

/// True of a negative zero among others.
fn is_minus<T: AnyBits>(x: T) -> bool {
    x.bits() >> (8 * size_of::<T>() - 1) == 1
}

matches_rust!(f32_matches_rust, f32, |a, b| (f64::from(a) + f64::from(b)) as f32, |a, b| a * b);
matches_rust!(f64_matches_rust, f64, |a, b| a + b, |a, b| a * b);
matches_rust!(f16_matches_rust, f16, |a, b| a + b, |a, b| a * b);
matches_rust!(bf16_matches_rust, bf16, |a, b| a + b, |a, b| a * b);
matches_rust!(i8_matches_rust, i8, i8::wrapping_add, i8::wrapping_mul);
matches_rust!(i16_matches_rust, i16, i16::wrapping_add, i16::wrapping_mul);
matches_rust!(i32_matches_rust, i32, i32::wrapping_add, i32::wrapping_mul);
matches_rust!(i64_matches_rust, i64, i64::wrapping_add, i64::wrapping_mul);
matches_rust!(u8_matches_rust, u8, u8::wrapping_add, u8::wrapping_mul);

#[test]
fn every_type_has_an_element() {
    let sizes = [
        (f32::DTYPE, size_of::<f32>()),
        (f16::DTYPE, 2),
        (bf16::DTYPE, 2),
        (i32::DTYPE, 4),
        (f64::DTYPE, 8),
        (i8::DTYPE, 1),
        (i16::DTYPE, 2),
        (i64::DTYPE, 8),
        (u8::DTYPE, 1),
    ];
    assert_eq!(sizes.map(|(dtype, _)| dtype), DType::ALL);
    assert!(sizes.iter().all(|(dtype, size)| dtype.size() == *size));
}
