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
}

/// What an operator sees of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub fn report(&self, now: Time, ingress: IngressReport) -> PortReport {
        PortReport {
            peer: self.peer,
            up: self.is_up(now),
            queued_bytes: self.egress.queued_bytes(),
            egress: *self.egress.counters(),
            rx_packets: self.rx_packets,
            rx_bytes: self.rx_bytes,
            ingress,
        }
    }
}

impl PortView for Crossbar {
    fn queued_bytes(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).map_or(0, |port| port.egress.queued_bytes())
    }
}
