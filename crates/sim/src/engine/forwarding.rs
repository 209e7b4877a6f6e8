//! How a switch forwards packets: next hops, multicast groups, and the ports that a verdict names.

use tributary_proto::contract::ids::{GroupId, NodeId, PortId};
use tributary_proto::contract::switch::Verdict;

use crate::net::{Fabric, Origin, Packet};
use crate::routing::{Chooser, Table};

/// A switch's forwarding state.
pub struct Forwarding {
    /// The switch.
    pub node: NodeId,
    /// Its number among switches.
    pub index: u32,
    chooser: Chooser,
    groups: Vec<Vec<PortId>>,
    /// Numbers of groups that are not in use.
    free: Vec<GroupId>,
}

impl Forwarding {
    /// A switch without groups.
    pub fn new(node: NodeId, index: u32, chooser: Chooser) -> Forwarding {
        Forwarding { node, index, chooser, groups: Vec::new(), free: Vec::new() }
    }

    /// Installs a multicast group.
    pub fn add_group(&mut self, ports: Vec<PortId>) -> GroupId {
        if let Some(group) = self.free.pop() {
            self.groups[group.index()] = ports;
            return group;
        }
        self.groups.push(ports);
        GroupId(self.groups.len() as u16 - 1)
    }

    /// Removes a group, whose number may then be used again.
    pub fn remove_group(&mut self, group: GroupId) {
        self.groups[group.index()].clear();
        self.free.push(group);
    }

    /// Forwards a packet that came over a link or that a program made.
    #[inline]
    pub fn forward(&mut self, fabric: &mut Fabric, table: &Table, origin: Origin, packet: Packet) {
        let ports = table.next_hops(self.index, packet.dst).0;
        if ports.is_empty() {
            fabric.lose_unroutable(self.node, &packet);
            return;
        }
        let port = self.chooser.choose(fabric, self.node, ports, &packet);
        let link = fabric.port(self.node, port);
        fabric.send_of(origin, link, packet);
    }

    /// Applies a verdict to a packet whose payload this switch holds.
    #[inline(always)]
    pub fn carry_out(&mut self, fabric: &mut Fabric, table: &Table, verdict: Verdict, origin: Origin, packet: Packet) {
        match verdict {
            Verdict::Consume | Verdict::Drop(_) => fabric.payloads.release(packet.payload),
            Verdict::Port(port) => self.send_copies(fabric, std::iter::once(port), 1, origin, packet),
            Verdict::Multicast(set) => self.send_copies(fabric, set.iter(), set.len(), origin, packet),
            Verdict::Group(group) => {
                let ports = &self.groups[group.index()];
                self.send_copies(fabric, ports.iter().copied(), ports.len(), origin, packet);
            }
            Verdict::Route(node) => {
                let packet = Packet { dst: node, serial: fabric.next_serial(self.node), ..packet };
                fabric.record_created(&packet);
                self.forward(fabric, table, origin, packet);
            }
        }
    }

    /// Sends one copy out of each port, for the node at its other end.
    #[inline(always)]
    fn send_copies(
        &self,
        fabric: &mut Fabric,
        ports: impl Iterator<Item = PortId> + Clone,
        count: usize,
        origin: Origin,
        packet: Packet,
    ) {
        if count == 0 {
            return fabric.payloads.release(packet.payload);
        }
        fabric.payloads.share(packet.payload, count as u32 - 1);
        let links = fabric.ports(self.node).len();
        if count > 1 {
            fabric.prefetch_queues(self.node, ports.clone());
        }
        let origin = match origin {
            Origin::Derived(from) if count > 1 => {
                fabric.charge_copies(from, packet.bytes, self.node, ports.clone(), count)
            }
            origin => Some(origin),
        };
        for port in ports {
            // A program may name the port of an unknown sender, which leads nowhere.
            if port.index() >= links {
                fabric.drop_copy(origin.unwrap_or(Origin::Local), packet);
                continue;
            }
            let link = fabric.port(self.node, port.0);
            let packet = Packet { dst: fabric.link(link).to, serial: fabric.next_serial(self.node), ..packet };
            fabric.record_created(&packet);
            match origin {
                Some(origin) => drop(fabric.send_of(origin, link, packet)),
                None => fabric.lose_copy(link, &packet),
            }
        }
    }
}
