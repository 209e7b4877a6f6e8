//! What a switch's machine does for a packet, in counted operations, and what its handler needs for itself meanwhile;
//! for drivers in which handling a packet takes time.
//!
//! A machine's calls are atomic, and a driver in which they take no time needs none of this. Where handlers run on
//! cores, the driver reads a packet's [`Claim`] before the call, waits until the handler may have what it claims, calls
//! the machine, and then takes the [`Work`]. The driver decides how long that work takes.

/// Operations since the last call. Elements are those of the collective's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Elements of a block's first packet, which were copied.
    pub copied: u64,
    /// Elements of a block's further packets, which were combined with what was there.
    pub combined: u64,
    /// Pairs of an index and a value that found their index in the block and were combined with its value.
    pub hit: u64,
    /// Pairs that found a free place in the block.
    pub inserted: u64,
    /// Pairs that found another index in their place, and were sent on by themselves.
    pub spilled: u64,
    /// Cells without a value that were searched for the sum.
    pub scanned_empty: u64,
    /// Cells with a value that were searched for the sum.
    pub scanned_full: u64,
    /// Packets that were made and go out, at once or when there is room for them. Copies for several ports count once.
    pub emitted: u64,
    /// Pairs of an index and a value in those packets that went out before they were full.
    pub unfilled: u64,
    /// Blocks that are over here: their memory may go to other blocks.
    pub completed: u64,
    /// Records of children that were closed with these blocks.
    pub closed: u64,
}

/// What a packet's handler claims: handlers with conflicting claims may not run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The block: packets of one block are handled at the same place.
    pub block: u64,
    /// The part of the block that the handler needs for itself.
    pub needs: Needs,
}

/// The part of a block that a handler needs for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// One of so many buffers (at least one), whichever is free. The handler that ends last combines the buffers.
    Buffer(u16),
    /// Its own place, of so many, at the bottom of a tree. No handler waits; one that finds its sibling's vector goes
    /// on upwards.
    Place(u16, u16),
    /// The block's hash table.
    Table,
    /// The block's array.
    Array,
}

impl Claim {
    /// The whole machine, for a packet of which nothing is known.
    pub const ALL: Claim = Claim { block: 0, needs: Needs::Buffer(1) };

    /// No part of a block.
    pub fn nothing(block: u64) -> Claim {
        Claim { block, needs: Needs::Nothing }
    }

    /// One buffer of a block, or whatever the block has only one of.
    pub fn buffer(block: u64) -> Claim {
        Claim { block, needs: Needs::Buffer(1) }
    }
}
