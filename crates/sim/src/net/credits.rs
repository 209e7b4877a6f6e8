//! Lossless links by credits on virtual channels (Dally, 1992), as in the routers of HPC networks and of SST.
//!
//! The far end of a link gives each channel an equal part of its buffer. A packet begins to leave only if the far end has
//! as many bytes for its channel; it takes these credits along, and they come back when the packet has left the far end
//! again, or at once if nothing waits there (a host or a program took it). A credit takes the reverse link's delay, and no
//! bandwidth. So a hot port stops the packets of its channels alone, where PAUSE stops a cable.
//!
//! Packets of a flow, and of a tree of a job, have one channel on all of their way, and keep their order.
//!
//! With PAUSE by class (IEEE 802.1Qbb) each class is a channel with a buffer of its own, and in place of credits an order stops
//! the class: see [`super::lossless`] for when.

use std::collections::VecDeque;

use tributary_proto::contract::time::Time;

use super::classes::{QUANTUM, Service};
use super::packet::Packet;

/// How many channels a link has at most.
pub const MOST_CHANNELS: u8 = 16;

/// One channel of a link.
#[derive(Clone)]
struct Channel<C> {
    /// Packets at the near end, and what each is charged to.
    waiting: VecDeque<(C, Packet)>,
    /// Their bytes.
    bytes: u64,
    /// Bytes that may leave. Sums that a timer sends take more than came in, so it may be below 0.
    credits: i64,
    /// The near end has been ordered to stop.
    is_stopped: bool,
    /// What it may still send in this round, where classes have weights.
    deficit: u64,
    /// Bytes that came in at the far end and wait there, and whether its last order was to stop: of a class.
    buffered: u64,
    pausing: bool,
}

impl<C> Channel<C> {
    fn can_send(&self) -> bool {
        let first = self.waiting.front();
        !self.is_stopped && first.is_some_and(|(_, packet)| i64::from(packet.bytes) <= self.credits)
    }
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
    /// Orders for a class on their way to the near end, with their arrival times.
    pub orders: VecDeque<(Time, ClassOrder)>,
    /// Channels are classes.
    by_class: bool,
}

/// The order to stop or go on with a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassOrder {
    /// The class.
    pub class: u8,
    /// To stop.
    pub stop: bool,
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
        CreditPort::with(usize::from(channels), (buffer_bytes / u64::from(channels)) as i64, false)
    }

    /// A link whose classes are stopped by orders.
    pub fn of_classes(classes: usize) -> CreditPort<C> {
        CreditPort::with(classes, i64::MAX, true)
    }

    fn with(channels: usize, credits: i64, by_class: bool) -> CreditPort<C> {
        let (waiting, coming, orders) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let channel =
            Channel { waiting, bytes: 0, credits, is_stopped: false, deficit: 0, buffered: 0, pausing: false };
        let channels = vec![channel; channels];
        CreditPort { channels, turn: 0, leaving: None, arrived: 0, coming, orders, by_class }
    }

    /// The channel of a packet.
    pub fn channel_of(&self, packet: &Packet) -> u8 {
        if self.by_class {
            return packet.flags.priority();
        }
        let hash = (packet.dst.0 ^ packet.flow.rotate_left(16)).wrapping_mul(0x9E37_79B9) >> 16;
        ((hash as usize + usize::from(packet.lane)) % self.channels.len()) as u8
    }

    /// A packet waits behind those of its channel.
    pub fn push(&mut self, charge: C, packet: Packet) {
        let channel = usize::from(self.channel_of(&packet));
        self.channels[channel].bytes += u64::from(packet.bytes);
        self.channels[channel].waiting.push_back((charge, packet));
    }

    /// Bytes that wait in a packet's channel.
    pub fn bytes_of(&self, packet: &Packet) -> u64 {
        self.channels[usize::from(self.channel_of(packet))].bytes
    }

    /// The packet that leaves now: the first of the channel that sends next, of those that have a packet and may send it: in
    /// turn, or as the service of classes says.
    pub fn pop(&mut self, service: Option<&Service>) -> Option<(C, Packet)> {
        if self.leaving.is_some() {
            return None;
        }
        let count = self.channels.len();
        let next = match service {
            None => (0..count).map(|step| (self.turn + step) % count).find(|&index| self.channels[index].can_send())?,
            Some(Service::Strict) => self.channels.iter().rposition(Channel::can_send)?,
            Some(Service::Weights(weights)) => self.turn_of(weights)?,
        };
        if service.is_none() {
            self.turn = (next + 1) % count;
        }
        let channel = &mut self.channels[next];
        let (charge, packet) = channel.waiting.pop_front()?;
        channel.bytes -= u64::from(packet.bytes);
        channel.credits -= i64::from(packet.bytes);
        self.leaving = Some((charge, packet.bytes));
        Some((charge, packet))
    }

    /// The class that sends next by weights, as in [`super::classes`]; a class that is stopped saves nothing up.
    fn turn_of(&mut self, weights: &[u32]) -> Option<usize> {
        self.channels.iter().any(Channel::can_send).then_some(())?;
        loop {
            let channel = &mut self.channels[self.turn];
            let next = channel.waiting.front().map_or(0, |(_, packet)| u64::from(packet.bytes));
            if !channel.can_send() {
                channel.deficit = 0;
            } else if next <= channel.deficit {
                channel.deficit -= next;
                return Some(self.turn);
            }
            self.turn = (self.turn + 1) % weights.len();
            self.channels[self.turn].deficit += QUANTUM * u64::from(weights[self.turn]);
        }
    }

    /// An order for a class has reached the near end.
    pub fn apply(&mut self, order: ClassOrder) {
        self.channels[usize::from(order.class)].is_stopped = order.stop;
    }

    /// Bytes of a class that came in and wait at the far end.
    pub fn buffered(&self, class: u8) -> u64 {
        self.channels[usize::from(class)].buffered
    }

    /// Bytes of a class more wait at the far end, or fewer; returns the order that it gives now.
    pub fn count(&mut self, class: u8, bytes: i32, xoff: u64, xon: u64) -> Option<ClassOrder> {
        let channel = &mut self.channels[usize::from(class)];
        channel.buffered = channel.buffered.saturating_add_signed(bytes.into());
        let stop = if channel.pausing { channel.buffered > xon } else { channel.buffered > xoff };
        let changes = std::mem::replace(&mut channel.pausing, stop) != stop;
        changes.then_some(ClassOrder { class, stop })
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
