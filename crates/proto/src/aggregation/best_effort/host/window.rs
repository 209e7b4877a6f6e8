//! The blocks that a worker works on: a ring of places, and the worker's progress.

use std::collections::VecDeque;

use tributary_numeric::BlockExponent;

use crate::contract::time::Time;

/// One block of the window.
#[derive(Clone, Debug, Hash)]
pub struct Place {
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
    /// The magnitude of the last block at this place that was not all zeros.
    pub base: Option<BlockExponent>,
    /// How many times this position was moved in switches.
    pub index: u32,
    /// How many results and acknowledgements of later blocks came before its own.
    pub overtaken: u32,
    /// The worker has asked about it because it was overtaken.
    pub asked: bool,
    /// The worker has asked about it because the result of a later block of some server had come.
    pub asked_early: bool,
    /// When it was asked about last.
    pub questioned_at: Option<Time>,
    /// Its server says that the server or a switch has it.
    pub has_arrived: bool,
}

impl Place {
    fn new() -> Place {
        Place {
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
            asked: false,
            asked_early: false,
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
        (self.overtaken, self.asked, self.asked_early) = (0, false, false);
        (self.resend, self.resent) = (false, false);
        (self.questioned_at, self.has_arrived) = (None, false);
    }
}

/// A worker's blocks between the last result and the last gradient.
#[derive(Clone, Hash)]
pub struct Window {
    places: Vec<Place>,
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
    /// When the current period of sending again began, and how many packets were sent again in it of which nothing has come.
    pub resent: (Time, u64),
}

impl Window {
    /// A window of so many places.
    pub fn new(places: u16) -> Window {
        Window {
            places: vec![Place::new(); usize::from(places.max(1))],
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
        (block % self.places.len() as u64) as usize
    }

    /// The place of a block, if the block waits for its result.
    pub fn waiting(&self, block: u64) -> Option<&Place> {
        let place = &self.places[self.index(block)];
        (place.block == block && place.waits).then_some(place)
    }

    /// The same place, mutable.
    pub fn waiting_mut(&mut self, block: u64) -> Option<&mut Place> {
        let index = self.index(block);
        let place = &mut self.places[index];
        (place.block == block && place.waits).then_some(place)
    }

    /// True if the worker asked about the block that was last at this place, because it was overtaken.
    pub fn was_asked(&self, block: u64) -> bool {
        let place = &self.places[self.index(block)];
        place.block == block && place.asked
    }

    /// Gives the next block its place.
    pub fn begin(&mut self) -> &mut Place {
        let (block, index) = (self.next, self.index(self.next));
        self.next += 1;
        let place = &mut self.places[index];
        debug_assert!(!place.waits, "the block a window before has its result");
        (place.block, place.waits, place.queued) = (block, true, false);
        place.restart(0, None);
        place
    }

    /// Notes that a block's gradient is sent; returns the number of the transmission.
    pub fn sent(&mut self, now: Time, block: u64) -> u64 {
        let number = self.transmissions;
        self.transmissions += 1;
        let index = self.index(block);
        let place = &mut self.places[index];
        (place.transmission, place.sent_at, place.sends) = (number, now, place.sends + 1);
        place.resent = place.resend;
        self.resent.1 += u64::from(place.resend);
        if place.sends == 1 {
            place.first_sent_at = now;
        }
        self.flying += u64::from(!place.flies && !place.acked);
        place.flies |= !place.acked;
        self.flight.push_back((block, number));
        number
    }

    /// Notes that a block's gradient was acknowledged, by its result or before; false if it was known. The gradient need not
    /// be sent again; if it was in this period, another may be.
    pub fn ack(&mut self, block: u64) -> bool {
        let index = self.index(block);
        let place = &mut self.places[index];
        self.flying -= u64::from(place.flies);
        (place.flies, place.queued) = (false, false);
        if std::mem::take(&mut place.resent) && place.sent_at >= self.resent.0 {
            self.resent.1 = self.resent.1.saturating_sub(1);
        }
        let fresh = !place.acked;
        place.acked = true;
        while self.acked < self.next && self.waiting(self.acked).is_none_or(|place| place.acked) {
            self.acked += 1;
        }
        fresh
    }

    /// Notes that a block's result has come.
    pub fn conclude(&mut self, block: u64) {
        let index = self.index(block);
        self.places[index].waits = false;
        while self.first < self.next && self.waiting(self.first).is_none() {
            self.first += 1;
        }
        self.acked = self.acked.max(self.first);
    }

    /// Queues a block to be sent again, past all aggregators if `resend` is set.
    pub fn send_again(&mut self, block: u64, resend: bool) {
        let index = self.index(block);
        let place = &mut self.places[index];
        place.resend |= resend;
        if !std::mem::replace(&mut place.queued, true) {
            self.queue.push_back(block);
        }
    }

    /// The next block to be sent again, and whether it passes all aggregators.
    pub fn next_again(&mut self) -> Option<(u64, bool)> {
        while let Some(&block) = self.queue.front() {
            if let Some(place) = self.waiting(block).filter(|place| place.queued) {
                return Some((block, place.resend));
            }
            self.queue.pop_front();
        }
        None
    }

    /// Notes that that block is sent.
    pub fn pop_again(&mut self) {
        if let Some(block) = self.queue.pop_front()
            && let Some(place) = self.waiting_mut(block)
        {
            place.queued = false;
        }
    }

    /// True if a block must be sent again.
    pub fn has_again(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The oldest gradient under way. Forgets older ones, which are not.
    pub fn oldest_flying(&mut self) -> Option<&Place> {
        loop {
            let &(block, transmission) = self.flight.front()?;
            let index = self.index(block);
            let place = &self.places[index];
            if place.block == block && place.flies && place.transmission == transmission {
                return Some(&self.places[index]);
            }
            self.flight.pop_front();
        }
    }

    /// Queues the gradient that [`oldest_flying`](Self::oldest_flying) has returned to be sent again, past all aggregators: it
    /// is known to be lost.
    pub fn lose_oldest(&mut self) {
        if let Some((block, _)) = self.flight.pop_front() {
            self.send_again(block, true);
        }
    }

    /// The oldest gradient under way, without forgetting any.
    pub fn first_flying(&self) -> Option<&Place> {
        self.flight.iter().find_map(|&(block, transmission)| {
            let place = &self.places[self.index(block)];
            (place.block == block && place.flies && place.transmission == transmission).then_some(place)
        })
    }

    /// Blocks that wait for their result, the oldest first.
    pub fn all_waiting(&self) -> impl Iterator<Item = &Place> {
        (self.first..self.next).filter_map(|block| self.waiting(block))
    }

    /// Forgets all blocks that wait.
    pub fn clear(&mut self) {
        self.places.iter_mut().for_each(|place| (place.waits, place.flies, place.queued) = (false, false, false));
        self.flight.clear();
        self.queue.clear();
        (self.flying, self.first, self.acked) = (0, self.next, self.next);
    }
}
