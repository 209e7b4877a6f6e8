//! Packets as machines see them, on both drivers.
//!
//! A packet is a header followed by a *vector* of values. [`Values`](super::values::Values) determines what the vector
//! occupies in memory: real elements, or a fingerprint of a few words. `wire_len` beside it says what the vector
//! occupies on the wire, so that a simulated link serialises as many bytes as a real one would.

use crate::contract::ids::{NodeId, Rank, ServerId, TreeId};

/// The congestion bits of the IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The sender does not take part.
    #[default]
    NotCapable,
    /// The sender takes part; no queue was long.
    Capable,
    /// A queue on the way was over its threshold.
    CongestionExperienced,
}

/// The sender of a packet that a host got, or the receiver of a packet that it sends. The driver knows the way.
///
/// A host may be a worker and a server of one job, at one address. Then server `i` is with rank `i`, and all servers
/// are with ranks. A driver that knows senders by their addresses alone says [`Addr::Worker`] for such a host, and a
/// machine infers from the kind of packet which half has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Addr {
    /// The aggregating switch of the job, and the tree that owns the slot.
    Switch(TreeId),
    /// Another worker of the job.
    Worker(Rank),
    /// A server of the job. Its host may be a worker too.
    Server(ServerId),
    /// A host or a switch of the fabric, for protocols whose packets every switch on the way handles.
    Node(NodeId),
}

/// A packet that a host received.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Header and vector.
    pub bytes: &'a [u8],
    /// UDP payload bytes on the wire; on the real driver `bytes.len()`.
    pub wire_len: usize,
    /// The congestion bits with which the packet arrived.
    pub ecn: Ecn,
}

/// A packet that passes a switch. The switch may rewrite it in place, and shorten but not lengthen it.
#[derive(Debug)]
pub struct PacketMut<'a> {
    /// Header and vector.
    pub bytes: &'a mut [u8],
    /// The first `len` of `bytes` are the packet.
    pub len: usize,
    /// UDP payload bytes on the wire. Code that changes `len` must change this too.
    pub wire_len: usize,
    /// The congestion bits: first those with which the packet arrived, then those with which it leaves.
    pub ecn: Ecn,
}

impl<'a> PacketMut<'a> {
    /// A whole packet from the real driver: as many bytes are in memory as were on the wire.
    pub fn new(bytes: &'a mut [u8], ecn: Ecn) -> PacketMut<'a> {
        let len = bytes.len();
        PacketMut { bytes, len, wire_len: len, ecn }
    }

    /// Keeps the first `len` bytes only, which are a header: the packet has no vector any more.
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len);
        self.wire_len = self.len;
    }
}

/// A packet that a host wants to send: the first `len` bytes of the buffer that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver.
    pub to: Addr,
    /// Bytes written to the buffer.
    pub len: usize,
    /// UDP payload bytes of the packet on the wire.
    pub wire_len: usize,
    /// The congestion bits with which the packet leaves.
    pub ecn: Ecn,
}
