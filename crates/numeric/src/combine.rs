//! What a switch does with vectors of any encoding: they become an accumulator, are combined in it, and leave it.
//!
//! A [`Combine`] is chosen once for a job or a collective and called once a block. [`native`] combines elements as what
//! they are, 16-bit floats as binary32 that is rounded once; [`fixed`] adds 32-bit fixed point; [`fixed_16`] adds, in
//! 32-bit fixed point, 16-bit floats that travel as they are (SwitchML §4.6).

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::dtype::{DType, ReduceOp};
use crate::kernels;
use crate::scale::Scale;

/// How vectors of one encoding become an accumulator, are combined, and become vectors again.
///
/// A *vector* is what a packet carries: big-endian elements of [`wire_size`](Combine::wire_size) bytes between hosts and
/// switches; of [`partial_size`](Combine::partial_size) bytes in a *partial* result between switches, which loses
/// nothing. *Lanes* are an accumulator's bytes, of [`lane_size`](Combine::lane_size) an element in the machine's own
/// order, at any alignment; aligned to 64 (as [`Lanes`](crate::Lanes) are) they are faster. Every function panics if
/// lengths disagree.
///
/// `lanes o vector` has the lanes as its left operand. The operators of this crate are commutative to the bit, so that
/// their `add` and `add_left` are one function; another's need not be.
#[derive(Clone, Copy)]
pub struct Combine {
    /// What is combined and how, as "sum of f32".
    pub name: &'static str,
    /// Bytes of an element in a packet that a host sends or gets.
    pub wire_size: usize,
    /// Bytes of an element in an accumulator.
    pub lane_size: usize,
    /// Bytes of an element in a partial result between switches: those of a lane, big-endian.
    pub partial_size: usize,
    /// `lanes <- vector`.
    pub store: fn(&mut [u8], &[u8]),
    /// `lanes <- lanes o vector`.
    pub add: fn(&mut [u8], &[u8]),
    /// `lanes <- vector o lanes`.
    pub add_left: fn(&mut [u8], &[u8]),
    /// `vector <- lanes`, rounded once where a vector's elements are narrower.
    pub load: fn(&[u8], &mut [u8]),
    /// `lanes <- partial`.
    pub store_partial: fn(&mut [u8], &[u8]),
    /// `lanes <- lanes o partial`.
    pub add_partial: fn(&mut [u8], &[u8]),
    /// `lanes <- partial o lanes`.
    pub add_left_partial: fn(&mut [u8], &[u8]),
    /// `partial <- lanes`, exactly.
    pub load_partial: fn(&[u8], &mut [u8]),
    /// `lanes <- lanes o other`, accumulators both.
    pub merge: fn(&mut [u8], &[u8]),
    /// What whoever has the contributions of all ranks does once, before `load`: divides by their number, at least 1,
    /// where the operator is an average, and nothing otherwise. Hosts get averages then, and divide no more: a 16-bit
    /// float is rounded once, and its sum may be larger than the type's numbers. [`fixed`] leaves the division to the
    /// hosts' decoding, which rounds once too.
    pub finish: fn(&mut [u8], u16),
}

impl fmt::Debug for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Combine").field(&self.name).finish()
    }
}

/// The name stands for the functions.
impl Hash for Combine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Elements as what they are; `None` for what has no meaning ([`ReduceOp::takes`]).
pub fn native(dtype: DType, op: ReduceOp) -> Option<&'static Combine> {
    kernels::best().combine(dtype, op)
}

/// Fixed point: wrapping integers of 32 bits. The division of an average is the hosts'.
pub fn fixed() -> &'static Combine {
    &kernels::best().fixed
}

/// 16-bit floats that travel as they are, each way, and are added in 32-bit fixed point. The result has the bits that it
/// would have if hosts encoded ([`codec::encode`](crate::codec::encode)), a switch added with [`fixed`], and hosts decoded.
/// Lanes are those of `fixed`, and so are partial sums between switches and the merging of lanes.
#[derive(Clone, Copy)]
pub struct Fixed16 {
    /// Bytes of an element in a packet.
    pub wire_size: usize,
    /// `lanes <- vector`, in fixed point. The scale is that of the block, the same for all of it and on all switches.
    pub store: fn(&mut [u8], &[u8], Scale),
    /// `lanes <- lanes + vector`, likewise.
    pub add: fn(&mut [u8], &[u8], Scale),
    /// `vector <- lanes` which hold the contributions of all ranks: back from fixed point, divided if the operator is an
    /// average, and rounded once. The operator is the sum or the average.
    pub load: fn(&[u8], &mut [u8], Scale, ReduceOp),
}

/// There is one of each width: the functions follow from the type of the block's elements.
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

/// The 16-bit floats' fixed point; `None` for other types.
pub fn fixed_16(dtype: DType) -> Option<&'static Fixed16> {
    match dtype {
        DType::F16 => Some(&kernels::best().fixed_f16),
        DType::BF16 => Some(&kernels::best().fixed_bf16),
        _ => None,
    }
}
