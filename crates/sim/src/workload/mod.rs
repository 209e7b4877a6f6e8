//! What hosts are given to do besides jobs.

mod permutation;
mod uniform;

pub use permutation::permutation;
pub use uniform::{Uniform, UniformGroup};
