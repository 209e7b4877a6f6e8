//! What a switch counts of one job.

use crate::contract::state::exclude_from_state;

/// The counts of one job.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    /// Contributions that were added.
    pub contributions: u64,
    /// Results that passed.
    pub results: u64,
    /// Results that passed and were marked with AECN.
    pub marked: u64,
    /// Contributions that found no room.
    pub overflowed: u64,
    /// Aggregators that left before they were complete.
    pub released: u64,
}

exclude_from_state!(Counters);

impl Counters {
    /// Adds other counts.
    pub fn add(&mut self, other: &Counters) {
        self.contributions += other.contributions;
        self.results += other.results;
        self.marked += other.marked;
        self.overflowed += other.overflowed;
        self.released += other.released;
    }
}
