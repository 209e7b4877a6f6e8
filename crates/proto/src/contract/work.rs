//! What a switch's machine does for a packet, in counted operations, and what it must have for itself meanwhile: for drivers in
//! which that takes time.
//!
//! A machine's calls are atomic, and a driver that runs them straight through asks for none of this. Where handlers run on cores, the
//! driver reads a packet's [`Claim`] before the call, waits until the handler may have what it claims, calls, and then takes the
//! [`Work`]: what it costs is the driver's to know.

/// Operations since a machine was last asked. Elements are those of the collective's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Elements of a block's first packet, which were copied.
    pub copied: u64,
    /// Elements of the others, which were combined with what was there.
    pub combined: u64,
    /// Pairs of an index and a value that found their index there and were combined, ...
    pub hit: u64,
    /// ... that found a free place, ...
    pub inserted: u64,
    /// ... and that found another's, and go on by themselves.
    pub spilled: u64,
    /// Cells that were looked through for the sum: those that were empty, ...
    pub scanned_empty: u64,
    /// ... and those that had a value.
    pub scanned_full: u64,
    /// Packets that were made and go out, at once or when there is room for them, copies for several ports once.
    pub emitted: u64,
    /// Pairs of an index and a value in those of them that went out before they were full.
    pub unfilled: u64,
    /// Blocks that are over here: what they held may go to others.
    pub completed: u64,
    /// Records of children that were closed with them.
    pub closed: u64,
}

impl Work {
    /// Something of what a packet brought is in a block now.
    pub fn took_in(&self) -> bool {
        self.copied + self.combined + self.hit + self.inserted + self.spilled > 0
    }
}

/// Which of a switch's handlers a packet's must not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The block: packets of one block are handled where the others are.
    pub block: u64,
    /// What of it the handler must have.
    pub needs: Needs,
}

/// What of its block a handler must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// One of so many buffers, whichever is free, at least one. Who comes to its end last brings the buffers together.
    Buffer(u16),
    /// Its own place of so many at the bottom of a tree: nobody waits, and who finds a sibling there goes on upwards.
    Place(u16, u16),
    /// The block's hash table.
    Table,
    /// The block's array.
    Array,
}

impl Claim {
    /// All of the machine: of a packet of which nothing is known.
    pub const ALL: Claim = Claim { block: 0, needs: Needs::Buffer(1) };

    /// Nothing of a block.
    pub fn nothing(block: u64) -> Claim {
        Claim { block, needs: Needs::Nothing }
    }

    /// One buffer of a block, or whatever else it has only one of.
    pub fn buffer(block: u64) -> Claim {
        Claim { block, needs: Needs::Buffer(1) }
    }
}

/// What a packet brings to its block, for drivers that run handlers of their own beside the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// Whose it is, of the switch's children.
    pub child: u16,
    /// Elements of a dense block.
    pub elements: u32,
    /// The number of a sparse packet among its sender's of the block, ...
    pub shard: u32,
    /// ... and how many there are, in the last one; else 0.
    pub shards: u32,
    /// Places of the block's table, or the indices that it spans.
    pub places: u32,
    /// The indices of its pairs.
    pub indices: Vec<u32>,
}

impl Brought {
    /// The packet brings no element.
    pub fn is_empty(&self) -> bool {
        self.elements == 0 && self.indices.is_empty()
    }
}
