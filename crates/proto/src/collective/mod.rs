//! Collectives and their data: what ranks agree on, tensors as the machines see them, and what a vector is in memory.

pub mod encoding;
pub mod tensor;
pub mod tensors;
pub mod values;
