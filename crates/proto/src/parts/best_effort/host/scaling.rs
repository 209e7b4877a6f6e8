//! The scale of floats: a guess that all ranks make alike (A26 in `docs/protocols/pa-atp.md`).
//!
//! A rank that sends a block has the result of the block a window before it, which says that block's magnitude. So all
//! ranks know the same magnitude of a position, and scale its next block by one bit more. If they guessed wrong, or
//! nobody knows a position yet, the result is the order to send the block again, scaled by the magnitude that all have
//! told meanwhile. No rank waits for others before it sends: a rank that is ahead stays ahead with floats, too.

use tributary_numeric::BlockExponent;

use super::BestEffortHost;
use crate::parts::best_effort::wire::Flags;
use crate::parts::stream::Op;

/// What a rank says of its block and of its scale.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Magnitude {
    /// The block's own.
    pub exponent: BlockExponent,
    /// What its vector is scaled by.
    pub scale: BlockExponent,
    /// It brings no vector, because it does not fit or nobody knows a scale.
    pub flags: Flags,
}

impl BestEffortHost {
    /// The guess for the next block of a position.
    pub(super) fn guess(op: &Op, block: u64, base: Option<BlockExponent>) -> Option<BlockExponent> {
        if !op.needs_exponent(block) {
            return None;
        }
        let base = base?;
        let exponent = base.exponent.saturating_add(1).min(BlockExponent::largest(op.spec.dtype));
        Some(BlockExponent { exponent, ..base })
    }

    /// What this rank says of a block that waits.
    pub(super) fn magnitude(&self, op: &Op, block: u64) -> Magnitude {
        let scale = self.window.waiting(block).and_then(|place| place.scale);
        let needs = op.needs_exponent(block) && op.spec.primitive.brings(self.config.rank);
        let exponent = if needs { op.exponent(block) } else { BlockExponent::ZERO };
        let fits =
            |scale: BlockExponent| exponent.exponent <= scale.exponent && (scale.non_finite || !exponent.non_finite);
        let probes = scale.is_none() && op.needs_exponent(block);
        let flags = Flags::default()
            .with_if(probes, Flags::PROBE)
            .with_if(scale.is_some_and(|scale| !fits(scale)), Flags::OVERFLOW);
        Magnitude { exponent, scale: scale.unwrap_or(BlockExponent::ZERO), flags }
    }
}
