//! The header of sparse packets, as long as the dense one. Big-endian; `docs/wire.md` draws it.
//!
//! ```text
//!  16           24    26    28      32      36                 40
//!  | collective | wid | idx | phase | shard | flags 2, count 30 | indices ... | values ...
//! ```
//!
//! *Shard* is the packet's number among the packets of its sender and block. *Count* is set in the last packet alone:
//! how many packets there are (the paper's shard counter). In `Taken`, `Have` and `Want`, *shard* is the first one that
//! is missing, and 64 bits behind the header say which of the shards from there on have come.

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = 40;
/// Bytes of the bitmap behind the header of `Taken`, `Have` and `Want`.
pub const BITS_LEN: usize = 8;

const WID_AT: usize = COMMON_LEN + SPEC_LEN;
const ASKS: u32 = 1 << 31;
const IS_FINISHED: u32 = 1 << 30;
const COUNT: u32 = IS_FINISHED - 1;

/// The codes of dense packets are below this one.
const FIRST_SPARSE: u8 = 32;

kind::protocol_kinds! {
    /// Pairs of a block; upwards.
    Shard = FIRST_SPARSE,
    /// Pairs of the sum; downwards.
    Sum,
    /// Which shards of its child a switch has; downwards. With the flag, the child must send all others again.
    Taken,
    /// The first shard of the sum that is missing; upwards.
    Have,
    /// Which shards of the sum are there; the others must come again; upwards.
    Want,
    /// Which ranks have not contributed to the slot's phase? Upwards from hosts, both ways between switches.
    Query,
    /// The answer to `Query`: the ranks that are missing.
    Report,
    /// Ranks disagree on what they reduce: downwards to hosts, both ways between switches.
    Mismatch,
}

/// The header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The child that contributes or asks; in packets downwards, the child that they are for, or any number where they
    /// are for all.
    pub wid: ChildId,
    /// The slot.
    pub idx: u16,
    /// How many times the slot was used before, modulo 2^32.
    pub phase: u32,
    /// The packet's number among its sender's packets of the block, or the first that is missing.
    pub shard: u32,
    /// How many shards there are, in the last shard; 0 in others.
    pub count: u32,
    /// The receiver must say which shards have come; in `Taken`, send all others again.
    pub asks: bool,
    /// The values are the result: no other shard has the same indices, and averages are divided. In `Taken`: all
    /// children have brought all their shards.
    pub is_finished: bool,
    /// The collective that the block belongs to.
    pub spec: Spec,
}

impl Header {
    /// The header behind a common header that was checked.
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        let bytes = bytes.get(..HEADER_LEN).ok_or(DropReason::Truncated)?;
        let last = u32(bytes, 36);
        Ok(Header {
            wid: ChildId(u16(bytes, WID_AT)),
            idx: u16(bytes, 26),
            phase: u32(bytes, 28),
            shard: u32(bytes, 32),
            count: last & COUNT,
            asks: last & ASKS != 0,
            is_finished: last & IS_FINISHED != 0,
            spec: spec_at(bytes, COMMON_LEN)?,
        })
    }

    /// Writes the header behind the common one.
    pub fn emit(&self, bytes: &mut [u8]) {
        put_spec(&mut bytes[COMMON_LEN..], &self.spec);
        bytes[WID_AT..26].copy_from_slice(&self.wid.0.to_be_bytes());
        bytes[26..28].copy_from_slice(&self.idx.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.phase.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.shard.to_be_bytes());
        let flags = if self.asks { ASKS } else { 0 } | if self.is_finished { IS_FINISHED } else { 0 };
        bytes[36..40].copy_from_slice(&(flags | self.count).to_be_bytes());
    }
}

/// The bitmap behind a header.
pub fn bits(body: &[u8]) -> Result<u64, DropReason> {
    match body.try_into() {
        Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
        Err(_) => Err(DropReason::BadLength),
    }
}

/// Writes the bitmap; gives the packet's length.
pub fn put_bits(bytes: &mut [u8], bits: u64) -> usize {
    bytes[HEADER_LEN..][..BITS_LEN].copy_from_slice(&bits.to_be_bytes());
    HEADER_LEN + BITS_LEN
}

/// Describes a packet whose common header was checked; the description is empty if the packet is none of these.
pub fn describe(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::parse(bytes)) else { return Description::default() };
    let has_vector = matches!(kind, Kind::Shard | Kind::Sum);
    Description { kind: kind.name(), slot: Some(header.idx.into()), header_len: HEADER_LEN, has_vector }
}
