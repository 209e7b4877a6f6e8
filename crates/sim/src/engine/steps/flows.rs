//! Traffic beside jobs: messages, background traffic, and flows under DCTCP.

use tributary_proto::congestion::Algorithm;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use crate::engine::host::Background;
use crate::engine::host_delays::{HostCosts, Noise};
use crate::engine::simulation::Simulation;
use crate::engine::traffic::FlowId;
use crate::net::Packet;
use crate::transport::{Kind, TransportHost};
use crate::workload::{FlowSource, permutation};

impl Simulation {
    /// Starts a message at its sender. `bytes` are those on a link, framing included.
    pub fn send_message(&mut self, from: NodeId, to: NodeId, bytes: u64, packet_bytes: u16) -> FlowId {
        let flow = self.traffic.flows.add(from, to, bytes, packet_bytes, self.fabric.now);
        self.open += 1;
        let host = &mut self.hosts[from.index()];
        host.start_flow(flow);
        host.wake(&mut self.fabric);
        flow
    }

    /// The messages of a random permutation of the hosts, all at once: workload W.
    pub fn send_permutation(&mut self, hosts: &[NodeId], seed: u64, bytes: u64, packet_bytes: u16) {
        for (from, to) in permutation(hosts, seed) {
            self.send_message(from, to, bytes, packet_bytes);
        }
    }

    /// Gives a host endless background traffic to send.
    pub fn add_background(&mut self, host: NodeId, source: Background) {
        let host = &mut self.hosts[host.index()];
        host.background.push(source);
        host.wake(&mut self.fabric);
    }

    /// Sets what packets cost each host's processor.
    pub fn set_host_costs(&mut self, costs: HostCosts) {
        self.hosts.iter_mut().for_each(|host| host.costs = Some(costs));
    }

    /// Sets the noise of a host.
    pub fn set_noise(&mut self, host: NodeId, noise: Option<Noise>) {
        self.hosts[host.index()].noise = noise.map(Box::new);
    }

    /// Starts a flow of `bytes` bytes of data under DCTCP; returns its number at the sender. `None` if it has more packets
    /// than there are packet numbers.
    pub fn start_flow(&mut self, from: NodeId, to: NodeId, bytes: u64) -> Option<u32> {
        self.start_flow_on(from, to, bytes, 0)
    }

    /// Starts a flow on a lane, whose end a training step waits for; lane 0 has those that none waits for.
    pub(crate) fn start_flow_on(&mut self, from: NodeId, to: NodeId, bytes: u64, lane: u8) -> Option<u32> {
        self.begin_flow(from, to, bytes, Kind { awaited: true, lane, class: 0 })
    }

    /// Starts a flow of any kind.
    pub fn begin_flow(&mut self, from: NodeId, to: NodeId, bytes: u64, kind: Kind) -> Option<u32> {
        let now = self.fabric.now;
        let flow = self.transport_mut(from).begin(now, to, bytes, kind);
        self.count(from);
        self.hosts[from.index()].wake(&mut self.fabric);
        flow
    }

    /// Gives a host a source of flows of the first class.
    pub fn add_flow_source(&mut self, host: NodeId, source: FlowSource) {
        self.add_flow_source_of(host, source, 0);
    }

    /// Gives a host a source of flows of a class.
    pub(crate) fn add_flow_source_of(&mut self, host: NodeId, source: FlowSource, class: u8) {
        self.transport_mut(host).add_source(source, class);
        self.count(host);
        self.hosts[host.index()].wake(&mut self.fabric);
    }

    /// What decides how many packets of a class's flows are under way.
    pub fn congestion_control(&self, class: u8) -> &'static Algorithm {
        self.settings.transports[usize::from(class)].congestion_control
    }

    /// How many classes of flows there are.
    pub(crate) fn transports(&self) -> u8 {
        self.settings.transports.len() as u8
    }

    /// Bytes of data in a full packet of a class.
    pub(crate) fn packet_bytes(&self, class: u8) -> u16 {
        self.settings.transports[usize::from(class)].packet_bytes
    }

    /// A host's flows under DCTCP, if it ever had any.
    pub fn transport(&self, host: NodeId) -> Option<&TransportHost> {
        self.hosts[host.index()].transport.as_deref()
    }

    /// How long a flow would take alone, all of whose packets follow each other at once: to the arrival of the first one,
    /// and for the rest at the slowest link. `None` if no path is left at the end of the run.
    pub fn time_alone(&self, (from, to): (NodeId, NodeId), bytes: u64, class: u8) -> Option<Span> {
        let settings = &self.settings.transports[usize::from(class)];
        let on_link = |bytes: u64| u64::from(self.fabric.framing.bytes_on_link(settings.payload(bytes as usize)));
        let whole = u64::from(settings.packet_bytes);
        let first = bytes.clamp(1, whole);
        let (packets, last) = (bytes.saturating_sub(first) / whole, bytes.saturating_sub(first) % whole);
        let rest = packets * on_link(whole) + if last > 0 { on_link(last) } else { 0 };
        // Where hosts have several cables, packets that are sprayed take all ports at once.
        let is_sprayed = (self.settings.balancing[1].goes_by_packet() || settings.spray.takes_several_paths())
            && self.table.any_has_several_cables();
        let width = |ports: &[u16]| if is_sprayed { ports.len() as u64 } else { 1 };
        let (mut node, mut ports) = (from, self.table.first_hops(from, to).0);
        let (mut time, mut at_slowest) = (Span::ZERO, Span::ZERO);
        loop {
            let link = self.fabric.port(node, *ports.first()?);
            let (spec, next) = (self.graph.spec(link), self.graph.ends(link).1);
            let head_start = if next == to { Span::ZERO } else { self.fabric.link(link).head_start(on_link(first)) };
            time = time + spec.delay + self.graph.latency(next) + (spec.rate.time_of(on_link(first)) - head_start);
            let width = if next == to { width(self.table.first_hops(to, from).0) } else { width(ports) };
            at_slowest = at_slowest.max(spec.rate.time_of(rest / width));
            if next == to {
                return Some(time + at_slowest);
            }
            (node, ports) = (next, self.table.next_hops(self.graph.switch_index(next)?, to).0);
        }
    }

    fn transport_mut(&mut self, host: NodeId) -> &mut TransportHost {
        let settings = &self.settings.transports;
        let new = || Box::new(TransportHost::with_classes(settings.clone()));
        self.hosts[host.index()].transport.get_or_insert_with(new)
    }

    pub(crate) fn receive_segment(&mut self, host: NodeId, packet: Packet) {
        if !self.hosts[host.index()].is_silent {
            let (now, ecn) = (self.fabric.now, packet.flags.ecn());
            self.hosts[host.index()].charge(now, packet.bytes);
            let settings = &self.settings.transports;
            let new = || Box::new(TransportHost::with_classes(settings.clone()));
            let transport = self.hosts[host.index()].transport.get_or_insert_with(new);
            let (bytes, wire_len) = self.fabric.payloads.get(packet.payload);
            match packet.bytes < self.fabric.framing.bytes_on_link(wire_len) {
                true => transport.handle_trimmed(now, packet.src, bytes),
                false => transport.handle_packet(now, (packet.src, packet.lane), bytes, ecn),
            }
            self.count(host);
            self.note_flows(host);
            self.feed(host);
        }
        self.fabric.payloads.release(packet.payload);
    }

    /// Counts the flows that began and ended at a host.
    pub(crate) fn count(&mut self, host: NodeId) {
        if let Some(transport) = &mut self.hosts[host.index()].transport {
            let balance = transport.take_balance();
            self.open += balance.opened;
            self.open -= balance.closed;
        }
    }

    /// Makes all hosts stop sending and receiving.
    pub fn silence(&mut self) {
        for host in &mut self.hosts {
            self.open -= host.silence(&mut self.fabric);
        }
        for endpoint in &mut self.traffic.endpoints {
            endpoint.silence();
        }
    }
}
