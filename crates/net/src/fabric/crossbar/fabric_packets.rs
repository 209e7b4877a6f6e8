//! Packets of the fabric itself at one switch: hellos between neighbours, packets that switches only forward, and PAUSE.
//! They belong to job 0 and have the fabric's own key.

use std::io::IoSlice;
use std::net::SocketAddr;

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::ids::{PortId, PortSet};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{Common, kind};

use super::Crossbar;
use crate::fabric::ingress_buffers::free;
use crate::fabric::wire::{CARRY_LEN, Carry, Hello, NO_VIA, fabric_header, hellos, read_hello, read_pause};
use crate::udp::UdpPort;

impl Crossbar {
    /// Handles one such packet, whose common header was read. An error says why the packet was dropped.
    pub fn handle_fabric_packet(
        &mut self,
        now: Time,
        ingress: PortId,
        common: &Common,
        packet: &mut [u8],
        ecn: Ecn,
    ) -> Result<(), DropReason> {
        if ingress == PortId::UNKNOWN {
            return Err(DropReason::NotAMember);
        }
        if common.key != self.fabric.key() {
            return Err(DropReason::WrongKey);
        }
        match common.kind {
            kind::HELLO => {
                let hello = read_hello(packet).ok_or(DropReason::Truncated)?;
                self.on_hello(now, ingress, &hello);
                Ok(())
            }
            kind::CARRY => self.carry(ingress, Carry::read(packet).ok_or(DropReason::Truncated)?, packet, ecn),
            kind::PAUSE => {
                let span = read_pause(packet).ok_or(DropReason::Truncated)?;
                // Only switches may pause a switch. Hosts take all packets at once.
                if self.pause(now, ingress, span) { Ok(()) } else { Err(DropReason::NotAMember) }
            }
            _ => Err(DropReason::BadKind),
        }
    }

    fn carry(&mut self, ingress: PortId, mut carry: Carry, packet: &mut [u8], ecn: Ecn) -> Result<(), DropReason> {
        debug_assert!(packet.len() >= CARRY_LEN);
        if carry.via == self.node {
            carry.via = NO_VIA;
            carry.emit_fields(packet);
        }
        // Only hosts receive such packets. A packet for a switch would circulate.
        if carry.to.0 >= self.fabric.cabling.hosts {
            return Err(DropReason::NoRoute);
        }
        let next = if carry.via == NO_VIA { carry.to } else { carry.via };
        self.forward(ingress, next, packet, ecn, carry.udp_port);
        Ok(())
    }

    /// Takes a neighbour's hello, with its reports on other switches.
    pub fn on_hello(&mut self, now: Time, ingress: PortId, hello: &Hello) {
        let Some(port) = self.ports.get_mut(ingress.index()) else { return };
        if port.switch.is_none() || port.peer != hello.node {
            return;
        }
        port.last_seen = hello.ready.then_some(now);
        let mut changed = false;
        for &advert in &hello.adverts {
            changed |= self.state.receive(advert);
        }
        self.update_links(now, changed);
    }

    /// Finds neighbours that have fallen silent, and computes the routes again if a cable has changed.
    pub fn update_links(&mut self, now: Time, changed: bool) {
        let mut down = PortSet::EMPTY;
        for (number, port) in self.ports.iter_mut().enumerate() {
            if port.switch.is_none() {
                continue;
            }
            if !port.is_up(now) {
                // Packets for a dead neighbour are dropped, because they would be late even if it came back.
                port.egress.clear(|charge, bytes| free(&mut self.ingress_buffers, charge, bytes));
                down.insert(PortId(number as u16));
            }
        }
        if self.state.set_own(down) || changed {
            self.routes = self.state.routes();
            let dead: Vec<&str> = down.iter().map(|port| self.fabric.name(self.ports[port.index()].peer)).collect();
            tracing::info!(switch = self.fabric.name(self.node), ?dead, "cables have changed");
        }
    }

    /// Sends a hello to every neighbour. `ready` says that this switch knows the running jobs. The packets are as long as
    /// those of jobs, so that a cable with too small an MTU counts as dead and others are used.
    pub fn greet(&self, ready: bool, udp: &mut UdpPort) {
        let mut packets = hellos(self.fabric.key(), self.node, ready, self.state.adverts());
        packets.iter_mut().for_each(|packet| packet.resize(packet.len().max(self.longest), 0));
        for switch in self.ports.iter().filter_map(|port| port.switch.as_ref()) {
            for packet in &packets {
                udp.send(switch, &[IoSlice::new(packet)], packet.len(), Ecn::NotCapable);
            }
        }
    }

    /// Sends the PAUSE packets that are due.
    pub(super) fn send_pauses(&mut self, now: Time, udp: &mut UdpPort) {
        let header = fabric_header(kind::PAUSE, self.fabric.key());
        while let Some((port, span)) =
            self.ingress_buffers.as_mut().and_then(|ingress_buffers| ingress_buffers.next_pause(now))
        {
            self.ports[port.index()].send_pause(span, header, udp);
        }
    }

    /// Pauses the queue of a port for the switch behind it. False if there is no switch behind the port.
    pub fn pause(&mut self, now: Time, ingress: PortId, span: Span) -> bool {
        let port = self.ports.get_mut(ingress.index()).filter(|port| port.switch.is_some());
        port.map(|port| port.egress.pause(now, span)).is_some()
    }

    /// Notes that a socket behind a port has sent other traffic. In a lossless fabric it gets PAUSE packets too.
    pub fn note_carrier(&mut self, ingress: PortId, from: SocketAddr, udp: &UdpPort) {
        if let Some(port) = self.ports.get_mut(ingress.index()).filter(|_| self.ingress_buffers.is_some()) {
            port.note_carrier(from, udp);
        }
    }
}
