//! The Rust types of a tensor's elements.

use std::fmt::Debug;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::kernels::{ElementKernels, Kernels};
use crate::number::{Number, round_to_odd};

/// An element in memory: a float, or an integer of a type that [`DType`] names. The trait is sealed: kernels exist for
/// these nine types.
pub trait Element: sealed::Sealed + Copy + Debug + Default + PartialEq + Send + Sync + 'static {
    /// The type's code.
    const DTYPE: DType;
}

pub(crate) mod sealed {
    use super::{ElementKernels, Kernels};

    pub trait Sealed: Sized {
        /// This type's part of a table.
        fn kernels(table: &Kernels) -> &ElementKernels<Self>;
    }
}

macro_rules! element {
    ($type:ty, $field:ident, $dtype:ident) => {
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }

        impl sealed::Sealed for $type {
            fn kernels(table: &Kernels) -> &ElementKernels<$type> {
                &table.$field
            }
        }
    };
}

element!(f32, f32, F32);
element!(f16, f16, F16);
element!(bf16, bf16, BF16);
element!(i32, i32, I32);
element!(f64, f64, F64);
element!(i8, i8, I8);
element!(i16, i16, I16);
element!(i64, i64, I64);
element!(u8, u8, U8);

/// The types of [`DType::FIXED`].
pub(crate) trait FixedPoint: Number + Element {
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
