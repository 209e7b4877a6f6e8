//! Cables: their numbers, and the properties of their links.

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
    /// Equal to `above` for a single threshold.
    pub all_above: u64,
}

impl MarkBytes {
    /// A single threshold.
    pub fn threshold(bytes: u64) -> MarkBytes {
        MarkBytes { above: bytes, all_above: bytes }
    }
}

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

impl Rate {
    /// The slowest rate at which the longest packet's time still fits: 10 kbit/s.
    pub const MIN: Rate = Rate(10_000);
    /// The fastest rate that the fixed point resolves to 0.02 %: 100 Tbit/s.
    pub const MAX: Rate = Rate(100_000_000_000_000);

    /// Picoseconds for a byte with 16 bits of fraction, rounded up so that no link exceeds its rate.
    pub fn ps_per_byte(self) -> u64 {
        ((8_000_000_000_000u128 << 16).div_ceil(u128::from(self.0))) as u64
    }

    /// The transmission time of a number of bytes.
    pub fn time_of(self, bytes: u64) -> Span {
        Span(((u128::from(bytes) * u128::from(self.ps_per_byte())) >> 16).min(u128::from(u64::MAX)) as u64)
    }
}
