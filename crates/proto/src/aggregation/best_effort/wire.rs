//! The header of best-effort aggregation. Big-endian; `docs/wire.md` draws it.
//!
//! ```text
//!  16    20     24      28         32      34    36      38        39      40         42               44           52
//!  | seq | prog | index | received | flags | wid | count | attempt | marks | exponent | scale_exponent | collective |
//!  vector
//! ```

use tributary_numeric::BlockExponent;

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{NodeId, Rank};
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};

/// Bytes of the common header and of this one.
pub const HEADER_LEN: usize = SPEC_AT + SPEC_LEN;

const SEQ_AT: usize = COMMON_LEN;
const PROG_AT: usize = 20;
const INDEX_AT: usize = 24;
const RECEIVED_AT: usize = 28;
const FLAGS_AT: usize = 32;
const WID_AT: usize = 34;
const COUNT_AT: usize = 36;
const ATTEMPT_AT: usize = 38;
const MARKS_AT: usize = 39;
const EXPONENT_AT: usize = 40;
const SCALE_AT: usize = 42;
const SPEC_AT: usize = 44;

/// The first bit of the word that holds PROG: the packet is a GACK.
const IS_GACK: u32 = 1 << 31;
/// PROG is counted modulo 2^31.
pub const PROG_MASK: u32 = IS_GACK - 1;

/// Bits of `marks`: the block's own exponent stands for infinities or NaNs; the exponent of its scale does.
const EXPONENT_NON_FINITE: u8 = 1;
const SCALE_NON_FINITE: u8 = 2;

/// The rank in a packet that answers no rank.
pub const NOBODY: Rank = Rank(u16::MAX);

kind::protocol_kinds! {
    /// A rank's block, towards its server.
    Gradient,
    /// A switch's sum of several ranks' blocks, towards the server. If it is not full, a bitmap of the ranks follows
    /// the vector.
    Sum,
    /// The receiver's gradient has arrived: to one worker (the paper's gradient ACK).
    Gack,
    /// The result: to all ranks behind one switch, or to one rank (the paper's aggregation ACK).
    Aack,
    /// Where is this block? A worker to its server; switches on the way say what they hold.
    Query,
    /// The ranks that have not been heard: a server to a worker.
    Report,
    /// The receiver must send this block again, past all aggregators: a server to a worker.
    Need,
    /// Ranks disagree on what they reduce: a server to a worker.
    Mismatch,
    /// The sender has completed this many collectives and leaves: has the receiver completed them? Worker to worker.
    Leaving,
    /// The sender has completed this many collectives too.
    Parted,
}

/// What a packet is besides its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// The rank's block does not fit the scale: there is no vector, and the block must be summed again.
    pub const OVERFLOW: Flags = Flags(1);
    /// Sent again: any switch that holds a part of the block passes it on (the paper's `resend`). On a result:
    /// something of its block was sent again.
    pub const RESEND: Flags = Flags(1 << 1);
    /// This switch, or one before it, had no room: the server sums (the paper's `collision`).
    pub const COLLISION: Flags = Flags(1 << 2);
    /// A queue on the way was long.
    pub const ECN: Flags = Flags(1 << 3);
    /// Set by the switch next to the server, not by one before it.
    pub const EDGE: Flags = Flags(1 << 4);
    /// The switch's memory is short (the paper's AECN).
    pub const AECN: Flags = Flags(1 << 5);
    /// The sum of all ranks that the switch sums for.
    pub const FULL: Flags = Flags(1 << 6);
    /// For all ranks behind the receiver's switch.
    pub const MULTICAST: Flags = Flags(1 << 7);
    /// A switch on the way holds the sender's part of the block.
    pub const AT_SWITCH: Flags = Flags(1 << 8);
    /// No result: all ranks send again, scaled by the exponent of this packet.
    pub const AGAIN: Flags = Flags(1 << 9);
    /// There is no scale yet: the gradient tells its exponent and brings no vector.
    pub const PROBE: Flags = Flags(1 << 10);
    const ALL: u16 = (1 << 11) - 1;

    /// Both sets of flags.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Adds the other flags if `condition` holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, other: Flags) -> Flags {
        if condition { self.with(other) } else { self }
    }

    /// True if all of the other flags are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The block's number in the job's stream, from 1, modulo 2^32.
    pub seq: u32,
    /// The sum of all ranks' newest sequence numbers as the switch knows it, modulo 2^31 (the paper's PROG).
    pub prog: u32,
    /// How many times the block's position was moved, where a hash places aggregators; in results, for the position's
    /// next block.
    pub index: u32,
    /// In results: how many gradients have come to the server unsummed because its switch had no room, modulo 2^32.
    pub received: u32,
    /// What the packet is besides its kind.
    pub flags: Flags,
    /// Towards servers, the rank that sends; towards workers, the rank that is meant.
    pub wid: Rank,
    /// How many ranks the vector contains; in results, how many of them came singly to the server; in farewells, the
    /// rank that sends.
    pub count: u16,
    /// How many attempts to sum the block failed.
    pub attempt: u8,
    /// The magnitude of the block: of one rank's, or of all ranks' in the sum.
    pub exponent: BlockExponent,
    /// The scale of the vector.
    pub scale: BlockExponent,
    /// The collective that the block belongs to.
    pub spec: Spec,
}

impl Header {
    /// Reads the header behind a common header that was checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let (prog, flags, marks) = (u32(bytes, PROG_AT), u16(bytes, FLAGS_AT), bytes[MARKS_AT]);
        let is_gack = prog & IS_GACK != 0;
        let known = flags & !Flags::ALL == 0 && marks & !(EXPONENT_NON_FINITE | SCALE_NON_FINITE) == 0;
        if !known || is_gack != (Kind::of(bytes) == Ok(Kind::Gack)) {
            return Err(DropReason::BadField);
        }
        let exponent = |at, bit| BlockExponent { exponent: u16(bytes, at) as i16, non_finite: marks & bit != 0 };
        Ok(Header {
            seq: u32(bytes, SEQ_AT),
            prog: prog & PROG_MASK,
            index: u32(bytes, INDEX_AT),
            received: u32(bytes, RECEIVED_AT),
            flags: Flags(flags),
            wid: Rank(u16(bytes, WID_AT)),
            count: u16(bytes, COUNT_AT),
            attempt: bytes[ATTEMPT_AT],
            exponent: exponent(EXPONENT_AT, EXPONENT_NON_FINITE),
            scale: exponent(SCALE_AT, SCALE_NON_FINITE),
            spec: spec_at(bytes, SPEC_AT)?,
        })
    }

    /// Writes a kind and the header behind the common header's other fields.
    #[inline]
    pub fn emit(&self, kind: Kind, bytes: &mut [u8]) {
        kind.put(bytes);
        let is_gack = if kind == Kind::Gack { IS_GACK } else { 0 };
        bytes[SEQ_AT..PROG_AT].copy_from_slice(&self.seq.to_be_bytes());
        bytes[PROG_AT..INDEX_AT].copy_from_slice(&(self.prog & PROG_MASK | is_gack).to_be_bytes());
        bytes[INDEX_AT..RECEIVED_AT].copy_from_slice(&self.index.to_be_bytes());
        bytes[RECEIVED_AT..FLAGS_AT].copy_from_slice(&self.received.to_be_bytes());
        bytes[FLAGS_AT..WID_AT].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[WID_AT..COUNT_AT].copy_from_slice(&self.wid.0.to_be_bytes());
        bytes[COUNT_AT..ATTEMPT_AT].copy_from_slice(&self.count.to_be_bytes());
        bytes[ATTEMPT_AT] = self.attempt;
        let mark = |set, bit| if set { bit } else { 0 };
        bytes[MARKS_AT] =
            mark(self.exponent.non_finite, EXPONENT_NON_FINITE) | mark(self.scale.non_finite, SCALE_NON_FINITE);
        bytes[EXPONENT_AT..SCALE_AT].copy_from_slice(&self.exponent.exponent.to_be_bytes());
        bytes[SCALE_AT..SPEC_AT].copy_from_slice(&self.scale.exponent.to_be_bytes());
        put_spec(&mut bytes[SPEC_AT..], &self.spec);
    }

    /// True if a gradient with this header has a vector, provided that its block has elements.
    pub fn has_vector(&self) -> bool {
        !self.flags.has(Flags::OVERFLOW) && !self.flags.has(Flags::PROBE) && !self.flags.has(Flags::AGAIN)
    }
}

/// Writes a packet to a node without its vector, which has this many bytes in the buffer and on the wire.
pub fn emit(
    common: &[u8; COMMON_LEN],
    kind: Kind,
    header: &Header,
    (len, wire_len): (usize, usize),
    to: NodeId,
    buf: &mut [u8],
) -> Transmit {
    buf[..COMMON_LEN].copy_from_slice(common);
    header.emit(kind, buf);
    // Header-only packets do not fill queues.
    let ecn = if matches!(kind, Kind::Gradient | Kind::Aack) { Ecn::Capable } else { Ecn::NotCapable };
    Transmit { to: Addr::Node(to), len: HEADER_LEN + len, wire_len: HEADER_LEN + wire_len, ecn }
}

/// Writes a switch's fields into a packet that passes: the flags, and the ranks' progress.
#[inline]
pub fn put_passing(bytes: &mut [u8], flags: Flags, prog: u32) {
    bytes[FLAGS_AT..WID_AT].copy_from_slice(&flags.0.to_be_bytes());
    bytes[PROG_AT..INDEX_AT].copy_from_slice(&(prog & PROG_MASK).to_be_bytes());
}

/// Makes a gradient's header the header of its acknowledgement, with these flags and the ranks' progress. All else
/// stays.
#[inline]
pub fn put_acknowledgement(bytes: &mut [u8], flags: Flags, prog: u32) {
    Kind::Gack.put(bytes);
    bytes[FLAGS_AT..WID_AT].copy_from_slice(&flags.0.to_be_bytes());
    bytes[PROG_AT..INDEX_AT].copy_from_slice(&(prog & PROG_MASK | IS_GACK).to_be_bytes());
    bytes[COUNT_AT..ATTEMPT_AT].copy_from_slice(&0u16.to_be_bytes());
}

/// Bytes of the bitmap behind the vector of a sum that is not full: rank `r` is bit `r mod 8` of byte `r / 8`.
pub fn bitmap_len(world_size: u16) -> usize {
    usize::from(world_size).div_ceil(8)
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::parse(bytes)) else { return Description::default() };
    let carries = matches!(kind, Kind::Gradient | Kind::Sum | Kind::Aack);
    let has_vector = carries && bytes.len() > HEADER_LEN;
    Description { kind: kind.name(), slot: Some(header.seq), header_len: HEADER_LEN, has_vector }
}

/// The sequence number of a block: blocks count from 0, sequence numbers from 1.
#[inline]
pub fn seq_of_block(block: u64) -> u32 {
    (block + 1) as u32
}

/// The block nearest to `here` that a sequence number may mean; `None` if that lies before the first block.
#[inline]
pub fn block_near(here: u64, seq: u32) -> Option<u64> {
    let difference = seq.wrapping_sub(seq_of_block(here)) as i32;
    here.checked_add_signed(difference.into())
}

/// True if a sequence number is after another, modulo 2^32.
#[inline]
pub fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_32_bits_end() {
        let end = (1u64 << 32) - 1;
        assert_eq!((seq_of_block(0), seq_of_block(end), seq_of_block(end + 1)), (1, 0, 1));
        for (here, seq, meant) in
            [(end, 1, Some(end + 1)), (end + 3, u32::MAX, Some(end - 1)), (7, 8, Some(7)), (0, 0, None)]
        {
            assert_eq!(block_near(here, seq), meant);
        }
        assert!(is_after(0, u32::MAX) && !is_after(u32::MAX, 0) && !is_after(4, 4));
    }
}
