//! The event queue: a timing wheel with a bitmap for near events, and a heap for far ones.
//!
//! A simulated network schedules almost all events within one link delay, and most within one packet time. So near
//! events go into narrow buckets in constant time, unsorted; a bucket is sorted when its turn comes, and usually holds
//! one or two events. Two levels of bitmaps find the next bucket that is not empty. No memory is allocated for events
//! once the queue has grown to its size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tributary_proto::contract::time::{Span, Time};

use super::{Event, EventId};

const NIL: u32 = u32::MAX;
/// Few enough to be sorted quickly; enough that the next events are known in advance (see [`EventQueue::upcoming`]).
const EVENTS_PER_BUCKET: usize = 8;

/// An event in a bucket's list; free nodes form a list too.
#[derive(Clone, Copy)]
struct Node {
    time: Time,
    id: EventId,
    next: u32,
}

/// Pending events, returned in the order of [`Event`].
pub struct EventQueue {
    /// Buckets are `1 << shift` picoseconds wide.
    shift: u32,
    /// The number of buckets, a power of two, less 1.
    mask: u64,
    /// The bucket, counted from the beginning of time, whose events are in `current`.
    cursor: u64,
    /// The first node of each bucket's list.
    heads: Vec<u32>,
    /// A bit for each bucket, set if the bucket is not empty.
    words: Vec<u64>,
    /// A bit for each of these words, set if the word is not zero.
    summary: Vec<u64>,
    nodes: Vec<Node>,
    free: u32,
    /// The events of the cursor's bucket, the next event last.
    current: Vec<Event>,
    /// Events that were scheduled for the cursor's bucket or an earlier one, after that bucket was sorted.
    late: BinaryHeap<Reverse<Event>>,
    /// Events that are at least one turn of the wheel ahead.
    far: BinaryHeap<Reverse<Event>>,
    in_wheel: usize,
}

impl EventQueue {
    /// A queue for about `pending` events at a time, which are usually at most `horizon` ahead. Any event fits and
    /// comes out in order; these two only affect the speed.
    pub fn new(horizon: Span, pending: usize) -> EventQueue {
        let buckets = (pending / EVENTS_PER_BUCKET).clamp(1 << 7, 1 << 18).next_power_of_two();
        let width = (horizon.0 / buckets as u64 + 1).next_power_of_two();
        let words = buckets / 64;
        EventQueue {
            shift: width.trailing_zeros(),
            mask: buckets as u64 - 1,
            cursor: 0,
            heads: vec![NIL; buckets],
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            nodes: Vec::new(),
            free: NIL,
            current: Vec::new(),
            late: BinaryHeap::new(),
            far: BinaryHeap::new(),
            in_wheel: 0,
        }
    }

    /// Schedules an event. An event before the last one that came out is an error of the caller; it comes out next.
    #[inline]
    pub fn push(&mut self, time: Time, id: EventId) {
        let event = Event { time, id };
        let bucket = time.0 >> self.shift;
        if bucket <= self.cursor {
            self.late.push(Reverse(event));
        } else if bucket - self.cursor <= self.mask {
            self.link(bucket, event);
        } else {
            self.far.push(Reverse(event));
        }
    }

    /// The next event, which stays in the queue.
    #[inline]
    pub fn peek(&mut self) -> Option<Event> {
        if self.current.is_empty() && self.late.is_empty() && !self.advance() {
            return None;
        }
        match (self.current.last(), self.late.peek()) {
            (Some(&event), None) => Some(event),
            (Some(&event), Some(&Reverse(late))) => Some(event.min(late)),
            (None, late) => late.map(|&Reverse(event)| event),
        }
    }

    /// Removes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let next = self.peek()?;
        self.take(next);
        Some(next)
    }

    /// Removes the event that [`EventQueue::peek`] has just returned.
    #[inline]
    pub fn take(&mut self, next: Event) {
        if self.current.last() == Some(&next) {
            self.current.pop();
        } else {
            self.late.pop();
        }
    }

    /// Keeps only some events. No event may have come out before.
    pub fn retain(&mut self, keep: impl Fn(EventId) -> bool) {
        let mut kept: Vec<Event> = std::iter::from_fn(|| self.pop()).filter(|event| keep(event.id)).collect();
        self.cursor = 0;
        kept.drain(..).for_each(|event| self.push(event.time, event.id));
    }

    /// The event that comes `ahead` events after the next one, if its bucket is already sorted.
    #[inline]
    pub fn upcoming(&self, ahead: usize) -> Option<EventId> {
        // A wrapped index is out of range.
        let index = self.current.len().wrapping_sub(1 + ahead);
        self.current.get(index).map(|event| event.id)
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.in_wheel + self.current.len() + self.late.len() + self.far.len()
    }

    /// True if nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn link(&mut self, bucket: u64, event: Event) {
        let slot = (bucket & self.mask) as usize;
        let node = Node { time: event.time, id: event.id, next: self.heads[slot] };
        let index = if self.free == NIL {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let index = self.free;
            let free = &mut self.nodes[index as usize];
            self.free = free.next;
            *free = node;
            index
        };
        self.heads[slot] = index;
        self.words[slot / 64] |= 1 << (slot % 64);
        self.summary[slot / 4096] |= 1 << (slot / 64 % 64);
        self.in_wheel += 1;
    }

    /// Moves the cursor to the next bucket that is not empty and sorts it; false if nothing is left.
    fn advance(&mut self) -> bool {
        if self.in_wheel == 0 {
            let Some(Reverse(event)) = self.far.peek() else { return false };
            // One bucket before, so that the event's bucket is ahead of the cursor and goes into the wheel.
            self.cursor = (event.time.0 >> self.shift) - 1;
            self.fetch_far();
        }
        let slot = self.next_slot((self.cursor & self.mask) as usize);
        self.cursor += (slot as u64).wrapping_sub(self.cursor) & self.mask;
        self.empty_into_current(slot);
        self.fetch_far();
        true
    }

    /// Moves events that the wheel now reaches out of the heap. All events in the wheel are earlier.
    fn fetch_far(&mut self) {
        while let Some(&Reverse(event)) = self.far.peek() {
            let bucket = event.time.0 >> self.shift;
            if bucket - self.cursor > self.mask {
                break;
            }
            self.far.pop();
            self.link(bucket, event);
        }
    }

    fn empty_into_current(&mut self, slot: usize) {
        let mut index = std::mem::replace(&mut self.heads[slot], NIL);
        self.words[slot / 64] &= !(1 << (slot % 64));
        if self.words[slot / 64] == 0 {
            self.summary[slot / 4096] &= !(1 << (slot / 64 % 64));
        }
        while index != NIL {
            let node = &mut self.nodes[index as usize];
            self.current.push(Event { time: node.time, id: node.id });
            let next = std::mem::replace(&mut node.next, self.free);
            self.free = index;
            index = next;
        }
        self.in_wheel -= self.current.len();
        if self.current.len() > 1 {
            self.current.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// The first slot after `from`, around the wheel, that is not empty. There must be one.
    fn next_slot(&self, from: usize) -> usize {
        let start = (from + 1) & self.mask as usize;
        let word = start / 64;
        let rest = self.words[word] & (!0 << (start % 64));
        if rest != 0 {
            return word * 64 + rest.trailing_zeros() as usize;
        }
        let word = self.next_word(word);
        word * 64 + self.words[word].trailing_zeros() as usize
    }

    /// The first word after `from`, around the wheel and including `from`, that is not zero.
    fn next_word(&self, from: usize) -> usize {
        let start = (from + 1) % self.words.len();
        let group = start / 64;
        let rest = self.summary[group] & (!0 << (start % 64));
        if rest != 0 {
            return group * 64 + rest.trailing_zeros() as usize;
        }
        let groups = self.summary.len();
        let group = (1..=groups).map(|step| (group + step) % groups).find(|&group| self.summary[group] != 0);
        let group = group.expect("the wheel holds an event");
        group * 64 + self.summary[group].trailing_zeros() as usize
    }
}
