//! Several lists of slots in memory of fixed size: each slot is in one list or in none. All operations are O(1).
//!
//! A list to which a slot is appended at each send is ordered by age: the oldest slot is always at the front. A
//! retransmission timer needs no more.

use std::collections::VecDeque;
use std::ops::Range;

use tributary_numeric::prefetch;

use crate::contract::config::JobConfig;
use crate::contract::ids::TreeId;
use crate::heap::heap_bytes;

/// A slot's number, in the width that the number of slots needs.
pub trait SlotNumber: Copy + Eq {
    /// The number that means no slot.
    const NONE: Self;
    /// The number as an index.
    fn index(self) -> usize;
}

impl SlotNumber for u16 {
    const NONE: u16 = u16::MAX;
    fn index(self) -> usize {
        self.into()
    }
}

impl SlotNumber for u32 {
    const NONE: u32 = u32::MAX;
    fn index(self) -> usize {
        self as usize
    }
}

const NO_LIST: u16 = u16::MAX;
const WORD_BITS: usize = u64::BITS as usize;

#[derive(Clone, Copy, Hash)]
struct Link<I> {
    list: u16,
    next: I,
    prev: I,
}

#[derive(Clone, Copy, Hash)]
struct Ends<I> {
    first: I,
    last: I,
}

/// A number of doubly linked lists over slots 0 to `slots` - 1.
#[derive(Clone, Hash)]
pub struct SlotLists<I = u16> {
    links: Vec<Link<I>>,
    lists: Vec<Ends<I>>,
    /// A bit for each list that is not empty: of many lists few are in use.
    filled: Vec<u64>,
}

impl<I: SlotNumber> SlotLists<I> {
    const EMPTY: Ends<I> = Ends { first: I::NONE, last: I::NONE };

    /// Empty lists, at most 65,535 of them.
    pub fn new(lists: usize, slots: I) -> SlotLists<I> {
        SlotLists {
            links: vec![Link { list: NO_LIST, next: I::NONE, prev: I::NONE }; slots.index()],
            lists: vec![SlotLists::EMPTY; lists],
            filled: vec![0; lists.div_ceil(WORD_BITS)],
        }
    }

    /// The first list of a range that is not empty; the range goes on behind it.
    #[inline]
    pub fn next_filled(&self, lists: &mut Range<usize>) -> Option<usize> {
        while lists.start < lists.end {
            let list = lists.start;
            let rest = self.filled[list / WORD_BITS] >> (list % WORD_BITS);
            if rest != 0 {
                let list = list + rest.trailing_zeros() as usize;
                lists.start = list + 1;
                return (list < lists.end).then_some(list);
            }
            lists.start = (list / WORD_BITS + 1) * WORD_BITS;
        }
        None
    }

    /// Bytes on the heap that this many lists over this many slots take.
    pub const fn bytes_of(lists: usize, slots: usize) -> usize {
        slots * size_of::<Link<I>>() + lists * size_of::<Ends<I>>() + lists.div_ceil(WORD_BITS) * size_of::<u64>()
    }

    /// The slot at the front.
    pub fn first(&self, list: usize) -> Option<I> {
        let first = self.lists[list].first;
        (first != I::NONE).then_some(first)
    }

    /// The slot behind `slot` in its list.
    #[cfg(test)]
    fn next(&self, slot: I) -> Option<I> {
        let next = self.links[slot.index()].next;
        (next != I::NONE).then_some(next)
    }

    /// Appends a slot, which leaves the list that it was in.
    pub fn push(&mut self, list: usize, slot: I) {
        self.remove(slot);
        let last = self.lists[list].last;
        self.links[slot.index()] = Link { list: list as u16, next: I::NONE, prev: last };
        if last == I::NONE {
            self.lists[list].first = slot;
            self.filled[list / WORD_BITS] |= 1 << (list % WORD_BITS);
        } else {
            self.links[last.index()].next = slot;
        }
        self.lists[list].last = slot;
    }

    /// True if a slot is in this list.
    #[inline]
    pub fn is_in(&self, list: usize, slot: I) -> bool {
        usize::from(self.links[slot.index()].list) == list
    }

    /// Moves a slot to the end of the list that it is in, if any.
    pub fn move_to_end(&mut self, slot: I) {
        let list = self.links[slot.index()].list;
        if list != NO_LIST {
            self.push(list.into(), slot);
        }
    }

    /// Takes a slot out of the list that it is in, if any.
    pub fn remove(&mut self, slot: I) {
        let Link { list, next, prev } = self.links[slot.index()];
        if list == NO_LIST {
            return;
        }
        let list = usize::from(list);
        if prev == I::NONE {
            self.lists[list].first = next;
        } else {
            self.links[prev.index()].next = next;
        }
        if prev == I::NONE && next == I::NONE {
            self.filled[list / WORD_BITS] &= !(1 << (list % WORD_BITS));
        }
        if next == I::NONE {
            self.lists[list].last = prev;
        } else {
            self.links[next.index()].prev = prev;
        }
        self.links[slot.index()].list = NO_LIST;
    }

    /// Prefetches the ends of all lists.
    pub fn prefetch_ends(&self) {
        prefetch::whole(&*self.lists);
    }

    /// Prefetches a slot's place in its list.
    pub fn prefetch(&self, slot: I) {
        if let Some(link) = self.links.get(slot.index()) {
            prefetch::first_line(link);
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.links) + heap_bytes(&self.lists) + heap_bytes(&self.filled)
    }
}

// Slots whose packet is to be sent, first come first served. As long as nothing is lost, they are in slot order, so
// that a driver finds runs of equal-sized packets for one tree.

/// A queue that holds each slot at most once.
#[derive(Clone, Hash)]
pub struct SendQueue {
    fifo: VecDeque<u16>,
    queued: Vec<bool>,
}

impl SendQueue {
    /// An empty queue for slots 0 to `slots` - 1.
    pub fn new(slots: u16) -> SendQueue {
        SendQueue { fifo: VecDeque::with_capacity(usize::from(slots)), queued: vec![false; usize::from(slots)] }
    }

    /// Adds a slot, unless it waits already.
    pub fn push(&mut self, slot: u16) {
        if !std::mem::replace(&mut self.queued[usize::from(slot)], true) {
            self.fifo.push_back(slot);
        }
    }

    /// The next slot.
    pub fn pop(&mut self) -> Option<u16> {
        let slot = self.fifo.pop_front()?;
        self.queued[usize::from(slot)] = false;
        Some(slot)
    }

    /// The next slot, which stays in the queue.
    pub fn front(&self) -> Option<u16> {
        self.fifo.front().copied()
    }

    /// Prefetches the front of the queue.
    pub fn prefetch(&self) {
        if let Some(front) = self.fifo.front() {
            prefetch::first_line(front);
        }
    }

    /// Prefetches whether a slot is in the queue.
    pub fn prefetch_slot(&self, slot: u16) {
        if let Some(queued) = self.queued.get(usize::from(slot)) {
            prefetch::first_line(queued);
        }
    }

    /// Empties the queue.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }
}

// Which tree owns which slot: arithmetic that hosts and switches share.

/// The slots of one tree.
pub fn slots_of(job: &JobConfig, tree: TreeId) -> Range<u16> {
    let at = |tree: u32| (tree * u32::from(job.slots) / u32::from(job.trees)) as u16;
    at(u32::from(tree.0))..at(u32::from(tree.0) + 1)
}

/// The tree that owns a slot.
pub fn tree_of_slot(job: &JobConfig, idx: u16) -> TreeId {
    tree_at(idx, job.slots, job.trees)
}

/// The same of a job of this many slots and trees.
pub fn tree_at(idx: u16, slots: u16, trees: u16) -> TreeId {
    TreeId((u32::from(idx) * u32::from(trees) / u32::from(slots)) as u16)
}

/// The tree that owns the slot that a packet names; `None` if the job has no such slot.
pub fn tree_of(job: &JobConfig, slot: Option<u32>) -> Option<TreeId> {
    let slot = slot.and_then(|slot| u16::try_from(slot).ok()).filter(|&slot| slot < job.slots)?;
    Some(tree_of_slot(job, slot))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::ids::{JobId, JobKey};

    fn contents(lists: &SlotLists, list: usize) -> Vec<u16> {
        std::iter::successors(lists.first(list), |&slot| lists.next(slot)).collect()
    }

    #[test]
    fn of_many_lists_those_that_hold_any_slot_are_found() {
        let mut lists = SlotLists::new(200, 8u16);
        for (slot, list) in [(0, 3), (1, 63), (2, 64), (3, 199)] {
            lists.push(list, slot);
        }
        lists.remove(1);
        let found = |mut range: Range<usize>| std::iter::from_fn(|| lists.next_filled(&mut range)).collect::<Vec<_>>();
        assert_eq!(found(0..200), [3, 64, 199]);
        assert_eq!(found(4..199), [64]);
        assert_eq!(found(65..128), [0usize; 0]);
    }

    proptest! {
        #[test]
        fn behaves_as_vectors_do(steps in prop::collection::vec((0..3u8, 0..3usize, 0..8u16), 0..200)) {
            let mut lists = SlotLists::new(3, 8u16);
            let mut model = vec![Vec::new(); 3];
            for (step, list, slot) in steps {
                match step {
                    0 | 1 => {
                        lists.push(list, slot);
                        model.iter_mut().for_each(|list: &mut Vec<u16>| list.retain(|&other| other != slot));
                        model[list].push(slot);
                    }
                    _ => {
                        lists.remove(slot);
                        model.iter_mut().for_each(|list| list.retain(|&other| other != slot));
                    }
                }
                for (list, expected) in model.iter().enumerate() {
                    prop_assert_eq!(&contents(&lists, list), expected);
                }
                for slot in 0..8u16 {
                    let is_in = |list: usize| lists.is_in(list, slot) == model[list].contains(&slot);
                    prop_assert!((0..3).all(is_in));
                }
                for from in 0..3 {
                    let mut range = from..3;
                    let filled: Vec<_> = std::iter::from_fn(|| lists.next_filled(&mut range)).collect();
                    let expected: Vec<_> = (from..3).filter(|&list| !model[list].is_empty()).collect();
                    prop_assert_eq!(filled, expected);
                }
            }
        }
    }

    #[test]
    fn every_slot_has_one_tree() {
        for (slots, trees) in [(1, 1), (8, 1), (8, 2), (12, 3), (512, 16), (65_535, 1), (65_520, 16)] {
            let job = JobConfig {
                job: JobId(1),
                key: JobKey(2),
                protocol: 1,
                world_size: 4,
                slots,
                elements_per_packet: 64,
                trees,
                levels: false,
                options: Default::default(),
            };
            let mut next = 0;
            for tree in (0..trees).map(TreeId) {
                let range = slots_of(&job, tree);
                assert_eq!(range.start, next);
                assert!(range.clone().all(|idx| tree_of_slot(&job, idx) == tree), "{slots} slots, {trees} trees");
                next = range.end;
            }
            assert_eq!(next, slots);
        }
    }
}
