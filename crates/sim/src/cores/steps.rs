//! The kinds of handlers' steps, and a machine's answer to a handler.

use std::ops::{Index, IndexMut};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The handler starts: its overhead.
    Start,
    /// A packet is copied into an empty buffer.
    Copy,
    /// A packet is combined with a buffer.
    Combine,
    /// A buffer is combined with another one.
    Merge,
    /// Pairs are inserted into free slots of a sparse block.
    Insert,
    /// Pairs collide in a sparse block.
    Spill,
    /// The slots of a sparse block are searched.
    Scan,
    /// The sum is sent.
    Send,
}

impl Kind {
    /// All kinds, in the order of tables.
    pub const ALL: [Kind; 8] =
        [Kind::Start, Kind::Copy, Kind::Combine, Kind::Merge, Kind::Insert, Kind::Spill, Kind::Scan, Kind::Send];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Start => "start",
            Kind::Copy => "copy",
            Kind::Combine => "combine",
            Kind::Merge => "merge",
            Kind::Insert => "insert",
            Kind::Spill => "spill",
            Kind::Scan => "scan",
            Kind::Send => "send",
        }
    }
}

/// Cycles by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent([u64; Kind::ALL.len()]);

impl Spent {
    /// This many cycles of one kind.
    pub fn on(kind: Kind, cycles: u64) -> Spent {
        let mut spent = Spent::default();
        spent[kind] = cycles;
        spent
    }

    /// The same, and this many more cycles of a kind.
    #[must_use]
    pub fn and(mut self, kind: Kind, cycles: u64) -> Spent {
        self[kind] += cycles;
        self
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The same cycles, scaled.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Spent {
        Spent(self.0.map(|cycles| (cycles as f64 * factor).round() as u64))
    }

    /// The kind with the most cycles; the first of several.
    pub fn main(&self) -> Kind {
        let most = Kind::ALL.into_iter().rev().max_by_key(|&kind| self[kind]);
        most.unwrap_or(Kind::Start)
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Spent) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Index<Kind> for Spent {
    type Output = u64;
    fn index(&self, kind: Kind) -> &u64 {
        &self.0[kind as usize]
    }
}

impl IndexMut<Kind> for Spent {
    fn index_mut(&mut self, kind: Kind) -> &mut u64 {
        &mut self.0[kind as usize]
    }
}

/// A machine's answer to a handler that calls it, which the handler does when it has what it needs of its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// The packet belongs to its block, and is not there already.
    pub counts: bool,
    /// It is the last packet of its block.
    pub completes: bool,
    /// Bytes of a buffer of the block.
    pub buffer_bytes: u64,
    /// The cost of copying the packet into an empty buffer.
    pub copy: Spent,
    /// The cost of combining the packet with a used buffer.
    pub combine: Spent,
    /// The cost of merging one buffer into another.
    pub merge: Spent,
    /// The cost that follows when the block is complete and one buffer has all of it; for a packet that does not
    /// complete its block, the cost that follows at once.
    pub end: Spent,
}

/// The machine, which knows the cost and effect of a handler's call. Calls come in the order of their times.
pub trait Machine {
    /// A packet's handler has what it needs of its block: this buffer, if it needs one.
    fn call(&mut self, now: u64, packet: &super::Packet, buffer: u32) -> Called;
}
