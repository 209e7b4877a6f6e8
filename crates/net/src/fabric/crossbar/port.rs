//! One port of a fabric switch: a cable, the neighbour at its other end, and the queue towards it.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::ids::{JobId, NodeId, PortId};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::PortView;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::Common;

use super::{Crossbar, DEAD_AFTER};
use crate::fabric::egress::{Egress, EgressCounters, Receiver};
use crate::fabric::ingress_buffers::IngressReport;
use crate::fabric::wire::pause;
use crate::udp::{Destination, UdpPort, key_of};

/// The most sockets of a host, besides those of members, that get PAUSE packets: those that were seen last.
const CARRIERS: usize = 8;

/// A member of a job on one of our hosts.
pub struct Member {
    pub key: (IpAddr, u16),
    pub destination: Destination,
    pub last_seen: Option<Time>,
    /// The header with which packets of the job begin.
    pub header: Common,
}

/// One port: a cable and the neighbour at its other end.
pub struct Port {
    pub peer: NodeId,
    /// The switch at the other end; `None` for hosts.
    pub switch: Option<Destination>,
    /// The members of jobs on the host at the other end.
    pub members: BTreeMap<JobId, Member>,
    /// The sockets of that host that send other traffic. The newest is the last.
    carriers: Vec<((IpAddr, u16), Destination)>,
    pub egress: Egress<Receiver>,
    /// When the switch at the other end last sent a hello and was ready.
    pub last_seen: Option<Time>,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    rates: Rates,
}

/// Reports that follow each other faster than this share one interval.
const INTERVAL: Span = Span::from_millis(500);

/// UDP payload per second over the last interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    pub tx_gbps: f64,
    pub rx_gbps: f64,
    /// When this was counted last, and the bytes that had left and come in.
    last: Option<(Time, [u64; 2])>,
}

impl Rates {
    /// Takes the bytes that have left and come in until now.
    fn update(&mut self, now: Time, bytes: [u64; 2]) {
        if let Some((at, before)) = self.last {
            let interval = now.since(at);
            if interval < INTERVAL {
                return;
            }
            let gbps = |way: usize| 8e-9 * bytes[way].saturating_sub(before[way]) as f64 / interval.as_secs_f64();
            (self.tx_gbps, self.rx_gbps) = (gbps(0), gbps(1));
        }
        self.last = Some((now, bytes));
    }
}

/// What an operator sees of one port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortReport {
    /// The neighbour at the other end.
    pub peer: NodeId,
    /// False if the switch at the other end is silent.
    pub up: bool,
    /// Bytes that wait now, as on the wire.
    pub queued_bytes: u64,
    /// Packets that left, were dropped, or were marked.
    pub egress: EgressCounters,
    /// Packets that came in.
    pub rx_packets: u64,
    /// UDP payload bytes that came in.
    pub rx_bytes: u64,
    /// Bytes that came in and have not left, in a lossless fabric.
    pub ingress: IngressReport,
    /// How fast bytes leave and come in, lately.
    pub rates: Rates,
}

impl Port {
    /// A port that has received nothing yet.
    pub fn new(peer: NodeId, switch: Option<Destination>, egress: Egress<Receiver>) -> Port {
        Port {
            peer,
            switch,
            members: BTreeMap::new(),
            carriers: Vec::new(),
            egress,
            last_seen: None,
            rx_packets: 0,
            rx_bytes: 0,
            rates: Rates::default(),
        }
    }

    /// Notes that a socket of the host at the other end has sent other traffic.
    pub fn note_carrier(&mut self, from: SocketAddr, udp: &UdpPort) {
        let key = key_of(from);
        if self.switch.is_some() || self.carriers.last().is_some_and(|(last, _)| *last == key) {
            return;
        }
        self.carriers.retain(|(known, _)| *known != key);
        if self.carriers.len() == CARRIERS {
            self.carriers.remove(0);
        }
        self.carriers.push((key, udp.destination(from)));
    }

    /// Pauses the other end for this time, or resumes it. A host has one cable, so each of its sockets gets the packet.
    pub fn send_pause(&self, span: Span, fabric: Common, udp: &mut UdpPort) {
        let own = self.switch.iter().chain(self.carriers.iter().map(|(_, to)| to)).map(|to| (to, fabric));
        let members = self.members.values().map(|member| (&member.destination, member.header));
        for (to, header) in own.chain(members) {
            let packet = pause(header, span);
            udp.send(to, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
    }

    /// True if the other end is alive, as far as this switch knows.
    pub fn is_up(&self, now: Time) -> bool {
        self.switch.is_none() || self.last_seen.is_some_and(|seen| now.since(seen) < DEAD_AFTER)
    }

    /// The port's state.
    pub fn report(&mut self, now: Time, ingress: IngressReport) -> PortReport {
        self.rates.update(now, [self.egress.counters().bytes, self.rx_bytes]);
        PortReport {
            peer: self.peer,
            up: self.is_up(now),
            queued_bytes: self.egress.queued_bytes(),
            egress: *self.egress.counters(),
            rx_packets: self.rx_packets,
            rx_bytes: self.rx_bytes,
            ingress,
            rates: self.rates,
        }
    }
}

impl PortView for Crossbar {
    fn queued_bytes(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).map_or(0, |port| port.egress.queued_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_interval_that_was_long_enough() {
        let mut rates = Rates::default();
        for (at_ms, bytes, [tx_mbps, rx_mbps]) in [
            (0, [5_000_000, 0], [0.0, 0.0]),
            (1_000, [6_000_000, 500_000], [8.0, 4.0]),
            (1_400, [7_000_000, 500_000], [8.0, 4.0]),
            (2_000, [7_000_000, 1_000_000], [8.0, 4.0]),
            (3_000, [7_000_000, 1_000_000], [0.0, 0.0]),
        ] {
            rates.update(Time::ZERO + Span::from_millis(at_ms), bytes);
            let near = |gbps: f64, mbps: f64| (1e3 * gbps - mbps).abs() < 1e-6;
            assert!(near(rates.tx_gbps, tx_mbps) && near(rates.rx_gbps, rx_mbps), "at {at_ms} ms: {rates:?}");
        }
    }
}
