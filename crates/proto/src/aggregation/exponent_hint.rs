//! What ranks say about the magnitude of a block that is still to come, and what they agree on.

use tributary_numeric::BlockExponent;

/// What a rank says about the block that comes next in the slot (§4.6), or what all ranks say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExponentHint {
    /// The block's magnitude.
    pub exponent: BlockExponent,
    /// Some rank does not know its next block yet, so ranks have not agreed.
    pub unknown: bool,
}

impl ExponentHint {
    /// Nothing is known about the next block.
    pub const UNKNOWN: ExponentHint = ExponentHint { exponent: BlockExponent::ZERO, unknown: true };

    /// A rank that knows its next block.
    pub fn known(exponent: BlockExponent) -> ExponentHint {
        ExponentHint { exponent, unknown: false }
    }

    /// Joins what another rank says. Field by field: copying the whole would cost more than all the rest of its path.
    #[inline]
    pub fn join(&mut self, other: &ExponentHint) {
        self.exponent.exponent = self.exponent.exponent.max(other.exponent.exponent);
        self.exponent.non_finite |= other.exponent.non_finite;
        self.unknown |= other.unknown;
    }

    /// The exponent that ranks agree on, if each of them knew its block.
    pub fn agreed(self) -> Option<BlockExponent> {
        (!self.unknown).then_some(self.exponent)
    }
}
