//! The ring's packets behind the common header. Big-endian; `docs/protocols/ring.md` draws them.

use crate::contract::config::JobConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, Common, SPEC_LEN, put_spec, spec_at, u16, u32};
use crate::reliability::link::Numbers;
pub use crate::reliability::link::wire::{
    ACK, Ack, DATA, FAULT, Fault, HEADER_LEN, MAX_ACK_WORDS, MAX_ATTEMPT, MAX_CONTROL_LEN, NOTICE, Notice,
};

/// Bytes before the vector of a block.
pub const DATA_LEN: usize = COMMON_LEN + SPEC_LEN + 12;

const GATHER: u8 = 0x80;
const ACK_NOW: u8 = 0x40;

/// Which half of the algorithm a block is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Reduce-scatter: a partial sum.
    Reduce,
    /// All-gather: the result.
    Gather,
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Data {
    /// The packet's number on this link, modulo 2^32.
    pub seq: u32,
    /// The block's first element.
    pub offset: u32,
    /// The collective that the sender brings.
    pub spec: Spec,
    /// The collective's number, modulo 2^16.
    pub op: u16,
    /// Partial sum or result.
    pub phase: Phase,
    /// The sender waits for an acknowledgement.
    pub ack_now: bool,
    /// How often the packet was sent: from 1 to [`MAX_ATTEMPT`], then from 1 again.
    pub attempt: u8,
}

/// Writes the common header.
pub fn emit_common(bytes: &mut [u8], kind: u8, job: &JobConfig) {
    Common { kind, ..job.common() }.emit(bytes);
}

/// Reads the common header of a packet for this job.
pub fn parse_common(bytes: &[u8], job: &JobConfig) -> Result<u8, DropReason> {
    Common::parse_kind(bytes, job)
}

impl Data {
    /// The packet's place in the link.
    pub fn numbers(&self) -> Numbers {
        let Data { seq, attempt, ack_now, .. } = *self;
        Numbers { seq, attempt, ack_now }
    }

    /// Writes the header behind the common one.
    pub fn emit(&self, bytes: &mut [u8]) {
        put_spec(&mut bytes[COMMON_LEN..], &self.spec);
        let own = &mut bytes[COMMON_LEN + SPEC_LEN..DATA_LEN];
        own[0..4].copy_from_slice(&self.seq.to_be_bytes());
        own[4..8].copy_from_slice(&self.offset.to_be_bytes());
        own[8..10].copy_from_slice(&self.op.to_be_bytes());
        let gather = if self.phase == Phase::Gather { GATHER } else { 0 };
        own[10] = gather | if self.ack_now { ACK_NOW } else { 0 } | self.attempt & MAX_ATTEMPT;
        own[11] = 0;
    }

    /// Reads the header of a whole packet.
    pub fn parse(bytes: &[u8]) -> Result<Data, DropReason> {
        let spec = spec_at(bytes, COMMON_LEN)?;
        let own: &[u8; 12] = bytes[COMMON_LEN + SPEC_LEN..].first_chunk().ok_or(DropReason::Truncated)?;
        let attempt = own[10] & MAX_ATTEMPT;
        if attempt == 0 {
            return Err(DropReason::BadField);
        }
        Ok(Data {
            seq: u32(own, 0),
            offset: u32(own, 4),
            spec,
            op: u16(own, 8),
            phase: if own[10] & GATHER != 0 { Phase::Gather } else { Phase::Reduce },
            ack_now: own[10] & ACK_NOW != 0,
            attempt,
        })
    }
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    crate::reliability::link::wire::describe(bytes, DATA_LEN)
}
