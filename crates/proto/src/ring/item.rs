//! What the packets of a link carry, as the machine and the link's sending end speak of it.

use super::layout::Block;
use super::wire::{Data, Phase};
use crate::contract::time::Time;

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The collective.
    pub op: u64,
    /// The block.
    pub block: Block,
    /// Partial sum or result.
    pub phase: Phase,
}

/// A packet that does not need its tensor any more.
#[derive(Clone, Debug, Hash)]
pub struct PacketCopy {
    /// The header; its sequence number and attempt are of no meaning.
    pub header: Data,
    /// The vector.
    pub vector: Box<[u8]>,
    /// UDP payload bytes of the packet on the wire.
    pub wire_len: usize,
    /// Nobody needs it after this time.
    pub until: Option<Time>,
}

/// What to put into the header of a packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Numbers {
    /// The packet.
    pub seq: u64,
    /// How often it was sent, this time included.
    pub attempt: u8,
    /// An acknowledgement is wanted.
    pub ack_now: bool,
}
