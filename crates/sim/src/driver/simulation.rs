//! The main loop.

use tributary_control::trees::TreePlanner;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::switch::MIN_TRANSMIT_LEN;
use tributary_proto::contract::time::Time;

use super::actions::Action;
use super::cluster::Cluster;
use super::failed::Failures;
use super::flows::{FlowId, Flows};
use super::host::{Background, HostNode};
use super::install::Program;
use super::jobs::{JobIndex, Jobs};
use super::losses::Gone;
use super::noise::Noise;
use super::occupancy::SwitchMetrics;
use super::seat::{HostSeat, HostSeatId, Scratch};
use super::shared::{SharedSettings, Sharer};
use super::switch::SwitchNode;
use crate::events::{Event, EventId, EventKind, TimerTable};
use crate::net::{Fabric, Framing, LosslessSpec, Origin, Packet};
use crate::routing::{Balancing, Chooser, Table, default_divisors};
use crate::topology::Graph;
use crate::topology::LinkId;
use crate::transport::TransportSettings;
use crate::workload::permutation;

/// The settings of a simulation besides its graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The seed of everything random.
    pub seed: u64,
    /// How switches choose among paths.
    pub balancing: Balancing,
    /// The most bytes that wait in a host's NIC; one packet more may be on its way out.
    pub nic_bytes: u64,
    /// The bytes of a packet on a link besides its UDP payload.
    pub framing: Framing,
    /// When PAUSE keeps queues from overflowing; `None` if there is no PAUSE.
    pub lossless: Option<LosslessSpec>,
    /// The common settings of flows under DCTCP.
    pub transport: TransportSettings,
    /// The settings of memory that a protocol's jobs share in a switch.
    pub shared: SharedSettings,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            balancing: Balancing::Ecmp,
            nic_bytes: 16 << 10,
            framing: Framing::ETHERNET,
            lossless: None,
            transport: TransportSettings::default(),
            shared: SharedSettings::default(),
        }
    }
}

/// The traffic of hosts.
#[derive(Default)]
pub struct Traffic {
    /// Members of jobs.
    pub seats: Vec<HostSeat>,
    /// Jobs.
    pub jobs: Jobs,
    /// Messages without a protocol.
    pub flows: Flows,
    /// The buffer in which machines write.
    pub scratch: Scratch,
}

/// A network with its hosts and switches, at one time.
pub struct Simulation {
    /// Links, packets, events.
    pub fabric: Fabric,
    /// Jobs and messages.
    pub traffic: Traffic,
    pub(super) settings: Settings,
    pub(super) graph: Graph,
    pub(super) table: Table,
    /// The network in which trees are planned.
    pub(super) network: TreePlanner,
    pub(super) hosts: Vec<HostNode>,
    pub(super) switches: Vec<SwitchNode>,
    /// For each link, the first seat of the host at its far end.
    pub(super) seat_behind: Vec<u32>,
    pub(super) seat_timers: TimerTable,
    pub(super) node_timers: TimerTable,
    pub(super) plans: Vec<Action>,
    pub(super) plan_times: Vec<Time>,
    pub(super) plans_done: u64,
    pub(super) programs: Vec<Program>,
    pub(super) sharers: Vec<Sharer>,
    pub(super) gone: Gone,
    pub(super) failures: Failures,
    pub(super) cluster: Option<Box<Cluster>>,
    /// The metrics of jobs that have left.
    pub(super) past_metrics: Vec<SwitchMetrics>,
    /// The most memory that programs of one switch held at any measurement.
    pub(super) most_memory: usize,
    pub(super) open: u64,
    pub(super) events: u64,
}

impl Simulation {
    /// The network of a checked graph, at rest.
    pub fn new(graph: Graph, settings: Settings) -> Simulation {
        let mut fabric = Fabric::new(&graph, settings.framing, settings.seed);
        settings.lossless.into_iter().for_each(|spec| fabric.set_lossless(spec, &graph));
        let hosts = (0..graph.hosts()).map(|host| HostNode::new(NodeId(host), &fabric, settings.nic_bytes)).collect();
        let table = Table::new(&graph, |_| true);
        let names = (0..graph.nodes() as u32).map(|node| graph.name(NodeId(node))).collect();
        let network = TreePlanner::new(graph.cabling(), names);
        let divisors = default_divisors(&graph);
        let switches = (0..graph.switches())
            .map(|index| {
                let node = graph.switch(index);
                let divisor = divisors[usize::from(graph.level(node))];
                SwitchNode::new(node, index, Chooser::new(settings.balancing, settings.seed, index, divisor))
            })
            .collect();
        Simulation {
            seat_behind: vec![u32::MAX; fabric.links().len()],
            fabric,
            traffic: Traffic { scratch: vec![0; MIN_TRANSMIT_LEN], ..Traffic::default() },
            table,
            network,
            hosts,
            switches,
            seat_timers: TimerTable::new(0),
            node_timers: TimerTable::new(graph.nodes()),
            plans: Vec::new(),
            plan_times: Vec::new(),
            plans_done: 0,
            programs: Vec::new(),
            sharers: Vec::new(),
            gone: Gone::default(),
            failures: Failures::default(),
            cluster: None,
            past_metrics: Vec::new(),
            most_memory: 0,
            open: 0,
            events: 0,
            settings,
            graph,
        }
    }

    /// The network's shape.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// A message of so many bytes on a link, framing included, arises at its sender now.
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

    /// Sets the noise of a host.
    pub fn set_noise(&mut self, host: NodeId, noise: Option<Noise>) {
        self.hosts[host.index()].noise = noise.map(Box::new);
    }

    /// Makes all hosts stop sending and receiving.
    pub fn silence(&mut self) {
        for host in &mut self.hosts {
            self.open -= host.silence();
        }
        for seat in &mut self.traffic.seats {
            seat.silence();
        }
    }

    /// The most memory that the programs of one switch hold, or have held before a job left, in bytes.
    pub fn switch_memory_bytes(&self) -> usize {
        let mut bytes = vec![0; self.switches.len()];
        let own = |program: &&Program| program.is_there() && self.fabric.owns(self.graph.switch(program.switch));
        for program in self.programs.iter().filter(own) {
            bytes[program.switch as usize] += program.memory_bytes(&self.switches[program.switch as usize]);
        }
        let own = |(_, switch): &(&mut usize, &SwitchNode)| self.fabric.owns(switch.exits.node);
        for (bytes, switch) in bytes.iter_mut().zip(&self.switches).filter(own) {
            *bytes += switch.shared().map(|(.., bytes)| bytes).sum::<usize>();
        }
        bytes.into_iter().max().unwrap_or(0).max(self.most_memory)
    }

    /// How many messages and ranks of jobs are not finished.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Plans an action for a time that has not come.
    pub fn plan(&mut self, time: Time, action: Action) {
        self.fabric.queue.push(time, EventId::new(EventKind::Plan, self.plans.len() as u32));
        self.plans.push(action);
        self.plan_times.push(time);
    }

    /// Runs until all messages and jobs are finished, or until `end`; true if all are finished.
    pub fn run_until_finished(&mut self, end: Time) -> bool {
        while self.open > 0 && self.step(end) {}
        self.open == 0
    }

    /// Runs until no event is left, or until `end`; true if events are left.
    pub fn run(&mut self, end: Time) -> bool {
        while self.step(end) {}
        !self.fabric.queue.is_empty() || self.next_timer().is_some()
    }

    /// Runs the next event, if it comes by `end`.
    #[inline]
    pub fn step(&mut self, end: Time) -> bool {
        let next = self.fabric.queue.peek();
        let soonest = self.seat_timers.not_before().min(self.node_timers.not_before());
        let timer = if next.is_some_and(|event| event.time <= soonest) { None } else { self.next_timer() };
        match next {
            Some(event) if timer.is_none_or(|timer| event.time <= timer) => {
                if event.time > end {
                    return false;
                }
                self.fabric.queue.take(event);
                self.fabric.now = event.time;
                self.events += 1;
                self.prefetch();
                self.handle(event);
            }
            _ => {
                let Some(timer) = timer.filter(|&timer| timer <= end) else { return false };
                // The NIC may have kept a machine waiting beyond its timer.
                self.fabric.now = self.fabric.now.max(timer);
                self.events += 1;
                self.handle_timer(self.fabric.now);
            }
        }
        true
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
                self.hosts[event.id.number() as usize].nic_ready(self.fabric.now);
                self.feed(NodeId(event.id.number()));
            }
            EventKind::Stray => {
                let link = LinkId(event.id.number());
                if let Some(packet) = self.fabric.arrive_stray(link) {
                    self.deliver(link, packet);
                }
            }
            EventKind::Source => self.submit(HostSeatId(event.id.number())),
            EventKind::Plan => self.act(event.id.number()),
            EventKind::Departure => {
                let link = LinkId(event.id.number());
                self.fabric.depart(link);
                let near = self.fabric.link(link).from;
                if near.index() < self.hosts.len() {
                    self.feed(near);
                }
            }
            EventKind::Pause => self.fabric.heed(LinkId(event.id.number())),
            EventKind::Look => self.look(HostSeatId(event.id.number())),
        }
    }

    #[inline]
    fn deliver(&mut self, from: LinkId, packet: Packet) {
        let to = self.fabric.link(from).to;
        let Some(switch) = self.switches.get_mut(to.index().wrapping_sub(self.hosts.len())) else {
            return self.receive(to, packet);
        };
        if packet.dst != to && !packet.flags.every_hop() {
            return switch.exits.forward(&mut self.fabric, &self.table, Origin::Link(from), packet);
        }
        switch.process(&mut self.fabric, &self.table, from, packet, &mut self.traffic.scratch);
        self.node_timers.set(to.0, switch.next_timeout(packet.lane, self.node_timers.armed(to.0)));
        self.look_for_failures(to.0 - self.hosts.len() as u32);
    }

    #[inline]
    fn receive(&mut self, host: NodeId, packet: Packet) {
        self.fabric.taken(host, &packet);
        match JobIndex::of_flow(packet.flow) {
            None if FlowId(packet.flow).is_of_transport() => self.receive_segment(host, packet),
            None => {
                let complete = self.traffic.flows.receive(FlowId(packet.flow), packet.bytes, self.fabric.now);
                self.open -= u64::from(complete);
                if FlowId(packet.flow) == FlowId::BACKGROUND {
                    self.hosts[host.index()].receive_background(&mut self.fabric, &packet);
                }
            }
            Some(job) => self.receive_of_job(host, job, packet),
        }
    }

    /// Fills a host's NIC, and sets the timers of machines that have sent.
    pub(super) fn feed(&mut self, host: NodeId) {
        self.hosts[host.index()].fill_nic(&mut self.fabric, &mut self.traffic);
        self.rearm(host);
    }

    fn act(&mut self, number: u32) {
        let action = self.plans[number as usize];
        self.plans_done += 1;
        self.carry_out(action);
    }
}
