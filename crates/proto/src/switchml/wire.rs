//! SwitchML's own header; `parts` has the bodies of its two notices. Big-endian; `docs/wire.md` draws them.
//!
//! ```text
//!  16    18    20      21         22         24      28         32
//!  | wid | idx | flags | dtype/op | exponent | phase | elements | vector or body ...
//! ```
//!
//! Where one rank is the root, the common header's reserved byte and two of the flags are its number.
//! The paper's `ver` is `phase mod 2`; its `off` follows from the phase, which every host keeps for each slot.

use tributary_numeric::BlockExponent;

use crate::collective::tensor::{Primitive, Spec};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, Rank};
use crate::contract::protocol::Description;
use crate::contract::wire::{COMMON_LEN, dtype_op, kind, parse_dtype_op, u16, u32};
pub use crate::parts::look_ahead::LookAhead;
pub use crate::parts::mismatch::Mismatch;

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = COMMON_LEN + 16;

const NON_FINITE: u8 = 1;
const UNKNOWN: u8 = 2;
/// Bits 8 to 13 of the root; the lower ones are where the common header is reserved. No job has more than 16,384 ranks.
const ROOT_HIGH: u8 = 0xFC;
const ROOT_LOW_AT: usize = 5;

kind::own! {
    /// A rank's block; upwards. From a switch of a lower level: the sum of its children's blocks.
    Update,
    /// The sum; downwards.
    Result,
    /// A rank's exponent of this block, not of the next one; upwards. Without the block, or with a block that is scaled
    /// by a guess. Answered by `Result`.
    Probe,
    /// Who has not contributed to the slot's phase? Upwards from hosts, both ways between switches.
    Query,
    /// The answer to `Query`: the ranks that are missing.
    Report,
    /// Ranks disagree on what they reduce: downwards to hosts, both ways between switches.
    Mismatch,
}

/// The protocol's own header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who contributes. In results: whose contribution was the last, or who asked again.
    pub wid: ChildId,
    /// The slot.
    pub idx: u16,
    /// The sender's next block in this slot; in results all ranks'. For `Probe` and its result: this block.
    pub look_ahead: LookAhead,
    /// How many times the slot was used before, modulo 2^32.
    pub phase: u32,
    /// The collective that the block belongs to.
    pub spec: Spec,
}

impl Header {
    /// Reads the header behind a common header that was checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let flags = bytes[20];
        let exponent = BlockExponent { exponent: u16(bytes, 22) as i16, non_finite: flags & NON_FINITE != 0 };
        let root = Rank(u16::from(flags & ROOT_HIGH) << 6 | u16::from(bytes[ROOT_LOW_AT]));
        let (dtype, op, primitive) = parse_dtype_op(bytes[21], root)?;
        if flags & ROOT_HIGH != 0 && primitive == Primitive::Allreduce {
            return Err(DropReason::BadField);
        }
        Ok(Header {
            wid: ChildId(u16(bytes, 16)),
            idx: u16(bytes, 18),
            look_ahead: LookAhead { exponent, unknown: flags & UNKNOWN != 0 },
            phase: u32(bytes, 24),
            spec: Spec { elements: u32(bytes, 28), dtype, op, primitive },
        })
    }

    /// Writes the header behind the common one.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[16..18].copy_from_slice(&self.wid.0.to_be_bytes());
        bytes[18..20].copy_from_slice(&self.idx.to_be_bytes());
        let [high, low] = self.spec.primitive.root().unwrap_or_default().0.to_be_bytes();
        debug_assert!(high < 64, "numeric's sums have no room for so many ranks");
        (bytes[ROOT_LOW_AT], bytes[20]) = (low, high << 2);
        bytes[21] = dtype_op(&self.spec);
        bytes[24..28].copy_from_slice(&self.phase.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.spec.elements.to_be_bytes());
        put_look_ahead(bytes, self.look_ahead);
    }
}

/// Rewrites who a packet is from.
pub fn put_wid(bytes: &mut [u8], wid: ChildId) {
    bytes[16..18].copy_from_slice(&wid.0.to_be_bytes());
}

/// Rewrites the exponent and the flags.
#[inline]
pub fn put_look_ahead(bytes: &mut [u8], look_ahead: LookAhead) {
    let LookAhead { exponent, unknown } = look_ahead;
    let root = bytes[20] & ROOT_HIGH;
    bytes[20] = root | if exponent.non_finite { NON_FINITE } else { 0 } | if unknown { UNKNOWN } else { 0 };
    bytes[22..24].copy_from_slice(&exponent.exponent.to_be_bytes());
}

/// What a packet is whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::parse(bytes)) else { return Description::default() };
    let has_vector = matches!(kind, Kind::Update | Kind::Result) || kind == Kind::Probe && bytes.len() > HEADER_LEN;
    Description { kind: kind.name(), slot: Some(header.idx.into()), header_len: HEADER_LEN, has_vector }
}
