//! SparCML's packets behind the common header. Big-endian; `docs/protocols/sparcml.md` draws them.

use super::codec::Shape;
use crate::aggregation::ordered::VectorFormat;
use crate::contract::drop_reason::DropReason;
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, put_spec, spec_at, u16, u32};
use crate::reliability::link::Numbers;
pub use crate::reliability::link::wire::{
    ACK, Ack, DATA, FAULT, Fault, HEADER_LEN, MAX_ACK_WORDS, MAX_ATTEMPT, MAX_CONTROL_LEN, NOTICE, Notice,
};

/// Bytes before a fragment's body.
pub const DATA_LEN: usize = COMMON_LEN + SPEC_LEN + 20;
/// The greatest number of a step.
pub const MAX_LABEL: u8 = 0x1F;

const PARTIAL: u8 = 0x80;
const ACK_NOW: u8 = 0x40;

/// The header of a fragment of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    /// The collective, as the sender knows it.
    pub spec: Spec,
    /// The packet's number in this link, modulo 2^32.
    pub seq: u32,
    /// The collective's number, modulo 2^16.
    pub op: u16,
    /// The sender waits for an acknowledgement.
    pub ack_now: bool,
    /// How many times the packet was sent, 1 to [`MAX_ATTEMPT`], then from 1 again.
    pub attempt: u8,
    /// The number of the step, by which the receiver knows the message.
    pub label: u8,
    /// The body's shape.
    pub shape: Shape,
    /// The form of the body's values.
    pub format: VectorFormat,
    /// How many indices the body has.
    pub count: u16,
    /// The number of the chunk.
    pub chunk: u16,
    /// The number of the fragment.
    pub fragment: u32,
    /// How many fragments the message has.
    pub fragments: u32,
}

impl Data {
    /// The packet's position in the link.
    pub fn numbers(&self) -> Numbers {
        let Data { seq, attempt, ack_now, .. } = *self;
        Numbers { seq, attempt, ack_now }
    }

    /// Writes the header behind the common one.
    pub fn emit(&self, bytes: &mut [u8]) {
        put_spec(&mut bytes[COMMON_LEN..], &self.spec);
        let own = &mut bytes[COMMON_LEN + SPEC_LEN..DATA_LEN];
        own[0..4].copy_from_slice(&self.seq.to_be_bytes());
        own[4..6].copy_from_slice(&self.op.to_be_bytes());
        let partial = if self.format == VectorFormat::Partial { PARTIAL } else { 0 };
        own[6] = partial | if self.ack_now { ACK_NOW } else { 0 } | self.attempt & MAX_ATTEMPT;
        own[7] = (self.shape as u8) << 5 | self.label & MAX_LABEL;
        own[8..10].copy_from_slice(&self.count.to_be_bytes());
        own[10..12].copy_from_slice(&self.chunk.to_be_bytes());
        own[12..16].copy_from_slice(&self.fragment.to_be_bytes());
        own[16..20].copy_from_slice(&self.fragments.to_be_bytes());
    }

    /// Reads the header of a whole packet.
    pub fn parse(bytes: &[u8]) -> Result<Data, DropReason> {
        let spec = spec_at(bytes, COMMON_LEN)?;
        let own: &[u8; 20] = bytes[COMMON_LEN + SPEC_LEN..].first_chunk().ok_or(DropReason::Truncated)?;
        let shape = match own[7] >> 5 {
            0 => Shape::Sparse,
            1 => Shape::Dense,
            2 => Shape::Full,
            _ => return Err(DropReason::BadField),
        };
        let data = Data {
            spec,
            seq: u32(own, 0),
            op: u16(own, 4),
            ack_now: own[6] & ACK_NOW != 0,
            attempt: own[6] & MAX_ATTEMPT,
            label: own[7] & MAX_LABEL,
            shape,
            format: if own[6] & PARTIAL != 0 { VectorFormat::Partial } else { VectorFormat::Host },
            count: u16(own, 8),
            chunk: u16(own, 10),
            fragment: u32(own, 12),
            fragments: u32(own, 16),
        };
        if data.attempt == 0 || data.fragment >= data.fragments {
            return Err(DropReason::BadField);
        }
        Ok(data)
    }
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    crate::reliability::link::wire::describe(bytes, DATA_LEN)
}
