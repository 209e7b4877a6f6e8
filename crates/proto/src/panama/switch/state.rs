//! The state that an accelerator reports: its counters, and the packets that wait at each port.

use std::collections::VecDeque;

use super::Panama;
use super::heads::Phase;
use super::notices::{Audience, Notice};
use crate::aggregation::missing_ranks::Neighbour;
use crate::contract::ids::{ChildId, TreeId};
use crate::contract::metric::Metric;
use crate::contract::state::exclude_from_state;
use crate::contract::switch::OrderReport;
use crate::panama::wire::Kind;

impl Panama {
    /// How many packets wait at a port.
    fn queued_at(&self, port: ChildId) -> u16 {
        self.heads.queued(port).filter(|&vid| self.entries.has(vid, port)).count() as u16
    }

    /// How many packets wait at all ports.
    fn queued(&self) -> u32 {
        (0..self.members.len() as u16).map(|port| u32::from(self.queued_at(ChildId(port)))).sum()
    }

    /// The metrics that PANAMA alone has.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let mut metrics = self.counters.metrics();
        metrics.extend([
            Metric::gauge("expected_vid", f64::from(self.expected()), "The VID that is summed next, modulo 2^32."),
            Metric::gauge("epoch", f64::from(self.epoch), "How often the tree went back, modulo 2^16."),
            Metric::gauge("wnd_cap", f64::from(self.capacity), "Packets of a tree that each port can buffer."),
            Metric::gauge("queued_packets", self.queued().into(), "Packets that wait at the ports of a tree."),
        ]);
        metrics
    }

    /// How many packets wait at each port.
    pub(super) fn order(&self) -> OrderReport {
        OrderReport {
            tree: TreeId(self.tid.into()),
            expected: self.expected(),
            epoch: self.epoch,
            cap: self.capacity,
            queued: (0..self.members.len() as u16).map(|port| self.queued_at(ChildId(port))).collect(),
            waits_for: self.heads.missing().collect(),
        }
    }
}

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

// The accelerator's memory is divided again when other jobs come and go (§4.2.2, `packet_memory / num_jobs`).
//
// The paper lets `wnd_cap` fall and does not say what happens to packets under way: old windows would overflow the
// smaller buffers. Here a tree begins a new epoch with its new room. Packets of earlier epochs do not count, workers
// begin with windows of two packets, and every result has the new cap. So no buffer ever holds more than it has room
// for.

impl Panama {
    /// Gives each port room for this many packets.
    pub(super) fn set_capacity(&mut self, capacity: u16) {
        if capacity == self.capacity {
            return;
        }
        self.capacity = capacity;
        self.entries.resize(capacity.into());
        let keeps = self.parent.is_some() || self.quorum.is_some();
        self.unsent = VecDeque::with_capacity(if keeps { capacity.into() } else { 0 });
        self.heads.resize(capacity.into());
        if self.parent.is_some() {
            (self.phase, self.asks_parent) = (Phase::Syncing, true);
            self.bases.clear();
        }
        self.go_back(self.expected());
    }

    /// Asks again for an epoch: the switch above has not heard that the tree must go back, or its answer was lost.
    pub(super) fn ask_parent_again(&mut self) {
        let (to, vid) = (Audience::One(Neighbour::Parent), self.expected());
        self.notices.push(Notice { to, kind: Kind::Gone, vid, epoch: self.epoch });
    }
}
