//! One version of one slot: what is known of its phase, besides the sum.

use super::block::Block;
use super::slot::State;
use crate::aggregation::agreement::Agreement;
use crate::contract::time::{Span, Time};

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
