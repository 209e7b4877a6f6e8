//! Numbers on their way through the network: element types, operators, block floating point and the kernels.
//!
//! Start at [`DType`] and [`ReduceOp`] (what can be summed), then [`Scale`] (how a block of floats becomes 32-bit
//! fixed point, SwitchML §4.6 and appendix E), then [`lanes`] (what a switch does with the vectors of packets).
//! This is the only crate with unsafe arithmetic.

mod dtype;
pub mod lanes;
mod scale;

pub use dtype::{DType, ReduceOp};
pub use scale::{BlockExponent, Scale};
