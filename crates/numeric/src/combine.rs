//! How a switch combines vectors of an encoding.
//!
//! A [`Combine`] is chosen once for a job or a collective and called once a block. [`native`] combines elements of
//! their own type (16-bit floats as binary32 that is rounded once); [`fixed`] adds 32-bit fixed point; [`fixed_16`]
//! adds, in 32-bit fixed point, 16-bit floats that travel in two bytes (SwitchML §4.6).

use crate::dtype::{DType, ReduceOp};
use crate::kernels::{self, Combine, Fixed16};
use crate::scale::CodeWidth;
#[cfg(doc)]
use crate::scale::Scale;

/// Combines elements of their own type; `None` if the operator has no meaning for the type ([`ReduceOp::takes`]).
pub fn native(dtype: DType, op: ReduceOp) -> Option<&'static Combine> {
    kernels::best().combine(dtype, op)
}

/// Adds fixed point: wrapping integers of 32 bits. Hosts divide an average.
pub fn fixed() -> &'static Combine {
    &kernels::best().fixed
}

/// Adds codes of 8 bits ([`Scale::codes`]) in lanes of 16, whose sums hosts get in this width. Hosts divide an average.
pub fn codes(width: CodeWidth) -> &'static Combine {
    match width {
        CodeWidth::Eight => &kernels::best().codes_8,
        CodeWidth::Sixteen => &kernels::best().codes_16,
    }
}

/// Adds the levels of rotated codes of 4 bits ([`Scale::rotated`]), whose sums hosts get in this width. An element of a
/// vector is a byte, of two codes. Hosts divide an average.
pub fn rotated(width: CodeWidth) -> &'static Combine {
    match width {
        CodeWidth::Eight => &kernels::best().rotated_8,
        CodeWidth::Sixteen => &kernels::best().rotated_16,
    }
}

/// The kernels for 16-bit floats in fixed point; `None` for other types.
pub fn fixed_16(dtype: DType) -> Option<&'static Fixed16> {
    match dtype {
        DType::F16 => Some(&kernels::best().fixed_f16),
        DType::BF16 => Some(&kernels::best().fixed_bf16),
        _ => None,
    }
}
