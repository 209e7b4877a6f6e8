//! SwitchML's own header; `parts` has the bodies of its two notices. Big-endian; `docs/wire.md` draws them.
//!
//! ```text
//!  16           24    26    28      32         34      35         36
//!  | collective | wid | idx | phase | exponent | flags | reserved | vector or body ...
//! ```
//!
//! The paper's `ver` is `phase mod 2`; its `off` follows from the phase, which every host keeps for each slot.

use tributary_numeric::BlockExponent;

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::{COMMON_LEN, SPEC_LEN, kind, put_spec, spec_at, u16, u32};
pub use crate::parts::look_ahead::LookAhead;
pub use crate::parts::mismatch::Mismatch;

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = COMMON_LEN + SPEC_LEN + 12;

const NON_FINITE: u8 = 1;
const UNKNOWN: u8 = 2;
const WID_AT: usize = COMMON_LEN + SPEC_LEN;
const EXPONENT_AT: usize = 32;
const FLAGS_AT: usize = 34;

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
    /// A header that says nothing.
    pub const BLANK: Header =
        Header { wid: ChildId(0), idx: 0, look_ahead: LookAhead::UNKNOWN, phase: 0, spec: Spec::NOTHING };

    /// The header behind a common header that was checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, DropReason> {
        let mut header = Header::BLANK;
        header.read(bytes)?;
        Ok(header)
    }

    /// The same in place: to hand a header on takes a switch longer than to check it.
    #[inline(always)]
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), DropReason> {
        let bytes: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let flags = bytes[FLAGS_AT];
        if flags & !(NON_FINITE | UNKNOWN) != 0 {
            return Err(DropReason::BadField);
        }
        let exponent = BlockExponent { exponent: u16(bytes, EXPONENT_AT) as i16, non_finite: flags & NON_FINITE != 0 };
        let spec = spec_at(bytes, COMMON_LEN)?;
        // A rank's lie about its own block would make zeros of all.
        if flags & UNKNOWN == 0 && exponent.exponent > BlockExponent::largest(spec.dtype) {
            return Err(DropReason::BadField);
        }
        self.wid = ChildId(u16(bytes, WID_AT));
        self.idx = u16(bytes, 26);
        self.look_ahead = LookAhead { exponent, unknown: flags & UNKNOWN != 0 };
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
        bytes[35] = 0;
        put_look_ahead(bytes, self.look_ahead);
    }
}

/// Rewrites who a packet is from.
pub fn put_wid(bytes: &mut [u8], wid: ChildId) {
    bytes[WID_AT..WID_AT + 2].copy_from_slice(&wid.0.to_be_bytes());
}

/// Rewrites the exponent and the flags.
#[inline]
pub fn put_look_ahead(bytes: &mut [u8], look_ahead: LookAhead) {
    let LookAhead { exponent, unknown } = look_ahead;
    bytes[FLAGS_AT] = if exponent.non_finite { NON_FINITE } else { 0 } | if unknown { UNKNOWN } else { 0 };
    bytes[EXPONENT_AT..EXPONENT_AT + 2].copy_from_slice(&exponent.exponent.to_be_bytes());
}

/// What a packet is whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    let (Ok(kind), Ok(header)) = (Kind::of(bytes), Header::parse(bytes)) else { return Description::default() };
    let has_vector = matches!(kind, Kind::Update | Kind::Result) || kind == Kind::Probe && bytes.len() > HEADER_LEN;
    Description { kind: kind.name(), slot: Some(header.idx.into()), header_len: HEADER_LEN, has_vector }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;
    use crate::contract::tensor::Primitive;

    #[test]
    fn an_exponent_that_no_block_of_the_type_has_is_refused() {
        let parse = |dtype, exponent, unknown| {
            let header = Header {
                wid: ChildId(0),
                idx: 0,
                look_ahead: LookAhead { exponent: BlockExponent { exponent, non_finite: false }, unknown },
                phase: 0,
                spec: Spec { elements: 1, dtype, op: ReduceOp::Sum, primitive: Primitive::Allreduce },
            };
            let mut bytes = [0; HEADER_LEN];
            header.emit(&mut bytes);
            Header::parse(&bytes).map(|read| assert_eq!(read, header))
        };
        for (dtype, largest) in [(DType::F32, 128), (DType::BF16, 128), (DType::F16, 16)] {
            assert_eq!(parse(dtype, largest, false), Ok(()));
            assert_eq!(parse(dtype, i16::MIN, false), Ok(()), "zeros");
            for lie in [largest + 1, i16::MAX] {
                assert_eq!(parse(dtype, lie, false), Err(DropReason::BadField));
                assert_eq!(parse(dtype, lie, true), Ok(()), "it says nothing there");
            }
        }
    }
}
