//! FIN (§5): a rank that leaves says so, and may leave when no rank needs its contributions any more.
//!
//! The paper's FIN says that a worker has sent everything, and resets the accelerator. But results may still be missing
//! then, and a rewind would have to make them again. So our FIN names the VID before which its sender and all ranks
//! below it need nothing. Switches pass on the least of their children's VIDs, and the root tells all. Ranks that stay
//! are asked only if a leaving rank waits for them.

use super::Panama;
use super::notices::{Audience, Notice};
use crate::aggregation::missing_ranks::Neighbour;
use crate::contract::ids::ChildId;
use crate::contract::switch::Verdict;
use crate::heap::heap_bytes;
use crate::panama::wire::{Kind, is_before, least};

/// For each child the VID before which it needs nothing.
#[derive(Clone, Hash)]
pub struct Floors {
    said: Vec<Option<u32>>,
    /// The VID that the root has told all.
    announced: Option<u32>,
}

impl Floors {
    /// Floors of this many children, which need everything.
    pub fn new(children: usize) -> Floors {
        Floors { said: vec![None; children], announced: None }
    }

    /// Takes in a child's FIN; true if it says nothing new.
    fn note(&mut self, child: ChildId, vid: u32) -> bool {
        let said = &mut self.said[child.index()];
        let is_old = said.is_some_and(|said| !is_before(said, vid));
        if !is_old {
            *said = Some(vid);
        }
        is_old
    }

    /// The least VID, if all children have named one.
    fn least(&self) -> Option<u32> {
        self.said.iter().copied().reduce(|a, b| Some(least(a?, b?))).flatten()
    }

    /// True if no rank below needs anything before this VID.
    fn all_beyond(&self, vid: u32) -> bool {
        self.least().is_some_and(|least| !is_before(least, vid))
    }

    /// Children that may need something before this VID.
    fn in_need(&self, vid: u32) -> impl Iterator<Item = ChildId> + '_ {
        let needs = move |said: &Option<u32>| said.is_none_or(|said| is_before(said, vid));
        self.said.iter().enumerate().filter(move |(_, said)| needs(said)).map(|(child, _)| ChildId(child as u16))
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.said)
    }
}

impl Panama {
    /// A child says that it needs nothing before this VID.
    pub(super) fn fin(&mut self, child: ChildId, vid: u32) -> Verdict {
        let again = self.floors.note(child, vid);
        if self.floors.announced.is_some_and(|announced| !is_before(announced, vid)) {
            self.notify(Audience::One(Neighbour::Child(child)), Kind::FinDone, vid);
            return Verdict::Consume;
        }
        match (self.floors.least().filter(|_| self.floors.all_beyond(vid)), self.parent) {
            (Some(least), None) => {
                self.floors.announced = Some(least);
                self.notify(Audience::Children, Kind::FinDone, least);
            }
            (Some(least), Some(_)) => self.notify(Audience::One(Neighbour::Parent), Kind::Fin, least),
            (None, _) if again => self.ask(vid),
            (None, _) => {}
        }
        Verdict::Consume
    }

    fn ask(&mut self, vid: u32) {
        for child in self.floors.in_need(vid) {
            let to = Audience::One(Neighbour::Child(child));
            self.notices.push(Notice { to, kind: Kind::FinAsk, vid, epoch: self.epoch });
        }
    }

    /// The switch above asks whether any rank below needs something before this VID.
    pub(super) fn fin_ask(&mut self, vid: u32) -> Verdict {
        match self.floors.least().filter(|_| self.floors.all_beyond(vid)) {
            Some(least) => self.notify(Audience::One(Neighbour::Parent), Kind::Fin, least),
            None => self.ask(vid),
        }
        Verdict::Consume
    }

    /// The root says that no rank needs anything before this VID.
    pub(super) fn fin_done(&mut self, vid: u32) -> Verdict {
        self.floors.announced = Some(vid);
        Verdict::Group(self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_before_all_have_what_it_holds() {
        let mut floors = Floors::new(2);
        assert!(!floors.note(ChildId(0), 7));
        assert!(floors.note(ChildId(0), 7), "said again");
        assert!(!floors.all_beyond(7));
        assert_eq!(floors.in_need(7).collect::<Vec<_>>(), [ChildId(1)]);
        floors.note(ChildId(1), 6);
        assert!(floors.all_beyond(6) && !floors.all_beyond(7));
        assert!(!floors.note(ChildId(1), 9));
        assert!(floors.note(ChildId(1), 8), "a late packet takes nothing back");
        assert_eq!((floors.all_beyond(7), floors.least()), (true, Some(7)));
    }
}
