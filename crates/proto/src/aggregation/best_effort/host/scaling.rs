//! The scale of floats: a guess that is the same on all ranks (A26 in `docs/protocols/pa-atp.md`).
//!
//! A rank that sends a block has the result of the block a window before it, which says that block's magnitude. So all
//! ranks know the same magnitude of a position, and scale its next block by one bit more. If the guess was wrong, or a
//! position has no magnitude yet, the result is the order to send the block again, scaled by the magnitude that all
//! ranks have told meanwhile. No rank waits for others before it sends: a rank that is ahead stays ahead with floats,
//! too.

use tributary_numeric::BlockExponent;

use super::BestEffortHost;
use crate::aggregation::best_effort::wire::Flags;
use crate::aggregation::stream::Op;

/// What a rank says about its block and the block's scale.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Magnitude {
    /// The block's own magnitude.
    pub exponent: BlockExponent,
    /// The scale of the vector.
    pub scale: BlockExponent,
    /// Whether the packet has no vector, because the block does not fit the scale or there is no scale yet.
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

    /// What this rank says about the magnitude of a block that waits.
    pub(super) fn magnitude(&self, op: &Op, block: u64) -> Magnitude {
        let scale = self.window.waiting(block).and_then(|entry| entry.scale);
        let needs = op.needs_exponent(block) && op.spec.primitive.contributes(self.config.rank);
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
