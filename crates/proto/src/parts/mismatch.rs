//! The body of the packets that tell ranks that they disagree.

use crate::collective::tensor::Spec;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::wire::{dtype_op, parse_dtype_op, u16, u32};

/// The body of a `Mismatch`: two ranks, and what each brings; the roots that they name follow if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// One rank.
    pub a: Rank,
    /// What it brings.
    pub a_spec: Spec,
    /// The other.
    pub b: Rank,
    /// What that one brings.
    pub b_spec: Spec,
}

impl Mismatch {
    /// Bytes of the body if neither rank names a root ...
    const SHORT: usize = 16;
    /// ... and if one does, which is the most.
    pub const MAX_LEN: usize = 20;

    /// Reads the body behind a packet's headers.
    pub fn parse(body: &[u8]) -> Result<Mismatch, DropReason> {
        let roots = match body.len() {
            Mismatch::SHORT => [Rank(0); 2],
            Mismatch::MAX_LEN => [16, 18].map(|at| Rank(u16(body, at))),
            _ => return Err(DropReason::BadLength),
        };
        let (a, b) = (parse_dtype_op(body[4], roots[0])?, parse_dtype_op(body[5], roots[1])?);
        let spec = |(dtype, op, primitive), at| Spec { elements: u32(body, at), dtype, op, primitive };
        let (a_spec, b_spec) = (spec(a, 8), spec(b, 12));
        let mismatch = Mismatch { a: Rank(u16(body, 0)), a_spec, b: Rank(u16(body, 2)), b_spec };
        if mismatch.body_len() != body.len() {
            return Err(DropReason::BadLength);
        }
        let has_none = |(spec, root): (Spec, Rank)| spec.primitive.root().is_none() && root != Rank(0);
        if [a_spec, b_spec].into_iter().zip(roots).any(has_none) {
            return Err(DropReason::BadField);
        }
        Ok(mismatch)
    }

    fn body_len(&self) -> usize {
        let is_rooted = [self.a_spec, self.b_spec].iter().any(|spec| spec.primitive.root().is_some());
        if is_rooted { Mismatch::MAX_LEN } else { Mismatch::SHORT }
    }

    /// Writes the body; gives its length.
    pub fn emit(&self, body: &mut [u8]) -> usize {
        let body = &mut body[..self.body_len()];
        body[0..2].copy_from_slice(&self.a.0.to_be_bytes());
        body[2..4].copy_from_slice(&self.b.0.to_be_bytes());
        body[4] = dtype_op(&self.a_spec);
        body[5] = dtype_op(&self.b_spec);
        body[6..8].fill(0);
        body[8..12].copy_from_slice(&self.a_spec.elements.to_be_bytes());
        body[12..16].copy_from_slice(&self.b_spec.elements.to_be_bytes());
        if body.len() == Mismatch::MAX_LEN {
            for (spec, at) in [(&self.a_spec, 16), (&self.b_spec, 18)] {
                let root = spec.primitive.root().unwrap_or_default();
                body[at..at + 2].copy_from_slice(&root.0.to_be_bytes());
            }
        }
        body.len()
    }
}
