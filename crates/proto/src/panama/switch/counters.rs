//! What an accelerator counts, for people and for monitoring.

use crate::contract::metric::Metric;
use crate::contract::state::exclude_from_state;

/// What an accelerator has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sums that have left.
    pub blocks_completed: u64,
    /// Contributions that were added.
    pub contributions: u64,
    /// VIDs that were passed because a contribution was lost (§5).
    pub lost_vids: u64,
    /// Epochs that began.
    pub rewinds: u64,
    /// Workers that were told to send again.
    pub resends: u64,
    /// Sums that left with a mark.
    pub marks: u64,
    /// Sums that left without some ports.
    pub partial_sums: u64,
    /// Ports that those sums did not wait for, added up.
    pub left_out: u64,
}

exclude_from_state!(Counters);

impl Counters {
    /// The metrics that PANAMA alone has.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        vec![
            Metric::counter("lost_vids", self.lost_vids, "VIDs passed because a contribution was lost."),
            Metric::counter("rewinds", self.rewinds, "Epochs that began because a result was lost."),
            Metric::counter("resends", self.resends, "Workers that were told to send again."),
            Metric::counter("marked_sums", self.marks, "Sums that left with a congestion mark."),
            Metric::counter("partial_sums", self.partial_sums, "Averages that left without some ranks."),
            Metric::counter("left_out", self.left_out, "Contributions that averages did not wait for."),
        ]
    }
}
