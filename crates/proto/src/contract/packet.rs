//! Packets as the machines see them, on both drivers.
//!
//! A packet is a header followed by a *vector* of values. What the vector occupies in memory is up to [`Values`]:
//! real elements, or a fingerprint of a few words. What it occupies on the wire is carried beside it as `wire_len`, so
//! that a simulated link serialises the bytes that a real one would.

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

/// Who sent a packet that a host got, or who shall get one that it sends. The driver knows the way.
///
/// A host may be a worker and a server of one job, at one address: then server `i` is with rank `i`, and all servers are
/// so. A driver that knows senders by their addresses alone says [`Addr::Worker`] of such a host, and a machine tells by
/// the kind of packet which half has sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Addr {
    /// The aggregating switch of the job, and the part of it that owns the slot.
    Switch(TreeId),
    /// Another worker of the job.
    Worker(Rank),
    /// A server of the job, which a host is besides a worker or instead of one.
    Server(ServerId),
    /// A host or a switch of the fabric. For protocols of which every switch on the way handles the packets.
    Node(NodeId),
}

/// A packet that a host received.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Header and vector.
    pub bytes: &'a [u8],
    /// UDP payload bytes on the wire; on the real driver `bytes.len()`.
    pub wire_len: usize,
    /// As it arrived.
    pub ecn: Ecn,
}

/// A packet that passes a switch, which may rewrite it in place, and shorten but not lengthen it.
#[derive(Debug)]
pub struct PacketMut<'a> {
    /// Header and vector.
    pub bytes: &'a mut [u8],
    /// The first `len` of `bytes` are the packet.
    pub len: usize,
    /// UDP payload bytes on the wire; kept in step with `len` by whoever changes it.
    pub wire_len: usize,
    /// As it arrived; as it shall leave.
    pub ecn: Ecn,
}

impl<'a> PacketMut<'a> {
    /// A whole packet from the real driver: what lies in memory is what was on the wire.
    pub fn new(bytes: &'a mut [u8], ecn: Ecn) -> PacketMut<'a> {
        let len = bytes.len();
        PacketMut { bytes, len, wire_len: len, ecn }
    }

    /// Keeps only the first `len` bytes, which are a header: no vector is left.
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len);
        self.wire_len = self.len;
    }
}

/// What a host wants sent: the first `len` bytes of the buffer that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: Addr,
    /// Bytes written to the buffer.
    pub len: usize,
    /// UDP payload bytes that they stand for on the wire.
    pub wire_len: usize,
    /// How it leaves.
    pub ecn: Ecn,
}
