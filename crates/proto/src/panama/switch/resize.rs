//! Other jobs come and go, and the accelerator's memory is divided anew (§4.2.2, `packet_memory / num_jobs`).
//!
//! The paper lets `wnd_cap` fall and is silent on what is under way: windows of before would overflow the smaller buffers. Here
//! a tree begins a new epoch with its new room. What was sent before is old and counts no more, workers begin with windows
//! of two packets, and results bring the new cap from the first on: no buffer ever holds more than it has room for.

use std::collections::VecDeque;

use super::Panama;
use super::heads::Phase;
use super::notices::{Audience, Notice};
use crate::panama::wire::Kind;
use crate::parts::inquiry::Neighbour;

impl Panama {
    /// Each port has room for so many packets from now on.
    pub(super) fn set_room(&mut self, room: u16) {
        if room == self.room {
            return;
        }
        self.room = room;
        self.entries.resize(room.into());
        self.partials = VecDeque::with_capacity(if self.parent.is_some() { room.into() } else { 0 });
        self.heads.resize(room.into());
        if self.parent.is_some() {
            (self.phase, self.asks_above) = (Phase::Syncing, true);
            self.bases.clear();
        }
        self.go_back(self.expected());
    }

    /// The switch above has not heard that the tree must go back, or its answer was lost.
    pub(super) fn ask_above_again(&mut self) {
        let (to, vid) = (Audience::One(Neighbour::Parent), self.expected());
        self.notices.push(Notice { to, kind: Kind::Gone, vid, epoch: self.epoch });
    }
}
