//! The data of one collective, as a host machine sees it: blocks to encode and blocks to decode.
//!
//! Drivers implement [`Tensor`] over real memory (with the kernels of `tributary-numeric`) or over fingerprints.
//! Two families of calls serve the two families of protocols: *fixed point* for those that sum in the network
//! (`exponent`, `encode`, `decode`), *native* for those that sum at hosts (`read_input` … `write`).

use std::any::Any;
use std::fmt;
use std::hash::Hasher;
use std::ops::Range;

use tributary_numeric::{BlockExponent, DType, ReduceOp, Scale};

use crate::contract::ids::Rank;
use crate::contract::sparse::SparseTensor;

/// Who brings data to a collective, and who gets the result (Canary §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// Every rank brings some, and every rank gets the result.
    #[default]
    Allreduce,
    /// Every rank brings some, and this one gets the result.
    Reduce(Rank),
    /// This rank brings some, and every other gets it, bit for bit: 32-bit words, which the others' zeros leave as they
    /// are where a protocol has to sum. The type is `i32` and the operator the sum.
    Broadcast(Rank),
}

impl Primitive {
    /// The rank that all ranks must name alike, if there is one.
    pub fn root(self) -> Option<Rank> {
        match self {
            Primitive::Allreduce => None,
            Primitive::Reduce(root) | Primitive::Broadcast(root) => Some(root),
        }
    }

    /// True if the rank has data to bring.
    pub fn brings(self, rank: Rank) -> bool {
        !matches!(self, Primitive::Broadcast(root) if root != rank)
    }

    /// The one rank that the result is for; `None` where it is for several.
    pub fn sole_recipient(self) -> Option<Rank> {
        match self {
            Primitive::Reduce(root) => Some(root),
            Primitive::Allreduce | Primitive::Broadcast(_) => None,
        }
    }

    /// The one rank that brings something; `None` where several do.
    pub fn sole_source(self) -> Option<Rank> {
        match self {
            Primitive::Broadcast(root) => Some(root),
            Primitive::Allreduce | Primitive::Reduce(_) => None,
        }
    }

    /// True if the result is written to the rank's output.
    pub fn gets(self, rank: Rank) -> bool {
        match self {
            Primitive::Allreduce => true,
            Primitive::Reduce(root) => rank == root,
            Primitive::Broadcast(root) => rank != root,
        }
    }
}

/// What ranks must agree on before they can reduce together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Number of elements on every rank: at most 2^32 - 1; the caller splits larger tensors.
    pub elements: u32,
    /// Their type.
    pub dtype: DType,
    /// The operator.
    pub op: ReduceOp,
    /// Who brings data, and who gets the result.
    pub primitive: Primitive,
}

impl Spec {
    /// A collective without elements: what packets and slots say that are about none.
    pub const NOTHING: Spec = Spec::allreduce(0, DType::I32, ReduceOp::Sum);

    /// An allreduce.
    pub const fn allreduce(elements: u32, dtype: DType, op: ReduceOp) -> Spec {
        Spec { elements, dtype, op, primitive: Primitive::Allreduce }
    }

    /// A reduce to one rank.
    pub const fn reduce(elements: u32, dtype: DType, op: ReduceOp, root: Rank) -> Spec {
        Spec { elements, dtype, op, primitive: Primitive::Reduce(root) }
    }

    /// A broadcast of so many 32-bit words.
    pub const fn broadcast(words: u32, root: Rank) -> Spec {
        Spec { elements: words, dtype: DType::I32, op: ReduceOp::Sum, primitive: Primitive::Broadcast(root) }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spec { elements, dtype, op, primitive } = self;
        match primitive {
            Primitive::Allreduce | Primitive::Reduce(_) => {
                match op {
                    ReduceOp::Own(_) => write!(f, "{op} of {elements} bytes")?,
                    _ => write!(f, "{op} of {elements} {dtype} elements")?,
                }
                primitive.root().map_or(Ok(()), |root| write!(f, " for rank {root}"))
            }
            Primitive::Broadcast(root) => write!(f, "broadcast of {elements} 32-bit words from rank {root}"),
        }
    }
}

/// The input and the output of one collective. Input and output may be the same memory: a machine never encodes a
/// block again after it has decoded that block. `Any`, so that the driver that handed it over can take its own type
/// back.
pub trait Tensor: Any + Send {
    /// Size, type, operator, who brings data and who gets the result. A machine calls `encode` and its like only on ranks
    /// that bring data, and on ranks that get none it need not call `decode` and its like, nor bring the result there.
    fn spec(&self) -> Spec;

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
    /// The same, of a result that a switch has summed in fixed point of this scale.
    fn write_scaled(&mut self, block: Range<usize>, _scale: Scale, bytes: &[u8]) {
        self.write(block, bytes);
    }
    /// The same, of a result over so many of the ranks, of a job whose sums need not wait for all.
    fn write_partial(&mut self, block: Range<usize>, _contributors: u16, bytes: &[u8]) {
        self.write(block, bytes);
    }
    /// `output[block] <- output[block] / world` where the operator is an average; nothing otherwise.
    fn divide(&mut self, block: Range<usize>, world: u16);

    /// The tensor as indices and values, where it is sparse: then nothing else but `spec` is asked of it.
    fn sparse(&self) -> Option<&dyn SparseTensor> {
        None
    }
    /// The same, to write the result to.
    fn sparse_mut(&mut self) -> Option<&mut dyn SparseTensor> {
        None
    }

    /// The same data in memory of its own, for explorers of machines; `None` where the data is the caller's memory, which
    /// is there once.
    fn fork(&self) -> Option<Box<dyn Tensor>> {
        None
    }
    /// Feeds what was written so far to a hasher, where [`Tensor::fork`] makes copies.
    fn hash_state(&self, _hasher: &mut dyn Hasher) {}
}
