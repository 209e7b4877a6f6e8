//! The order in which ranks hand chunks to each other: which chunk a rank may work on next, from the counters of all.
//!
//! Every chunk goes through three stages on every rank: the rank copies its contribution into its own slot, reduces its
//! share of the elements from all slots, and copies the results out. A rank publishes after each stage how many chunks
//! it has finished there; nothing else is shared, and no rank ever waits for a rank that waits for it. The results of a
//! rank's share replace the elements of the same share in its own slot, which no other rank reads before.
//!
//! A rank that must wait sleeps at the counter of the rank that it waits for, which is a [`Doorbell`].
//!
//! `tests/handover.rs` visits every order of steps of small groups, and `tests/schedules.rs` permutes their accesses to
//! counters.

use std::time::Duration;

/// The stages of a chunk, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The contribution is copied into the rank's slot.
    CopyIn,
    /// The rank's share of the elements is reduced.
    Reduce,
    /// The results are copied out.
    CopyOut,
}

impl Stage {
    /// All stages.
    pub const ALL: [Stage; 3] = [Stage::CopyIn, Stage::Reduce, Stage::CopyOut];
}

/// The counters of all ranks: how many chunks each has finished in each stage, modulo 2^32.
pub trait Counters {
    /// A rank's counter. What the rank wrote before it published the count is visible after this.
    fn load(&self, rank: usize, stage: Stage) -> u32;
    /// Publishes this rank's counter, and wakes ranks that wait for it.
    fn publish(&self, stage: Stage, count: u32);
}

/// What a chunk is a fragment of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkKind {
    /// Each rank reduces a share; otherwise results are made of the contributions directly.
    pub shares: bool,
    /// The collective's first chunk. A rank goes on behind it once all ranks have brought it and agree on what it is.
    pub opens: bool,
}

/// What a rank can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Work on this chunk in this stage, and then call [`Handover::finish`].
    Work(Stage, u32),
    /// Wait until all of these ranks (a bit for each) have counted so far in this stage.
    Wait {
        /// The stage.
        stage: Stage,
        /// The count.
        count: u32,
        /// The ranks that have not, a bit for each.
        ranks: u64,
    },
    /// Every chunk is finished.
    Idle,
}

/// One rank's position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handover {
    ranks: usize,
    /// Chunks that a rank's memory holds at once.
    slots: u32,
    /// This rank's own counters.
    counts: [u32; 3],
}

impl Handover {
    /// The beginning, before the first chunk.
    pub fn new(ranks: usize, slots: u32) -> Handover {
        Handover { ranks, slots, counts: [0; 3] }
    }

    /// The chunks that are finished in a stage.
    pub fn count(&self, stage: Stage) -> u32 {
        self.counts[stage as usize]
    }

    /// What to do next. `end` is one past the last chunk that there is, and `kind` describes each before it.
    ///
    /// Late stages come first: they free memory, and other ranks wait for them.
    pub fn next(&self, counters: &impl Counters, end: u32, kind: impl Fn(u32) -> ChunkKind) -> Next {
        let [copied_in, reduced, copied_out] = self.counts;
        let mut oldest = None;
        let mut need = |stage, count| {
            let ranks = self.behind(counters, stage, count);
            let wait = Next::Wait { stage, count, ranks };
            // The oldest need is the one that cannot depend on this rank.
            ranks == 0 || {
                oldest.get_or_insert(wait);
                false
            }
        };
        if copied_out != reduced {
            let results_in = if kind(copied_out).shares { Stage::Reduce } else { Stage::CopyIn };
            if need(results_in, copied_out.wrapping_add(1)) {
                return Next::Work(Stage::CopyOut, copied_out);
            }
        }
        if reduced != copied_in {
            let ChunkKind { shares, opens } = kind(reduced);
            if !(shares || opens) || need(Stage::CopyIn, reduced.wrapping_add(1)) {
                return Next::Work(Stage::Reduce, reduced);
            }
        }
        if copied_in != end {
            // Before its collective is agreed on, a chunk's successor belongs to an unknown collective.
            let is_next_agreed = !kind(copied_in).opens || reduced == copied_in;
            let freed = copied_in.wrapping_sub(self.slots).wrapping_add(1);
            if is_next_agreed && need(Stage::CopyOut, freed) {
                return Next::Work(Stage::CopyIn, copied_in);
            }
        }
        oldest.unwrap_or(Next::Idle)
    }

    /// Publishes that the chunk that [`next`](Handover::next) gave is finished in this stage.
    pub fn finish(&mut self, counters: &impl Counters, stage: Stage) {
        let count = &mut self.counts[stage as usize];
        *count = count.wrapping_add(1);
        counters.publish(stage, *count);
    }

    /// The ranks that have not counted so far, a bit for each.
    fn behind(&self, counters: &impl Counters, stage: Stage, count: u32) -> u64 {
        (0..self.ranks).filter(|&rank| !has_reached(counters.load(rank, stage), count)).map(|rank| 1 << rank).sum()
    }
}

/// True if a counter is at this count or behind it; they wrap, and are never far from each other.
pub fn has_reached(counter: u32, count: u32) -> bool {
    counter.wrapping_sub(count).cast_signed() >= 0
}

/// A word that ranks share, with all accesses in one order, and the sleep until it changes.
pub trait Word {
    /// Its value.
    fn get(&self) -> u32;
    /// Changes it.
    fn set(&self, value: u32);
    /// Adds to it, modulo 2^32.
    fn add(&self, change: u32);
    /// Sleeps if it has this value, until somebody wakes those that sleep here, or the time has passed.
    fn sleep(&self, value: u32, timeout: Duration);
    /// Wakes all that sleep here.
    fn wake(&self);
}

/// A counter and how many sleep until it changes.
pub struct Doorbell<'a, W> {
    /// The counter.
    pub word: &'a W,
    /// How many sleep. A process that is killed in its sleep leaves it too high, which costs a call for each change.
    pub sleepers: &'a W,
}

impl<W: Word> Doorbell<'_, W> {
    /// Changes the counter, and wakes those that sleep.
    pub fn publish(&self, value: u32) {
        // Either this sees the sleeper, or the sleeper sees the new value.
        self.word.set(value);
        if self.sleepers.get() != 0 {
            self.word.wake();
        }
    }

    /// Sleeps until the counter differs from `seen`, or the time has passed.
    pub fn sleep(&self, seen: u32, timeout: Duration) {
        self.sleepers.add(1);
        if self.word.get() == seen {
            self.word.sleep(seen, timeout);
        }
        self.sleepers.add(1u32.wrapping_neg());
    }
}
