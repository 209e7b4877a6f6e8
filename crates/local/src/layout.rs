//! Where what lies in the memory that ranks share: for each rank words, the descriptions of its collectives, and slots.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::collective::{Description, SLOT_BYTES};
use crate::handover::{Doorbell, Stage, Word};
use crate::memory::Memory;

/// The most ranks of a group: each has a bit of a word in errors and waits.
pub const MAX_RANKS: usize = 64;
/// Slots of a rank: so far may a rank be ahead of the slowest.
pub const SLOTS: u32 = 8;

/// A cache line, so that ranks do not write to each other's.
const LINE: usize = 64;
/// A line for each stage's counter, one for the status, one for each of the two last descriptions, and a message.
const LINES: usize = MESSAGE + MESSAGE_BYTES / LINE;
const STATUS: usize = 3;
const DESCRIPTIONS: usize = 4;
const MESSAGE: usize = 6;
/// The bytes of a message, the first four of which are its length.
const MESSAGE_BYTES: usize = 1024;
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
    /// It has said why, in a message.
    Reported,
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

    fn doorbell_at(&self, rank: usize, line: usize) -> Doorbell<'_, AtomicU32> {
        let at = self.line(rank, line);
        Doorbell { word: self.memory.word(at), sleepers: self.memory.word(at + 4) }
    }

    /// A rank's counter of a stage.
    pub fn counter(&self, rank: usize, stage: Stage) -> Doorbell<'_, AtomicU32> {
        self.doorbell_at(rank, stage as usize)
    }

    /// Describes the collective that a rank begins, the one with this number, and the operation that it belongs to.
    pub fn describe(&self, rank: usize, number: u32, description: &Description, operation: &Description) {
        let at = self.description_at(rank, number);
        let words = description.words().into_iter().chain(operation.words());
        for (index, word) in words.enumerate() {
            // Published with the counter of its first chunk.
            self.memory.word(at + 4 * index).store(word, Ordering::Relaxed);
        }
    }

    /// The descriptions of the collective with this number and of its operation; `None` if they have no meaning.
    pub fn descriptions(&self, rank: usize, number: u32) -> Option<[Description; 2]> {
        let at = self.description_at(rank, number);
        let word = |index: usize| self.memory.word(at + 4 * index).load(Ordering::Relaxed);
        let count = Description::WORDS;
        let [first, second] = [0, count].map(|start| std::array::from_fn(|index| word(start + index)));
        Some([Description::of_words(first)?, Description::of_words(second)?])
    }

    /// Writes this rank's message, which is cut if it is too long, for [`Status::Reported`].
    pub fn set_message(&self, rank: usize, message: &[u8]) {
        let at = self.line(rank, MESSAGE);
        let message = &message[..message.len().min(MESSAGE_BYTES - 4)];
        self.memory.word(at).store(message.len() as u32, Ordering::Relaxed);
        for (index, bytes) in message.chunks(4).enumerate() {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            // Published with the status.
            self.memory.word(at + 4 + 4 * index).store(u32::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// A rank's message.
    pub fn message(&self, rank: usize) -> Vec<u8> {
        let at = self.line(rank, MESSAGE);
        let length = (self.memory.word(at).load(Ordering::Relaxed) as usize).min(MESSAGE_BYTES - 4);
        let words = (0..length.div_ceil(4)).map(|index| self.memory.word(at + 4 + 4 * index).load(Ordering::Relaxed));
        let mut message: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        message.truncate(length);
        message
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
            4 => Status::Disagreed,
            _ => Status::Reported,
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
            Status::Reported => (5, 0),
        };
        let at = self.line(rank, STATUS);
        self.memory.word(at + 4).store(ranks as u32, Ordering::Relaxed);
        self.memory.word(at + 8).store((ranks >> 32) as u32, Ordering::Relaxed);
        self.memory.word(at).store(code, Ordering::Release);
        for stage in Stage::ALL {
            self.counter(rank, stage).word.wake();
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
