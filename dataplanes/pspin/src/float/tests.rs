//! The rules of IEEE 754 and of F for single operations.

use super::*;

const SIGNALING: u32 = 0x7f80_0001;
const QUIET_WITH_PAYLOAD: u32 = 0xffc1_2345;
const INFINITY: u32 = 0x7f80_0000;
const MINUS_INFINITY: u32 = 0xff80_0000;

fn bits(value: f32) -> u32 {
    value.to_bits()
}

#[test]
fn a_nan_that_comes_out_is_the_canonical_one() {
    assert_eq!(add(QUIET_WITH_PAYLOAD, bits(1.0)), (CANONICAL_NAN, Flags::NONE));
    assert_eq!(sub(bits(1.0), QUIET_WITH_PAYLOAD), (CANONICAL_NAN, Flags::NONE));
    assert_eq!(mul(SIGNALING, bits(1.0)), (CANONICAL_NAN, Flags::INVALID));
    assert_eq!(sub(INFINITY, INFINITY), (CANONICAL_NAN, Flags::INVALID));
    assert_eq!(mul(INFINITY, 0), (CANONICAL_NAN, Flags::INVALID));
    assert_eq!(div(0, 0), (CANONICAL_NAN, Flags::INVALID));
    assert_eq!(sqrt(bits(-1.0)), (CANONICAL_NAN, Flags::INVALID));
    assert_eq!(fused(INFINITY, 0, QUIET_WITH_PAYLOAD), (CANONICAL_NAN, Flags::INVALID));
}

#[test]
fn sums_round_to_nearest_and_ties_go_to_even() {
    let ulp = 2f32.powi(-23);
    assert_eq!(add(bits(1.0), bits(ulp / 2.0)), (bits(1.0), Flags::INEXACT));
    assert_eq!(add(bits(1.0 + ulp), bits(ulp / 2.0)), (bits(1.0 + 2.0 * ulp), Flags::INEXACT));
    assert_eq!(add(bits(1.0), bits(ulp)), (bits(1.0 + ulp), Flags::NONE));
    // The exponents are so far apart that a double must round too.
    assert_eq!(add(bits(1e30), bits(1e-30)), (bits(1e30), Flags::INEXACT));
    assert_eq!(from_i32(16_777_217), (bits(16_777_216.0), Flags::INEXACT));
    assert_eq!(from_i32(16_777_219), (bits(16_777_220.0), Flags::INEXACT));
    assert_eq!(from_u32(u32::MAX), (bits(4_294_967_296.0), Flags::INEXACT));
}

#[test]
fn a_fused_product_is_rounded_once() {
    let a = bits(1.0 + 2f32.powi(-12));
    let exact_tail = bits(2f32.powi(-24));
    assert_eq!(fused(a, a, bits(-(1.0 + 2f32.powi(-11)))), (exact_tail, Flags::NONE));
}

#[test]
fn flags_report_overflow_underflow_and_division_by_zero() {
    let most = bits(f32::MAX);
    assert_eq!(add(most, most), (INFINITY, Flags::OVERFLOW | Flags::INEXACT));
    assert_eq!(add(INFINITY, most), (INFINITY, Flags::NONE));
    let least = bits(f32::MIN_POSITIVE);
    assert_eq!(mul(least, bits(0.3)).1, Flags::UNDERFLOW | Flags::INEXACT);
    assert_eq!(mul(least, bits(0.5)), (0x0040_0000, Flags::NONE));
    assert_eq!(div(bits(-1.0), 0), (MINUS_INFINITY, Flags::DIVIDED_BY_ZERO));
    assert_eq!(div(INFINITY, 0), (INFINITY, Flags::NONE));
    assert_eq!(div(bits(1.0), bits(3.0)).1, Flags::INEXACT);
    assert_eq!(div(bits(1.0), INFINITY), (0, Flags::NONE));
    assert_eq!(sqrt(bits(2.25)), (bits(1.5), Flags::NONE));
    assert_eq!(sqrt(bits(2.0)).1, Flags::INEXACT);
}

#[test]
fn minimum_and_maximum_prefer_numbers_and_know_the_sign_of_zero() {
    let (zero, minus_zero) = (0, bits(-0.0));
    for (a, b) in [(zero, minus_zero), (minus_zero, zero)] {
        assert_eq!(min(a, b), (minus_zero, Flags::NONE));
        assert_eq!(max(a, b), (zero, Flags::NONE));
    }
    assert_eq!(min(QUIET_WITH_PAYLOAD, bits(3.0)), (bits(3.0), Flags::NONE));
    assert_eq!(max(bits(3.0), SIGNALING), (bits(3.0), Flags::INVALID));
    assert_eq!(max(QUIET_WITH_PAYLOAD, QUIET_WITH_PAYLOAD), (CANONICAL_NAN, Flags::NONE));
    assert_eq!(min(bits(-2.0), bits(1.0)).0, bits(-2.0));
}

#[test]
fn conversions_to_integers_saturate() {
    let near = |value: f32| to_i32(bits(value), Rounding::NearestEven);
    assert_eq!(near(2.5), (2, Flags::INEXACT));
    assert_eq!(near(-3.5), (-4i32 as u32, Flags::INEXACT));
    assert_eq!(near(3e9), (i32::MAX as u32, Flags::INVALID));
    assert_eq!(near(-3e9), (i32::MIN as u32, Flags::INVALID));
    assert_eq!(near(-2_147_483_648.0), (i32::MIN as u32, Flags::NONE));
    assert_eq!(to_i32(QUIET_WITH_PAYLOAD, Rounding::Zero), (i32::MAX as u32, Flags::INVALID));
    assert_eq!(to_u32(SIGNALING, Rounding::Zero), (u32::MAX, Flags::INVALID));
    assert_eq!(to_u32(bits(-1.0), Rounding::Zero), (0, Flags::INVALID));
    assert_eq!(to_u32(bits(-0.9), Rounding::Zero), (0, Flags::INEXACT));
    assert_eq!(to_u32(MINUS_INFINITY, Rounding::Up), (0, Flags::INVALID));
}

#[test]
fn a_conversion_rounds_in_the_given_mode() {
    let all = |value: f32| [0, 1, 2, 3, 4].map(|mode| to_i32(bits(value), Rounding::new(mode).unwrap()).0 as i32);
    assert_eq!(all(2.5), [2, 2, 2, 3, 3]);
    assert_eq!(all(-2.5), [-2, -2, -3, -2, -3]);
    assert_eq!(all(1.7), [2, 1, 1, 2, 2]);
    assert_eq!(Rounding::new(5), None);
}

#[test]
fn comparisons_with_a_nan_are_false_and_those_of_order_are_invalid() {
    assert_eq!(equal(QUIET_WITH_PAYLOAD, QUIET_WITH_PAYLOAD), (0, Flags::NONE));
    assert_eq!(equal(SIGNALING, 0), (0, Flags::INVALID));
    assert_eq!(less(QUIET_WITH_PAYLOAD, 0), (0, Flags::INVALID));
    assert_eq!(less_or_equal(0, bits(-0.0)), (1, Flags::NONE));
    assert_eq!(less(0, bits(-0.0)), (0, Flags::NONE));
    assert_eq!(less(bits(-1.0), INFINITY), (1, Flags::NONE));
}

#[test]
fn each_class_has_its_bit() {
    let of_each =
        [MINUS_INFINITY, bits(-1.0), 0x8000_0001, bits(-0.0), 0, 1, bits(1.0), INFINITY, SIGNALING, QUIET_WITH_PAYLOAD];
    for (bit, value) in of_each.into_iter().enumerate() {
        assert_eq!(class(value), 1 << bit, "{value:#x}");
    }
}
