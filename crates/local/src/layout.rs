//! Where what lies in the memory that ranks share: for each rank words, the descriptions of its collectives, and slots.

use std::sync::atomic::Ordering;

use crate::collective::{Description, SLOT_BYTES};
use crate::handover::Stage;
use crate::memory::{Doorbell, Memory};

/// The most ranks of a group: each has a bit of a word in errors and waits.
pub const MAX_RANKS: usize = 64;
/// Slots of a rank: so far may a rank be ahead of the slowest.
pub const SLOTS: u32 = 8;

/// A cache line, so that ranks do not write to each other's.
const LINE: usize = 64;
/// A line for each stage's counter, one for the status, and one for each of the two last descriptions.
const LINES: usize = 6;
const STATUS: usize = 3;
const DESCRIPTIONS: usize = 4;
const PAGE: usize = 4096;

/// Why a rank takes no further step; the others read it once they wait for the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It takes its steps.
    Running,
    /// It has left the group.
    Left,
    /// A collective has timed out there, for lack of these ranks.
    TimedOut(u64),
    /// It has lost these ranks.
    Lost(u64),
    /// It has found that ranks disagree.
    Disagreed,
}

/// The memory of a group.
#[derive(Debug)]
pub struct Layout {
    memory: Memory,
    ranks: usize,
}

impl Layout {
    /// Bytes of the memory of this many ranks.
    pub fn bytes(ranks: usize) -> usize {
        Layout::slots_at(ranks) + ranks * SLOTS as usize * SLOT_BYTES
    }

    fn slots_at(ranks: usize) -> usize {
        (ranks * LINES * LINE).next_multiple_of(PAGE)
    }

    /// The memory that was mapped, of [`Layout::bytes`].
    pub fn new(memory: Memory, ranks: usize) -> Layout {
        Layout { memory, ranks }
    }

    fn line(&self, rank: usize, line: usize) -> usize {
        (rank * LINES + line) * LINE
    }

    fn doorbell_at(&self, rank: usize, line: usize) -> Doorbell<'_> {
        let at = self.line(rank, line);
        Doorbell { word: self.memory.word(at), sleepers: self.memory.word(at + 4) }
    }

    /// A rank's counter of a stage.
    pub fn counter(&self, rank: usize, stage: Stage) -> Doorbell<'_> {
        self.doorbell_at(rank, stage as usize)
    }

    /// Describes the collective that a rank begins: the one with this number.
    pub fn describe(&self, rank: usize, number: u32, description: &Description) {
        let at = self.description_at(rank, number);
        for (index, word) in description.words().into_iter().enumerate() {
            // Published with the counter of its first chunk.
            self.memory.word(at + 4 * index).store(word, Ordering::Relaxed);
        }
    }

    /// The description of the collective with this number; `None` if it has no meaning.
    pub fn description(&self, rank: usize, number: u32) -> Option<Description> {
        let at = self.description_at(rank, number);
        Description::of_words(std::array::from_fn(|index| self.memory.word(at + 4 * index).load(Ordering::Relaxed)))
    }

    /// Two are enough: a rank begins a collective once all have agreed on the one before.
    fn description_at(&self, rank: usize, number: u32) -> usize {
        self.line(rank, DESCRIPTIONS + (number % 2) as usize)
    }

    /// A rank's status.
    pub fn status(&self, rank: usize) -> Status {
        let at = self.line(rank, STATUS);
        let code = self.memory.word(at).load(Ordering::Acquire);
        let [low, high] = [4, 8].map(|offset| u64::from(self.memory.word(at + offset).load(Ordering::Relaxed)));
        let ranks = high << 32 | low;
        match code {
            0 => Status::Running,
            1 => Status::Left,
            2 => Status::TimedOut(ranks),
            3 => Status::Lost(ranks),
            _ => Status::Disagreed,
        }
    }

    /// Publishes this rank's status, and wakes whoever waits for the rank.
    pub fn set_status(&self, rank: usize, status: Status) {
        let (code, ranks) = match status {
            Status::Running => (0, 0),
            Status::Left => (1, 0),
            Status::TimedOut(ranks) => (2, ranks),
            Status::Lost(ranks) => (3, ranks),
            Status::Disagreed => (4, 0),
        };
        let at = self.line(rank, STATUS);
        self.memory.word(at + 4).store(ranks as u32, Ordering::Relaxed);
        self.memory.word(at + 8).store((ranks >> 32) as u32, Ordering::Relaxed);
        self.memory.word(at).store(code, Ordering::Release);
        for stage in Stage::ALL {
            crate::memory::futex_wake(self.counter(rank, stage).word);
        }
    }

    /// A fragment of the slot of a rank's chunk.
    pub fn slot(&self, rank: usize, chunk: u32, offset: usize, len: usize) -> &[u8] {
        self.memory.bytes(self.slot_at(rank, chunk, offset, len), len)
    }

    /// The same of this rank's own slot, for writing.
    #[allow(clippy::mut_from_ref)] // See `Memory::bytes_mut`.
    pub fn slot_mut(&self, rank: usize, chunk: u32, offset: usize, len: usize) -> &mut [u8] {
        self.memory.bytes_mut(self.slot_at(rank, chunk, offset, len), len)
    }

    fn slot_at(&self, rank: usize, chunk: u32, offset: usize, len: usize) -> usize {
        assert!(rank < self.ranks && offset + len <= SLOT_BYTES, "{offset} and {len} more of a slot of rank {rank}");
        Layout::slots_at(self.ranks) + (rank * SLOTS as usize + (chunk % SLOTS) as usize) * SLOT_BYTES + offset
    }
}
