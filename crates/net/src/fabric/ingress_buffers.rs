//! Lossless fabrics: how many bytes came in by each port and have not left, and when the sender at the port has to pause.
//!
//! The rules are the simulator's (`sim/net/lossless.rs`). A packet is charged to the port by which it came in. A packet that
//! a switch makes is charged to the port of the packet from which it is made. Above the threshold the other end of the cable
//! gets a PAUSE, and another one of no length once enough bytes have left. A PAUSE holds for [`PAUSE_FOR`] and is repeated,
//! so that a lost one costs little. Some packets are not charged, so that ports never wait for each other in a circle:
//! docs/fabric.md, *Lossless*.

use tributary_control::fabric::{FabricLayout, Thresholds};
use tributary_control::routes::Port as Hop;
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::time::{Span, Time};

use crate::shard::Origin;

/// How long a PAUSE holds.
pub const PAUSE_FOR: Span = Span::from_millis(100);
/// The interval at which it is repeated.
const REPEAT: Span = Span::from_millis(20);

/// The buffer that a packet in a queue is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charge {
    /// None.
    #[default]
    None,
    /// That of the port by which it came in.
    Port(PortId),
    /// Several copies are charged as one packet.
    Copies(CopiesId),
}

/// Copies of one packet that wait in several queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiesId(u32);

struct Copies {
    port: PortId,
    bytes: u64,
    left: u32,
}

/// The ingress buffer of a port.
struct IngressBuffer {
    /// True if the other end is closer to the hosts than this switch.
    leads_down: bool,
    limit: u64,
    used: u64,
    peak: u64,
    /// True if the last PAUSE was to stop.
    pausing: bool,
    pauses: u64,
    /// When the next PAUSE is due, either a new one or the last one again.
    next_pause_at: Option<Time>,
    /// How often the other end was resumed since the last pause.
    resumes_sent: u32,
}

/// What an operator sees of a port's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IngressReport {
    /// Bytes that came in and have not left, as on the wire.
    pub buffered_bytes: u64,
    /// The most bytes so far.
    pub peak_bytes: u64,
    /// How often the sender was paused.
    pub pauses: u64,
}

/// The ingress buffer is full, because the headroom was too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressFull;

/// The ingress buffers of all ports.
pub struct IngressBuffers {
    thresholds: Thresholds,
    ports: Vec<IngressBuffer>,
    copies: Vec<Copies>,
    free_copies: Vec<CopiesId>,
}

impl IngressBuffers {
    /// Empty buffers: for each port its size in bytes, and whether the port leads down.
    pub fn new(thresholds: Thresholds, ports: impl Iterator<Item = (u64, bool)>) -> IngressBuffers {
        let buffer = |(limit, leads_down)| IngressBuffer {
            leads_down,
            limit,
            used: 0,
            peak: 0,
            pausing: false,
            pauses: 0,
            next_pause_at: None,
            resumes_sent: 0,
        };
        IngressBuffers { thresholds, ports: ports.map(buffer).collect(), copies: Vec::new(), free_copies: Vec::new() }
    }

    /// Charges a packet that leaves by these ports.
    pub fn charge(&mut self, origin: Origin, egress_ports: &[PortId], bytes: u64) -> Result<Charge, IngressFull> {
        let (from, is_late) = match origin {
            Origin::Switch => return Ok(Charge::None),
            Origin::Packet(from) => (from, false),
            Origin::Collected(from) => (from, true),
        };
        let may_wait = egress_ports.iter().all(|&egress| self.may_wait(from, egress));
        let Some(buffer) = self.ports.get_mut(from.index()).filter(|_| may_wait && !egress_ports.is_empty()) else {
            return Ok(Charge::None);
        };
        if buffer.used + bytes > buffer.limit {
            // Data that a machine has collected stay in its memory, and their sender has been paused.
            return if is_late { Ok(Charge::None) } else { Err(IngressFull) };
        }
        buffer.used += bytes;
        buffer.peak = buffer.peak.max(buffer.used);
        if buffer.used > self.thresholds.pause_above && !buffer.pausing {
            (buffer.pausing, buffer.next_pause_at) = (true, Some(Time::ZERO));
            buffer.pauses += 1;
        }
        Ok(match egress_ports.len() {
            1 => Charge::Port(from),
            left => Charge::Copies(self.share(Copies { port: from, bytes, left: left as u32 })),
        })
    }

    fn share(&mut self, copies: Copies) -> CopiesId {
        if let Some(id) = self.free_copies.pop() {
            self.copies[id.0 as usize] = copies;
            return id;
        }
        self.copies.push(copies);
        CopiesId(self.copies.len() as u32 - 1)
    }

    /// Frees the buffer of a packet of this many bytes that has left its queue or was dropped there.
    pub fn free(&mut self, charge: Charge, bytes: u64) {
        let (port, bytes) = match charge {
            Charge::None => return,
            Charge::Port(port) => (port, bytes),
            Charge::Copies(id) => {
                let copies = &mut self.copies[id.0 as usize];
                copies.left -= 1;
                if copies.left > 0 {
                    return;
                }
                self.free_copies.push(id);
                (copies.port, copies.bytes)
            }
        };
        let buffer = &mut self.ports[port.index()];
        buffer.used -= bytes;
        if buffer.pausing && buffer.used <= self.thresholds.go_on_at {
            (buffer.pausing, buffer.next_pause_at, buffer.resumes_sent) = (false, Some(Time::ZERO), 0);
        }
    }

    /// True if a packet that came in by `from` may be charged while it waits for `over`: one of the two ports must lead
    /// down. If packets from above waited to go up again, ports could wait for each other in a circle.
    fn may_wait(&self, from: PortId, over: PortId) -> bool {
        let leads_down = |port: PortId| self.ports.get(port.index()).is_some_and(|buffer| buffer.leads_down);
        leads_down(from) || leads_down(over)
    }

    /// When the next PAUSE to a sender is due.
    pub fn due(&self) -> Option<Time> {
        self.ports.iter().filter_map(|buffer| buffer.next_pause_at).min()
    }

    /// The next PAUSE that is due: its port and its length.
    pub fn next_pause(&mut self, now: Time) -> Option<(PortId, Span)> {
        let is_due = |buffer: &IngressBuffer| buffer.next_pause_at.is_some_and(|at| at <= now);
        let number = self.ports.iter().position(is_due)?;
        let buffer = &mut self.ports[number];
        buffer.resumes_sent += 1;
        // The resuming PAUSE is sent twice. A sender that missed it would stop until its pause has run out.
        buffer.next_pause_at = (buffer.pausing || buffer.resumes_sent < 2).then_some(now + REPEAT);
        Some((PortId(number as u16), if buffer.pausing { PAUSE_FOR } else { Span(0) }))
    }

    /// The state of a port's buffer.
    pub fn report(&self, port: usize) -> IngressReport {
        let report = |buffer: &IngressBuffer| IngressReport {
            buffered_bytes: buffer.used,
            peak_bytes: buffer.peak,
            pauses: buffer.pauses,
        };
        self.ports.get(port).map(report).unwrap_or_default()
    }
}

/// The ingress buffers of a switch in a lossless fabric.
pub fn of_fabric(fabric: &FabricLayout, node: NodeId) -> Option<IngressBuffers> {
    let level = |node: NodeId| fabric.nodes[node.index()].level;
    let buffer = |port: &Hop| (fabric.cables[port.cable].queue_bytes, level(port.to) < level(node));
    Some(IngressBuffers::new(fabric.lossless?, fabric.ports[node.index()].iter().map(buffer)))
}

/// The most bytes that may wait for one way out: all that the ports may hold, and the packets that take no buffer.
pub fn shared_capacity(fabric: &FabricLayout, node: NodeId) -> u64 {
    let limits = fabric.ports[node.index()].iter().map(|port| fabric.cables[port.cable].queue_bytes);
    limits.clone().sum::<u64>() + limits.max().unwrap_or(0)
}

/// Frees the buffer of a packet that has left or was dropped.
pub fn free(buffers: &mut Option<IngressBuffers>, charge: Charge, bytes: u64) {
    if let Some(buffers) = buffers {
        buffers.free(charge, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [PortId; 2] = [PortId(0), PortId(1)];
    const UP: [PortId; 2] = [PortId(2), PortId(3)];
    const BYTES: u64 = 1_000;

    /// The buffers of a leaf with two hosts and two spines. Each holds ten packets, pauses above five, and resumes at
    /// three.
    fn buffers() -> IngressBuffers {
        let thresholds = Thresholds { pause_above: 5_000, go_on_at: 3_000 };
        IngressBuffers::new(thresholds, [true, true, false, false].map(|down| (10 * BYTES, down)).into_iter())
    }

    fn pauses(buffers: &mut IngressBuffers, now: Time) -> Vec<(PortId, Span)> {
        std::iter::from_fn(|| buffers.next_pause(now)).collect()
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_sender_is_paused_at_the_threshold_reminded_and_resumed_below_it() {
        let mut buffers = buffers();
        let mut charges = Vec::new();
        for packet in 1..=6 {
            assert!(pauses(&mut buffers, ms(1)).is_empty(), "before packet {packet}");
            charges.push(buffers.charge(Origin::Packet(HOSTS[0]), &[UP[0]], BYTES).unwrap());
        }
        assert_eq!(pauses(&mut buffers, ms(1)), [(HOSTS[0], PAUSE_FOR)]);
        assert_eq!(buffers.due(), Some(ms(21)));
        assert_eq!(pauses(&mut buffers, ms(21)), [(HOSTS[0], PAUSE_FOR)], "pauses run out");
        for left in [5, 4] {
            buffers.free(charges.pop().unwrap(), BYTES);
            assert!(pauses(&mut buffers, ms(22)).is_empty(), "{left} are left");
        }
        buffers.free(charges.pop().unwrap(), BYTES);
        assert_eq!(pauses(&mut buffers, ms(23)), [(HOSTS[0], Span(0))]);
        assert_eq!(pauses(&mut buffers, ms(43)), [(HOSTS[0], Span(0))], "it may have missed the first");
        assert_eq!(buffers.due(), None);
        assert_eq!(buffers.report(0), IngressReport { buffered_bytes: 3_000, peak_bytes: 6_000, pauses: 1 });
    }

    #[test]
    fn what_does_not_fit_is_refused_and_collected_data_are_not_charged() {
        let mut buffers = buffers();
        (0..10).for_each(|_| assert!(buffers.charge(Origin::Packet(HOSTS[1]), &[UP[0]], BYTES).is_ok()));
        assert_eq!(buffers.charge(Origin::Packet(HOSTS[1]), &[UP[0]], BYTES), Err(IngressFull));
        assert_eq!(buffers.charge(Origin::Collected(HOSTS[1]), &[UP[0]], BYTES), Ok(Charge::None));
        assert_eq!(buffers.charge(Origin::Switch, &[UP[0]], BYTES), Ok(Charge::None));
    }

    #[test]
    fn copies_are_charged_as_one_packet_until_the_last_has_left() {
        let mut buffers = buffers();
        let charge = buffers.charge(Origin::Packet(UP[0]), &HOSTS, BYTES).unwrap();
        assert_eq!(buffers.report(2).buffered_bytes, BYTES);
        buffers.free(charge, BYTES);
        assert_eq!(buffers.report(2).buffered_bytes, BYTES);
        buffers.free(charge, BYTES);
        assert_eq!(buffers.report(2).buffered_bytes, 0);
        assert_eq!(buffers.charge(Origin::Packet(UP[1]), &HOSTS, BYTES), Ok(charge), "its id is used again");
    }

    #[test]
    fn what_came_from_a_parent_never_waits_to_go_up() {
        let mut buffers = buffers();
        assert_eq!(buffers.charge(Origin::Packet(UP[0]), &[UP[1]], BYTES), Ok(Charge::None));
        assert_eq!(buffers.charge(Origin::Packet(UP[0]), &[HOSTS[0], UP[1]], BYTES), Ok(Charge::None));
        assert_eq!(buffers.charge(Origin::Packet(HOSTS[0]), &[UP[1]], BYTES), Ok(Charge::Port(HOSTS[0])));
        assert_eq!(buffers.charge(Origin::Packet(PortId::UNKNOWN), &[UP[1]], BYTES), Ok(Charge::None));
    }
}
