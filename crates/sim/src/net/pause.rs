//! When a lossless switch stops a sender, which packets are charged, how much may still arrive after the order, and the
//! orders themselves.

use serde::{Deserialize, Serialize};

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::topology::{LinkId, LinkSpec, Rate};

/// Bytes of a PAUSE frame on a link: the shortest frame, preamble and gap.
pub const PAUSE_BYTES: u64 = 84;

/// The thresholds for stopping senders, in bytes of each port at which packets come in. The port's whole buffer is its
/// cable's `queue_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LosslessSpec {
    /// The sender must stop when more than this is held.
    pub xoff: u64,
    /// The sender may go on when no more than this is held.
    pub xon: u64,
    /// Which packets are charged to a port's buffer.
    pub charges: Charges,
}

impl LosslessSpec {
    /// All packets are charged.
    pub fn new(xoff: u64, xon: u64) -> LosslessSpec {
        LosslessSpec { xoff, xon, charges: Charges::All }
    }
}

/// Which packets are charged to the buffer of the port where they, or the packets that they were made of, came in.
/// Other packets wait in unbounded memory, and stop no sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Charges {
    /// All packets.
    #[default]
    All,
    /// All packets except those that a program sends when a timer runs out.
    AllButTimers,
    /// Packets that are forwarded, and no packets that a program makes.
    Forwarded,
}

impl Charges {
    /// True for the default.
    pub fn is_default(&self) -> bool {
        *self == Charges::default()
    }
}

/// How many bytes may still come in after `xoff` is exceeded, over a cable with this link towards the switch and the
/// same back: a packet that has just begun on the way back, the order, the bytes under way, and the packet that the
/// sender has just begun; also the packet that exceeded `xoff`.
pub fn headroom(link: &LinkSpec, longest_packet: u64) -> u64 {
    let Rate(bits) = link.rate;
    let round_trip = u128::from(link.delay.0) * 2 * u128::from(bits) / 8_000_000_000_000;
    round_trip as u64 + PAUSE_BYTES + 3 * longest_packet
}

impl Fabric {
    /// Orders the near end of a link to stop or to go on.
    pub(super) fn order(&mut self, id: LinkId, stop: bool) {
        let back = &self.links[id.reverse().index()];
        let sent = back.busy_until().max(self.now) + back.transmission(PAUSE_BYTES);
        let at = sent + back.delay();
        if self.order_across(id, at, stop) {
            return;
        }
        if let Some(lossless) = &mut self.lossless {
            lossless.ports[id.index()].orders.push_back((at, stop));
            self.queue.push(at, EventId::new(EventKind::PauseOrder, id.0));
        }
    }

    /// Applies an order that has reached the near end of a link.
    pub fn handle_order(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.ports[id.index()];
        // Orders that were on a cable when it broke are lost.
        if port.orders.front().is_some_and(|&(at, _)| at == self.now)
            && let Some((_, stop)) = port.orders.pop_front()
        {
            port.paused = stop;
            self.begin_next(id);
        }
    }

    /// Forgets all orders on a link.
    pub(super) fn forget_orders(&mut self, id: LinkId) {
        if let Some(lossless) = &mut self.lossless {
            let port = &mut lossless.ports[id.index()];
            port.orders.clear();
            (port.paused, port.pausing) = (false, false);
            self.begin_next(id);
        }
    }
}
