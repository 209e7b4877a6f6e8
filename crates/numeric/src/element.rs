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
        f64::from(self.to_f32())
    }
    #[inline(always)]
    fn from_f64(value: f64) -> bf16 {
        bf16::from_f32(round_to_odd(value))
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
