//! A position of the window. It works on one block at a time, phase after phase.

use crate::aggregation::agreement::{Agreement, Stage};

/// How a sum came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the leader through switches that multicast it.
    Tree,
    /// From the leader to this host alone, which had asked.
    Answer,
    /// This host is the leader.
    Own,
}

/// One position of the window.
#[derive(Clone, Hash)]
pub struct Entry {
    /// The block of the stream that the position works on or waits for; at the notices' position, the notice's number.
    pub block: u64,
    /// How many times the position was used.
    pub phase: u32,
    /// What the position does.
    pub stage: Stage,
    /// How often the block was issued before.
    pub attempt: u8,
    /// The contribution to this issue has left.
    pub contributed: bool,
    /// What ranks have agreed on at this position.
    pub agreement: Agreement,
    /// The phase began when the phase before it ended.
    pub in_step: bool,
}

impl Entry {
    /// A position that waits for its first block.
    pub fn new(block: u64) -> Entry {
        Entry {
            block,
            phase: 0,
            stage: Stage::Idle,
            attempt: 0,
            contributed: false,
            agreement: Agreement::default(),
            in_step: false,
        }
    }
}
