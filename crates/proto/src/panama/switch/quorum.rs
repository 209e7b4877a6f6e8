//! Sums that do not wait for all ranks (§7): when such a sum may leave, and what the switch does with late
//! contributions.
//!
//! Two rules keep this sound. First, a port may be left out only if it contributed, in time or late, to a VID at most a
//! room behind: so the results that a worker has to keep stay bounded, and a dead rank is missed soon. Second, in a new
//! epoch a VID whose result any rank may have waits for all ports: a worker that has the result sends it, and it
//! becomes the result again (`docs/protocols/panama.md`).

use std::cmp::Ordering;

use super::heads::Phase;
use super::{Audience, Panama};
use crate::aggregation::missing_ranks::Neighbour;
use crate::contract::config::SwitchConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::heap::heap_bytes;
use crate::panama::options::{Budget, Choices, may_lack_ranks};
use crate::panama::wire::{Header, Kind, epoch};

/// What a switch knows of the children that it may leave out.
#[derive(Clone, Hash)]
pub struct Quorum {
    budget: Budget,
    /// For each child the VID behind the newest contribution that it has brought in this epoch, in time or late.
    newest: Vec<u64>,
    /// No rank has a result of this VID or of a later one from an earlier epoch.
    pub open_from: u64,
    /// Since this switch was started it has not seen an epoch begin, so it does not know which results ranks have.
    pub is_unsure: bool,
}

impl Quorum {
    /// The state of a switch that was just started; `None` if sums wait for all ranks.
    pub fn new(config: &SwitchConfig) -> Option<Quorum> {
        let quorum = Choices::of(&config.job.options).quorum?;
        let budget = Budget::new(quorum, config.job.world_size, &config.below);
        Some(Quorum { budget, newest: vec![0; config.below.len()], open_from: u64::MAX, is_unsure: true })
    }

    /// An epoch begins at a VID; no rank has a result of `open_from` or later.
    pub fn begin(&mut self, vid: u64, open_from: u64) {
        self.newest.fill(vid);
        (self.open_from, self.is_unsure) = (open_from, false);
    }

    /// A child has contributed to a VID.
    pub fn note(&mut self, child: ChildId, vid: u64) {
        let newest = &mut self.newest[child.index()];
        *newest = (*newest).max(vid + 1);
    }

    /// True if a VID may lack a child.
    fn may_lack(&self, child: ChildId, vid: u64, capacity: u64) -> bool {
        self.budget.is_worker(child.index()) && vid < self.newest[child.index()] + capacity
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.budget.memory_bytes() + heap_bytes(&self.newest)
    }
}

impl Panama {
    /// True if the expected VID has as many contributions as it waits for.
    #[inline]
    pub(super) fn has_quorum(&self) -> bool {
        self.quorum.as_ref().is_some_and(|quorum| self.is_enough(quorum))
    }

    fn is_enough(&self, quorum: &Quorum) -> bool {
        let vid = self.heads.expected();
        let entry = self.entries.get(vid);
        if self.phase != Phase::Active || entry.count == 0 || vid < quorum.open_from || !may_lack_ranks(&entry.spec) {
            return false;
        }
        let missing = self.members.len() - usize::from(entry.count);
        let capacity = u64::from(self.capacity);
        let mut children = (0..self.members.len() as u16).map(ChildId);
        quorum.budget.covers(missing, vid as u32)
            && children.all(|child| self.entries.has(vid, child) || quorum.may_lack(child, vid, capacity))
    }

    /// Handles a contribution that comes too late or too early, where sums may lack ranks.
    #[cold]
    pub(super) fn untimely(&mut self, kind: Kind, header: &Header, vid: u64, reason: DropReason) -> DropReason {
        match (reason, &mut self.quorum) {
            (DropReason::Stale, Some(quorum)) => {
                if kind == Kind::Contribution {
                    quorum.note(header.wid, vid);
                    self.advance_unbrought(header.wid);
                }
                DropReason::Late
            }
            (_, Some(quorum)) if quorum.is_unsure => {
                self.ask_for_epoch(header);
                reason
            }
            _ => reason,
        }
    }

    /// A child has contributed too late. Sums may have waited only to hear of it: these are sent.
    fn advance_unbrought(&mut self, child: ChildId) {
        while self.has_quorum() && self.entries.mismatch(self.heads.expected()).is_none() {
            let expected = self.heads.expected();
            self.emit_later(expected, self.members[child.index()]);
            self.entries.free(expected);
            self.heads.pass();
        }
    }

    /// This switch was just started and children contribute: an epoch must begin, so that the switch learns which
    /// results ranks have.
    fn ask_for_epoch(&mut self, header: &Header) {
        match epoch(header.epoch, self.epoch) {
            Ordering::Greater => self.out_of_step(header.epoch),
            _ if self.asks_parent => self.ask_parent_again(),
            Ordering::Less => self.notify(Audience::One(Neighbour::Child(header.wid)), Kind::Sync, 0),
            // The sender is in the middle of the epoch that is about to begin here.
            Ordering::Equal => self.out_of_step(header.epoch),
        }
    }
}
