//! The Rust types of a tensor's elements, and how each becomes a binary32 and back.

use std::fmt::Debug;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::kernels::{ElementKernels, Kernels};

/// An element in memory: `f32`, [`f16`], [`bf16`] or `i32`. Sealed: kernels exist for these four.
pub trait Element: sealed::Sealed + Copy + Debug + Default + PartialEq + Send + Sync + 'static {
    /// The type's code.
    const DTYPE: DType;
}

pub(crate) mod sealed {
    use super::{ElementKernels, Kernels};

    pub trait Sealed: Sized {
        /// The value in binary64; exact.
        fn to_f64(self) -> f64;
        /// The nearest value, ties to even; too large ones become infinities. Integers truncate.
        fn from_f64(value: f64) -> Self;
        /// This type's part of a table.
        fn kernels(table: &Kernels) -> &ElementKernels<Self>;
    }
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl sealed::Sealed for f32 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
    fn kernels(table: &Kernels) -> &ElementKernels<f32> {
        &table.f32
    }
}

impl sealed::Sealed for f16 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }
    #[inline(always)]
    fn from_f64(value: f64) -> f16 {
        f16::from_f32(round_to_odd(value))
    }
    fn kernels(table: &Kernels) -> &ElementKernels<f16> {
        &table.f16
    }
}

impl sealed::Sealed for bf16 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(bf16_to_f32(self))
    }
    #[inline(always)]
    fn from_f64(value: f64) -> bf16 {
        bf16_from_f32(round_to_odd(value))
    }
    fn kernels(table: &Kernels) -> &ElementKernels<bf16> {
        &table.bf16
    }
}

impl sealed::Sealed for i32 {
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn from_f64(value: f64) -> i32 {
        value as i32
    }
    fn kernels(table: &Kernels) -> &ElementKernels<i32> {
        &table.i32
    }
}

/// Bits of a binary64's fraction that a binary32 does not have.
pub(crate) const DROPPED_BITS: u64 = (1 << 29) - 1;

/// To binary32 such that a second rounding, to 16 bits, gives what one rounding would have given: if bits are lost, the
/// last one that is kept is set, so that no lost bits look like a tie (Boldo and Melquiond's "rounding to odd"). Holds
/// for results that are normal in binary32.
#[inline(always)]
pub(crate) fn round_to_odd(value: f64) -> f32 {
    let bits = value.to_bits();
    let sticky = u64::from(bits & DROPPED_BITS != 0) * (DROPPED_BITS + 1);
    f64::from_bits(bits & !DROPPED_BITS | sticky) as f32
}

/// Exact. Without the branch of `half`'s own, so that loops over it vectorise; the next function likewise.
#[inline(always)]
pub(crate) fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// To nearest even.
#[inline(always)]
pub(crate) fn bf16_from_f32(x: f32) -> bf16 {
    let bits = x.to_bits();
    let odd = bits >> 16 & 1;
    let quiet = bits | 0x40_0000;
    bf16::from_bits((if x.is_nan() { quiet } else { bits.wrapping_add(0x7fff + odd) } >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_conversions_are_those_of_half() {
        for bits in 0..=u16::MAX {
            let x = bf16::from_bits(bits);
            assert!(bf16_to_f32(x) == x.to_f32() || x.is_nan() && bf16_to_f32(x).is_nan(), "{bits:#x}");
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(bits) << 16 | low);
                assert_eq!(bf16_from_f32(x).to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }
}
