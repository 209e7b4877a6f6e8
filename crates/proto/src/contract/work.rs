//! What a switch's machine does for a packet, in counted operations, and what its handler claims meanwhile: for
//! simulators of a switch's cores only. A protocol without [`Instrumented`] runs everywhere else.
//!
//! A machine's calls are atomic, and a driver in which they take no time needs none of this. Where handlers run on
//! cores, the driver reads a packet's [`Claim`] before the call, waits until the handler may have what it claims, calls
//! the machine, and then takes the [`Work`]. The driver decides how long that work takes.

use crate::contract::ids::PortId;

/// A switch's machine that counts its work, reached by
/// [`Switch::instrumented`](crate::contract::switch::Switch::instrumented).
pub trait Instrumented {
    /// What a packet's handler claims. Called before [`process`](crate::contract::switch::Switch::process), also for
    /// packets that the pipeline may drop.
    fn claim(&mut self, ingress: PortId, packet: &[u8]) -> Claim;
    /// What the machine has done since the last call.
    fn take_work(&mut self) -> Work;
}

/// Operations since the last call. Elements are those of the collective's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Elements of a block's first packet, which were copied.
    pub copied: u64,
    /// Elements of a block's further packets, which were combined with what was there.
    pub combined: u64,
    /// Pairs of an index and a value that found their index in the block and were combined with its value.
    pub hit: u64,
    /// Pairs that found a free slot in the block's table.
    pub inserted: u64,
    /// Pairs that found another index in their slot, and were forwarded unsummed.
    pub spilled: u64,
    /// Cells without a value that were searched for the sum.
    pub scanned_empty: u64,
    /// Cells with a value that were searched for the sum.
    pub scanned_full: u64,
    /// Packets that were made and go out, at once or when a queue has space. Copies for several ports count once.
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
    /// The block: packets of one block are handled by the same cores.
    pub block: u64,
    /// What of the block the handler needs exclusively.
    pub needs: Needs,
}

/// What of a block a handler needs exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Any free one of this number of buffers (at least one). The handler that ends last combines the buffers.
    Buffer(u16),
    /// A leaf of a tree, and the number of leaves. No handler waits; one that finds its sibling's vector goes
    /// on upwards.
    Leaf(u16, u16),
    /// The block's hash table.
    Table,
    /// The block's array.
    Array,
}

impl Claim {
    /// The whole machine, for a packet of which nothing is known.
    pub const ALL: Claim = Claim { block: 0, needs: Needs::Buffer(1) };

    /// Nothing of a block.
    pub fn nothing(block: u64) -> Claim {
        Claim { block, needs: Needs::Nothing }
    }

    /// One buffer of a block, or whatever the block has only one of.
    pub fn buffer(block: u64) -> Claim {
        Claim { block, needs: Needs::Buffer(1) }
    }
}
