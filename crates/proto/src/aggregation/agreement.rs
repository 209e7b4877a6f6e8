//! What a slot of a host does with its block, and how ranks agree on the block's exponent before they sum it (SwitchML
//! §4.6). A switch that sees all packets of a slot can follow it.
//!
//! Each packet says what the next block's exponent is, so that ranks mostly agree one block ahead. Where some rank did
//! not know its block yet, a phase in which ranks agree on the exponent comes first (*probe*). In collectives that fit
//! into the pool, that phase carries the block too, scaled by the slot's last exponent (*guess*): if ranks then agree
//! on just that exponent, the result is the sum.

use tributary_numeric::BlockExponent;
use tributary_numeric::thc::largest_norm;

use crate::aggregation::stream::Op;
use crate::contract::drop_reason::DropReason;
use crate::contract::tensor::Spec;

/// What a slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The slot's next block was not submitted yet.
    Idle,
    /// Ranks agree on the exponent of the slot's block.
    Probe,
    /// Ranks agree on the exponent, and sum the block with the slot's last exponent meanwhile.
    Guess,
    /// Ranks sum the slot's block.
    Update,
    /// Ranks disagree on what the slot's block is.
    Refused,
}

impl Stage {
    /// True while a sum is awaited.
    pub fn waits(self) -> bool {
        matches!(self, Stage::Probe | Stage::Guess | Stage::Update)
    }
}

/// What ranks have agreed on in one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Agreement {
    /// The exponent of the slot's block, if ranks agree on it.
    agreed: Option<BlockExponent>,
    /// The last exponent that ranks agreed on and used in this slot.
    last: Option<BlockExponent>,
}

impl Agreement {
    /// The stage with which a block of a collective begins, in a pool of this many slots.
    pub fn begin(&mut self, op: &Op, block: u64, pool: u64) -> Stage {
        if !op.needs_exponent(block) {
            Stage::Update
        } else if self.agreed.is_some() {
            self.last = self.agreed;
            Stage::Update
        } else if self.last.is_some() && op.blocks <= pool {
            Stage::Guess
        } else {
            Stage::Probe
        }
    }

    /// For a switch, which knows the stage from the slot's packets: the exponent of a block that it scales; `None` if
    /// ranks cannot have agreed on one.
    pub fn follow(&mut self, stage: Stage) -> Option<BlockExponent> {
        if stage == Stage::Update && self.agreed.is_some() {
            self.last = self.agreed;
        }
        self.scaled_by(stage)
    }

    /// The exponent that the slot's packets are scaled by.
    pub fn scaled_by(&self, stage: Stage) -> Option<BlockExponent> {
        if stage == Stage::Guess { self.last } else { self.agreed }
    }

    /// Ends a stage whose answer came, in which ranks agree on `joined`. Returns the exponent that the block was summed
    /// with, if it was summed; otherwise the block is summed next.
    pub fn conclude(
        &mut self,
        stage: Stage,
        joined: Option<BlockExponent>,
    ) -> Result<Option<Option<BlockExponent>>, DropReason> {
        let (summed_with, next) = match stage {
            // Every rank that probes knows its block.
            Stage::Probe | Stage::Guess if joined.is_none() => return Err(DropReason::BadField),
            Stage::Guess if joined == self.last => (Some(joined), None),
            Stage::Probe | Stage::Guess => (None, joined),
            Stage::Update => (Some(self.agreed), joined),
            Stage::Idle | Stage::Refused => return Err(DropReason::Unexpected),
        };
        self.agreed = next;
        Ok(summed_with)
    }
}

// The flags of a hint in a packet.
const NON_FINITE: u8 = 1;
const UNKNOWN: u8 = 2;
const NORM: u8 = 4;

/// What a rank says about the block that comes next in the slot (§4.6), or what all ranks say together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExponentHint {
    /// The block's magnitude.
    pub exponent: BlockExponent,
    /// Some rank does not know its next block yet, so ranks have not agreed.
    pub unknown: bool,
    /// The exponent is the norm of a block whose codes are rotated.
    pub is_norm: bool,
}

impl ExponentHint {
    /// Nothing is known about the next block.
    pub const UNKNOWN: ExponentHint = ExponentHint { exponent: BlockExponent::ZERO, unknown: true, is_norm: false };

    /// A rank that knows its next block.
    pub fn known(exponent: BlockExponent) -> ExponentHint {
        ExponentHint { exponent, unknown: false, is_norm: false }
    }

    /// The hint of a packet with these flags, for a collective.
    #[inline(always)]
    pub fn read(exponent: i16, flags: u8, spec: &Spec) -> Result<ExponentHint, DropReason> {
        let hint = ExponentHint::of(exponent, flags);
        // An exponent above the type's largest would scale every rank's block to zeros.
        let largest = BlockExponent::largest(spec.dtype);
        let largest = if hint.is_norm { largest_norm(largest.min(BlockExponent::MAX)) } else { largest };
        if flags & !(NON_FINITE | UNKNOWN | NORM) != 0 || !hint.unknown && exponent > largest {
            return Err(DropReason::BadField);
        }
        Ok(hint)
    }

    /// The hint with these flags, which were read before.
    #[inline]
    pub fn of(exponent: i16, flags: u8) -> ExponentHint {
        let exponent = BlockExponent { exponent, non_finite: flags & NON_FINITE != 0 };
        ExponentHint { exponent, unknown: flags & UNKNOWN != 0, is_norm: flags & NORM != 0 }
    }

    /// The flags of a packet with this hint.
    #[inline]
    pub fn flags(self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.exponent.non_finite, NON_FINITE) | flag(self.unknown, UNKNOWN) | flag(self.is_norm, NORM)
    }

    /// Joins what another rank says. Field by field: copying the whole would cost more than all the rest of its path.
    #[inline]
    pub fn join(&mut self, other: &ExponentHint) {
        self.exponent.exponent = self.exponent.exponent.max(other.exponent.exponent);
        self.exponent.non_finite |= other.exponent.non_finite;
        self.unknown |= other.unknown;
        self.is_norm |= other.is_norm;
    }

    /// The exponent that ranks agree on, if each of them knew its block.
    pub fn agreed(self) -> Option<BlockExponent> {
        (!self.unknown).then_some(self.exponent)
    }
}
