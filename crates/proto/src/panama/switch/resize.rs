//! The accelerator's memory is divided anew when other jobs come and go (§4.2.2, `packet_memory / num_jobs`).
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
    /// Gives each port room for so many packets.
    pub(super) fn set_room(&mut self, room: u16) {
        if room == self.room {
            return;
        }
        self.room = room;
        self.entries.resize(room.into());
        let keeps = self.parent.is_some() || self.quorum.is_some();
        self.unsent = VecDeque::with_capacity(if keeps { room.into() } else { 0 });
        self.heads.resize(room.into());
        if self.parent.is_some() {
            (self.phase, self.asks_above) = (Phase::Syncing, true);
            self.bases.clear();
        }
        self.go_back(self.expected());
    }

    /// Asks again for an epoch: the switch above has not heard that the tree must go back, or its answer was lost.
    pub(super) fn ask_above_again(&mut self) {
        let (to, vid) = (Audience::One(Neighbour::Parent), self.expected());
        self.notices.push(Notice { to, kind: Kind::Gone, vid, epoch: self.epoch });
    }
}
