//! The data of one collective, as a host machine sees it: blocks to encode and blocks to decode.
//!
//! Drivers implement [`Tensor`] over real memory (with the kernels of `tributary-numeric`) or over fingerprints.
//! Two families of calls serve two families of protocols: *fixed point* (`exponent`, `encode`, `decode`) for protocols
//! that sum in the network, *native* (`read_input` … `write`) for protocols that sum at hosts or sum elements as they
//! are.

use std::any::Any;
use std::fmt;
use std::hash::Hasher;
use std::ops::Range;

use tributary_numeric::{BlockExponent, DType, ReduceOp, Scale};

use crate::contract::ids::Rank;

/// Which ranks contribute data to a collective, and which get the result (Canary §6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// Every rank contributes, and every rank gets the result.
    #[default]
    Allreduce,
    /// Every rank contributes, and this rank gets the result.
    Reduce(Rank),
    /// This rank's data go to every other rank, bit for bit. The data are 32-bit words; a protocol
    /// that has to sum adds the zeros of the other ranks, which change nothing. The type is `i32` and the operator the
    /// sum.
    Broadcast(Rank),
}

impl Primitive {
    /// The root, on which all ranks must agree, if the primitive has one.
    pub fn root(self) -> Option<Rank> {
        match self {
            Primitive::Allreduce => None,
            Primitive::Reduce(root) | Primitive::Broadcast(root) => Some(root),
        }
    }

    /// True if the rank contributes data.
    pub fn contributes(self, rank: Rank) -> bool {
        !matches!(self, Primitive::Broadcast(root) if root != rank)
    }

    /// The one rank that gets the result; `None` if several do.
    pub fn sole_recipient(self) -> Option<Rank> {
        match self {
            Primitive::Reduce(root) => Some(root),
            Primitive::Allreduce | Primitive::Broadcast(_) => None,
        }
    }

    /// The one rank that contributes; `None` if several do.
    pub fn sole_source(self) -> Option<Rank> {
        match self {
            Primitive::Broadcast(root) => Some(root),
            Primitive::Allreduce | Primitive::Reduce(_) => None,
        }
    }

    /// True if the result is written to the rank's output.
    pub fn receives(self, rank: Rank) -> bool {
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
    /// The elements' type.
    pub dtype: DType,
    /// The operator.
    pub op: ReduceOp,
    /// Which ranks contribute, and which get the result.
    pub primitive: Primitive,
}

impl Spec {
    /// A collective without elements: a barrier; also for packets and slots that belong to no collective.
    pub const NOTHING: Spec = Spec::allreduce(0, DType::I32, ReduceOp::Sum);

    /// An allreduce.
    pub const fn allreduce(elements: u32, dtype: DType, op: ReduceOp) -> Spec {
        Spec { elements, dtype, op, primitive: Primitive::Allreduce }
    }

    /// A reduce to one rank.
    pub const fn reduce(elements: u32, dtype: DType, op: ReduceOp, root: Rank) -> Spec {
        Spec { elements, dtype, op, primitive: Primitive::Reduce(root) }
    }

    /// A broadcast of 32-bit words.
    pub const fn broadcast(words: u32, root: Rank) -> Spec {
        Spec { elements: words, dtype: DType::I32, op: ReduceOp::Sum, primitive: Primitive::Broadcast(root) }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spec { elements, dtype, op, primitive } = self;
        match primitive {
            Primitive::Allreduce if *self == Spec::NOTHING => write!(f, "barrier"),
            Primitive::Allreduce | Primitive::Reduce(_) => {
                match op {
                    ReduceOp::Custom(_) => write!(f, "{op} of {elements} bytes")?,
                    _ => write!(f, "{op} of {elements} {dtype} elements")?,
                }
                primitive.root().map_or(Ok(()), |root| write!(f, " for rank {root}"))
            }
            Primitive::Broadcast(root) => write!(f, "broadcast of {elements} 32-bit words from rank {root}"),
        }
    }
}

/// The input and the output of one collective. Both may be the same memory: unless the tensor leaves its input, a
/// machine never reads a block of the input again after it has written that block of the output. The supertrait `Any`
/// lets the driver that handed a tensor over take its own type back.
pub trait Tensor: Any + Send {
    /// Size, type, operator, and which ranks contribute and get the result. A machine calls `encode` and the other
    /// reading calls only on ranks that contribute. On ranks that get no result, it need not call `decode` and the
    /// other writing calls, nor send the result to the rank.
    fn spec(&self) -> Spec;

    /// True if writing to the output leaves the input as it is, because they do not overlap.
    fn leaves_input(&self) -> bool {
        false
    }

    /// Bytes in the packet buffer for the fixed-point vector of a block of `elements`; on the wire it has 4 bytes for
    /// each.
    fn vector_len(&self, elements: usize) -> usize;
    /// The exponent of a block of the input.
    fn exponent(&self, block: Range<usize>) -> BlockExponent;
    /// The norm of a block of the input, of at most 1,024 elements, where codes are rotated. What draws its exponents draws
    /// its norms alike.
    fn norm(&self, block: Range<usize>) -> BlockExponent {
        self.exponent(block)
    }
    /// Writes a block of the input as fixed point.
    fn encode(&self, block: Range<usize>, scale: Scale, vector: &mut [u8]);
    /// The same; and writes what codes lose of the block to where the caller of the collective wants it, if anywhere.
    fn encode_with_loss(&mut self, block: Range<usize>, scale: Scale, vector: &mut [u8]) {
        self.encode(block, scale, vector);
    }
    /// Writes the summed block to the output: scaled back, and divided if the operator is an average.
    fn decode(&mut self, block: Range<usize>, scale: Scale, vector: &[u8]);

    /// Bytes in the packet buffer for a block of `elements` in their own type; on the wire it has `dtype.size()` bytes
    /// for each.
    fn native_len(&self, elements: usize) -> usize;
    /// Copies a block of the input, in its own type.
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]);
    /// Copies a block of the output, in its own type.
    fn read_output(&self, block: Range<usize>, bytes: &mut [u8]);
    /// `output[block] <- input[block] + bytes`.
    fn accumulate(&mut self, block: Range<usize>, bytes: &[u8]);
    /// `output[block] <- bytes`.
    fn write(&mut self, block: Range<usize>, bytes: &[u8]);
    /// `output[block] <- bytes`, for a result that a switch has summed in fixed point of this scale.
    fn write_scaled(&mut self, block: Range<usize>, _scale: Scale, bytes: &[u8]) {
        self.write(block, bytes);
    }
    /// `output[block] <- bytes`, for a result over some of the ranks, in a job whose sums need not wait for all.
    fn write_partial(&mut self, block: Range<usize>, _contributors: u16, bytes: &[u8]) {
        self.write(block, bytes);
    }
    /// `output[block] <- output[block] / world_size` if the operator is an average; nothing otherwise.
    fn divide(&mut self, block: Range<usize>, world_size: u16);

    /// The tensor as indices and values, if it is sparse. Of a sparse tensor only this, `sparse_mut` and `spec` are
    /// called.
    fn sparse(&self) -> Option<&dyn SparseTensor> {
        None
    }
    /// The sparse tensor, to write the result to.
    fn sparse_mut(&mut self) -> Option<&mut dyn SparseTensor> {
        None
    }

    /// A copy of the data, for explorers of machines; `None` if the data is the caller's memory, which is not copied.
    fn fork(&self) -> Option<Box<dyn Tensor>> {
        None
    }
    /// Feeds what was written so far to a hasher, if [`Tensor::fork`] makes copies.
    fn hash_state(&self, _hasher: &mut dyn Hasher) {}
}

// The data of a sparse collective: values at some indices, which are ascending and distinct.
//
// A rank contributes nothing at indices that it does not have, whatever the operator. The result has all indices that
// any rank has, even where values cancel to zero.

/// The input and the output of a sparse collective, which do not overlap: a machine reads a block's input until the
/// block's result has come.
pub trait SparseTensor {
    /// All indices, by the positions of their elements.
    fn indices(&self) -> &[u32];
    /// The positions of the elements whose indices are in a range.
    fn positions(&self, indices: Range<u32>) -> Range<usize> {
        let at = |bound: u32| self.indices().partition_point(|&index| index < bound);
        at(indices.start)..at(indices.end)
    }
    /// Copies the values of some elements, big-endian.
    fn read_values(&self, positions: Range<usize>, values: &mut [u8]);
    /// Writes the result of a block; called once for each block. The indices are of the block and ascending, the values
    /// big-endian.
    fn write_block(&mut self, block: Range<u32>, indices: &[u32], values: &[u8]);
}
