//! The trace of a run: a hash of all events, which is always computed, and a full record if it is wanted.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::packet::Packet;
use crate::rng::mix;
use crate::topology::LinkId;

/// Why the network lost a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LossCause {
    /// The output queue was full.
    QueueFull = 0,
    /// The link was down.
    LinkDown = 1,
    /// The node at one end was dead.
    NodeDown = 2,
    /// A fault lost the packet on the wire.
    Lost = 3,
    /// A fault flipped bits; the frame check found it.
    Corrupted = 4,
    /// No path leads to its destination.
    NoRoute = 5,
    /// The switch's packet memory, where packets wait for cores, was full.
    PacketMemory = 6,
}

impl LossCause {
    /// Every cause, in order.
    pub const ALL: [LossCause; 7] = [
        LossCause::QueueFull,
        LossCause::LinkDown,
        LossCause::NodeDown,
        LossCause::Lost,
        LossCause::Corrupted,
        LossCause::NoRoute,
        LossCause::PacketMemory,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            LossCause::QueueFull => "queue_full",
            LossCause::LinkDown => "link_down",
            LossCause::NodeDown => "node_down",
            LossCause::Lost => "lost",
            LossCause::Corrupted => "corrupted",
            LossCause::NoRoute => "no_route",
            LossCause::PacketMemory => "packet_memory",
        }
    }
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketEvent {
    /// A node created the packet.
    Created,
    /// The packet waits for a lossless link; when the link will be free is not known yet.
    Waits {
        /// The link.
        link: LinkId,
    },
    /// The packet joined a link's queue, or is the next of the packets that waited for it; it leaves during this time.
    Enqueued {
        /// The link.
        link: LinkId,
        /// When its first bit leaves.
        start: Time,
        /// When its last bit has left.
        end: Time,
    },
    /// The packet came out of a link.
    Arrived {
        /// The link.
        link: LinkId,
    },
    /// A fault made a copy of the packet.
    Duplicated {
        /// The link.
        link: LinkId,
    },
    /// A fault delayed the packet, so that later packets of its link may overtake it.
    Reordered {
        /// The link.
        link: LinkId,
    },
    /// The network lost the packet.
    Lost {
        /// The link, if it was lost on one.
        link: Option<LinkId>,
        /// The cause.
        cause: LossCause,
    },
    /// The packet reached its receiver.
    Delivered,
}

/// An entry of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When.
    pub time: Time,
    /// The node where it happened.
    pub node: NodeId,
    /// What happened.
    pub kind: PacketEvent,
    /// The packet at that time.
    pub packet: Packet,
}

/// A receiver of all events.
pub trait Tracer: Send {
    /// Called for each event, in the order in which events happen. `payload` is the packet's payload in memory.
    fn record(&mut self, event: &TraceEvent, payload: &[u8]);
    /// Called when a switch's program has handled a packet: what the switch makes in this instant, it makes of that packet.
    fn record_handled(&mut self, _time: Time, _node: NodeId, _packet: &Packet) {}
}

/// A hash of all packets' arrivals and losses. Each node has its own chain, so that the thread on which a node runs
/// does not matter.
pub struct TraceHash(Vec<u64>);

impl TraceHash {
    pub(super) fn new(nodes: usize) -> TraceHash {
        TraceHash((0..nodes as u64).map(|node| mix(node + 1)).collect())
    }

    /// Adds an arrival at a node (or a loss, with another `tag`).
    #[inline]
    pub(super) fn add(&mut self, node: NodeId, time: Time, tag: u32, packet: &Packet) {
        let chain = &mut self.0[node.index()];
        let packet_id = u64::from(packet.src.0) << 32 | u64::from(packet.serial);
        let details = u64::from(tag) << 32 | u64::from(packet.bytes) << 8 | u64::from(packet.flags.bits());
        *chain = fold(*chain ^ time.0, packet_id ^ 0x9e37_79b9_7f4a_7c15) ^ fold(details, 0xd6e8_feb8_6659_fd93);
    }

    /// Takes over the chains of some nodes.
    pub(super) fn absorb(&mut self, other: &TraceHash, theirs: impl Fn(NodeId) -> bool) {
        for (node, (ours, chain)) in self.0.iter_mut().zip(&other.0).enumerate() {
            if theirs(NodeId(node as u32)) {
                *ours = *chain;
            }
        }
    }

    /// The hash of all events so far.
    pub fn value(&self) -> u64 {
        self.0.iter().fold(0, |hash, &chain| mix(hash.rotate_left(7) ^ chain))
    }
}

/// The 128-bit product of two words, folded.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
