//! A crossbar that loses nothing: the rooms of its ports, and orders to pause, given and taken.

use std::net::SocketAddr;

use tributary_control::fabric::FabricLayout;
use tributary_control::routes::Port as Hop;
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::kind;

use super::Crossbar;
use crate::fabric::rooms::{Charge, Rooms};
use crate::fabric::wire::own_header;
use crate::udp::UdpPort;

impl Crossbar {
    /// Tells senders to pause or to go on, where that is due.
    pub(super) fn order(&mut self, now: Time, udp: &mut UdpPort) {
        let own = own_header(kind::PAUSE, self.fabric.key());
        while let Some((port, span)) = self.rooms.as_mut().and_then(|rooms| rooms.next_order(now)) {
            self.ports[port.index()].order(span, own, udp);
        }
    }

    /// The switch behind a port wants a pause. False if there is no switch behind the port.
    pub fn pause(&mut self, now: Time, ingress: PortId, span: Span) -> bool {
        let port = self.ports.get_mut(ingress.index()).filter(|port| port.switch.is_some());
        port.map(|port| port.egress.pause(now, span)).is_some()
    }

    /// A socket behind a port has sent other traffic. In a lossless fabric it is told to pause too.
    pub fn note_carrier(&mut self, ingress: PortId, from: SocketAddr, udp: &UdpPort) {
        if let Some(port) = self.ports.get_mut(ingress.index()).filter(|_| self.rooms.is_some()) {
            port.note_carrier(from, udp);
        }
    }
}

/// A packet that took room is gone.
pub fn free(rooms: &mut Option<Rooms>, charge: Charge, bytes: u64) {
    if let Some(rooms) = rooms {
        rooms.free(charge, bytes);
    }
}

/// The rooms for packets that come in by a switch's ports, in a lossless fabric.
pub fn rooms(fabric: &FabricLayout, node: NodeId) -> Option<Rooms> {
    let level = |node: NodeId| fabric.nodes[node.index()].level;
    let room = |port: &Hop| (fabric.cables[port.cable].queue_bytes, level(port.to) < level(node));
    Some(Rooms::new(fabric.lossless?, fabric.ports[node.index()].iter().map(room)))
}

/// How much may wait for one way out: all that any port may hold, and the packets that take no room.
pub fn lossless_room(fabric: &FabricLayout, node: NodeId) -> u64 {
    let rooms = fabric.ports[node.index()].iter().map(|port| fabric.cables[port.cable].queue_bytes);
    rooms.clone().sum::<u64>() + rooms.max().unwrap_or(0)
}
