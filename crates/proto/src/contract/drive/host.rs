//! The drain of a host: packets, then events, then the timer.
//!
//! A driver that sends at once calls [`receive`] and [`drain`]. A driver whose NIC asks for one packet at a time
//! instead keeps a [`Drain`] for each machine, which remembers how far the drain has come.

use crate::contract::host::{Host, HostEvent};
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::time::Time;

/// A host's environment: its clock, the packets that arrive, the network that it sends to, and its caller.
pub trait HostIo {
    /// The time of the current inputs.
    fn now(&self) -> Time;
    /// The next packet of the burst that has arrived, and its sender; `None` after the last packet.
    fn receive(&mut self) -> Option<(Addr, Packet<'_>)>;
    /// A buffer for the machine's next packet: at least `longest` bytes.
    fn transmit_buf(&mut self, longest: usize) -> &mut [u8];
    /// Sends the packet that the machine has written to the last [`HostIo::transmit_buf`].
    fn send(&mut self, transmit: Transmit);
    /// Sends what was gathered: the machine has nothing more to send.
    fn flush(&mut self) {}
    /// Takes an event from the machine, for its caller.
    fn on_event(&mut self, event: HostEvent);
}

/// Takes a burst of packets and sends the machine's answer to each. [`drain`] follows, after one burst or several.
#[inline]
pub fn receive<H: Host + ?Sized, Io: HostIo>(host: &mut H, io: &mut Io) {
    let now = io.now();
    while let Some((from, packet)) = io.receive() {
        // The machine has counted a dropped packet, and answers nothing.
        if host.handle_packet(now, from, packet).is_ok() {
            transmit(host, io);
        }
    }
}

/// Runs the machine's timer if it is due; true if [`drain`] has to follow.
#[inline]
pub fn handle_timeout<H: Host + ?Sized>(host: &mut H, now: Time) -> bool {
    let is_due = host.poll_timeout().is_some_and(|due| due <= now);
    if is_due {
        host.handle_timeout(now);
    }
    is_due
}

/// The drain after an input: sends all packets of the machine, passes on all its events, and returns the time for which
/// its timer must be set.
#[inline]
pub fn drain<H: Host + ?Sized, Io: HostIo>(host: &mut H, io: &mut Io) -> Option<Time> {
    transmit(host, io);
    io.flush();
    drain_events(host, |event| io.on_event(event));
    host.poll_timeout()
}

/// Sends all packets of the machine.
#[inline]
pub fn transmit<H: Host + ?Sized, Io: HostIo>(host: &mut H, io: &mut Io) {
    let (now, longest) = (io.now(), host.max_packet_len());
    while let Some(transmit) = host.poll_transmit(now, io.transmit_buf(longest)) {
        io.send(transmit);
    }
}

/// Passes on all events of the machine.
#[inline]
pub fn drain_events<H: Host + ?Sized>(host: &mut H, mut on_event: impl FnMut(HostEvent)) {
    while let Some(event) = host.poll_event() {
        on_event(event);
    }
}

/// How far the drain after a machine's last input has come, if a NIC asks for one packet at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// All is done until the next input.
    #[default]
    Done,
    /// The machine may have packets to send.
    Sending,
    /// All packets are sent; the timer is not set yet.
    Sent,
}

impl Drain {
    /// There was an input: the drain starts again.
    #[inline]
    pub fn begin(&mut self) {
        *self = Drain::Sending;
    }

    /// The driver's timer for the machine was due, and is no longer set. The machine's own timer may be later.
    #[inline]
    pub fn reset_timer(&mut self) {
        if *self == Drain::Done {
            *self = Drain::Sent;
        }
    }

    /// The machine's next packet. The machine is not called once all packets are sent.
    #[inline]
    pub fn transmit<H: Host + ?Sized>(&mut self, host: &mut H, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if *self != Drain::Sending {
            return None;
        }
        let transmit = host.poll_transmit(now, buf);
        if transmit.is_none() {
            *self = Drain::Sent;
        }
        transmit
    }

    /// True once all packets are sent: the driver then takes the events and sets the timer, which ends the drain.
    #[inline]
    pub fn end(&mut self) -> bool {
        let ends = *self == Drain::Sent;
        if ends {
            *self = Drain::Done;
        }
        ends
    }
}
