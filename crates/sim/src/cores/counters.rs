//! What a processor counts: levels over time, and cycles by what they went into.

use super::handlers::Work;

/// A number that rises and falls, with its peak and its mean. What lasts for no time is in neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    value: u64,
    since: u64,
    peak: u64,
    /// The sum over all cycles.
    sum: u128,
}

impl Level {
    /// What it is now.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// The most that it was for some time, up to its last change.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Its mean over the time from 0 to `now`.
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
    /// Packets that had no room.
    pub refused: u64,
    /// Handlers that have ended.
    pub finished: u64,
    /// Packets that wait for a core.
    pub queued: Level,
    /// Packets in the processor: those that wait, and those whose handlers run.
    pub packets: Level,
    /// Bytes of these packets: the input buffers.
    pub input_bytes: Level,
    /// Bytes of the buffers of blocks that are begun and not complete: the working memory.
    pub working_bytes: Level,
    /// Cycles in which cores waited for locks.
    pub lock_waiting: u64,
    /// Cycles of steps, by [`Work`].
    pub busy: [u64; Work::COUNT],
}

impl Counters {
    /// Cycles in which cores had a handler, those of waiting for locks included: the sum of all service times.
    pub fn service(&self) -> u64 {
        self.busy.iter().sum::<u64>() + self.lock_waiting
    }
}
