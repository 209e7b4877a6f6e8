//! Conversions between floats and integers.

use super::{Flags, Result, is_nan};

/// How a fraction becomes an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, ties to even.
    NearestEven,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards infinity.
    Up,
    /// To the nearest, ties away from zero.
    NearestAway,
}

impl Rounding {
    /// The mode of the three bits of an instruction or of `frm`.
    pub fn new(mode: u8) -> Option<Rounding> {
        let modes = [Rounding::NearestEven, Rounding::Zero, Rounding::Down, Rounding::Up, Rounding::NearestAway];
        modes.get(usize::from(mode)).copied()
    }

    fn round(self, value: f64) -> f64 {
        match self {
            Rounding::NearestEven => value.round_ties_even(),
            Rounding::Zero => value.trunc(),
            Rounding::Down => value.floor(),
            Rounding::Up => value.ceil(),
            Rounding::NearestAway => value.round(),
        }
    }
}

/// The signed integer of a float. A float outside the range saturates, and a NaN gives the largest integer.
pub fn to_i32(bits: u32, rounding: Rounding) -> Result {
    let (value, flags) = to_integer(bits, rounding, f64::from(i32::MIN), f64::from(i32::MAX));
    (value as i32 as u32, flags)
}

/// The unsigned integer of a float, with the same rules.
pub fn to_u32(bits: u32, rounding: Rounding) -> Result {
    let (value, flags) = to_integer(bits, rounding, 0.0, f64::from(u32::MAX));
    (value as u32, flags)
}

fn to_integer(bits: u32, rounding: Rounding, least: f64, most: f64) -> (f64, Flags) {
    if is_nan(bits) {
        return (most, Flags::INVALID);
    }
    let value = f64::from(f32::from_bits(bits));
    let rounded = rounding.round(value);
    if rounded < least || rounded > most {
        return (rounded.clamp(least, most), Flags::INVALID);
    }
    (rounded, if rounded == value { Flags::NONE } else { Flags::INEXACT })
}

/// The nearest float of a signed integer, ties to even.
pub fn from_i32(value: u32) -> Result {
    let value = value as i32;
    let result = value as f32;
    (result.to_bits(), inexact_if(f64::from(result) != f64::from(value)))
}

/// The nearest float of an unsigned integer, ties to even.
pub fn from_u32(value: u32) -> Result {
    let result = value as f32;
    (result.to_bits(), inexact_if(f64::from(result) != f64::from(value)))
}

fn inexact_if(is_inexact: bool) -> Flags {
    if is_inexact { Flags::INEXACT } else { Flags::NONE }
}
