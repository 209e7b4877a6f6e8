//! How an element becomes the bytes of a packet, and the wider number as which it is combined.
//!
//! An element is combined as its *lane*. The lane is the element itself; for 16-bit floats it is a binary32. All code
//! here is free of branches, so that loops over it vectorise.

use std::fmt::Debug;

use half::{bf16, f16};

/// An element: its bytes, and the conversions to its lane and back.
pub trait Number: Copy + Debug + Default + PartialEq + Send + Sync + 'static {
    /// An array with the size of an element.
    type Bytes: Copy;
    /// The type as which elements are combined.
    type Lane: Lane;

    /// Splits bytes into elements; bytes at the end that do not fill an element are left out.
    fn split(bytes: &[u8]) -> &[Self::Bytes];
    /// Splits bytes into elements, to write to.
    fn split_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    /// Reads the bytes of a packet.
    fn from_be(bytes: Self::Bytes) -> Self;
    /// Makes the bytes of a packet.
    fn to_be(self) -> Self::Bytes;
    /// Reads the bytes of an accumulator.
    fn from_ne(bytes: Self::Bytes) -> Self;
    /// Makes the bytes of an accumulator.
    fn to_ne(self) -> Self::Bytes;
    /// The same value as a lane; exact.
    fn widen(self) -> Self::Lane;
    /// The nearest value, ties to even. If the element is narrower than the lane, every NaN becomes the canonical one.
    fn narrow(lane: Self::Lane) -> Self;
}

/// The type as which elements are combined.
///
/// If the result of a float operation is NaN, it is the canonical NaN: positive, with only the quiet bit in its
/// fraction. Processor and compiler choose which payload an addition keeps, so no payload may show.
pub trait Lane: Number<Lane = Self> {
    /// The sum, rounded to nearest even; integers wrap.
    fn sum(self, other: Self) -> Self;
    /// The product, rounded to nearest even; integers wrap.
    fn product(self, other: Self) -> Self;
    /// The lesser; for floats IEEE 754's `minimum`.
    fn least(self, other: Self) -> Self;
    /// The greater; for floats IEEE 754's `maximum`.
    fn greatest(self, other: Self) -> Self;
    /// The value divided by a number of ranks, at least 1: rounded to nearest even, or truncated towards zero for
    /// integers.
    fn divided(self, ranks: u16) -> Self;
}

/// Lanes with bitwise operators: integers.
pub trait Bits: Lane {
    /// Bits that are set in both.
    fn and(self, other: Self) -> Self;
    /// Bits that are set in either.
    fn or(self, other: Self) -> Self;
    /// Bits that differ.
    fn xor(self, other: Self) -> Self;
}

/// Implements `Number` for a type whose bytes are those of `$as`, a primitive type or `half`'s; `$wrap` and `$unwrap`
/// convert between both. The last two arguments are `widen` and `narrow`.
macro_rules! number {
    ($type:ty, $lane:ty, $widen:expr, $narrow:expr) => {
        number!($type as $type, |x| x, |x: $type| x, $lane, $widen, $narrow);
    };
    ($type:ty as $as:ty, $wrap:expr, $unwrap:expr, $lane:ty, $widen:expr, $narrow:expr) => {
        impl Number for $type {
            type Bytes = [u8; size_of::<$as>()];
            type Lane = $lane;

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
                $wrap(<$as>::from_be_bytes(bytes))
            }
            #[inline(always)]
            fn to_be(self) -> Self::Bytes {
                $unwrap(self).to_be_bytes()
            }
            #[inline(always)]
            fn from_ne(bytes: Self::Bytes) -> $type {
                $wrap(<$as>::from_ne_bytes(bytes))
            }
            #[inline(always)]
            fn to_ne(self) -> Self::Bytes {
                $unwrap(self).to_ne_bytes()
            }
            #[inline(always)]
            fn widen(self) -> $lane {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(lane: $lane) -> $type {
                $narrow(lane)
            }
        }
    };
}
pub(crate) use number;

/// Implements a float that is its own lane. The arguments: its NaN, and an integer of its width in which bit patterns
/// have the float's order.
macro_rules! float_lane {
    ($type:ty, $signed:ty, $canonical_nan:literal) => {
        number!($type, $type, |x| x, |x| x);

        impl Lane for $type {
            #[inline(always)]
            fn sum(self, other: $type) -> $type {
                canonical(self + other)
            }
            #[inline(always)]
            fn product(self, other: $type) -> $type {
                canonical(self * other)
            }
            #[inline(always)]
            fn least(self, other: $type) -> $type {
                let less = if key(self) < key(other) { self } else { other };
                if self.is_nan() | other.is_nan() { CANONICAL_NAN } else { less }
            }
            #[inline(always)]
            fn greatest(self, other: $type) -> $type {
                let greater = if key(self) > key(other) { self } else { other };
                if self.is_nan() | other.is_nan() { CANONICAL_NAN } else { greater }
            }
            #[inline(always)]
            fn divided(self, ranks: u16) -> $type {
                canonical(self / <$type>::from(ranks))
            }
        }

        const CANONICAL_NAN: $type = <$type>::from_bits($canonical_nan);

        #[inline(always)]
        pub(crate) fn canonical(x: $type) -> $type {
            if x.is_nan() { CANONICAL_NAN } else { x }
        }

        /// Orders all numbers, -0 before +0.
        #[inline(always)]
        fn key(x: $type) -> $signed {
            let bits = x.to_bits() as $signed;
            bits ^ ((bits >> (<$signed>::BITS - 1)) & <$signed>::MAX)
        }
    };
}

mod binary32 {
    use super::{Lane, Number};
    float_lane!(f32, i32, 0x7fc0_0000);
}

mod binary64 {
    use super::{Lane, Number};
    float_lane!(f64, i64, 0x7ff8_0000_0000_0000);
}

number!(f16, f32, f16_to_f32, f16_from_f32);
number!(bf16, f32, bf16_to_f32, bf16_from_f32);

/// Implements an integer. The second argument is a type in which a division by a number of ranks truncates to the exact
/// quotient.
macro_rules! integer_lane {
    ($type:ty, $quotient:ty) => {
        number!($type, $type, |x| x, |x| x);

        impl Lane for $type {
            #[inline(always)]
            fn sum(self, other: $type) -> $type {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: $type) -> $type {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn least(self, other: $type) -> $type {
                self.min(other)
            }
            #[inline(always)]
            fn greatest(self, other: $type) -> $type {
                self.max(other)
            }
            #[inline(always)]
            fn divided(self, ranks: u16) -> $type {
                (<$quotient>::from(self) / <$quotient>::from(ranks)) as $type
            }
        }

        impl Bits for $type {
            #[inline(always)]
            fn and(self, other: $type) -> $type {
                self & other
            }
            #[inline(always)]
            fn or(self, other: $type) -> $type {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: $type) -> $type {
                self ^ other
            }
        }
    };
}

// Floats are divided in vector registers, integers are not. The float quotient of b bits by 16 bits is either exact, or
// at least 2^-b of itself away from the next integer. As b is far below the bits of the float's fraction, rounding does
// not reach that integer.
integer_lane!(u8, f32);
integer_lane!(i8, f32);
integer_lane!(i16, f32);
integer_lane!(i32, f64);
integer_lane!(i64, i64);

/// Bits of a binary64's fraction that a binary32 lacks.
pub(crate) const DROPPED_BITS: u64 = (1 << 29) - 1;

/// Rounds to binary32 so that a second rounding, to 16 bits, gives the result of one rounding. If bits are lost, the
/// last bit that is kept is set, so that lost bits never look like a tie (Boldo and Melquiond's "rounding to odd").
/// This holds for results that are normal in binary32.
#[inline(always)]
pub fn round_to_odd(value: f64) -> f32 {
    let bits = value.to_bits();
    let sticky = u64::from(bits & DROPPED_BITS != 0) * (DROPPED_BITS + 1);
    f64::from_bits(bits & !DROPPED_BITS | sticky) as f32
}

/// Exact; a NaN becomes quiet. Unlike the functions of the crate `half`, this one has no branches or calls, so that
/// loops over it vectorise. The same holds for the next functions.
#[inline(always)]
pub(crate) fn f16_to_f32(x: f16) -> f32 {
    const BIAS_DIFFERENCE: f32 = f32::from_bits((127 + 127 - 15) << 23);
    const INFINITY: u32 = (f16::INFINITY.to_bits() as u32) << 13;
    const QUIET: u32 = 1 << 22;
    let sign = u32::from(x.to_bits() & 0x8000) << 16;
    let magnitude = u32::from(x.to_bits() & 0x7fff) << 13;
    // The product is exact, and normal if the input is denormal.
    let finite = (f32::from_bits(magnitude) * BIAS_DIFFERENCE).to_bits();
    let quiet = if magnitude > INFINITY { QUIET } else { 0 };
    let special = magnitude | 0x7f80_0000 | quiet;
    f32::from_bits(sign | if magnitude >= INFINITY { special } else { finite })
}

/// Rounds to nearest even; NaNs become the canonical one.
#[inline(always)]
pub(crate) fn f16_from_f32(x: f32) -> f16 {
    /// The least magnitude that is normal in binary16, and the least magnitude that becomes infinite.
    const NORMAL: u32 = (127 - 14) << 23;
    const TOO_LARGE: u32 = (127 + 16) << 23;
    /// The unit in the last place of this number is that of binary16's denormals.
    const DENORMAL: f32 = f32::from_bits((127 - 15 + 23 - 10 + 1) << 23);
    let sign = (x.to_bits() >> 16 & 0x8000) as u16;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    let odd = magnitude >> 13 & 1;
    let rebiased = magnitude.wrapping_sub((127 - 15) << 23);
    let normal = rebiased.wrapping_add(0xfff + odd) >> 13;
    let denormal = (f32::from_bits(magnitude) + DENORMAL).to_bits().wrapping_sub(DENORMAL.to_bits());
    let finite = if magnitude < NORMAL { denormal } else { normal };
    let rounded = if magnitude >= TOO_LARGE { u32::from(f16::INFINITY.to_bits()) } else { finite };
    f16::from_bits(if x.is_nan() { 0x7e00 } else { sign | rounded as u16 })
}

/// Exact; a NaN keeps its bits.
#[inline(always)]
pub(crate) fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Rounds to nearest even; NaNs become the canonical one.
#[inline(always)]
pub(crate) fn bf16_from_f32(x: f32) -> bf16 {
    let bits = x.to_bits();
    let odd = bits >> 16 & 1;
    bf16::from_bits((if x.is_nan() { 0x7fc0_0000 } else { bits.wrapping_add(0x7fff + odd) } >> 16) as u16)
}

/// The types of [`DType::FIXED`](crate::DType::FIXED).
pub(crate) trait FixedPoint: Number {
    /// The value in binary64; exact.
    fn to_f64(self) -> f64;
    /// The nearest value, ties to even; values too large become infinities. Integers truncate.
    fn from_f64(value: f64) -> Self;
}

macro_rules! fixed_point {
    ($type:ty, $from:expr) => {
        impl FixedPoint for $type {
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self.widen())
            }
            #[inline(always)]
            fn from_f64(value: f64) -> $type {
                $from(value)
            }
        }
    };
}

fixed_point!(f32, |value| value as f32);
fixed_point!(f16, |value| f16::narrow(round_to_odd(value)));
fixed_point!(bf16, |value| bf16::narrow(round_to_odd(value)));
fixed_point!(i32, |value| value as i32);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 16-bit element, and all kinds of binary32 that round to it or are near it.
    #[test]
    fn sixteen_bit_conversions_are_those_of_half() {
        for bits in 0..=u16::MAX {
            let x = bf16::from_bits(bits);
            assert!(bf16_to_f32(x) == x.to_f32() || x.is_nan() && bf16_to_f32(x).is_nan(), "{bits:#x}");
            let x = f16::from_bits(bits);
            assert!(f16_to_f32(x).to_bits() == x.to_f32().to_bits(), "{bits:#x}");
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(bits) << 16 | low);
                let expected = if x.is_nan() {
                    [0x7e00, 0x7fc0]
                } else {
                    [f16::from_f32(x).to_bits(), bf16::from_f32(x).to_bits()]
                };
                assert_eq!([f16_from_f32(x).to_bits(), bf16_from_f32(x).to_bits()], expected, "{x:e}");
            }
        }
    }

    #[test]
    fn extremes_of_floats_are_those_of_ieee_754() {
        assert_eq!(Lane::least(0.0f32, -0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(Lane::least(-0.0f32, 0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(Lane::greatest(0.0f64, -0.0).to_bits(), 0);
        assert_eq!(Lane::greatest(-0.0f64, 0.0).to_bits(), 0);
        assert_eq!(Lane::least(-3.0f32, -2.0), -3.0);
        assert_eq!(Lane::greatest(-3.0f32, -2.0), -2.0);
        assert_eq!(Lane::least(f64::NEG_INFINITY, f64::MIN), f64::NEG_INFINITY);
        assert_eq!(Lane::greatest(f32::from_bits(1), 0.0), f32::from_bits(1));
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0xffff_ffff), f32::from_bits(0x7f80_0001)] {
            for extreme in
                [Lane::least(nan, 1.0), Lane::least(1.0, nan), Lane::greatest(nan, 1.0), Lane::greatest(1.0, nan)]
            {
                assert_eq!(extreme.to_bits(), 0x7fc0_0000);
            }
        }
    }

    /// All dividends of the short types with every number of ranks; for the long types, the ends and the middle.
    #[test]
    fn integer_quotients_truncate_towards_zero() {
        for ranks in (1..=1100).chain([4095, 4096, 32_767, 32_768, 65_535]) {
            let divisor = i64::from(ranks);
            for x in i16::MIN..=i16::MAX {
                assert_eq!(i64::from(x.divided(ranks)), i64::from(x) / divisor, "{x} / {ranks}");
            }
            for x in 0..=u8::MAX {
                assert_eq!(i64::from(x.divided(ranks)), i64::from(x) / divisor, "{x} / {ranks}");
                assert_eq!(i64::from((x as i8).divided(ranks)), i64::from(x as i8) / divisor, "{x} / {ranks}");
            }
            for k in [1, 2, 1000, i64::from(i32::MAX) / divisor] {
                for x in [k * divisor - 1, k * divisor, -k * divisor, 1 - k * divisor, i64::from(i32::MIN)] {
                    assert_eq!(i64::from((x as i32).divided(ranks)), x / divisor, "{x} / {ranks}");
                }
            }
        }
        assert_eq!(i64::MAX.divided(3), i64::MAX / 3);
    }
}
