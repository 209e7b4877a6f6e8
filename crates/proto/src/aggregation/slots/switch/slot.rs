//! What a switch does with a packet for a slot: Algorithm 3 as a decision table, with full phases in place of `ver`.
//!
//! A slot has two versions; phase `p` uses version `p mod 2`, and the other version is its shadow copy. The table is
//! written out in `docs/protocols/switchml.md` and tested row by row below.

use crate::aggregation::agreement::{Agreement, Stage};
use crate::aggregation::slots::wire::Kind;
use crate::contract::drop_reason::DropReason;
use crate::contract::tensor::Spec;
use crate::contract::time::{Span, Time};

/// What a version of a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing: the slot is new.
    Unused,
    /// Some children's contributions.
    Open,
    /// The contributions of all children; the switch above has the partial sum and has not answered.
    AwaitsParent,
    /// The result.
    Complete,
    /// A note that ranks disagree.
    Mismatched,
}

/// How a packet's phase relates to the one that its slot is in: that of the version, or of a leader's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The phase is over.
    Earlier,
    /// The phase is the current one.
    Same,
    /// The phase is the next one, which others may have begun.
    Next,
    /// The phase cannot have begun.
    Later,
}

impl Relation {
    /// Phases are serial numbers modulo 2^32. Both phases are of the same version, so their difference is even.
    pub fn of(phase: u32, current: u32) -> Relation {
        match phase.wrapping_sub(current) as i32 {
            0 => Relation::Same,
            2 => Relation::Next,
            difference if difference < 0 => Relation::Earlier,
            _ => Relation::Later,
        }
    }
}

/// What to do with a contribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Take the version for the new phase, then add.
    Begin,
    /// Add the contribution (line 6).
    Add,
    /// Send the result to the child that asked (line 21).
    ResendResult,
    /// Send the partial sum to the switch above again (§7).
    ResendPartial,
    /// Tell the child that asked that ranks disagree.
    NotifyMismatch,
    /// Do nothing but count the packet.
    Drop(DropReason),
}

/// What to do with a contribution (UPDATE or PROBE). `shadow_complete`: the other version holds the result of the phase
/// before the packet's. Every child then has the result of this version's last phase, so the version may be used again.
/// `crossed`: the packet was probably sent before an answer can have arrived (see `Pool::crossed`).
pub fn on_contribution(relation: Relation, state: State, seen: bool, shadow_complete: bool, crossed: bool) -> Action {
    match (relation, state) {
        (Relation::Earlier, _) | (Relation::Same, State::Unused) => Action::Drop(DropReason::Stale),
        (Relation::Next, State::Unused | State::Complete) if shadow_complete => Action::Begin,
        (Relation::Next | Relation::Later, _) => Action::Drop(DropReason::Ahead),
        (Relation::Same, State::Open) if !seen => Action::Add,
        (Relation::Same, State::Open) => Action::Drop(DropReason::Duplicate),
        (Relation::Same, State::AwaitsParent | State::Complete) if crossed => Action::Drop(DropReason::Crossed),
        (Relation::Same, State::AwaitsParent) => Action::ResendPartial,
        (Relation::Same, State::Complete) => Action::ResendResult,
        (Relation::Same, State::Mismatched) => Action::NotifyMismatch,
    }
}

/// What to do with the parent's RESULT: `Ok` to keep and multicast it.
pub fn on_parent_result(relation: Relation, state: State) -> Result<(), DropReason> {
    match (relation, state) {
        (Relation::Earlier, _) | (Relation::Same, State::Unused) => Err(DropReason::Stale),
        (Relation::Next | Relation::Later, _) => Err(DropReason::Ahead),
        (Relation::Same, State::AwaitsParent) => Ok(()),
        (Relation::Same, State::Complete) => Err(DropReason::Duplicate),
        // The parent cannot have a sum without this switch's part.
        (Relation::Same, State::Open) => Err(DropReason::Unexpected),
        (Relation::Same, State::Mismatched) => Err(DropReason::Mismatch),
    }
}

/// What to do with a MISMATCH from the switch above or from one below: `Ok` to note it and tell all children.
pub fn on_mismatch(relation: Relation, state: State, shadow_complete: bool) -> Result<(), DropReason> {
    match (relation, state) {
        (Relation::Earlier, _) | (Relation::Same, State::Unused) => Err(DropReason::Stale),
        (Relation::Same, State::Open | State::AwaitsParent) => Ok(()),
        (Relation::Same, State::Complete) => Err(DropReason::Unexpected),
        (Relation::Same, State::Mismatched) => Err(DropReason::Duplicate),
        (Relation::Next, State::Unused | State::Complete) if shadow_complete => Ok(()),
        (Relation::Next | Relation::Later, _) => Err(DropReason::Ahead),
    }
}

/// What contributions to one phase of a slot must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// UPDATE or PROBE.
    pub kind: Kind,
    /// The collective.
    pub spec: Spec,
    /// Elements of the vector.
    pub elements: u32,
}

impl Block {
    /// The stage of the hosts' slots.
    pub fn stage(&self) -> Stage {
        match self.kind {
            Kind::Probe if self.elements == 0 => Stage::Probe,
            Kind::Probe => Stage::Guess,
            _ => Stage::Update,
        }
    }
}

/// One version of one slot.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Version<W> {
    /// The phase that the version serves or served last.
    pub phase: u32,
    /// What the version holds.
    pub state: State,
    /// The contributors' words, joined.
    pub word: W,
    /// The block that they contribute to.
    pub block: Block,
    /// The block's collective has at least two blocks in every slot.
    pub(super) has_two_laps: bool,
    /// What ranks have agreed on in this slot, this phase included once it is complete.
    pub(super) agreement: Agreement,
    /// When all contributions were in; later, when the parent's result came.
    pub(super) completed_at: Time,
    /// The time from the slot's previous result to the first contribution, if that may be a round trip; otherwise
    /// [`UNKNOWN`].
    pub(super) turnaround: Span,
    /// At most a round trip of the quickest child: see [`super::pool::Pool::crossed`]. Zero if no round trip is known.
    pub(super) round: Span,
}

/// No turnaround was measured.
pub(super) const UNKNOWN: Span = Span(u64::MAX);

/// Where a version lies in the pool: twice the slot within the tree, plus the parity of the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VersionId(pub(super) usize);

#[cfg(test)]
mod tests {
    use super::Relation::*;
    use super::State::*;
    use super::*;

    const STALE: Action = Action::Drop(DropReason::Stale);
    const AHEAD: Action = Action::Drop(DropReason::Ahead);
    const DUPLICATE: Action = Action::Drop(DropReason::Duplicate);
    const CROSSED: Action = Action::Drop(DropReason::Crossed);

    /// Relation, state, seen, shadow complete, crossed, action; `None` stands for both values.
    type Row = (Relation, State, Option<bool>, Option<bool>, Option<bool>, Action);
    const CONTRIBUTIONS: [Row; 25] = [
        (Earlier, Unused, None, None, None, STALE),
        (Earlier, Open, None, None, None, STALE),
        (Earlier, AwaitsParent, None, None, None, STALE),
        (Earlier, Complete, None, None, None, STALE),
        (Earlier, Mismatched, None, None, None, STALE),
        (Same, Unused, None, None, None, STALE),
        (Same, Open, Some(false), None, None, Action::Add),
        (Same, Open, Some(true), None, None, DUPLICATE),
        (Same, AwaitsParent, None, None, Some(false), Action::ResendPartial),
        (Same, AwaitsParent, None, None, Some(true), CROSSED),
        (Same, Complete, None, None, Some(false), Action::ResendResult),
        (Same, Complete, None, None, Some(true), CROSSED),
        (Same, Mismatched, None, None, None, Action::NotifyMismatch),
        (Next, Unused, None, Some(true), None, Action::Begin),
        (Next, Unused, None, Some(false), None, AHEAD),
        (Next, Open, None, None, None, AHEAD),
        (Next, AwaitsParent, None, None, None, AHEAD),
        (Next, Complete, None, Some(true), None, Action::Begin),
        (Next, Complete, None, Some(false), None, AHEAD),
        (Next, Mismatched, None, None, None, AHEAD),
        (Later, Unused, None, None, None, AHEAD),
        (Later, Open, None, None, None, AHEAD),
        (Later, AwaitsParent, None, None, None, AHEAD),
        (Later, Complete, None, None, None, AHEAD),
        (Later, Mismatched, None, None, None, AHEAD),
    ];

    /// relation, state, shadow complete, what becomes of the parent's RESULT, and of a MISMATCH.
    type Answer = Result<(), DropReason>;
    const NOTICES: [(Relation, State, Option<bool>, Answer, Answer); 14] = {
        use DropReason::{Ahead, Duplicate, Mismatch, Stale, Unexpected};
        [
            (Earlier, Unused, None, Err(Stale), Err(Stale)),
            (Earlier, Open, None, Err(Stale), Err(Stale)),
            (Earlier, AwaitsParent, None, Err(Stale), Err(Stale)),
            (Earlier, Complete, None, Err(Stale), Err(Stale)),
            (Same, Unused, None, Err(Stale), Err(Stale)),
            (Same, Open, None, Err(Unexpected), Ok(())),
            (Same, AwaitsParent, None, Ok(()), Ok(())),
            (Same, Complete, None, Err(Duplicate), Err(Unexpected)),
            (Same, Mismatched, None, Err(Mismatch), Err(Duplicate)),
            (Next, Complete, Some(true), Err(Ahead), Ok(())),
            (Next, Complete, Some(false), Err(Ahead), Err(Ahead)),
            (Next, Unused, Some(true), Err(Ahead), Ok(())),
            (Next, Mismatched, None, Err(Ahead), Err(Ahead)),
            (Later, Complete, None, Err(Ahead), Err(Ahead)),
        ]
    };

    fn both(value: Option<bool>) -> Vec<bool> {
        value.map_or(vec![false, true], |value| vec![value])
    }

    #[test]
    fn the_table_holds_row_by_row_and_leaves_nothing_out() {
        let mut rows = 0;
        for (relation, state, seen, shadow, crossed, action) in CONTRIBUTIONS {
            for seen in both(seen) {
                for shadow in both(shadow) {
                    for crossed in both(crossed) {
                        assert_eq!(
                            on_contribution(relation, state, seen, shadow, crossed),
                            action,
                            "{relation:?} {state:?} seen={seen} shadow={shadow} crossed={crossed}"
                        );
                        rows += 1;
                    }
                }
            }
        }
        assert_eq!(rows, 4 * 5 * 2 * 2 * 2);
    }

    #[test]
    fn notices_from_other_switches_follow_their_table() {
        for (relation, state, shadow, result, mismatch) in NOTICES {
            assert_eq!(on_parent_result(relation, state), result, "{relation:?} {state:?}");
            for shadow in both(shadow) {
                assert_eq!(on_mismatch(relation, state, shadow), mismatch, "{relation:?} {state:?} {shadow}");
            }
        }
    }

    #[test]
    fn phases_compare_as_serial_numbers() {
        assert_eq!(Relation::of(1, u32::MAX), Next);
        assert_eq!(Relation::of(u32::MAX, 1), Earlier);
        assert_eq!(Relation::of(3, u32::MAX), Later);
        assert_eq!(Relation::of(7, 7), Same);
    }
}
