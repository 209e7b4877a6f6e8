//! The inside of a fabric switch: it finds the port by which a packet came in and the queues that the packet goes to, and it
//! tracks which neighbours are alive.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tributary_control::fabric::{Balancing, FabricLayout, LinkState};
use tributary_control::routes::Routes;
use tributary_proto::congestion::Marking;
use tributary_proto::contract::ids::{GroupId, JobId, NodeId, PortId, PortSet};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;

pub use self::port::PortReport;
use self::port::{Member, Port};
use super::egress::{Egress, FRAME_BYTES, Receiver};
use super::ingress_buffers::{Charge, IngressBuffers, free, of_fabric, shared_capacity};
use crate::pool_size::packet_bytes;
use crate::shard::Origin;
use crate::udp::{Run, UdpPort, key_of};

/// The interval at which switches send hellos to their neighbours.
pub const HELLO_EVERY: Span = Span::from_millis(50);
/// A neighbour that is silent for this time counts as dead. On busy machines up to six of its hellos may be late.
pub(super) const DEAD_AFTER: Span = Span::from_millis(300);

/// All ports of a switch, and the routes to all nodes.
pub struct Crossbar {
    fabric: Arc<FabricLayout>,
    node: NodeId,
    index: u32,
    ports: Vec<Port>,
    switches: HashMap<(IpAddr, u16), PortId>,
    hosts: HashMap<IpAddr, PortId>,
    groups: BTreeMap<GroupId, Group>,
    state: LinkState,
    routes: Routes,
    unroutable: u64,
    /// Bytes that came in by each port and have not left. Only lossless fabrics have them.
    ingress_buffers: Option<IngressBuffers>,
    /// Scratch memory for the ports by which one packet leaves.
    egress_ports: Vec<PortId>,
    /// The number of bytes of the longest packet of any job.
    longest: usize,
}

/// A group of nodes to which a job's machine sends the same packet.
struct Group {
    job: JobId,
    egress_ports: Vec<NextHop>,
}

/// How a packet reaches a node of a group.
#[derive(Clone, Copy)]
enum NextHop {
    /// The node is a neighbour behind this port.
    Port(PortId),
    /// The node is further away. The packet takes the port that is best when it leaves.
    Route(NodeId),
}

impl Crossbar {
    /// A switch that has received no hello: its ports to other switches are dead until it does.
    pub fn new(fabric: Arc<FabricLayout>, node: NodeId, udp: &UdpPort) -> Crossbar {
        let mut state = LinkState::new(&fabric.cabling, node);
        let (mut ports, mut switches, mut hosts) = (Vec::new(), HashMap::new(), HashMap::new());
        for (number, port) in fabric.ports[node.index()].iter().enumerate() {
            let id = PortId(number as u16);
            let is_switch = fabric.is_switch(port.to);
            let address = fabric.udp(port.to);
            match is_switch {
                true => drop(switches.insert(key_of(address), id)),
                false => drop(hosts.insert(address.ip().to_canonical(), id)),
            }
            let cable = fabric.cables[port.cable];
            let marking = fabric.marks.map_or(Marking::never(), |marks| marks.at(node, id));
            let mut egress = Egress::new(cable.queue_bytes, marking, cable.bits_per_s, Receiver::Switch);
            if fabric.lossless.is_some() {
                egress = egress.with_capacity(shared_capacity(&fabric, node));
            }
            ports.push(Port::new(port.to, is_switch.then(|| udp.destination(address)), egress));
        }
        let mut down = PortSet::EMPTY;
        for (number, _) in ports.iter().enumerate().filter(|(_, port)| port.switch.is_some()) {
            down.insert(PortId(number as u16));
        }
        state.set_own(down);
        let index = fabric.cabling.switch_index(node).unwrap_or(0);
        let routes = state.routes();
        let summed_here = protocols::ALL.iter().filter(|protocol| protocol.placement != Placement::Hosts);
        let longest = summed_here.map(|protocol| packet_bytes(protocol, fabric.elements_per_packet)).max().unwrap_or(0);
        let (groups, ingress_buffers) = (BTreeMap::new(), of_fabric(&fabric, node));
        let (egress_ports, unroutable) = (Vec::new(), 0);
        Crossbar {
            fabric,
            node,
            index,
            ports,
            switches,
            hosts,
            groups,
            state,
            routes,
            unroutable,
            ingress_buffers,
            egress_ports,
            longest,
        }
    }

    /// The node number of the switch.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The fabric's plan.
    pub fn fabric(&self) -> &FabricLayout {
        &self.fabric
    }

    /// The port that a sender is behind; [`PortId::UNKNOWN`] for unknown addresses.
    pub fn ingress(&mut self, from: SocketAddr, packets: usize, bytes: usize) -> PortId {
        let key = key_of(from);
        let found = self.switches.get(&key).or_else(|| self.hosts.get(&key.0)).copied();
        if let Some(port) = found {
            let port = &mut self.ports[port.index()];
            port.rx_packets += packets as u64;
            port.rx_bytes += bytes as u64;
        }
        found.unwrap_or(PortId::UNKNOWN)
    }

    /// True if a packet of this job may come from this address: from another switch, or from the socket of the member
    /// on the host behind the port. That member then counts as alive.
    pub fn accepts(&mut self, now: Time, ingress: PortId, from: SocketAddr, job: JobId) -> bool {
        let Some(port) = self.ports.get_mut(ingress.index()) else { return false };
        if port.switch.is_some() {
            return true;
        }
        match port.members.get_mut(&job).filter(|member| member.key == key_of(from)) {
            Some(member) => {
                member.last_seen = Some(now);
                true
            }
            None => false,
        }
    }

    /// Puts a packet into the queues that its verdict names.
    pub fn carry_out(&mut self, verdict: Verdict, packet: &[u8], ecn: Ecn, origin: Origin, job: JobId) {
        // The list is put back at the end, so that its memory is used again.
        let mut egress_ports = std::mem::take(&mut self.egress_ports);
        match verdict {
            Verdict::Consume | Verdict::Drop(_) => {}
            Verdict::Port(port) => egress_ports.push(port),
            Verdict::Route(node) => self.list_route(node, &mut egress_ports),
            Verdict::Multicast(set) => egress_ports.extend(set.iter()),
            Verdict::Group(group) => self.list_group(group, &mut egress_ports),
        }
        self.offer(&egress_ports, packet, ecn, origin, Receiver::Member(job));
        egress_ports.clear();
        self.egress_ports = egress_ports;
    }

    fn list_route(&mut self, node: NodeId, egress_ports: &mut Vec<PortId>) {
        match self.next_hop(node) {
            Some(port) => egress_ports.push(port),
            None => self.unroutable += 1,
        }
    }

    fn list_group(&mut self, group: GroupId, egress_ports: &mut Vec<PortId>) {
        let Some(group) = self.groups.get(&group) else {
            self.unroutable += 1;
            return;
        };
        let mut lost = 0;
        for &hop in &group.egress_ports {
            let port = match hop {
                NextHop::Port(port) => Some(port),
                NextHop::Route(node) => self.next_hop(node),
            };
            lost += u64::from(port.is_none());
            egress_ports.extend(port);
        }
        self.unroutable += lost;
    }

    /// Puts a packet that came in by a port into the queue towards a host, for a UDP port there.
    pub fn forward(&mut self, ingress: PortId, to: NodeId, packet: &[u8], ecn: Ecn, udp_port: u16) {
        match self.next_hop(to) {
            Some(port) => self.offer(&[port], packet, ecn, Origin::Packet(ingress), Receiver::UdpPort(udp_port)),
            None => self.unroutable += 1,
        }
    }

    fn offer(&mut self, egress_ports: &[PortId], packet: &[u8], ecn: Ecn, origin: Origin, at_host: Receiver) {
        let bytes = packet.len() as u64 + FRAME_BYTES;
        let charge = match &mut self.ingress_buffers {
            Some(ingress_buffers) => ingress_buffers.charge(origin, egress_ports, bytes),
            None => Ok(Charge::None),
        };
        for &hop in egress_ports {
            let Some(port) = self.ports.get_mut(hop.index()) else {
                self.unroutable += 1;
                charge.iter().for_each(|&charge| free(&mut self.ingress_buffers, charge, bytes));
                continue;
            };
            let to = if port.switch.is_some() { Receiver::Switch } else { at_host };
            match charge {
                Ok(charge) if port.egress.offer(packet, ecn, to, charge) => {}
                Ok(charge) => free(&mut self.ingress_buffers, charge, bytes),
                Err(_) => port.egress.refuse(),
            }
        }
    }

    /// One of the ports on the shortest live routes to a node.
    fn next_hop(&self, to: NodeId) -> Option<PortId> {
        // A packet may name a node that does not exist.
        if to.index() >= self.fabric.nodes.len() || to == self.node {
            return None;
        }
        let hops = self.routes.next_hops(self.index, to).0;
        let count = hops.len();
        if count <= 1 {
            return hops.first().copied().map(PortId);
        }
        // Nodes for which the level below uses the same port differ in higher bits. This level chooses by those.
        let level = self.fabric.nodes[self.node.index()].level;
        let default = (to.0 >> level.saturating_sub(1).min(16)) as usize % count;
        let queue = |hop: usize| &self.ports[usize::from(hops[hop])].egress;
        let least = || (0..count).map(|step| (default + step) % count).min_by_key(|&hop| queue(hop).queued_bytes());
        let hop = match self.fabric.balancing {
            Balancing::Ecmp => Some(default),
            Balancing::LeastQueued => least(),
            Balancing::DefaultUnlessHalfFull if queue(default).is_over_half() => least(),
            Balancing::DefaultUnlessHalfFull => Some(default),
        };
        hop.map(|hop| PortId(hops[hop]))
    }

    /// Sends what may leave by now.
    pub fn drain(&mut self, now: Time, udp: &mut UdpPort) {
        for port in &mut self.ports {
            if port.egress.due().is_none_or(|due| due > now) {
                continue;
            }
            let (switch, members, peer) = (&port.switch, &port.members, port.peer);
            let fabric = &self.fabric;
            let (unroutable, ingress_buffers) = (&mut self.unroutable, &mut self.ingress_buffers);
            let send = |to, run: &Run, memory: &[u8]| {
                let host;
                let destination = match to {
                    Receiver::Switch => switch.as_ref(),
                    Receiver::Member(job) => members.get(&job).map(|member| &member.destination),
                    Receiver::UdpPort(number) => {
                        host = udp.destination(SocketAddr::new(fabric.nodes[peer.index()].address, number));
                        Some(&host)
                    }
                };
                match destination {
                    Some(destination) => run.send(std::iter::once(destination), memory, udp),
                    None => *unroutable += run.packets() as u64,
                }
            };
            port.egress.drain(now, |charge, bytes| free(ingress_buffers, charge, bytes), send);
        }
        self.send_pauses(now, udp);
    }

    /// When the next queue may send.
    pub fn due(&self) -> Option<Time> {
        let orders = self.ingress_buffers.as_ref().and_then(IngressBuffers::due);
        self.ports.iter().filter_map(|port| port.egress.due()).chain(orders).min()
    }

    /// Adds the members of a job that are on our own hosts: node and address by rank. The job's packets begin with this
    /// header.
    pub fn add_job(&mut self, header: Common, members: &[(NodeId, SocketAddr)], udp: &UdpPort) {
        let job = header.job;
        self.remove_job(job);
        for &(node, address) in members {
            let own = self.ports.iter_mut().find(|port| port.peer == node && port.switch.is_none());
            if let Some(port) = own {
                let destination = udp.destination(address);
                port.members.insert(job, Member { key: key_of(address), destination, last_seen: None, header });
            }
        }
    }

    /// Makes a group of nodes to which a machine of a job sends the same packets, until the job is removed; `None` if
    /// no group number is left.
    pub fn add_group(&mut self, job: JobId, nodes: impl Iterator<Item = NodeId>) -> Option<GroupId> {
        let number = (0..u16::MAX).map(GroupId).find(|number| !self.groups.contains_key(number))?;
        let port_to = |node| self.ports.iter().position(|port| port.peer == node);
        let hop = |node| port_to(node).map_or(NextHop::Route(node), |port| NextHop::Port(PortId(port as u16)));
        let egress_ports = nodes.map(hop).collect();
        self.groups.insert(number, Group { job, egress_ports });
        Some(number)
    }

    /// True if this port leads to that neighbour.
    pub fn leads_to(&self, port: PortId, node: NodeId) -> bool {
        self.ports.get(port.index()).is_some_and(|port| port.peer == node)
    }

    /// The known state of all cables in the fabric.
    pub fn link_state(&self) -> &LinkState {
        &self.state
    }

    /// Removes a job's members and groups.
    pub fn remove_job(&mut self, job: JobId) {
        self.groups.retain(|_, group| group.job != job);
        for port in &mut self.ports {
            port.members.remove(&job);
        }
    }

    /// The port that a host is connected to, if it is one of our hosts.
    pub fn port_to(&self, host: NodeId) -> Option<PortId> {
        let number = self.ports.iter().position(|port| port.peer == host && port.switch.is_none())?;
        Some(PortId(number as u16))
    }

    /// When the member of a job on this host was last seen, if it is one of our hosts.
    pub fn last_seen(&self, job: JobId, host: NodeId) -> Option<Time> {
        let port = self.ports.iter().find(|port| port.peer == host)?;
        port.members.get(&job)?.last_seen
    }

    /// The number of packets for which there was no route.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// The state of every port.
    pub fn report(&mut self, now: Time) -> Vec<PortReport> {
        let buffers = self.ingress_buffers.as_ref();
        let ingress = |number| buffers.map(|buffers| buffers.report(number)).unwrap_or_default();
        self.ports.iter_mut().enumerate().map(|(number, port)| port.report(now, ingress(number))).collect()
    }
}

mod fabric_packets;
mod port;
#[cfg(test)]
mod tests;
