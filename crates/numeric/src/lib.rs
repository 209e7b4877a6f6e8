//! Numbers on their way through the network: element types, operators, block floating point and the kernels.
//!
//! Start at [`DType`] and [`ReduceOp`] (what can be summed), then [`Scale`] (how a block of floats becomes 32-bit
//! fixed point, SwitchML §4.6 and appendix E), then [`codec`] (what a host does with elements) and [`Combine`] (what
//! a switch does with the vectors of packets, in [`Lanes`]). `docs/numerics.md` has the bounds and their proofs.
//! This is the only crate with unsafe arithmetic: the SIMD files of [`kernels`].

mod buffer;
pub mod codec;
mod codes;
mod combine;
mod dtype;
mod element;
pub mod kernels;
pub mod lanes;
mod non_finite;
mod number;
mod operator;
pub mod prefetch;
mod scale;
pub mod splitmix;
pub mod thc;

pub use buffer::Lanes;
pub use combine::{codes, fixed, fixed_16, native, rotated};
pub use dtype::{DType, ReduceOp, has_fixed_point};
pub use element::Element;
pub use half::{bf16, f16};
pub use kernels::{Combine, Fixed16};
pub use number::round_to_odd;
pub use scale::{BlockExponent, CodeWidth, Codes, Rotated, Scale, padded};
pub use splitmix::splitmix64;
