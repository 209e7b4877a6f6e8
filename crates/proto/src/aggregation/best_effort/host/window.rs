//! The blocks that a worker works on: a ring of entries, and the worker's progress.

use std::collections::VecDeque;

use tributary_numeric::BlockExponent;

use crate::contract::time::Time;

/// One block of the window.
#[derive(Clone, Debug, Hash)]
pub struct Entry {
    /// The block's number.
    pub block: u64,
    /// True if the block waits for its result.
    pub waits: bool,
    /// Its gradient was acknowledged.
    pub acked: bool,
    /// Its gradient is on its way and counts against the window.
    pub flies: bool,
    /// The number of its last transmission.
    pub transmission: u64,
    /// When it was first sent in this attempt.
    pub first_sent_at: Time,
    /// When it was last sent.
    pub sent_at: Time,
    /// How many times it was sent in this attempt.
    pub sends: u32,
    /// It must be sent again.
    pub queued: bool,
    /// When it is sent again, it passes all aggregators.
    pub resend: bool,
    /// It was sent so last, and nothing has come of it.
    pub resent: bool,
    /// How many attempts to sum it failed.
    pub attempt: u8,
    /// Its scale, if it is known.
    pub scale: Option<BlockExponent>,
    /// The magnitude of the last block in this entry that was not all zeros.
    pub base: Option<BlockExponent>,
    /// How many times this position was moved in switches.
    pub index: u32,
    /// How many results and acknowledgements of later blocks came before its own.
    pub overtaken: u32,
    /// The worker has asked about it because it was overtaken.
    pub queried: bool,
    /// The worker has asked about it because the result of a later block of some server had come.
    pub queried_early: bool,
    /// When it was asked about last.
    pub questioned_at: Option<Time>,
    /// Its server says that the server or a switch has it.
    pub has_arrived: bool,
}

impl Entry {
    fn new() -> Entry {
        Entry {
            block: 0,
            waits: false,
            acked: false,
            flies: false,
            transmission: 0,
            first_sent_at: Time::ZERO,
            sent_at: Time::ZERO,
            sends: 0,
            queued: false,
            resend: false,
            resent: false,
            attempt: 0,
            scale: None,
            base: None,
            index: 0,
            overtaken: 0,
            queried: false,
            queried_early: false,
            questioned_at: None,
            has_arrived: false,
        }
    }

    /// True if the block was sent in this attempt, before that transmission.
    pub fn was_sent_before(&self, transmission: u64) -> bool {
        self.sends > 0 && self.transmission < transmission
    }

    /// The block must be sent for the first time in this attempt.
    pub fn restart(&mut self, attempt: u8, scale: Option<BlockExponent>) {
        (self.attempt, self.scale, self.acked, self.sends) = (attempt, scale, false, 0);
        (self.overtaken, self.queried, self.queried_early) = (0, false, false);
        (self.resend, self.resent) = (false, false);
        (self.questioned_at, self.has_arrived) = (None, false);
    }
}

/// A worker's blocks between the last result and the last gradient.
#[derive(Clone, Hash)]
pub struct Window {
    entries: Vec<Entry>,
    /// The first block that has no result: the paper's `last_AACK`, since sequence numbers begin at 1.
    pub first: u64,
    /// The first block that was not acknowledged: the paper's `last_GACK`.
    pub acked: u64,
    /// The first block that was never sent.
    pub next: u64,
    /// Gradients on their way.
    pub flying: u64,
    /// How many transmissions there were.
    pub transmissions: u64,
    /// Blocks and their transmissions in the order of sending, without those known not to be under way.
    flight: VecDeque<(u64, u64)>,
    /// Blocks to be sent again.
    queue: VecDeque<u64>,
    /// When the current period of sending again began, and how many packets were sent again in it of which nothing has
    /// come.
    pub resent: (Time, u64),
}

impl Window {
    /// A window of this many entries.
    pub fn new(entries: u16) -> Window {
        Window {
            entries: vec![Entry::new(); usize::from(entries.max(1))],
            first: 0,
            acked: 0,
            next: 0,
            flying: 0,
            transmissions: 0,
            flight: VecDeque::new(),
            queue: VecDeque::new(),
            resent: (Time::ZERO, 0),
        }
    }

    fn index(&self, block: u64) -> usize {
        (block % self.entries.len() as u64) as usize
    }

    /// The entry of a block, if the block waits for its result.
    pub fn waiting(&self, block: u64) -> Option<&Entry> {
        let entry = &self.entries[self.index(block)];
        (entry.block == block && entry.waits).then_some(entry)
    }

    /// The same entry, mutable.
    pub fn waiting_mut(&mut self, block: u64) -> Option<&mut Entry> {
        let index = self.index(block);
        let entry = &mut self.entries[index];
        (entry.block == block && entry.waits).then_some(entry)
    }

    /// True if the worker asked about the block that was last in this entry, because it was overtaken.
    pub fn was_queried(&self, block: u64) -> bool {
        let entry = &self.entries[self.index(block)];
        entry.block == block && entry.queried
    }

    /// Gives the next block its entry.
    pub fn begin(&mut self) -> &mut Entry {
        let (block, index) = (self.next, self.index(self.next));
        self.next += 1;
        let entry = &mut self.entries[index];
        debug_assert!(!entry.waits, "the block a window before has its result");
        (entry.block, entry.waits, entry.queued) = (block, true, false);
        entry.restart(0, None);
        entry
    }

    /// Notes that a block's gradient is sent; returns the number of the transmission.
    pub fn sent(&mut self, now: Time, block: u64) -> u64 {
        let number = self.transmissions;
        self.transmissions += 1;
        let index = self.index(block);
        let entry = &mut self.entries[index];
        (entry.transmission, entry.sent_at, entry.sends) = (number, now, entry.sends + 1);
        entry.resent = entry.resend;
        self.resent.1 += u64::from(entry.resend);
        if entry.sends == 1 {
            entry.first_sent_at = now;
        }
        self.flying += u64::from(!entry.flies && !entry.acked);
        entry.flies |= !entry.acked;
        self.flight.push_back((block, number));
        number
    }

    /// Notes that a block's gradient was acknowledged, by its result or before; false if it was known. The gradient
    /// need not be sent again; if it was in this period, another may be.
    pub fn ack(&mut self, block: u64) -> bool {
        let index = self.index(block);
        let entry = &mut self.entries[index];
        self.flying -= u64::from(entry.flies);
        (entry.flies, entry.queued) = (false, false);
        if std::mem::take(&mut entry.resent) && entry.sent_at >= self.resent.0 {
            self.resent.1 = self.resent.1.saturating_sub(1);
        }
        let fresh = !entry.acked;
        entry.acked = true;
        while self.acked < self.next && self.waiting(self.acked).is_none_or(|entry| entry.acked) {
            self.acked += 1;
        }
        fresh
    }

    /// Notes that a block's result has come.
    pub fn conclude(&mut self, block: u64) {
        let index = self.index(block);
        self.entries[index].waits = false;
        while self.first < self.next && self.waiting(self.first).is_none() {
            self.first += 1;
        }
        self.acked = self.acked.max(self.first);
    }

    /// Queues a block to be sent again, past all aggregators if `resend` is set.
    pub fn send_again(&mut self, block: u64, resend: bool) {
        let index = self.index(block);
        let entry = &mut self.entries[index];
        entry.resend |= resend;
        if !std::mem::replace(&mut entry.queued, true) {
            self.queue.push_back(block);
        }
    }

    /// The next block to be sent again, and whether it passes all aggregators.
    pub fn next_again(&mut self) -> Option<(u64, bool)> {
        while let Some(&block) = self.queue.front() {
            if let Some(entry) = self.waiting(block).filter(|entry| entry.queued) {
                return Some((block, entry.resend));
            }
            self.queue.pop_front();
        }
        None
    }

    /// Notes that that block is sent.
    pub fn pop_again(&mut self) {
        if let Some(block) = self.queue.pop_front()
            && let Some(entry) = self.waiting_mut(block)
        {
            entry.queued = false;
        }
    }

    /// True if a block must be sent again.
    pub fn has_again(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The oldest gradient under way. Forgets older ones, which are not.
    pub fn oldest_flying(&mut self) -> Option<&Entry> {
        loop {
            let &(block, transmission) = self.flight.front()?;
            let index = self.index(block);
            let entry = &self.entries[index];
            if entry.block == block && entry.flies && entry.transmission == transmission {
                return Some(&self.entries[index]);
            }
            self.flight.pop_front();
        }
    }

    /// Queues the gradient that [`oldest_flying`](Self::oldest_flying) has returned to be sent again, past all
    /// aggregators: it is known to be lost.
    pub fn lose_oldest(&mut self) {
        if let Some((block, _)) = self.flight.pop_front() {
            self.send_again(block, true);
        }
    }

    /// The oldest gradient under way, without forgetting any.
    pub fn first_flying(&self) -> Option<&Entry> {
        self.flight.iter().find_map(|&(block, transmission)| {
            let entry = &self.entries[self.index(block)];
            (entry.block == block && entry.flies && entry.transmission == transmission).then_some(entry)
        })
    }

    /// Blocks that wait for their result, the oldest first.
    pub fn all_waiting(&self) -> impl Iterator<Item = &Entry> {
        (self.first..self.next).filter_map(|block| self.waiting(block))
    }

    /// Forgets all blocks that wait.
    pub fn clear(&mut self) {
        self.entries.iter_mut().for_each(|entry| (entry.waits, entry.flies, entry.queued) = (false, false, false));
        self.flight.clear();
        self.queue.clear();
        (self.flying, self.first, self.acked) = (0, self.next, self.next);
    }
}
