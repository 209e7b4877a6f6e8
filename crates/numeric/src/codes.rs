//! Codes: floats as integers of 8 bits against a block's range, and their sums in lanes of 16 bits.
//!
//! A code is `round(x * q / 2^m)`, where `2^m` is the range on which ranks have agreed and `q` the largest code that no
//! sum of all ranks can overflow with. Elements that are not finite have a code of their own; a sum that contains
//! one is not finite either. Sums of codes are associative and commutative, so no order of arrival shows in them.
//! `docs/numerics.md` has the bound.

use crate::number::{Lane, Number};
use crate::scale::{Scale, Unscale};

/// An element in a packet. [`Code::NOT_FINITE`] is an infinity or a NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Code(i8);

/// A sum of codes. [`CodeSum::NOT_FINITE`] contains an element that is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CodeSum(i16);

impl Code {
    const NOT_FINITE: Code = Code(i8::MIN);

    /// The code of an element, with `factor = q / 2^m`. The product is exact: a binary32 has 24 bits and `q` has 7.
    /// Adding 1.5 * 2^52 leaves binary64 no bits for a fraction, so that it rounds to nearest even.
    #[inline(always)]
    pub(crate) fn of(x: f64, factor: f64) -> Code {
        const ROUND: f64 = 1.5 * (1u64 << 52) as f64;
        let rounded = Code((x * factor + ROUND).to_bits() as i8);
        if x.abs() < f64::INFINITY { rounded } else { Code::NOT_FINITE }
    }

    /// What the code lacks of the element that it was made of; 0 if that is not finite.
    #[inline(always)]
    pub(crate) fn loss(self, x: f64, factor: f64) -> f64 {
        if self == Code::NOT_FINITE { 0.0 } else { x - f64::from(self.0) / factor }
    }
}

impl CodeSum {
    const NOT_FINITE: CodeSum = CodeSum(i16::MIN);

    /// The value of the sum; NaN, always the same one, if it is not finite.
    #[inline(always)]
    pub(crate) fn value(self, unscale: Unscale) -> f64 {
        let finite = f64::from(self.0) * unscale.unit / unscale.divisor;
        if self == CodeSum::NOT_FINITE { f64::NAN } else { finite }
    }
}

/// Implements `Number` for a type around an integer; the last two arguments are `widen` and `narrow`.
macro_rules! code {
    ($type:ident, $integer:ty, $widen:expr, $narrow:expr) => {
        impl Number for $type {
            type Bytes = [u8; size_of::<$integer>()];
            type Lane = CodeSum;

            #[inline(always)]
            fn split(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn split_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
            #[inline(always)]
            fn from_be(bytes: Self::Bytes) -> $type {
                $type(<$integer>::from_be_bytes(bytes))
            }
            #[inline(always)]
            fn to_be(self) -> Self::Bytes {
                self.0.to_be_bytes()
            }
            #[inline(always)]
            fn from_ne(bytes: Self::Bytes) -> $type {
                $type(<$integer>::from_ne_bytes(bytes))
            }
            #[inline(always)]
            fn to_ne(self) -> Self::Bytes {
                self.0.to_ne_bytes()
            }
            #[inline(always)]
            fn widen(self) -> CodeSum {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(lane: CodeSum) -> $type {
                $narrow(lane)
            }
        }
    };
}

code!(
    Code,
    i8,
    |code: Code| if code == Code::NOT_FINITE { CodeSum::NOT_FINITE } else { CodeSum(code.0.into()) },
    // A sum that was divided fits.
    |sum: CodeSum| if sum == CodeSum::NOT_FINITE { Code::NOT_FINITE } else { Code(sum.0 as i8) }
);
code!(CodeSum, i16, |sum| sum, |sum| sum);

impl Lane for CodeSum {
    /// Wraps only if a packet brings codes that no rank makes.
    #[inline(always)]
    fn sum(self, other: CodeSum) -> CodeSum {
        let is_finite = (self != CodeSum::NOT_FINITE) & (other != CodeSum::NOT_FINITE);
        if is_finite { CodeSum(self.0.wrapping_add(other.0)) } else { CodeSum::NOT_FINITE }
    }
    fn product(self, _: CodeSum) -> CodeSum {
        unreachable!("codes are only summed")
    }
    fn least(self, _: CodeSum) -> CodeSum {
        unreachable!("codes are only summed")
    }
    fn greatest(self, _: CodeSum) -> CodeSum {
        unreachable!("codes are only summed")
    }
    /// The sum in steps so wide that 127 of them hold every sum, rounded to nearest even. A quotient of an integer by
    /// `step` is a tie or at least `1 / 2 step` away from one, and `step` is at most 259: binary32's own rounding does
    /// not reach that far.
    #[inline(always)]
    fn divided(self, ranks: u16) -> CodeSum {
        const ROUND: f32 = 1.5 * (1u32 << 23) as f32;
        let quotient = f32::from(self.0) / f32::from(Scale::code_step(ranks));
        let rounded = CodeSum((quotient + ROUND).to_bits() as i16);
        if self == CodeSum::NOT_FINITE { self } else { rounded }
    }
}
