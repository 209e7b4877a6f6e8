//! Lossless links by credits on virtual channels (Dally, 1992), as in the routers of HPC networks and of SST.
//!
//! The far end of a link gives each channel an equal part of its buffer. A packet begins to leave only if the far end has
//! as many bytes for its channel; it takes these credits along, and they come back when the packet has left the far end
//! again, or at once if nothing waits there (a host or a program took it). A credit takes the reverse link's delay, and no
//! bandwidth. So a hot port stops the packets of its channels alone, where PAUSE stops a cable.
//!
//! Packets of a flow, and of a tree of a job, have one channel on all of their way, and keep their order.

use std::collections::VecDeque;

use tributary_proto::contract::time::Time;

use super::packet::Packet;

/// How many channels a link has at most.
pub const MOST_CHANNELS: u8 = 16;

/// One channel at the near end of a link.
#[derive(Clone)]
struct Channel<C> {
    /// Packets, and what each is charged to.
    waiting: VecDeque<(C, Packet)>,
    /// Bytes that may leave. Sums that a timer sends take more than came in, so it may be below 0.
    credits: i64,
}

/// One link.
pub(super) struct CreditPort<C> {
    channels: Vec<Channel<C>>,
    /// The channel that sends next, if it can.
    turn: usize,
    /// The charge of the packet that is leaving, and its bytes.
    pub leaving: Option<(C, u16)>,
    /// The channel of the packet that came in last at the far end.
    pub arrived: u8,
    /// Credits on their way to the near end: their arrival times, channels and bytes.
    pub coming: VecDeque<(Time, Credit)>,
}

/// Bytes that a channel may have more, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The channel.
    pub channel: u8,
    /// Bytes.
    pub bytes: i32,
}

impl<C: Copy> CreditPort<C> {
    /// The near end of a link whose far end has this buffer.
    pub fn new(channels: u8, buffer_bytes: u64) -> CreditPort<C> {
        let credits = (buffer_bytes / u64::from(channels)) as i64;
        let channels = vec![Channel { waiting: VecDeque::new(), credits }; usize::from(channels)];
        CreditPort { channels, turn: 0, leaving: None, arrived: 0, coming: VecDeque::new() }
    }

    /// The channel of a packet.
    pub fn channel_of(&self, packet: &Packet) -> u8 {
        let hash = (packet.dst.0 ^ packet.flow.rotate_left(16)).wrapping_mul(0x9E37_79B9) >> 16;
        ((hash as usize + usize::from(packet.lane)) % self.channels.len()) as u8
    }

    /// A packet waits behind those of its channel.
    pub fn push(&mut self, charge: C, packet: Packet) {
        let channel = usize::from(self.channel_of(&packet));
        self.channels[channel].waiting.push_back((charge, packet));
    }

    /// The packet that leaves now: the first of the next channel, in turn, that has a packet and credits for it.
    pub fn pop(&mut self) -> Option<(C, Packet)> {
        if self.leaving.is_some() {
            return None;
        }
        let count = self.channels.len();
        let can = |channel: &Channel<C>| {
            channel.waiting.front().is_some_and(|(_, packet)| i64::from(packet.bytes) <= channel.credits)
        };
        let next = (0..count).map(|step| (self.turn + step) % count).find(|&index| can(&self.channels[index]))?;
        self.turn = (next + 1) % count;
        let channel = &mut self.channels[next];
        let (charge, packet) = channel.waiting.pop_front()?;
        channel.credits -= i64::from(packet.bytes);
        self.leaving = Some((charge, packet.bytes));
        Some((charge, packet))
    }

    /// A credit has reached the near end.
    pub fn take(&mut self, credit: Credit) {
        self.channels[usize::from(credit.channel)].credits += i64::from(credit.bytes);
    }
}

/// Adds a credit to those on their way. What came in and waits, in the same instant, sends none.
pub(super) fn join(coming: &mut VecDeque<(Time, Credit)>, at: Time, credit: Credit) {
    match coming.back_mut() {
        Some((time, last)) if *time == at && last.channel == credit.channel => last.bytes += credit.bytes,
        _ => coming.push_back((at, credit)),
    }
}
