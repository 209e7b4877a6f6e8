//! The accelerator's memory is divided again when other jobs come and go (§4.2.2, `packet_memory / num_jobs`).
//!
//! The paper lets `wnd_cap` fall and does not say what happens to packets under way: old windows would overflow the
//! smaller buffers. Here a tree begins a new epoch with its new room. Packets of earlier epochs do not count, workers
//! begin with windows of two packets, and every result has the new cap. So no buffer ever holds more than it has room
//! for.

use std::collections::VecDeque;

use super::Panama;
use super::heads::Phase;
use super::notices::{Audience, Notice};
use crate::aggregation::missing_ranks::Neighbour;
use crate::panama::wire::Kind;

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
