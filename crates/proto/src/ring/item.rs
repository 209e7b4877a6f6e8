//! What the packets of a link carry, for the machine and for the link's sending end.

use super::layout::Block;
use super::wire::{Data, Phase};
use crate::contract::time::Time;

/// A block on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The collective.
    pub op: u64,
    /// The block.
    pub block: Block,
    /// Partial sum or result.
    pub phase: Phase,
}

/// What a packet carries.
#[derive(Clone, Debug, Hash)]
pub struct Cargo {
    /// The block.
    pub item: Item,
    /// The packet, if its tensor was handed back before the acknowledgement came.
    pub copy: Option<PacketCopy>,
}

/// A packet that no longer needs its tensor.
#[derive(Clone, Debug, Hash)]
pub struct PacketCopy {
    /// The header; its sequence number and attempt have no meaning.
    pub header: Data,
    /// The vector.
    pub vector: Box<[u8]>,
    /// UDP payload bytes of the packet on the wire.
    pub wire_len: usize,
    /// The packet is not needed after this time.
    pub until: Option<Time>,
}
