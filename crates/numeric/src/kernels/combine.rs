//! The kernels of a switch: a vector becomes an accumulator, further vectors are combined with it, and the result
//! becomes a vector again.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::dtype::ReduceOp;
use crate::scale::Scale;

/// How vectors of one encoding become an accumulator, are combined, and become vectors again.
///
/// A *vector* is in a packet: big-endian elements, of [`wire_size`](Combine::wire_size) bytes between hosts and
/// switches (back in [`result_size`](Combine::result_size)), and of [`partial_size`](Combine::partial_size) bytes in a *partial* result between switches, which keeps
/// full precision. *Lanes* are an accumulator's bytes, [`lane_size`](Combine::lane_size) for each element, in the
/// machine's byte order and at any alignment; lanes aligned to 64 (as [`Lanes`](crate::Lanes) are) are faster. Every
/// function panics if lengths disagree.
///
/// `lanes o vector` has the lanes as its left operand. The operators of this crate are commutative to the bit, so that
/// their `add` and `add_left` are one function; other operators need not be.
#[derive(Clone, Copy)]
pub struct Combine {
    /// The operator and the elements, as in "sum of f32".
    pub name: &'static str,
    /// Bytes of an element in a packet that a host sends.
    pub wire_size: usize,
    /// Bytes of an element in a result that a host gets: as many, except for codes.
    pub result_size: usize,
    /// Bytes of an element in an accumulator.
    pub lane_size: usize,
    /// Bytes of an element in a partial result between switches: the bytes of a lane, big-endian.
    pub partial_size: usize,
    /// `lanes <- vector`.
    pub store: fn(&mut [u8], &[u8]),
    /// `lanes <- lanes o vector`.
    pub add: fn(&mut [u8], &[u8]),
    /// `lanes <- vector o lanes`.
    pub add_left: fn(&mut [u8], &[u8]),
    /// `vector <- lanes`, a result, rounded once if the vector's elements are narrower.
    pub load: fn(&[u8], &mut [u8]),
    /// `lanes <- partial`.
    pub store_partial: fn(&mut [u8], &[u8]),
    /// `lanes <- lanes o partial`.
    pub add_partial: fn(&mut [u8], &[u8]),
    /// `lanes <- partial o lanes`.
    pub add_left_partial: fn(&mut [u8], &[u8]),
    /// `partial <- lanes`, exactly.
    pub load_partial: fn(&[u8], &mut [u8]),
    /// `lanes <- lanes o other`: both are accumulators.
    pub merge: fn(&mut [u8], &[u8]),
    /// Called once, before `load`, by the machine that has the contributions of all ranks. It divides by their number,
    /// at least 1, if the operator is an average, and does nothing otherwise. Hosts then get averages and need not
    /// divide: a 16-bit float is narrowed once, and its sum may be larger than the type's range. [`fixed`](crate::fixed) leaves the
    /// division to the hosts' decoding, which rounds once too; [`codes`](crate::codes) in 8 bits divide every sum by its step.
    pub finish: fn(&mut [u8], u16),
}

impl fmt::Debug for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Combine").field(&self.name).finish()
    }
}

/// The name stands for all functions.
impl Hash for Combine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// 16-bit floats that travel in two bytes each way, and are added in 32-bit fixed point. The result has the same bits
/// as if hosts encoded ([`codec::encode`](crate::codec::encode)), a switch added with [`fixed`](crate::fixed), and hosts decoded.
/// Lanes, partial sums between switches and the merging of lanes are those of `fixed`.
#[derive(Clone, Copy)]
pub struct Fixed16 {
    /// Bytes of an element in a packet.
    pub wire_size: usize,
    /// `lanes <- vector`, in fixed point. The scale is the block's, the same on all switches.
    pub store: fn(&mut [u8], &[u8], Scale),
    /// `lanes <- lanes + vector`, in fixed point.
    pub add: fn(&mut [u8], &[u8], Scale),
    /// `vector <- lanes`, which hold the contributions of all ranks: converted from fixed point, divided if the
    /// operator is an average, and rounded once. The operator must be the sum or the average.
    pub load: fn(&[u8], &mut [u8], Scale, ReduceOp),
}

/// There is one value for each width: the functions follow from the type of the block's elements.
impl Hash for Fixed16 {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.wire_size.hash(state);
    }
}

impl fmt::Debug for Fixed16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixed16").field("wire_size", &self.wire_size).finish_non_exhaustive()
    }
}
