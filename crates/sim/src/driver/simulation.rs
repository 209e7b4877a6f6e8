//! The main loop.

use tributary_proto::ids::NodeId;
use tributary_proto::time::Time;

use super::flows::Flows;
use super::host::HostNode;
use super::switch::SwitchNode;
use crate::events::{Event, EventKind};
use crate::net::{Fabric, LinkId, Packet};
use crate::routing::{Balancing, Chooser, Table};
use crate::topology::Graph;

/// What a simulation needs to know besides its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Everything random follows from it.
    pub seed: u64,
    /// How switches choose among paths.
    pub balancing: Balancing,
    /// Bytes that wait in a host's NIC at most; a packet more may be on its way out.
    pub nic_bytes: u64,
    /// Bytes of the longest payload in memory.
    pub longest_payload: usize,
}

/// A network with its hosts and switches, at one moment.
pub struct Simulation {
    /// Links, packets, events.
    pub fabric: Fabric,
    /// Messages without a protocol.
    pub flows: Flows,
    table: Table,
    hosts: Vec<HostNode>,
    switches: Vec<SwitchNode>,
    events: u64,
}

impl Simulation {
    /// The network of a graph, at rest.
    pub fn new(graph: &Graph, settings: &Settings) -> Simulation {
        let fabric = Fabric::new(graph, settings.longest_payload);
        let hosts = (0..graph.hosts()).map(|host| HostNode::new(NodeId(host), &fabric, settings.nic_bytes)).collect();
        let table = Table::new(graph, |_| true);
        let switches = (0..graph.switches())
            .map(|index| {
                let node = graph.switch(index);
                let divisor = default_divisor(&fabric, graph, node);
                SwitchNode::new(node, index, Chooser::new(settings.balancing, settings.seed, index, divisor))
            })
            .collect();
        Simulation { fabric, flows: Flows::default(), table, hosts, switches, events: 0 }
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// A message comes up at its sender now.
    pub fn send_message(&mut self, from: NodeId, to: NodeId, packets: u32, packet_bytes: u16) {
        let flow = self.flows.add(from, to, packets, packet_bytes, self.fabric.now);
        let host = &mut self.hosts[from.index()];
        host.start_flow(flow);
        host.fill_nic(&mut self.fabric, &mut self.flows);
    }

    /// Runs until nothing is left to happen, or until `end`; true if something is left.
    pub fn run(&mut self, end: Time) -> bool {
        while let Some(event) = self.fabric.queue.peek() {
            if event.time > end {
                return true;
            }
            self.fabric.queue.pop();
            self.fabric.now = event.time;
            self.events += 1;
            self.handle(event);
        }
        false
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        match event.id.kind() {
            EventKind::Arrival => {
                let link = LinkId(event.id.number());
                if let Some(packet) = self.fabric.arrive(link) {
                    self.deliver(link, packet);
                }
            }
            EventKind::Nic => {
                let host = &mut self.hosts[event.id.number() as usize];
                host.nic_ready();
                host.fill_nic(&mut self.fabric, &mut self.flows);
            }
            EventKind::Stray => {
                if let Some((link, packet)) = self.fabric.arrive_stray(event.id.number()) {
                    self.deliver(link, packet);
                }
            }
            EventKind::Plan | EventKind::Departure | EventKind::Source => {}
        }
    }

    #[inline]
    fn deliver(&mut self, link: LinkId, packet: Packet) {
        let to = self.fabric.link(link).to;
        match self.switches.get_mut(to.index().wrapping_sub(self.hosts.len())) {
            Some(switch) => switch.forward(&mut self.fabric, &self.table, packet),
            None => self.receive(to, packet),
        }
    }

    #[inline]
    fn receive(&mut self, host: NodeId, packet: Packet) {
        self.fabric.taken(host, &packet);
        self.flows.receive(super::FlowId(packet.flow), self.fabric.now);
    }
}

/// Default ports by destination: the switches of one level share the destinations' digits, lowest level first.
fn default_divisor(fabric: &Fabric, graph: &Graph, node: NodeId) -> u32 {
    let level = graph.level(node);
    let below = |node: NodeId| {
        fabric.ports(node).iter().filter(|&&link| graph.level(fabric.link(link).to) > graph.level(node)).count() as u32
    };
    (1..level)
        .map(|lower| (0..graph.switches()).map(|index| graph.switch(index)).find(|&node| graph.level(node) == lower))
        .map(|switch| switch.map_or(1, below).max(1))
        .product()
}
