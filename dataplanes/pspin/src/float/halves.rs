//! Sums of binary16, two in a word, by way of binary32.
//!
//! Rounding a sum first to binary32 and then to binary16 gives the same as rounding once, because 24 bits are twice 11
//! and two more.

use half::f16;

use super::{Flags, Result};

const CANONICAL_NAN: u16 = 0x7e00;
const QUIET: u16 = 0x0200;

/// The sums of the low halves and of the high halves.
pub fn add_halves(a: u32, b: u32) -> Result {
    let (low, of_low) = add(a as u16, b as u16);
    let (high, of_high) = add((a >> 16) as u16, (b >> 16) as u16);
    (u32::from(high) << 16 | u32::from(low), of_low | of_high)
}

fn add(a: u16, b: u16) -> (u16, Flags) {
    let (x, y) = (f16::from_bits(a), f16::from_bits(b));
    let sum = x.to_f32() + y.to_f32();
    let is_signaling = |of: f16| of.is_nan() && of.to_bits() & QUIET == 0;
    if sum.is_nan() {
        let is_invalid = is_signaling(x) || is_signaling(y) || x.is_infinite() && y.is_infinite();
        return (CANONICAL_NAN, if is_invalid { Flags::INVALID } else { Flags::NONE });
    }
    let result = f16::from_f32(sum);
    let is_exact = result.to_f64() == x.to_f64() + y.to_f64();
    let flags = match result.is_infinite() && x.is_finite() && y.is_finite() {
        true => Flags::OVERFLOW | Flags::INEXACT,
        false if is_exact => Flags::NONE,
        false => Flags::INEXACT,
    };
    (result.to_bits(), flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: f32, b: f32) -> (u16, Flags) {
        add(f16::from_f32(a).to_bits(), f16::from_f32(b).to_bits())
    }

    #[test]
    fn halves_know_nothing_of_each_other() {
        let pack = |low: f32, high: f32| {
            u32::from(f16::from_f32(high).to_bits()) << 16 | u32::from(f16::from_f32(low).to_bits())
        };
        assert_eq!(add_halves(pack(1.5, -3.0), pack(2.25, 1.0)), (pack(3.75, -2.0), Flags::NONE));
        assert_eq!(add_halves(pack(65504.0, 0.5), pack(65504.0, 0.5)).0, pack(f32::INFINITY, 1.0));
    }

    #[test]
    fn ties_go_to_even_and_what_is_lost_is_said() {
        // There is no half between 2048 and 2050.
        assert_eq!(sum(2048.0, 1.0), (f16::from_f32(2048.0).to_bits(), Flags::INEXACT));
        assert_eq!(sum(2050.0, 1.0), (f16::from_f32(2052.0).to_bits(), Flags::INEXACT));
        assert_eq!(sum(2048.0, 2.0), (f16::from_f32(2050.0).to_bits(), Flags::NONE));
    }

    #[test]
    fn subnormal_halves_are_numbers() {
        assert_eq!(add(0x0001, 0x0001), (0x0002, Flags::NONE));
        assert_eq!(add(0x03ff, 0x0001), (0x0400, Flags::NONE));
        assert_eq!(add(0x8001, 0x0001), (0x0000, Flags::NONE));
    }

    #[test]
    fn a_nan_is_canonical_and_infinities_cancel_to_one() {
        assert_eq!(add(0x7c00, 0xfc00), (CANONICAL_NAN, Flags::INVALID));
        assert_eq!(add(0xfe12, 0x3c00), (CANONICAL_NAN, Flags::NONE));
        assert_eq!(add(0x7d00, 0x3c00), (CANONICAL_NAN, Flags::INVALID));
        assert_eq!(sum(65504.0, 65504.0), (0x7c00, Flags::OVERFLOW | Flags::INEXACT));
        assert_eq!(add(0x7c00, 0x3c00), (0x7c00, Flags::NONE));
    }
}
