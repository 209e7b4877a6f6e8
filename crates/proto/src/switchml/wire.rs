//! The end of SwitchML's header; [`crate::aggregation::slots::wire`] has the part before it. Big-endian; `docs/wire.md`
//! draws both.
//!
//! ```text
//!  16                 32         34      35         36
//!  | of all slots ... | exponent | flags | reserved | vector or body ...
//! ```

use tributary_numeric::BlockExponent;

pub use crate::aggregation::agreement::ExponentHint;
pub use crate::aggregation::report::Mismatch;
pub use crate::aggregation::slots::wire::{Kind, put_wid};
use crate::aggregation::slots::{Word, wire as slots};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::protocol::Description;
use crate::contract::tensor::Spec;
use crate::contract::wire::u16;

/// Bytes of the common header and of this protocol's own.
pub const HEADER_LEN: usize = slots::header_len::<ExponentHint>();

/// The header. Its word is about the sender's next block in this slot; in results, about the next block of all ranks.
/// In `Probe` and its result it is about this block.
pub type Header = slots::Header<ExponentHint>;

impl Word for ExponentHint {
    const LEN: usize = 4;
    const NOTHING: ExponentHint = ExponentHint::UNKNOWN;
    const NEUTRAL: ExponentHint = ExponentHint { exponent: BlockExponent::ZERO, unknown: false, is_norm: false };

    #[inline(always)]
    fn read(&mut self, bytes: &[u8], spec: &Spec) -> Result<(), DropReason> {
        *self = ExponentHint::read(u16(bytes, 0) as i16, bytes[2], spec)?;
        Ok(())
    }

    #[inline]
    fn put(self, bytes: &mut [u8]) {
        bytes[0..2].copy_from_slice(&self.exponent.exponent.to_be_bytes());
        bytes[2] = self.flags();
        bytes[3] = 0;
    }

    #[inline]
    fn join(&mut self, _child: ChildId, said: &ExponentHint) {
        ExponentHint::join(self, said);
    }

    fn agreed(self) -> Option<BlockExponent> {
        ExponentHint::agreed(self)
    }
}

/// Describes a packet whose common header was checked.
pub fn describe(bytes: &[u8]) -> Description {
    slots::describe::<ExponentHint>(bytes)
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;
    use crate::contract::ids::ChildId;
    use crate::contract::tensor::Primitive;

    #[test]
    fn an_exponent_that_no_block_of_the_type_has_is_refused() {
        let parse = |dtype, exponent, unknown, is_norm| {
            let header = Header {
                wid: ChildId(0),
                idx: 0,
                word: ExponentHint { exponent: BlockExponent { exponent, non_finite: false }, unknown, is_norm },
                phase: 0,
                spec: Spec { elements: 1, dtype, op: ReduceOp::Sum, primitive: Primitive::Allreduce },
            };
            let mut bytes = [0; HEADER_LEN];
            header.emit(&mut bytes);
            Header::parse(&bytes).map(|read| assert_eq!(read, header))
        };
        for (dtype, largest) in [(DType::F32, 128), (DType::BF16, 128), (DType::F16, 16)] {
            // A block of 1,024 elements has 32 times the norm of one, in 64 steps for each power of two.
            for (largest, is_norm) in [(largest, false), (64 * (largest + 5), true)] {
                assert_eq!(parse(dtype, largest, false, is_norm), Ok(()));
                assert_eq!(parse(dtype, i16::MIN, false, is_norm), Ok(()), "zeros");
                for lie in [largest + 1, i16::MAX] {
                    assert_eq!(parse(dtype, lie, false, is_norm), Err(DropReason::BadField));
                    assert_eq!(parse(dtype, lie, true, is_norm), Ok(()), "it says nothing there");
                }
            }
        }
    }
}
