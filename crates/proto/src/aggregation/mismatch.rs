//! The body of packets that tell ranks that they disagree.

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::tensor::Spec;
use crate::contract::wire::{SPEC_LEN, put_spec, spec_at, u16};

/// The body of a `Mismatch`: two ranks, and the collective that each brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mismatch {
    /// One rank.
    pub a: Rank,
    /// The collective that `a` brings.
    pub a_spec: Spec,
    /// The other rank.
    pub b: Rank,
    /// The collective that `b` brings.
    pub b_spec: Spec,
}

impl Mismatch {
    /// Bytes of the body.
    pub const LEN: usize = 4 + 2 * SPEC_LEN;

    /// Reads the body behind a packet's headers.
    pub fn parse(body: &[u8]) -> Result<Mismatch, DropReason> {
        if body.len() != Mismatch::LEN {
            return Err(DropReason::BadLength);
        }
        let (a_spec, b_spec) = (spec_at(body, 4)?, spec_at(body, 4 + SPEC_LEN)?);
        Ok(Mismatch { a: Rank(u16(body, 0)), a_spec, b: Rank(u16(body, 2)), b_spec })
    }

    /// Writes the body; returns its length.
    pub fn emit(&self, body: &mut [u8]) -> usize {
        body[0..2].copy_from_slice(&self.a.0.to_be_bytes());
        body[2..4].copy_from_slice(&self.b.0.to_be_bytes());
        put_spec(&mut body[4..], &self.a_spec);
        put_spec(&mut body[4 + SPEC_LEN..], &self.b_spec);
        Mismatch::LEN
    }
}
