//! Recovery from lost packets. The paper says "a simple timeout mechanism" (§4.2.2); `docs/protocols/panama.md`
//! says why more is needed, and why this recovery is right.
//!
//! A worker that misses a result asks (`Lost`). The answer follows the result on the same path. So a worker that is
//! answered `Passed` and has no result will get none, and says so (`Gone`). The root then begins a new epoch: all
//! workers say what they lack (`Base`), switches pass on the least, and all continue from there (`Rewind`). A
//! contribution that the worker's own switch lacks, and whose VID has not been passed, is only sent again (`Resend`).
//!
//! Switches have no timer: workers repeat their questions, and each repetition makes the switches on its way repeat
//! theirs.

use std::cmp::Ordering;

use super::Panama;
use super::heads::Phase;
use super::notices::{Audience, Notice};
use crate::aggregation::missing_ranks::Neighbour;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::packet::PacketMut;
use crate::contract::switch::Verdict;
use crate::heap::heap_bytes;
use crate::panama::wire::{self, HEADER_LEN, Header, Kind, epoch, is_before, least, near};

/// What the children lack, according to their BASE notices in a new epoch.
#[derive(Clone, Hash)]
pub struct Bases {
    said: Vec<Option<u32>>,
    missing: usize,
    /// The VID behind the highest result that any rank below has, as far as children have said.
    pub top: Option<u32>,
    /// Where the epoch began.
    pub from: u32,
}

impl Bases {
    /// The state of a switch with this many children. The first epoch begins at `first` without a question.
    pub fn new(children: usize, first: u32) -> Bases {
        Bases { said: vec![None; children], missing: children, top: None, from: first }
    }

    /// Forgets what the children have said.
    pub fn clear(&mut self) {
        self.said.fill(None);
        (self.missing, self.top) = (self.said.len(), None);
    }

    /// Notes what a child lacks; true if it had said so before.
    fn note(&mut self, child: ChildId, vid: u32) -> bool {
        let before = self.said[child.index()].replace(vid);
        self.missing -= usize::from(before.is_none());
        before.is_some()
    }

    /// Notes the VID behind the highest result of a child and all ranks below it.
    fn note_top(&mut self, top: u32) {
        self.top = Some(self.top.filter(|&known| is_before(top, known)).unwrap_or(top));
    }

    /// The least of the children's VIDs, once all have named theirs.
    fn least(&self) -> Option<u32> {
        let all = self.said.iter().copied().reduce(|a, b| Some(least(a?, b?)));
        all.flatten().filter(|_| self.missing == 0)
    }

    /// The children that have not named theirs.
    fn missing(&self) -> impl Iterator<Item = ChildId> + '_ {
        let silent = self.said.iter().enumerate().filter(|(_, said)| said.is_none());
        silent.map(|(child, _)| ChildId(child as u16))
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.said)
    }
}

/// How a question about a VID is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The VID waits for other ranks.
    Waiting,
    /// The VID was passed: the switch above knows more, or this switch is the root.
    Passed,
    /// A worker's packet was lost.
    Resend,
    /// A switch's sum was lost, and no switch has it any more.
    Gone,
    /// The child knows an epoch or a VID that this switch could only have forgotten by being started again.
    OutOfStep,
}

/// Answers a child that misses the result of a VID. `has_contribution`: the child's contribution is here.
pub fn on_lost(is_passed: bool, is_beyond: bool, has_contribution: bool, from_worker: bool) -> Answer {
    match (is_passed, is_beyond, has_contribution, from_worker) {
        (true, ..) => Answer::Passed,
        (_, true, ..) => Answer::OutOfStep,
        (_, _, true, _) => Answer::Waiting,
        (_, _, false, true) => Answer::Resend,
        (_, _, false, false) => Answer::Gone,
    }
}

impl Panama {
    /// A child asks about a VID whose result it lacks.
    pub(super) fn lost(&mut self, child: ChildId, header: &Header) -> Result<Verdict, DropReason> {
        let one = Audience::One(Neighbour::Child(child));
        match (epoch(header.epoch, self.epoch), self.phase) {
            (Ordering::Greater, _) => {
                self.out_of_step(header.epoch);
                return Ok(Verdict::Consume);
            }
            (_, Phase::Syncing) if self.asks_parent => {
                self.ask_parent_again();
                return Ok(Verdict::Consume);
            }
            (Ordering::Less, _) => {
                self.notify(one, Kind::Sync, 0);
                return Ok(Verdict::Consume);
            }
            // The child is in the middle of an epoch that is about to begin here, so this switch was started again.
            (Ordering::Equal, Phase::Syncing) => {
                self.out_of_step(header.epoch);
                return Ok(Verdict::Consume);
            }
            (Ordering::Equal, Phase::Active) => {}
        }
        let (expected, vid) = (self.heads.expected(), near(self.heads.expected(), header.vid));
        let is_beyond = vid >= expected && !self.heads.has_capacity_for(vid);
        if !is_beyond && vid >= expected && self.entries.mismatch(vid).is_some() {
            self.notify(one, Kind::Mismatch, header.vid);
            return Ok(Verdict::Consume);
        }
        // A contribution must come again if it has left its FIFO, even if its vector was combined.
        let has_contribution = self.holds(child, vid);
        let from_worker = !self.missing_ranks.is_switch(Neighbour::Child(child));
        match on_lost(vid < expected, is_beyond, has_contribution, from_worker) {
            Answer::Waiting => return Ok(self.query(Neighbour::Child(child), header.vid)),
            Answer::Passed if self.parent.is_some() => {
                let verdict = self.query(Neighbour::Child(child), header.vid);
                self.notify(Audience::One(Neighbour::Parent), Kind::Lost, header.vid);
                return Ok(verdict);
            }
            Answer::Passed => self.notify(one, Kind::Passed, header.vid),
            Answer::Resend => {
                self.counters.resends += 1;
                self.heads.send_again(child, vid);
                self.notify(one, Kind::Resend, header.vid);
            }
            Answer::Gone => self.go_back(header.vid),
            Answer::OutOfStep => self.out_of_step(header.epoch),
        }
        Ok(Verdict::Consume)
    }

    /// A worker, or a switch below, knows that a VID's result will never come.
    pub(super) fn gone(&mut self, child: ChildId, header: &Header) -> Verdict {
        match (epoch(header.epoch, self.epoch), self.phase) {
            (Ordering::Greater, _) => self.out_of_step(header.epoch),
            (_, Phase::Syncing) if self.asks_parent => self.ask_parent_again(),
            // Also while the epoch begins: a switch below that was given another room has forgotten what its children
            // had said.
            (Ordering::Equal, _) => self.go_back(header.vid),
            (Ordering::Less, _) => self.notify(Audience::One(Neighbour::Child(child)), Kind::Sync, 0),
        }
        Verdict::Consume
    }

    /// The tree must go back: the root begins an epoch, other switches ask the switch above.
    pub(super) fn go_back(&mut self, vid: u32) {
        match self.parent {
            Some(_) => self.notify(Audience::One(Neighbour::Parent), Kind::Gone, vid),
            None => self.begin_epoch(self.epoch.wrapping_add(1)),
        }
    }

    /// A neighbour knows more than this switch, so this switch must have been started again.
    pub(super) fn out_of_step(&mut self, seen: u16) {
        let newest = if epoch(seen, self.epoch) == Ordering::Greater { seen } else { self.epoch };
        match self.parent {
            Some(_) => {
                let to = Audience::One(Neighbour::Parent);
                self.notices.push(Notice { to, kind: Kind::Gone, vid: 0, epoch: newest });
            }
            None => self.begin_epoch(newest.wrapping_add(1)),
        }
    }

    fn begin_epoch(&mut self, epoch: u16) {
        (self.epoch, self.phase, self.asks_parent) = (epoch, Phase::Syncing, false);
        self.counters.rewinds += 1;
        self.entries.clear();
        self.unsent.clear();
        self.heads.restart(self.heads.expected());
        self.bases.clear();
        self.notices.begin_epoch();
        self.notify(Audience::Children, Kind::Sync, 0);
    }

    /// The switch above begins an epoch, or repeats its question.
    pub(super) fn sync(&mut self, of_packet: u16) -> Result<Verdict, DropReason> {
        match (epoch(of_packet, self.epoch), self.phase) {
            (Ordering::Less, _) => Err(DropReason::StaleEpoch),
            (Ordering::Equal, Phase::Active) => Err(DropReason::Stale),
            (Ordering::Equal, Phase::Syncing) if self.asks_parent => {
                // The switch above lost a result in this epoch, but this switch needs the next epoch.
                self.ask_parent_again();
                Ok(Verdict::Consume)
            }
            (Ordering::Equal, Phase::Syncing) => {
                self.urge();
                Ok(Verdict::Consume)
            }
            (Ordering::Greater, _) => {
                self.begin_epoch(of_packet);
                Ok(Verdict::Consume)
            }
        }
    }

    /// Asks the children that have not named what they lack; if all have, tells the switch above.
    fn urge(&mut self) {
        if let Some(least) = self.bases.least() {
            return self.notify(Audience::One(Neighbour::Parent), Kind::Base, least);
        }
        for child in self.bases.missing() {
            let to = Audience::One(Neighbour::Child(child));
            self.notices.push(Notice { to, kind: Kind::Sync, vid: 0, epoch: self.epoch });
        }
    }

    /// A child says what it and all ranks below it lack.
    pub(super) fn base(
        &mut self,
        child: ChildId,
        header: &Header,
        packet: &PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        let top = self.top_in(packet)?;
        match (epoch(header.epoch, self.epoch), self.phase) {
            (Ordering::Greater, _) => {
                self.out_of_step(header.epoch);
                return Ok(Verdict::Consume);
            }
            (_, Phase::Syncing) if self.asks_parent => {
                self.ask_parent_again();
                return Ok(Verdict::Consume);
            }
            (Ordering::Less, _) => {
                self.notify(Audience::One(Neighbour::Child(child)), Kind::Sync, 0);
                return Err(DropReason::StaleEpoch);
            }
            (Ordering::Equal, Phase::Active) => {
                // The child has not heard where the epoch began.
                self.notify(Audience::One(Neighbour::Child(child)), Kind::Rewind, self.bases.from);
                return Ok(Verdict::Consume);
            }
            (Ordering::Equal, Phase::Syncing) => {}
        }
        let again = self.bases.note(child, header.vid);
        top.into_iter().for_each(|top| self.bases.note_top(top));
        match (self.bases.least(), self.parent) {
            (Some(least), None) => {
                self.begin(least, self.bases.top);
                self.notify(Audience::Children, Kind::Rewind, least);
            }
            (Some(_), Some(_)) => self.urge(),
            (None, _) if again => self.urge(),
            (None, _) => {}
        }
        Ok(Verdict::Consume)
    }

    /// The switch above says where the epoch begins.
    pub(super) fn rewind(&mut self, header: &Header, packet: &PacketMut<'_>) -> Result<Verdict, DropReason> {
        let top = self.top_in(packet)?;
        match (epoch(header.epoch, self.epoch), self.phase) {
            (Ordering::Less, _) => Err(DropReason::StaleEpoch),
            (Ordering::Equal, Phase::Active) => Err(DropReason::Stale),
            (Ordering::Equal, Phase::Syncing) if !self.asks_parent && self.bases.least().is_some() => {
                self.begin(header.vid, top);
                Ok(Verdict::Group(self.group))
            }
            _ => Err(DropReason::Unexpected),
        }
    }

    /// The VID that BASE or REWIND has behind its header where sums may lack ranks.
    fn top_in(&self, packet: &PacketMut<'_>) -> Result<Option<u32>, DropReason> {
        self.quorum.as_ref().map(|_| wire::top(&packet.bytes[HEADER_LEN..packet.len])).transpose()
    }

    /// The epoch begins at a VID; no rank has a result of `top` or later.
    fn begin(&mut self, vid: u32, top: Option<u32>) {
        self.phase = Phase::Active;
        (self.bases.from, self.bases.top) = (vid, top);
        let from = near(self.heads.expected(), vid);
        self.heads.restart(from);
        if let Some(quorum) = &mut self.quorum {
            quorum.begin(from, near(from, top.unwrap_or(vid)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_by_what_is_known_of_its_vid() {
        for (is_passed, is_beyond, has_contribution, from_worker, answer) in [
            (true, false, true, true, Answer::Passed),
            (true, false, true, false, Answer::Passed),
            (false, true, false, true, Answer::OutOfStep),
            (false, true, false, false, Answer::OutOfStep),
            (false, false, true, true, Answer::Waiting),
            (false, false, true, false, Answer::Waiting),
            (false, false, false, true, Answer::Resend),
            (false, false, false, false, Answer::Gone),
        ] {
            assert_eq!(on_lost(is_passed, is_beyond, has_contribution, from_worker), answer);
        }
    }

    #[test]
    fn the_least_base_is_known_when_all_have_said_theirs() {
        let mut bases = Bases::new(3, 0);
        assert!(!bases.note(ChildId(0), 3));
        assert!(!bases.note(ChildId(2), u32::MAX));
        assert!(bases.note(ChildId(0), 3));
        assert_eq!(bases.least(), None);
        assert_eq!(bases.missing().collect::<Vec<_>>(), [ChildId(1)]);
        bases.note(ChildId(1), 1);
        assert_eq!(bases.least(), Some(u32::MAX), "numbers go on where 32 bits end");
    }
}
