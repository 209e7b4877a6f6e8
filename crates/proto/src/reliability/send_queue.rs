//! Slots whose packet is to be sent, first come first served. As long as nothing is lost, they are in slot order, so
//! that a driver finds runs of equal-sized packets for one tree.

use std::collections::VecDeque;

use tributary_numeric::prefetch;

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
