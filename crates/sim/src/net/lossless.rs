//! Lossless links: each switch orders the sender of a port's packets to PAUSE before the port's buffer overflows (IEEE
//! 802.3x, and 802.1Qbb with one class).
//!
//! A switch counts, for each port where packets come in, the bytes that still wait in its output queues. When they
//! exceed `xoff`, it orders the other end of the cable to stop; when they have fallen to `xon`, to go on. An order
//! waits for the packet that the reverse link is sending, takes a frame's time and the link's delay, and then holds
//! until the next order (real PAUSE frames expire and are repeated). An order passes all packets that wait, and takes
//! no bandwidth from them.
//!
//! The sender finishes its packet and stops. So a packet's departure is not known when the packet joins the queue, as
//! it is on other links: each transmission ends with an event of its own.

use std::cmp::Reverse;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Time;

use super::classes::Service;
use super::credits::{ClassOrder, Credit, CreditPort};
use super::pauses::{Cause, PauseLog};
use crate::topology::{Graph, LinkId, LinkSpec, Rate};

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
    /// The virtual channels of each link, if credits and not PAUSE decide when packets leave.
    pub channels: Option<u8>,
}

impl LosslessSpec {
    /// All packets are charged.
    pub fn new(xoff: u64, xon: u64) -> LosslessSpec {
        LosslessSpec { xoff, xon, charges: Charges::All, channels: None }
    }
}

/// What a far end tells the near end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// To stop, or to go on.
    Pause(bool),
    /// To stop, or to go on, with a class.
    PauseClass(ClassOrder),
    /// To send more, or less, on a channel.
    Credit(Credit),
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

/// Where a packet in a queue came from: the port whose buffer is charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node made it by itself: a host, or a program with a packet of its own.
    Local,
    /// It came over this link.
    Link(LinkId),
    /// A program made it of packets that came over this link.
    Derived(LinkId),
    /// A program made it, when a timer ran out, of packets that it had collected, the last of them from this link.
    /// Until then the program's own memory buffered them.
    Collected(LinkId),
    /// It is one of several copies of a packet, which are charged as one packet until the last copy has left.
    Copies(CopiesId),
}

/// What a packet is charged to where credits are: the port, and the channel of what came in there.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    pub origin: Origin,
    pub channel: u8,
}

/// Copies of one packet in output queues of a lossless switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiesId(u32);

/// The charge of one packet that several copies share.
struct Copies {
    origin: LinkId,
    bytes: u16,
    /// How many copies have not left; in a free entry, the next free entry.
    left: u32,
}

/// One link, at both ends: a cache line for each end, and one for orders.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Port {
    /// The origins of the packets that have not begun to leave. The packets are in the link's ring, behind those in
    /// flight.
    pub waiting: VecDeque<Origin>,
    /// Origin and bytes of the packet that is leaving.
    pub leaving: Option<(Origin, u16)>,
    /// True if the near end has been ordered to stop.
    pub paused: bool,
    /// Bytes of the near end's own packets.
    pub originated: u64,

    /// Bytes that came in over this link and have not left the far end.
    pub buffered: u64,
    /// The most of these bytes at any time.
    pub max_buffered: u64,
    /// The far end's buffer for packets from this link.
    pub buffer_bytes: u64,
    /// How often the far end ordered a stop.
    pub pauses: u64,
    /// True if its last order was to stop.
    pub pausing: bool,
    /// Orders on their way to the near end: their arrival times, and whether they stop it.
    pub orders: VecDeque<(Time, bool)>,
}

impl Port {
    /// True if a packet may begin to leave.
    pub fn is_free(&self) -> bool {
        !self.paused && self.leaving.is_none()
    }

    /// True if a packet that arrives now need not wait.
    pub fn is_idle(&self) -> bool {
        self.is_free() && self.waiting.is_empty()
    }
}

/// All links of a lossless network.
pub(super) struct Lossless {
    pub spec: LosslessSpec,
    /// The state of each link.
    pub ports: Vec<Port>,
    /// Which class goes first, where PAUSE stops classes.
    pub service: Option<Service>,
    /// Each link's channels, or classes; empty where PAUSE stops all packets.
    pub credits: Vec<CreditPort<Charge>>,
    copies: Vec<Copies>,
    free_copies: u32,
    /// For each link, whether it leads to a higher level, and whether to a lower one.
    rises: Vec<(bool, bool)>,
    /// Every PAUSE, if the report says why there were any.
    pub log: Option<Box<PauseLog>>,
}

const NONE_FREE: u32 = u32::MAX;

impl Lossless {
    pub fn new(spec: LosslessSpec, graph: &Graph) -> Lossless {
        let links =
            graph.edges().iter().flat_map(|edge| [(edge.a, edge.b, edge.a_to_b), (edge.b, edge.a, edge.b_to_a)]);
        let ports = links.map(|(near, far, link)| {
            let (far, near) = (graph.level(far), graph.level(near));
            (Port { buffer_bytes: link.queue_bytes, ..Port::default() }, (far > near, far < near))
        });
        let (ports, rises): (Vec<Port>, _) = ports.unzip();
        let channels = |channels| ports.iter().map(|port| CreditPort::new(channels, port.buffer_bytes)).collect();
        let credits = spec.channels.map_or_else(Vec::new, channels);
        Lossless { spec, ports, service: None, credits, copies: Vec::new(), free_copies: NONE_FREE, rises, log: None }
    }

    /// Makes PAUSE stop classes, each with a buffer of its own at every port.
    pub fn pause_classes(&mut self, service: Service) {
        self.credits = self.ports.iter().map(|_| CreditPort::of_classes(service.classes())).collect();
        self.service = Some(service);
    }

    /// True if the class that came in over a link in this instant has no space for this many bytes.
    pub fn is_class_full(&self, from: LinkId, bytes: u16) -> bool {
        let (port, classes) = (&self.ports[from.index()], &self.credits[from.index()]);
        self.service.is_some() && classes.buffered(classes.arrived) + u64::from(bytes) > port.buffer_bytes
    }

    /// Charges a packet that joins the queue of link `at`. `None` if its port's buffer is full; otherwise the link whose
    /// sender must stop, if one must.
    pub fn charge(&mut self, at: LinkId, origin: Origin, bytes: u16) -> Option<Option<LinkId>> {
        let (xoff, pauses) = (self.spec.xoff, self.credits.is_empty());
        let origin = match origin {
            Origin::Link(origin) => origin,
            Origin::Copies(_) => return Some(None),
            Origin::Local | Origin::Derived(_) | Origin::Collected(_) => {
                self.ports[at.index()].originated += u64::from(bytes);
                return Some(None);
            }
        };
        let port = &mut self.ports[origin.index()];
        if pauses && port.buffered + u64::from(bytes) > port.buffer_bytes {
            return None;
        }
        port.buffered += u64::from(bytes);
        port.max_buffered = port.max_buffered.max(port.buffered);
        let stop = pauses && port.buffered > xoff && !port.pausing;
        port.pausing |= stop;
        port.pauses += u64::from(stop);
        Some(stop.then_some(origin))
    }

    /// For which of a switch's links most of the packets wait that came in over a link.
    pub fn cause(&self, from: LinkId, outputs: &[LinkId]) -> Cause {
        let is_from = |origin: &Origin| match *origin {
            Origin::Link(link) => link == from,
            Origin::Copies(CopiesId(number)) => self.copies[number as usize].origin == from,
            Origin::Local | Origin::Derived(_) | Origin::Collected(_) => false,
        };
        let packets = |link: LinkId| {
            let Port { waiting, leaving, .. } = &self.ports[link.index()];
            waiting.iter().chain(leaving.as_ref().map(|(origin, _)| origin)).filter(|origin| is_from(origin)).count()
        };
        let most = outputs.iter().map(|&link| (packets(link), Reverse(link))).max().filter(|&(packets, _)| packets > 0);
        most.map_or(Cause::Programs, |(_, Reverse(link))| Cause::Queue(link))
    }

    /// The channel of the packet that a packet is made of, which came in in this instant.
    pub fn channel_at(&self, origin: Origin) -> u8 {
        let from = match origin {
            Origin::Local => return 0,
            Origin::Link(from) | Origin::Derived(from) | Origin::Collected(from) => from,
            Origin::Copies(CopiesId(number)) => self.copies[number as usize].origin,
        };
        self.credits[from.index()].arrived
    }

    /// Releases the charge of a packet that has left link `at` or was lost before it; returns the link whose sender may
    /// go on.
    pub fn release(&mut self, at: LinkId, origin: Origin, bytes: u16) -> Option<LinkId> {
        let (origin, _) = self.discharge(at, origin, bytes)?;
        let xon = self.spec.xon;
        let port = &mut self.ports[origin.index()];
        let resume = port.pausing && port.buffered <= xon;
        port.pausing &= !resume;
        resume.then_some(origin)
    }

    /// Releases the charge of a packet; returns the port that has fewer bytes now, and how many fewer.
    pub fn discharge(&mut self, at: LinkId, origin: Origin, bytes: u16) -> Option<(LinkId, u16)> {
        let (origin, bytes) = match origin {
            Origin::Link(origin) => (origin, bytes),
            Origin::Copies(CopiesId(number)) => {
                let copies = &mut self.copies[number as usize];
                copies.left -= 1;
                if copies.left > 0 {
                    return None;
                }
                copies.left = std::mem::replace(&mut self.free_copies, number);
                (copies.origin, copies.bytes)
            }
            Origin::Local | Origin::Derived(_) | Origin::Collected(_) => {
                self.ports[at.index()].originated -= u64::from(bytes);
                return None;
            }
        };
        self.ports[origin.index()].buffered -= u64::from(bytes);
        Some((origin, bytes))
    }

    /// True if packets that came in over `from` may wait there for `over`: on the way up, down, or up and then down. If
    /// down waited for up, or across for across, ports could wait for each other in a cycle (deadlock).
    pub fn may_wait(&self, from: LinkId, over: LinkId) -> bool {
        self.rises[from.index()].0 || self.rises[over.index()].1
    }

    /// The port that is charged for a packet that joins the queue of link `over`. A packet that a program had collected
    /// is not lost if that port's buffer is full: it stays in the program's memory, and PAUSE has been ordered.
    pub fn resolve(&self, origin: Origin, over: LinkId, bytes: u16) -> Origin {
        match origin {
            Origin::Derived(from) if self.charges_made() && self.may_wait(from, over) => Origin::Link(from),
            Origin::Collected(from)
                if self.spec.charges == Charges::All && self.may_wait(from, over) && self.fits(from, bytes) =>
            {
                Origin::Link(from)
            }
            origin => origin,
        }
    }

    /// True if packets that a program makes of a packet that has just come in are charged like that packet.
    pub fn charges_made(&self) -> bool {
        self.spec.charges != Charges::Forwarded
    }

    fn fits(&self, from: LinkId, bytes: u16) -> bool {
        if self.service.is_some() {
            return !self.is_class_full(from, bytes);
        }
        let port = &self.ports[from.index()];
        port.buffered + u64::from(bytes) <= port.buffer_bytes
    }

    /// Makes several copies share one packet's charge.
    pub fn share(&mut self, origin: LinkId, bytes: u16, left: u32) -> CopiesId {
        let copies = Copies { origin, bytes, left };
        if self.free_copies == NONE_FREE {
            self.copies.push(copies);
            return CopiesId(self.copies.len() as u32 - 1);
        }
        let number = self.free_copies;
        self.free_copies = std::mem::replace(&mut self.copies[number as usize], copies).left;
        CopiesId(number)
    }
}
