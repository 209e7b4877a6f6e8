//! The control logic of an accelerator (§5, ②) for one tree: a FIFO for each port, and the VID that all heads must
//! have.
//!
//! As soon as every port has a packet, the heads are compared with `Expected_VID`. If all are equal, they are summed.
//! If one is beyond, `Expected_VID` was lost at that port, and the ports that have it drop it. In both cases the next
//! VID is then expected.
//!
//! Vectors need not wait in the FIFOs: they are combined as they come, along the ports' adder tree, which gives the
//! same bits. So of a FIFO only the VID behind its newest packet is kept, since VIDs within it ascend.

use std::cmp::Ordering;
use std::ops::Range;

use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::heap::heap_bytes;

/// What a tree is doing at this switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It sums.
    Active,
    /// A new epoch begins, and some children have not said what they lack.
    Syncing,
}

/// Where a VID lies in relation to its port's FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FifoPosition {
    /// Before the expected VID.
    Passed,
    /// Not behind the newest packet of the FIFO.
    Queued,
    /// Behind the newest packet, and there is room for it.
    Next,
    /// Further ahead than the port has room for.
    Beyond,
}

/// Decides on a contribution, from its epoch's relation to the tree's. `is_new`: the tree still expects its first VID,
/// so that the switch may have been started in the middle of the job.
pub fn on_contribution(epoch: Ordering, phase: Phase, position: FifoPosition, is_new: bool) -> Result<(), DropReason> {
    match (epoch, phase, position) {
        (Ordering::Less, _, _) => Err(DropReason::StaleEpoch),
        (Ordering::Greater, _, _) | (Ordering::Equal, Phase::Syncing, _) => Err(DropReason::Ahead),
        (Ordering::Equal, Phase::Active, FifoPosition::Passed) => Err(DropReason::Stale),
        (Ordering::Equal, Phase::Active, FifoPosition::Queued) => Err(DropReason::Duplicate),
        (Ordering::Equal, Phase::Active, FifoPosition::Next) => Ok(()),
        (Ordering::Equal, Phase::Active, FifoPosition::Beyond) if is_new => Err(DropReason::Ahead),
        (Ordering::Equal, Phase::Active, FifoPosition::Beyond) => Err(DropReason::Overflow),
    }
}

/// The FIFOs of one tree.
#[derive(Clone, Hash)]
pub struct Heads {
    /// `Expected_VID`.
    expected: u64,
    /// For each port the VID behind its newest packet; `expected` if no packet waits.
    next: Vec<u64>,
    /// How many ports have a packet.
    ready: usize,
    /// How many packets each port has room for.
    capacity: u64,
    is_new: bool,
}

impl Heads {
    /// Empty FIFOs of this many ports, each with room for `capacity` packets.
    pub fn new(ports: usize, capacity: u64, first: u64) -> Heads {
        Heads { expected: first, next: vec![first; ports], ready: 0, capacity, is_new: true }
    }

    /// `Expected_VID`.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// True if the first VID is still expected.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// True if the VID may be in a FIFO.
    pub fn has_capacity_for(&self, vid: u64) -> bool {
        (self.expected..self.expected + self.capacity).contains(&vid)
    }

    /// Where a VID lies at a port.
    #[inline]
    pub fn position(&self, port: ChildId, vid: u64) -> FifoPosition {
        if vid < self.expected {
            FifoPosition::Passed
        } else if vid >= self.expected + self.capacity {
            FifoPosition::Beyond
        } else if vid < self.next[port.index()] {
            FifoPosition::Queued
        } else {
            FifoPosition::Next
        }
    }

    /// Adds a packet to its port's FIFO.
    #[inline]
    pub fn push(&mut self, port: ChildId, vid: u64) {
        let next = &mut self.next[port.index()];
        self.ready += usize::from(*next == self.expected);
        *next = vid + 1;
    }

    /// The port sends again from a VID that is not passed: its FIFO now ends before that VID.
    pub fn send_again(&mut self, port: ChildId, from: u64) {
        let next = &mut self.next[port.index()];
        self.ready -= usize::from(*next != self.expected);
        *next = from.clamp(self.expected, *next);
        self.ready += usize::from(*next != self.expected);
    }

    /// True if every port has a packet.
    #[inline]
    pub fn are_all_there(&self) -> bool {
        self.ready == self.next.len()
    }

    /// The expected VID was summed or lost, and the next one is expected. A port that the sum did not wait for has no
    /// packet of it.
    pub fn pass(&mut self) {
        self.expected += 1;
        self.is_new = false;
        self.ready = 0;
        for next in &mut self.next {
            *next = (*next).max(self.expected);
            self.ready += usize::from(*next != self.expected);
        }
    }

    /// Empties all FIFOs, and expects this VID next.
    pub fn restart(&mut self, expected: u64) {
        (self.expected, self.ready, self.is_new) = (expected, 0, false);
        self.next.fill(expected);
    }

    /// Empties all FIFOs, and gives each port room for this many packets.
    pub fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.restart(self.expected);
    }

    /// The VIDs that may wait at a port.
    pub fn queued(&self, port: ChildId) -> Range<u64> {
        self.expected..self.next[port.index()]
    }

    /// Ports without a packet, if another port has one.
    pub fn missing(&self) -> impl Iterator<Item = ChildId> + '_ {
        let waits = self.ready > 0;
        let ports = self.next.iter().enumerate().filter(move |&(_, &next)| waits && next == self.expected);
        ports.map(|(port, _)| ChildId(port as u16))
    }

    /// How many VIDs lie between the expected one and the newest of any port.
    pub fn waiting(&self) -> u64 {
        self.next.iter().max().map_or(0, |&newest| newest - self.expected)
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.next)
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::*;

    use super::FifoPosition::*;
    use super::Phase::*;
    use super::*;

    /// Epoch, phase, position, `is_new`, and the outcome; `None` stands for all values.
    type Row = (Ordering, Option<Phase>, Option<FifoPosition>, Option<bool>, Result<(), DropReason>);
    const CONTRIBUTIONS: [Row; 8] = [
        (Less, None, None, None, Err(DropReason::StaleEpoch)),
        (Greater, None, None, None, Err(DropReason::Ahead)),
        (Equal, Some(Syncing), None, None, Err(DropReason::Ahead)),
        (Equal, Some(Active), Some(Passed), None, Err(DropReason::Stale)),
        (Equal, Some(Active), Some(Queued), None, Err(DropReason::Duplicate)),
        (Equal, Some(Active), Some(Next), None, Ok(())),
        (Equal, Some(Active), Some(Beyond), Some(false), Err(DropReason::Overflow)),
        (Equal, Some(Active), Some(Beyond), Some(true), Err(DropReason::Ahead)),
    ];

    #[test]
    fn the_table_holds_row_by_row_and_leaves_nothing_out() {
        let mut rows = 0;
        for (epoch, phase, position, is_new, outcome) in CONTRIBUTIONS {
            for phase in phase.map_or(vec![Active, Syncing], |phase| vec![phase]) {
                for position in position.map_or(vec![Passed, Queued, Next, Beyond], |position| vec![position]) {
                    for is_new in is_new.map_or(vec![false, true], |is_new| vec![is_new]) {
                        let what = format!("{epoch:?} {phase:?} {position:?} new={is_new}");
                        assert_eq!(on_contribution(epoch, phase, position, is_new), outcome, "{what}");
                        rows += 1;
                    }
                }
            }
        }
        assert_eq!(rows, 3 * 2 * 4 * 2);
    }

    /// The VIDs of each port's packets, with `Expected_VID` 5 and room for 4; whether all heads are there; the ports
    /// that the expected VID waits for; and how many VIDs wait.
    type Queues = (&'static [&'static [u64]], bool, &'static [u16], u64);
    const HEADS: [Queues; 8] = [
        (&[&[], &[], &[], &[]], false, &[], 0),
        (&[&[5], &[5], &[5], &[5]], true, &[], 1),
        (&[&[5], &[], &[5], &[]], false, &[1, 3], 1),
        (&[&[5], &[6], &[5], &[5]], true, &[], 2),
        (&[&[6], &[6], &[6], &[6]], true, &[], 2),
        (&[&[5, 6, 7, 8], &[], &[], &[]], false, &[1, 2, 3], 4),
        (&[&[5]], true, &[], 1),
        (&[&[]], false, &[], 0),
    ];

    #[test]
    fn the_control_logic_waits_until_every_port_has_a_packet() {
        for (queues, all, missing, waiting) in HEADS {
            let mut heads = Heads::new(queues.len(), 4, 5);
            for (port, vids) in queues.iter().enumerate() {
                for &vid in *vids {
                    assert_eq!(heads.position(ChildId(port as u16), vid), FifoPosition::Next);
                    heads.push(ChildId(port as u16), vid);
                    assert_eq!(heads.position(ChildId(port as u16), vid), FifoPosition::Queued);
                }
            }
            assert_eq!(heads.are_all_there(), all, "{queues:?}");
            assert_eq!(heads.missing().map(|port| port.0).collect::<Vec<_>>(), missing, "{queues:?}");
            assert_eq!(heads.waiting(), waiting, "{queues:?}");
        }
    }

    #[test]
    fn passing_moves_on_by_one_and_capacity_with_it() {
        let mut heads = Heads::new(2, 4, 5);
        let (a, b) = (ChildId(0), ChildId(1));
        [(a, 5), (a, 6), (b, 5)].into_iter().for_each(|(port, vid)| heads.push(port, vid));
        assert_eq!((heads.position(a, 4), heads.position(a, 8), heads.position(a, 9)), (Passed, Next, Beyond));
        assert!(heads.is_new());
        heads.pass();
        assert_eq!((heads.expected(), heads.are_all_there(), heads.is_new()), (6, false, false));
        assert_eq!((heads.position(a, 5), heads.position(a, 9), heads.position(a, 10)), (Passed, Next, Beyond));
        assert_eq!(heads.missing().collect::<Vec<_>>(), [b]);
    }

    #[test]
    fn a_port_that_was_not_waited_for_begins_at_the_next_vid() {
        let mut heads = Heads::new(2, 4, 5);
        let (a, b) = (ChildId(0), ChildId(1));
        heads.push(a, 5);
        heads.pass();
        assert_eq!((heads.position(b, 5), heads.position(b, 6), heads.are_all_there()), (Passed, Next, false));
        [a, b].into_iter().for_each(|port| heads.push(port, 6));
        assert!(heads.are_all_there());
    }

    #[test]
    fn a_port_that_sends_again_has_its_head_when_it_has_come() {
        let mut heads = Heads::new(2, 8, 5);
        let (a, b) = (ChildId(0), ChildId(1));
        [(a, 6), (a, 7), (b, 5)].into_iter().for_each(|(port, vid)| heads.push(port, vid));
        assert!(heads.are_all_there(), "5 is lost");
        heads.send_again(a, 5);
        assert!(!heads.are_all_there());
        assert_eq!(heads.position(a, 5), FifoPosition::Next);
        heads.push(a, 5);
        assert!(heads.are_all_there());
        heads.send_again(b, 9);
        assert_eq!(heads.position(b, 5), FifoPosition::Queued, "what was not sent cannot be sent again");
    }
}
