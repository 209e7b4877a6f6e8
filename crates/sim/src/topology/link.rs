//! Cables: their numbers, and the properties of their links.

use tributary_control::quantity::Rate;
use tributary_proto::contract::time::Span;

/// One direction of a cable. The other direction is [`LinkId::reverse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The other direction of the same cable.
    pub fn reverse(self) -> LinkId {
        LinkId(self.0 ^ 1)
    }

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The properties of a link, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Bits per second.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Span,
    /// Bytes that the output queue holds, including the packet in transmission.
    pub queue_bytes: u64,
    /// Which packets the queue marks, if their senders take part in ECN.
    pub mark_bytes: Option<MarkBytes>,
}

/// A packet that finds more than `above` bytes in a queue is marked by chance, the more likely the more it finds; one that
/// finds more than `all_above` is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkBytes {
    /// Packets that find no more are not marked.
    pub above: u64,
    /// As `above`, if one length decides.
    pub all_above: u64,
}

impl MarkBytes {
    /// One length decides.
    pub fn threshold(bytes: u64) -> MarkBytes {
        MarkBytes { above: bytes, all_above: bytes }
    }
}
