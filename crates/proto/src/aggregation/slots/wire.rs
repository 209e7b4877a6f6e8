//! The header of packets for slots. It ends with a protocol's own word; [`crate::aggregation`] has the bodies of the
//! two notices. Big-endian; `docs/wire.md` draws the header for each protocol.
//!
//! ```text
//!  16           24    26    28      32
//!  | collective | wid | idx | phase | the protocol's own word | vector or body ...
//! ```
//!
//! The paper's `ver` is `phase mod 2`; its `off` follows from the phase, which every host keeps for each slot.

use super::Word;
pub use crate::aggregation::report::Mismatch;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};

const WID_AT: usize = COMMON_LEN + SPEC_LEN;
const WORD_AT: usize = WID_AT + 8;

/// Bytes of the header with a word of this protocol.
pub const fn header_len<W: Word>() -> usize {
    WORD_AT + W::LEN
}

kind::protocol_kinds! {
    /// A rank's block; upwards. From a switch of a lower level: the sum of its children's blocks.
    Update,
    /// The sum; downwards.
    Result,
    /// A rank's exponent of this block, not of the next one; upwards. Without the block, or with a block that is scaled
    /// by a guess. Answered by `Result`.
    Probe,
    /// Which ranks have not contributed to the slot's phase? Upwards from hosts, both ways between switches.
    Query,
    /// The answer to `Query`: the ranks that are missing.
    Report,
    /// Ranks disagree on what they reduce: downwards to hosts, both ways between switches.
    Mismatch,
}

/// The header as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header<W> {
    /// The contributor. In results: the last contributor, or the child that asked again.
    pub wid: ChildId,
    /// The slot.
    pub idx: u16,
    /// The protocol's own word.
    pub word: W,
    /// How many times the slot was used before, modulo 2^32.
    pub phase: u32,
    /// The collective that the block belongs to.
    pub spec: Spec,
}

impl<W: Word> Header<W> {
    /// A header that says nothing.
    pub const BLANK: Header<W> = Header { wid: ChildId(0), idx: 0, word: W::NOTHING, phase: 0, spec: Spec::NOTHING };

    /// Reads the header behind a common header that was checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header<W>, DropReason> {
        let mut header = Header::BLANK;
        header.read(bytes)?;
        Ok(header)
    }

    /// Reads the header in place: to return it by value takes a switch longer than to check it.
    #[inline(always)]
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        let bytes = bytes.get(..header_len::<W>()).ok_or(DropReason::Truncated)?;
        let spec = spec_at(bytes, COMMON_LEN)?;
        self.word.read(&bytes[WORD_AT..], &spec)?;
        self.wid = ChildId(u16(bytes, WID_AT));
        self.idx = u16(bytes, 26);
        self.phase = u32(bytes, 28);
        self.spec = spec;
        Ok(())
    }

    /// Writes the header behind the common one.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        put_spec(&mut bytes[COMMON_LEN..], &self.spec);
        put_wid(bytes, self.wid);
        bytes[26..28].copy_from_slice(&self.idx.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.phase.to_be_bytes());
        put_word(bytes, self.word);
    }
}

/// The slot of a packet that was not checked yet.
pub fn slot_of(bytes: &[u8]) -> Option<u16> {
    (bytes.len() >= WORD_AT).then(|| u16(bytes, 26))
}

/// Rewrites the sender of a packet.
pub fn put_wid(bytes: &mut [u8], wid: ChildId) {
    bytes[WID_AT..WID_AT + 2].copy_from_slice(&wid.0.to_be_bytes());
}

/// Rewrites the protocol's own word.
#[inline]
pub fn put_word<W: Word>(bytes: &mut [u8], word: W) {
    word.put(&mut bytes[WORD_AT..WORD_AT + W::LEN]);
}

/// Describes a packet whose common header was checked.
pub fn describe<W: Word>(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::<W>::parse(bytes)) else { return Description::default() };
    let header_len = header_len::<W>();
    let has_vector = matches!(kind, Kind::Update | Kind::Result) || kind == Kind::Probe && bytes.len() > header_len;
    Description { kind: kind.name(), slot: Some(header.idx.into()), header_len, has_vector }
}
