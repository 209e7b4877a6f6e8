//! The counters of a switch, and the names of its figures.

use crate::contract::state::not_acted_upon;
use crate::contract::work::Work;

/// Counters of all jobs together.
#[derive(Clone, Copy, Default)]
pub struct Counters {
    pub collisions: u64,
    pub stragglers: u64,
    pub flushed_late: u64,
    pub flushed_full: u64,
    pub restorations: u64,
    pub expired: u64,
    pub work: Work,
}

not_acted_upon!(Counters);

/// Counters of one job.
#[derive(Clone, Copy, Default, Hash)]
pub struct JobCounters {
    pub blocks_completed: u64,
    pub contributions: u64,
    pub collisions: u64,
    pub stragglers: u64,
}

/// Names and descriptions of the figures.
pub mod figures {
    use crate::contract::metric::Metric;

    pub fn collisions(count: u64) -> Metric {
        Metric::counter("collisions", count, "Packets that found their descriptor taken by another block.")
    }

    pub fn stragglers(count: u64) -> Metric {
        Metric::counter("stragglers", count, "Contributions that came when their partial sum had left.")
    }
}
