//! The data of one collective, as a host machine sees it: blocks to encode and blocks to decode.
//!
//! Drivers implement [`Tensor`] over real memory (with the kernels of `tributary-numeric`) or over fingerprints.
//! Two families of calls serve the two families of protocols: *fixed point* for those that sum in the network
//! (`exponent`, `encode`, `decode`), *native* for those that sum at hosts (`read_input` … `write`).

use std::any::Any;
use std::fmt;
use std::ops::Range;

use tributary_numeric::{BlockExponent, DType, ReduceOp, Scale};

use crate::ids::WorkerId;

/// What ranks must agree on before they can reduce together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Number of elements on every rank: at most 2^32 - 1; the caller splits larger tensors.
    pub elements: u32,
    /// Their type.
    pub dtype: DType,
    /// The operator.
    pub op: ReduceOp,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} {} elements", self.op, self.elements, self.dtype)
    }
}

/// The input and the output of one collective. Input and output may be the same memory: a machine never encodes a
/// block again after it has decoded that block. `Any`, so that the driver that handed it over can take its own type
/// back.
pub trait Tensor: Any + Send {
    /// Size, type and operator.
    fn spec(&self) -> Spec;
    /// The only rank of the job that the result is for, the same on all ranks: a reduce. A machine need not bring it to
    /// others then.
    fn destination(&self) -> Option<WorkerId> {
        None
    }

    /// Bytes in the packet buffer for the fixed-point vector of a block of `elements`; 4 on the wire for each.
    fn vector_len(&self, elements: usize) -> usize;
    /// The magnitude of a block of the input.
    fn exponent(&self, block: Range<usize>) -> BlockExponent;
    /// Writes a block of the input as fixed point.
    fn encode(&self, block: Range<usize>, scale: Scale, vector: &mut [u8]);
    /// Writes the summed block to the output: scaled back, and divided where the operator is an average.
    fn decode(&mut self, block: Range<usize>, scale: Scale, vector: &[u8]);

    /// Bytes in the packet buffer for a block of `elements` in their own type; `dtype.size()` on the wire for each.
    fn native_len(&self, elements: usize) -> usize;
    /// Copies a block of the input, in its own type.
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]);
    /// Copies a block of the output, in its own type.
    fn read_output(&self, block: Range<usize>, bytes: &mut [u8]);
    /// `output[block] <- input[block] + bytes`.
    fn accumulate(&mut self, block: Range<usize>, bytes: &[u8]);
    /// `output[block] <- bytes`.
    fn write(&mut self, block: Range<usize>, bytes: &[u8]);
    /// `output[block] <- output[block] / world` where the operator is an average; nothing otherwise.
    fn divide(&mut self, block: Range<usize>, world: u16);
}
