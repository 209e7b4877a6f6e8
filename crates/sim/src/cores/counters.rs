//! The counts of a processor: levels over time, and cycles by kind of step.

use super::steps::{Kind, Spent};

/// A number that rises and falls, with its peak and its mean. A level that lasts for no time counts in neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    value: u64,
    since: u64,
    peak: u64,
    /// The sum over all cycles.
    sum: u128,
}

impl Level {
    /// The present level.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// The highest level that lasted for some time, up to the last change.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The mean level over the time from 0 to `now`.
    pub fn mean(&self, now: u64) -> f64 {
        let rest = u128::from(self.value) * u128::from(now.saturating_sub(self.since));
        (self.sum + rest) as f64 / now.max(1) as f64
    }

    pub(super) fn rise(&mut self, now: u64, by: u64) {
        self.pass(now);
        self.value += by;
    }

    pub(super) fn fall(&mut self, now: u64, by: u64) {
        self.pass(now);
        self.value -= by;
    }

    fn pass(&mut self, now: u64) {
        if now > self.since {
            self.peak = self.peak.max(self.value);
            self.sum += u128::from(self.value) * u128::from(now - self.since);
            self.since = now;
        }
    }
}

/// Counts of a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that did not fit.
    pub refused: u64,
    /// Packets that were marked because the packet memory was filling.
    pub marked: u64,
    /// Blocks that began although their cluster's working memory was full.
    pub crowded: u64,
    /// Handlers that ended.
    pub finished: u64,
    /// Bytes of their packets.
    pub handled_bytes: u64,
    /// For how long there were packets, and since when there are.
    active: u64,
    active_since: Option<u64>,
    /// Packets that wait for a core.
    pub queued: Level,
    /// Packets in the processor: waiting ones, and those whose handlers run.
    pub packets: Level,
    /// Bytes of these packets: the input buffers.
    pub input_bytes: Level,
    /// Bytes of the buffers of blocks that have begun and are not complete: the working memory.
    pub working_bytes: Level,
    /// Cycles in which cores waited for locks.
    pub lock_waiting: u64,
    /// Cycles of steps, by [`Kind`].
    pub busy: Spent,
}

impl Counters {
    /// A packet came in.
    pub(super) fn begin(&mut self, now: u64) {
        self.active_since.get_or_insert(now);
    }

    /// A handler ended.
    pub(super) fn end(&mut self, now: u64, bytes: u64) {
        self.finished += 1;
        self.handled_bytes += bytes;
        if self.packets.value() == 0
            && let Some(since) = self.active_since.take()
        {
            self.active += now - since;
        }
    }

    /// Gigabits of packets a second, over the time in which there were packets; times must be picoseconds.
    pub fn handled_gbps(&self) -> f64 {
        8e3 * self.handled_bytes as f64 / self.active.max(1) as f64
    }

    /// Cycles of one kind of step.
    pub fn of(&self, kind: Kind) -> u64 {
        self.busy[kind]
    }

    /// Cycles in which cores had a handler, including waiting for locks: the sum of all service times.
    pub fn service(&self) -> u64 {
        self.busy.total() + self.lock_waiting
    }
}
