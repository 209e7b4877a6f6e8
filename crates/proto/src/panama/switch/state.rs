//! The state that an accelerator reports: its counters, and the packets that wait at each port.

use super::Panama;
use crate::contract::ids::{ChildId, TreeId};
use crate::contract::metric::Metric;
use crate::contract::switch::OrderReport;

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
            Metric::gauge("wnd_cap", f64::from(self.capacity), "Packets of a tree that each port has room for."),
            Metric::gauge("held_packets", self.queued().into(), "Packets that wait at the ports of a tree."),
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
