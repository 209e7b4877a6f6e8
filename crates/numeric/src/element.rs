//! The Rust types of a tensor's elements.

use std::fmt::Debug;

use half::{bf16, f16};

use crate::dtype::DType;
use crate::kernels::{ElementKernels, Kernels};

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
