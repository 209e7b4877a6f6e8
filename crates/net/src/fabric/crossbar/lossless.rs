//! The part of a crossbar that a lossless fabric needs: the rooms of its ports, and the orders to pause that it gives
//! and takes.

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
    /// Sends the orders to pause or to go on that are due.
    pub(super) fn order(&mut self, now: Time, udp: &mut UdpPort) {
        let own = own_header(kind::PAUSE, self.fabric.key());
        while let Some((port, span)) = self.rooms.as_mut().and_then(|rooms| rooms.next_order(now)) {
            self.ports[port.index()].order(span, own, udp);
        }
    }

    /// Notes that the switch behind a port wants a pause. False if there is no switch behind the port.
    pub fn pause(&mut self, now: Time, ingress: PortId, span: Span) -> bool {
        let port = self.ports.get_mut(ingress.index()).filter(|port| port.switch.is_some());
        port.map(|port| port.egress.pause(now, span)).is_some()
    }

    /// Notes that a socket behind a port has sent other traffic. In a lossless fabric the socket is told to pause too.
    pub fn note_carrier(&mut self, ingress: PortId, from: SocketAddr, udp: &UdpPort) {
        if let Some(port) = self.ports.get_mut(ingress.index()).filter(|_| self.rooms.is_some()) {
            port.note_carrier(from, udp);
        }
    }
}

/// Frees the room of a packet that has left or was dropped.
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

/// The most bytes that may wait for one way out: all that the ports may hold, and the packets that take no room.
pub fn lossless_room(fabric: &FabricLayout, node: NodeId) -> u64 {
    let rooms = fabric.ports[node.index()].iter().map(|port| fabric.cables[port.cable].queue_bytes);
    rooms.clone().sum::<u64>() + rooms.max().unwrap_or(0)
}
