//! What hosts are given to do.

mod permutation;

pub use permutation::permutation;
