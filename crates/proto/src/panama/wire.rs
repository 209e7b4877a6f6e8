//! PANAMA's own header; [`crate::aggregation`] has the bodies of two notices. Big-endian; `docs/wire.md` draws them.
//!
//! ```text
//!  16    20    21      22        24      26    28           36             38
//!  | vid | tid | flags | wnd_cap | epoch | wid | collective | contributors | vector or body ...
//! ```
//!
//! `vid`, `tid` and `flags` are first, so that they lie in one beat of a 64-bit bus; 38 bytes in all, so that the
//! vector begins 80 bytes into an Ethernet frame, a whole number of beats.

use std::cmp::Ordering;

use crate::contract::config::JobConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, TreeId};
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};

pub use crate::aggregation::report::Mismatch;

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = COMMON_LEN + 14 + SPEC_LEN;

/// The `wnd_cap` of a worker's packets, which bounds nothing.
pub const NO_CAP: u16 = u16::MAX;

const TID_AT: usize = 20;
const FLAGS_AT: usize = 21;
const CAP_AT: usize = 22;
const EPOCH_AT: usize = 24;
const WID_AT: usize = 26;
const SPEC_AT: usize = 28;
const CONTRIBUTORS_AT: usize = SPEC_AT + SPEC_LEN;

kind::protocol_kinds! {
    /// A rank's block; upwards. From a switch of a lower level: the sum of its children's blocks.
    Contribution,
    /// The sum; downwards.
    Result,
    /// The sender has no result of this VID; upwards. Answered by `Waiting`, `Resend`, `Passed` or `Sync`.
    Lost,
    /// The ranks that the sum waits for; both ways.
    Waiting,
    /// Which ranks does the sum wait for? Between switches, both ways.
    Query,
    /// The receiver's contribution to this VID was lost: it must send the VID again, and all behind it; downwards to a
    /// worker.
    Resend,
    /// This VID was passed: its result came before this packet, or is lost; downwards.
    Passed,
    /// The result of this VID is lost, so a new epoch must begin; upwards to the root.
    Gone,
    /// A new epoch begins, and the receiver must say what it lacks; downwards.
    Sync,
    /// The lowest VID that the sender and all below it lack, for the new epoch; upwards.
    Base,
    /// All continue from this VID in the new epoch; downwards.
    Rewind,
    /// Ranks disagree on what they reduce: downwards to hosts, both ways between switches.
    Mismatch,
    /// The sender and all ranks below it need nothing before this VID; upwards.
    Fin,
    /// A rank leaves: does the receiver need anything before this VID? Downwards.
    FinAsk,
    /// No rank needs anything before this VID; downwards.
    FinDone,
    /// The result of this VID, which the sender or a rank below has; upwards, in place of a contribution. Only
    /// where sums may be partial.
    Known,
}

/// The protocol's own header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The packet's number in its tree: which gradients it carries, and its position in the order (§5), modulo 2^32.
    pub vid: u32,
    /// The tree.
    pub tid: u8,
    /// The least room on the way up, in packets (§4.2.2); in results, the least of all accelerators.
    pub wnd_cap: u16,
    /// How many times the tree went back before, modulo 2^16.
    pub epoch: u16,
    /// The sender's child number at the switch.
    pub wid: ChildId,
    /// The collective that the block belongs to.
    pub spec: Spec,
    /// How many ranks' data the vector contains.
    pub contributors: u16,
}

impl Header {
    /// Reads the header behind a common header that was checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        if bytes[FLAGS_AT] != 0 {
            return Err(DropReason::BadField);
        }
        Ok(Header {
            vid: u32(bytes, COMMON_LEN),
            tid: bytes[TID_AT],
            wnd_cap: u16(bytes, CAP_AT),
            epoch: u16(bytes, EPOCH_AT),
            wid: ChildId(u16(bytes, WID_AT)),
            spec: spec_at(bytes, SPEC_AT)?,
            contributors: u16(bytes, CONTRIBUTORS_AT),
        })
    }

    /// Writes the header behind the common one.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[COMMON_LEN..TID_AT].copy_from_slice(&self.vid.to_be_bytes());
        (bytes[TID_AT], bytes[FLAGS_AT]) = (self.tid, 0);
        bytes[CAP_AT..EPOCH_AT].copy_from_slice(&self.wnd_cap.to_be_bytes());
        bytes[EPOCH_AT..WID_AT].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[WID_AT..SPEC_AT].copy_from_slice(&self.wid.0.to_be_bytes());
        put_spec(&mut bytes[SPEC_AT..], &self.spec);
        bytes[CONTRIBUTORS_AT..HEADER_LEN].copy_from_slice(&self.contributors.to_be_bytes());
    }

    /// The tree as drivers number it.
    pub fn tree(&self) -> TreeId {
        TreeId(self.tid.into())
    }
}

/// Bytes behind the header of BASE and REWIND where sums may be partial.
pub const TOP_LEN: usize = 4;

/// Reads the VID behind the highest result that any rank has, which follows the header of BASE and REWIND where sums
/// may be partial.
pub fn top(body: &[u8]) -> Result<u32, DropReason> {
    body.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(DropReason::Truncated)
}

/// Writes that VID; returns the body's length.
pub fn put_top(top: u32, body: &mut [u8]) -> usize {
    body[..TOP_LEN].copy_from_slice(&top.to_be_bytes());
    TOP_LEN
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::parse(bytes)) else { return Description::default() };
    let has_vector = matches!(kind, Kind::Contribution | Kind::Known | Kind::Result);
    Description { kind: kind.name(), slot: Some(header.tid.into()), header_len: HEADER_LEN, has_vector }
}

/// The tree that a packet names.
pub fn tree_of(job: &JobConfig, bytes: &[u8]) -> Option<TreeId> {
    let tid = u16::from(Header::parse(bytes).ok()?.tid);
    (tid < job.trees).then_some(TreeId(tid))
}

/// The full number nearest to `here` that the VID may stand for.
#[inline]
pub fn near(here: u64, vid: u32) -> u64 {
    let difference = vid.wrapping_sub(here as u32) as i32;
    here.wrapping_add_signed(difference.into())
}

/// The position of a VID among `slots` slots, as many as may be in use at a time.
#[inline]
pub fn slot_of(vid: u64, slots: usize) -> usize {
    (vid % slots as u64) as usize
}

/// The lesser of two VIDs.
pub fn least(a: u32, b: u32) -> u32 {
    if is_before(b, a) { b } else { a }
}

/// True if VID `a` is before VID `b`.
pub fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// How a packet's epoch relates to one's own.
#[inline]
pub fn epoch(of_packet: u16, own: u16) -> Ordering {
    (of_packet.wrapping_sub(own) as i16).cmp(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_32_bits_end() {
        let end = 1 << 32;
        for (here, vid, meant) in [(end - 1, 0, end), (end + 3, u32::MAX, end - 1), (7, 9, 9), (7, 5, 5)] {
            assert_eq!(near(here, vid), meant);
        }
        assert!(is_before(u32::MAX, 0) && !is_before(0, u32::MAX) && !is_before(4, 4));
        assert_eq!((least(u32::MAX, 1), least(1, u32::MAX), least(3, 8)), (u32::MAX, u32::MAX, 3));
    }

    #[test]
    fn epochs_go_on_where_16_bits_end() {
        assert_eq!(epoch(0, u16::MAX), Ordering::Greater);
        assert_eq!(epoch(u16::MAX, 0), Ordering::Less);
        assert_eq!(epoch(9, 9), Ordering::Equal);
    }
}
