//! Binary32 as in extension F: values are bits, and operations return bits and the flags that they raise.
//!
//! The host's own arithmetic rounds, to nearest with ties to even. What F defines and hosts leave open is decided here:
//! a NaN result is the canonical one, minimum and maximum know the sign of zero, and conversions saturate.

mod convert;
mod halves;

use std::ops::BitOr;

pub use convert::{Rounding, from_i32, from_u32, to_i32, to_u32};
pub use halves::add_halves;

/// The only NaN that operations return.
pub const CANONICAL_NAN: u32 = 0x7fc0_0000;
const SIGN: u32 = 0x8000_0000;
const QUIET: u32 = 0x0040_0000;

/// Exceptions, as the bits of `fflags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// No exception.
    pub const NONE: Flags = Flags(0);
    /// The result was rounded.
    pub const INEXACT: Flags = Flags(1);
    /// The rounded result was also tiny.
    pub const UNDERFLOW: Flags = Flags(2);
    /// The result was too large.
    pub const OVERFLOW: Flags = Flags(4);
    /// A finite number was divided by zero.
    pub const DIVIDED_BY_ZERO: Flags = Flags(8);
    /// The operation has no result.
    pub const INVALID: Flags = Flags(16);
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Bits and flags.
pub type Result = (u32, Flags);

fn is_nan(bits: u32) -> bool {
    f32::from_bits(bits).is_nan()
}

fn is_signaling(bits: u32) -> bool {
    is_nan(bits) && bits & QUIET == 0
}

/// The sum. The sum of two doubles tells whether it is exact.
pub fn add(a: u32, b: u32) -> Result {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let (sum, error) = two_sum(f64::from(x), f64::from(y));
    let result = x + y;
    finish(result, &[a, b], error != 0.0 || sum != f64::from(result))
}

/// The difference.
pub fn sub(a: u32, b: u32) -> Result {
    if is_nan(b) { add(a, b) } else { add(a, b ^ SIGN) }
}

/// The product. The product of two doubles is exact.
pub fn mul(a: u32, b: u32) -> Result {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let result = x * y;
    finish(result, &[a, b], f64::from(x) * f64::from(y) != f64::from(result))
}

/// The quotient.
pub fn div(a: u32, b: u32) -> Result {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    let result = x / y;
    if y == 0.0 && x.is_finite() && x != 0.0 {
        return (result.to_bits(), Flags::DIVIDED_BY_ZERO);
    }
    finish(result, &[a, b], y.is_finite() && f64::from(result) * f64::from(y) != f64::from(x))
}

/// The square root.
pub fn sqrt(a: u32) -> Result {
    let x = f32::from_bits(a);
    let result = x.sqrt();
    finish(result, &[a], f64::from(result) * f64::from(result) != f64::from(x))
}

/// a * b + c, rounded once.
pub fn fused(a: u32, b: u32, c: u32) -> Result {
    let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
    let (sum, error) = two_sum(f64::from(x) * f64::from(y), f64::from(z));
    let result = x.mul_add(y, z);
    let (bits, flags) = finish(result, &[a, b, c], error != 0.0 || sum != f64::from(result));
    // Invalid even if the addend is a quiet NaN.
    let is_invalid = (x.is_infinite() && y == 0.0) || (x == 0.0 && y.is_infinite());
    (bits, if is_invalid { flags | Flags::INVALID } else { flags })
}

/// A sum and its rounding error, exactly (Knuth).
fn two_sum(x: f64, y: f64) -> (f64, f64) {
    let sum = x + y;
    let rounded_y = sum - x;
    (sum, (x - (sum - rounded_y)) + (y - rounded_y))
}

fn finish(result: f32, operands: &[u32], is_inexact: bool) -> Result {
    if result.is_nan() {
        let is_passed_on = operands.iter().any(|&bits| is_nan(bits));
        let is_invalid = !is_passed_on || operands.iter().any(|&bits| is_signaling(bits));
        return (CANONICAL_NAN, if is_invalid { Flags::INVALID } else { Flags::NONE });
    }
    let is_finite = operands.iter().all(|&bits| f32::from_bits(bits).is_finite());
    let flags = match is_finite {
        false => Flags::NONE,
        true if result.is_infinite() => Flags::OVERFLOW | Flags::INEXACT,
        true if is_inexact && result.abs() < f32::MIN_POSITIVE => Flags::UNDERFLOW | Flags::INEXACT,
        true if is_inexact => Flags::INEXACT,
        true => Flags::NONE,
    };
    (result.to_bits(), flags)
}

/// The lesser, or the one that is not a NaN; -0 is less than +0.
pub fn min(a: u32, b: u32) -> Result {
    extreme(a, b, |x, y| x < y || (x == y && x.is_sign_negative()))
}

/// The greater, or the one that is not a NaN.
pub fn max(a: u32, b: u32) -> Result {
    extreme(a, b, |x, y| x > y || (x == y && x.is_sign_positive()))
}

fn extreme(a: u32, b: u32, is_first: impl Fn(f32, f32) -> bool) -> Result {
    let flags = if is_signaling(a) || is_signaling(b) { Flags::INVALID } else { Flags::NONE };
    let bits = match (is_nan(a), is_nan(b)) {
        (true, true) => CANONICAL_NAN,
        (true, false) => b,
        (false, true) => a,
        _ if is_first(f32::from_bits(a), f32::from_bits(b)) => a,
        _ => b,
    };
    (bits, flags)
}

/// a's magnitude with the given sign.
pub fn with_sign(a: u32, sign: u32) -> u32 {
    a & !SIGN | sign & SIGN
}

/// Quiet equality.
pub fn equal(a: u32, b: u32) -> Result {
    let flags = if is_signaling(a) || is_signaling(b) { Flags::INVALID } else { Flags::NONE };
    (u32::from(f32::from_bits(a) == f32::from_bits(b)), flags)
}

/// Signaling comparison: any NaN is invalid.
pub fn less(a: u32, b: u32) -> Result {
    let flags = if is_nan(a) || is_nan(b) { Flags::INVALID } else { Flags::NONE };
    (u32::from(f32::from_bits(a) < f32::from_bits(b)), flags)
}

/// Signaling comparison: less or equal.
pub fn less_or_equal(a: u32, b: u32) -> Result {
    let flags = if is_nan(a) || is_nan(b) { Flags::INVALID } else { Flags::NONE };
    (u32::from(f32::from_bits(a) <= f32::from_bits(b)), flags)
}

/// The result of `fclass`.
pub fn class(bits: u32) -> u32 {
    let value = f32::from_bits(bits);
    let negative = value.is_sign_negative();
    let bit = match value.classify() {
        std::num::FpCategory::Nan if is_signaling(bits) => 8,
        std::num::FpCategory::Nan => 9,
        std::num::FpCategory::Infinite if negative => 0,
        std::num::FpCategory::Infinite => 7,
        std::num::FpCategory::Normal if negative => 1,
        std::num::FpCategory::Normal => 6,
        std::num::FpCategory::Subnormal if negative => 2,
        std::num::FpCategory::Subnormal => 5,
        std::num::FpCategory::Zero if negative => 3,
        std::num::FpCategory::Zero => 4,
    };
    1 << bit
}

#[cfg(test)]
mod tests;
