//! The inside of a fabric switch: it finds the port by which a packet came in and the queues that the packet goes to,
//! and it knows which neighbours are alive.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tributary_control::fabric::{Balancing, FabricLayout, LinkState};
use tributary_control::routes::Routes;
use tributary_proto::contract::ids::{GroupId, JobId, NodeId, PortId, PortSet};
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::Common;
use tributary_proto::marking::Marking;
use tributary_proto::protocols;

use self::lossless::{free, lossless_room, rooms};
pub use self::port::PortReport;
use self::port::{Member, Port};
use super::egress::{Egress, FRAME_BYTES, Receiver};
use super::rooms::{Charge, Rooms};
use crate::event_loop::Origin;
use crate::pool_size::packet_bytes;
use crate::udp::{Run, UdpPort, key_of};

/// The interval at which switches tell their neighbours that they are alive.
pub const HELLO_EVERY: Span = Span::from_millis(50);
/// A neighbour that is silent for this time counts as dead. On busy machines up to six of its signs may be late.
pub(super) const DEAD_AFTER: Span = Span::from_millis(300);

/// All ports of a switch, and the ways to all nodes.
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
    /// The rooms for bytes that came in by a port and have not left. Only lossless fabrics have them.
    rooms: Option<Rooms>,
    /// Scratch memory for the ports by which one packet leaves.
    exits: Vec<PortId>,
    /// The number of bytes of the longest packet of any job.
    longest: usize,
}

/// A group of nodes to which a job's machine sends the same packet.
struct Group {
    job: JobId,
    exits: Vec<Exit>,
}

/// How a packet reaches a node of a group.
#[derive(Clone, Copy)]
enum Exit {
    /// The node is a neighbour behind this port.
    Port(PortId),
    /// The node is further away. The packet takes the port that is best when it leaves.
    Way(NodeId),
}

impl Crossbar {
    /// A switch that has heard no neighbour: its ports to other switches are dead until these speak.
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
                egress = egress.with_room(lossless_room(&fabric, node));
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
        let (groups, rooms) = (BTreeMap::new(), rooms(&fabric, node));
        let (exits, unroutable) = (Vec::new(), 0);
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
            rooms,
            exits,
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

    /// The port that a sender is behind; [`PortId::UNKNOWN`] for strangers.
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
                member.heard = Some(now);
                true
            }
            None => false,
        }
    }

    /// Puts a packet into the queues that its verdict names.
    pub fn carry_out(&mut self, verdict: Verdict, packet: &[u8], ecn: Ecn, origin: Origin, job: JobId) {
        // The list is put back at the end, so that its memory is used again.
        let mut exits = std::mem::take(&mut self.exits);
        match verdict {
            Verdict::Consume | Verdict::Drop(_) => {}
            Verdict::Port(port) => exits.push(port),
            Verdict::Route(node) => self.list_way(node, &mut exits),
            Verdict::Multicast(set) => exits.extend(set.iter()),
            Verdict::Group(group) => self.list_group(group, &mut exits),
        }
        self.offer(&exits, packet, ecn, origin, Receiver::Member(job));
        exits.clear();
        self.exits = exits;
    }

    fn list_way(&mut self, node: NodeId, exits: &mut Vec<PortId>) {
        match self.next_hop(node) {
            Some(port) => exits.push(port),
            None => self.unroutable += 1,
        }
    }

    fn list_group(&mut self, group: GroupId, exits: &mut Vec<PortId>) {
        let Some(group) = self.groups.get(&group) else {
            self.unroutable += 1;
            return;
        };
        let mut lost = 0;
        for &exit in &group.exits {
            let port = match exit {
                Exit::Port(port) => Some(port),
                Exit::Way(node) => self.next_hop(node),
            };
            lost += u64::from(port.is_none());
            exits.extend(port);
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

    fn offer(&mut self, exits: &[PortId], packet: &[u8], ecn: Ecn, origin: Origin, at_host: Receiver) {
        let bytes = packet.len() as u64 + FRAME_BYTES;
        let charge = match &mut self.rooms {
            Some(rooms) => rooms.charge(origin, exits, bytes),
            None => Ok(Charge::Nobody),
        };
        for &exit in exits {
            let Some(port) = self.ports.get_mut(exit.index()) else {
                self.unroutable += 1;
                charge.iter().for_each(|&charge| free(&mut self.rooms, charge, bytes));
                continue;
            };
            let to = if port.switch.is_some() { Receiver::Switch } else { at_host };
            match charge {
                Ok(charge) if port.egress.offer(packet, ecn, to, charge) => {}
                Ok(charge) => free(&mut self.rooms, charge, bytes),
                Err(_) => port.egress.refuse(),
            }
        }
    }

    /// One of the ports on the shortest living ways to a node.
    fn next_hop(&self, to: NodeId) -> Option<PortId> {
        // A packet may name a node that does not exist.
        if to.index() >= self.fabric.nodes.len() || to == self.node {
            return None;
        }
        let ways = self.routes.next_hops(self.index, to).0;
        let count = ways.len();
        if count <= 1 {
            return ways.first().copied().map(PortId);
        }
        // Nodes to which the level below uses the same port differ in higher bits. This level chooses by those.
        let level = self.fabric.nodes[self.node.index()].level;
        let default = (to.0 >> level.saturating_sub(1).min(16)) as usize % count;
        let queue = |way: usize| &self.ports[usize::from(ways[way])].egress;
        let least = || (0..count).map(|step| (default + step) % count).min_by_key(|&way| queue(way).queued_bytes());
        let way = match self.fabric.balancing {
            Balancing::Ecmp => Some(default),
            Balancing::LeastQueued => least(),
            Balancing::DefaultUnlessHalfFull if queue(default).is_over_half() => least(),
            Balancing::DefaultUnlessHalfFull => Some(default),
        };
        way.map(|way| PortId(ways[way]))
    }

    /// Sends what may leave by now.
    pub fn drain(&mut self, now: Time, udp: &mut UdpPort) {
        for port in &mut self.ports {
            if port.egress.due().is_none_or(|due| due > now) {
                continue;
            }
            let (switch, members, peer) = (&port.switch, &port.members, port.peer);
            let fabric = &self.fabric;
            let (unroutable, rooms) = (&mut self.unroutable, &mut self.rooms);
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
            port.egress.drain(now, |charge, bytes| free(rooms, charge, bytes), send);
        }
        self.order(now, udp);
    }

    /// When the next queue may send.
    pub fn due(&self) -> Option<Time> {
        let orders = self.rooms.as_ref().and_then(Rooms::due);
        self.ports.iter().filter_map(|port| port.egress.due()).chain(orders).min()
    }

    /// Names the members of a job that are on our own hosts: node and address by rank. The job's packets begin with
    /// this header.
    pub fn add_job(&mut self, header: Common, members: &[(NodeId, SocketAddr)], udp: &UdpPort) {
        let job = header.job;
        self.remove_job(job);
        for &(node, address) in members {
            let own = self.ports.iter_mut().find(|port| port.peer == node && port.switch.is_none());
            if let Some(port) = own {
                let destination = udp.destination(address);
                port.members.insert(job, Member { key: key_of(address), destination, heard: None, header });
            }
        }
    }

    /// Makes a group of nodes to which a machine of a job sends the same packets, until the job is removed; `None` if
    /// no group number is left.
    pub fn add_group(&mut self, job: JobId, nodes: impl Iterator<Item = NodeId>) -> Option<GroupId> {
        let number = (0..u16::MAX).map(GroupId).find(|number| !self.groups.contains_key(number))?;
        let port_to = |node| self.ports.iter().position(|port| port.peer == node);
        let exit = |node| port_to(node).map_or(Exit::Way(node), |port| Exit::Port(PortId(port as u16)));
        let exits = nodes.map(exit).collect();
        self.groups.insert(number, Group { job, exits });
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

    /// Forgets a job's members and groups.
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

    /// When the member of a job on this host was last heard, if it is one of our hosts.
    pub fn heard(&self, job: JobId, host: NodeId) -> Option<Time> {
        let port = self.ports.iter().find(|port| port.peer == host)?;
        port.members.get(&job)?.heard
    }

    /// Takes a neighbour's sign of life, with its reports on other switches.
    pub fn hear(&mut self, now: Time, ingress: PortId, hello: &super::wire::Hello) {
        let Some(port) = self.ports.get_mut(ingress.index()) else { return };
        if port.switch.is_none() || port.peer != hello.node {
            return;
        }
        port.heard = hello.ready.then_some(now);
        let mut news = false;
        for &advert in &hello.adverts {
            news |= self.state.receive(advert);
        }
        self.look(now, news);
    }

    /// Finds neighbours that have fallen silent, and computes the ways anew if something has changed.
    pub fn look(&mut self, now: Time, news: bool) {
        let mut down = PortSet::EMPTY;
        for (number, port) in self.ports.iter_mut().enumerate() {
            if port.switch.is_none() {
                continue;
            }
            if !port.is_up(now) {
                // Packets for a dead neighbour are dropped, because they would be late even if it came back.
                port.egress.clear(|charge, bytes| free(&mut self.rooms, charge, bytes));
                down.insert(PortId(number as u16));
            }
        }
        if self.state.set_own(down) || news {
            self.routes = self.state.routes();
            let dead: Vec<&str> = down.iter().map(|port| self.fabric.name(self.ports[port.index()].peer)).collect();
            tracing::info!(switch = self.fabric.name(self.node), ?dead, "cables have changed");
        }
    }

    /// Tells every neighbour that this switch is alive. `ready` says that it knows the running jobs. The packets are as
    /// long as those of jobs, so that a cable with too small an MTU counts as dead and others are used.
    pub fn greet(&self, ready: bool, udp: &mut UdpPort) {
        let mut packets = super::wire::hellos(self.fabric.key(), self.node, ready, self.state.adverts());
        packets.iter_mut().for_each(|packet| packet.resize(packet.len().max(self.longest), 0));
        for switch in self.ports.iter().filter_map(|port| port.switch.as_ref()) {
            for packet in &packets {
                udp.send(switch, &[std::io::IoSlice::new(packet)], packet.len(), Ecn::NotCapable);
            }
        }
    }

    /// The number of packets for which there was no way.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// The state of every port.
    pub fn report(&self, now: Time) -> Vec<PortReport> {
        let room = |number| self.rooms.as_ref().map(|rooms| rooms.report(number)).unwrap_or_default();
        self.ports.iter().enumerate().map(|(number, port)| port.report(now, room(number))).collect()
    }
}

mod lossless;
mod port;
#[cfg(test)]
mod tests;
