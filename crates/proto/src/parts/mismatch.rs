//! The body of the packets that tell ranks that they disagree.

use crate::drop_reason::DropReason;
use crate::ids::WorkerId;
use crate::tensor::Spec;
use crate::wire::{dtype_op, parse_dtype_op, u16, u32};

/// The body of a `Mismatch`: two ranks, and what each brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// One rank.
    pub a: WorkerId,
    /// What it brings.
    pub a_spec: Spec,
    /// The other.
    pub b: WorkerId,
    /// What that one brings.
    pub b_spec: Spec,
}

impl Mismatch {
    /// Bytes of the body.
    pub const LEN: usize = 16;

    /// Reads the body behind a packet's headers.
    pub fn parse(body: &[u8]) -> Result<Mismatch, DropReason> {
        let body: &[u8; Mismatch::LEN] = body.try_into().map_err(|_| DropReason::BadLength)?;
        let ((a_dtype, a_op), (b_dtype, b_op)) = (parse_dtype_op(body[4])?, parse_dtype_op(body[5])?);
        Ok(Mismatch {
            a: WorkerId(u16(body, 0)),
            a_spec: Spec { elements: u32(body, 8), dtype: a_dtype, op: a_op },
            b: WorkerId(u16(body, 2)),
            b_spec: Spec { elements: u32(body, 12), dtype: b_dtype, op: b_op },
        })
    }

    /// Writes the body.
    pub fn emit(&self, body: &mut [u8]) {
        let body = &mut body[..Mismatch::LEN];
        body[0..2].copy_from_slice(&self.a.0.to_be_bytes());
        body[2..4].copy_from_slice(&self.b.0.to_be_bytes());
        body[4] = dtype_op(&self.a_spec);
        body[5] = dtype_op(&self.b_spec);
        body[6..8].fill(0);
        body[8..12].copy_from_slice(&self.a_spec.elements.to_be_bytes());
        body[12..16].copy_from_slice(&self.b_spec.elements.to_be_bytes());
    }
}
