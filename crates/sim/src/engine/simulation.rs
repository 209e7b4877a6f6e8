//! The main loop.
//!
//! The machines of a thousand hosts, with their slots, are more than the inner caches hold, and each event is another
//! host's. The next events are known, so waiting for memory can overlap with the work on earlier events: first the
//! endpoint is prefetched, then its machine, then what the machine has on the heap, and at last, when the packet's own
//! memory is there, the packet's slot.

use std::sync::Arc;

use tributary_control::trees::TreePlanner;
use tributary_numeric::prefetch;
use tributary_proto::contract::host::Upcoming;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::switch::MIN_TRANSMIT_LEN;
use tributary_proto::contract::time::{Span, Time};

use super::accelerator::{Accelerator, InAccelerator};
use super::cluster::Cluster;
use super::endpoint::Endpoint;
use super::faults::{Action, Failures, PermanentLosses, Schedule};
use super::host::HostNode;
use super::nics::Nics;
use super::program::{Programs, SharedSettings};
use super::records::{EndpointId, JobIndex};
use super::step_graph::StepGraphs;
use super::switch::SwitchNode;
use super::traffic::{FlowId, Traffic};
use crate::events::{Event, EventId, EventKind, TimerTable};
use crate::net::{Fabric, Framing, LosslessSpec, Origin, Packet, Service, SharedBuffer};
use crate::routing::{Balancing, Chooser, Table, default_divisors};
use crate::topology::{Graph, LinkId};
use crate::transport::{BEYOND_UDP, TransportSettings};

/// How many events ahead each of these is fetched. Between two of them there is time enough for main memory, because
/// each is found through the one before.
const ENDPOINTS_AHEAD: usize = 7;
const MACHINES_AHEAD: usize = 6;
const HEAPS_AHEAD: usize = 4;
const SLOTS_AHEAD: usize = 1;

/// The settings of a simulation besides its graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The seed of everything random.
    pub seed: u64,
    /// How switches choose among paths: for jobs' packets, and for others'.
    pub balancing: [Balancing; 2],
    /// The most bytes that wait in a host's NIC; one packet more may be on its way out.
    pub nic_bytes: u64,
    /// The bytes of a packet on a link besides its UDP payload.
    pub framing: Framing,
    /// When PAUSE keeps queues from overflowing; `None` if there is no PAUSE.
    pub lossless: Option<LosslessSpec>,
    /// The buffer that a switch's queues share; `None` if each has its own.
    pub shared_buffer: Option<SharedBuffer>,
    /// Which class of packets switches send first; `None`: first come, first served.
    pub service: Option<Service>,
    /// Switches that serve classes send headers on of data that does not fit.
    pub trim: bool,
    /// Switches forward a packet when its head has come in.
    pub cut_through: bool,
    /// The settings of flows, by class: 0 is that of `[transport]`, others belong to patterns with settings of their own.
    pub transports: Arc<[TransportSettings]>,
    /// The settings of memory that a protocol's jobs share in a switch.
    pub shared: SharedSettings,
    /// What packets pass before a switch's programs, if that takes time.
    pub accelerator: Option<Accelerator>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            balancing: [Balancing::Ecmp; 2],
            nic_bytes: 16 << 10,
            framing: Framing::ETHERNET,
            lossless: None,
            shared_buffer: None,
            service: None,
            trim: false,
            cut_through: false,
            transports: [TransportSettings::default()].into(),
            shared: SharedSettings::default(),
            accelerator: None,
        }
    }
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
    /// For each link, the first endpoint of the host at its far end.
    pub(super) first_endpoint: Vec<u32>,
    pub(super) endpoint_timers: TimerTable,
    pub(super) node_timers: TimerTable,
    pub(super) schedule: Schedule,
    pub(super) programs: Programs,
    pub(super) lost: PermanentLosses,
    pub(super) failures: Failures,
    pub(super) cluster: Option<Box<Cluster>>,
    pub(crate) steps: StepGraphs,
    pub(super) open: u64,
    pub(super) events: u64,
}

impl Simulation {
    /// The network of a checked graph, at rest.
    pub fn new(graph: Graph, settings: Settings) -> Simulation {
        let mut fabric = Fabric::new(&graph, settings.framing, settings.seed);
        settings.lossless.into_iter().for_each(|spec| fabric.set_lossless(spec, &graph));
        settings.shared_buffer.into_iter().for_each(|buffer| fabric.set_shared_buffer(buffer, &graph));
        settings.service.iter().for_each(|service| fabric.set_service(service.clone(), &graph));
        if settings.trim {
            fabric.set_trimming(settings.framing.bytes_on_link(BEYOND_UDP));
        }
        if settings.cut_through {
            fabric.set_cut_through(&graph);
        }
        let new_host = |host| {
            let nics = Nics::new(host, &fabric, settings.nic_bytes, settings.balancing, settings.seed);
            HostNode::new(host, &fabric, settings.nic_bytes, nics)
        };
        let hosts = (0..graph.hosts()).map(NodeId).map(new_host).collect();
        let table = Table::new(&graph, |_| true);
        let names = (0..graph.nodes() as u32).map(|node| graph.name(NodeId(node))).collect();
        let network = TreePlanner::new(graph.cabling(), names);
        let divisors = default_divisors(&graph);
        let switches = (0..graph.switches())
            .map(|index| {
                let node = graph.switch(index);
                let divisor = divisors[usize::from(graph.level(node))];
                let chooser = Chooser::new(settings.balancing, settings.seed, index, divisor);
                let ports = fabric.ports(node).len();
                let accelerator = settings.accelerator.map(|kind| Box::new(InAccelerator::new(kind, ports)));
                SwitchNode { accelerator, ..SwitchNode::new(node, index, chooser) }
            })
            .collect();
        Simulation {
            first_endpoint: vec![u32::MAX; fabric.links().len()],
            fabric,
            traffic: Traffic { scratch: vec![0; MIN_TRANSMIT_LEN], ..Traffic::default() },
            table,
            network,
            hosts,
            switches,
            endpoint_timers: TimerTable::new(0),
            node_timers: TimerTable::new(graph.nodes()),
            schedule: Schedule::default(),
            programs: Programs::default(),
            lost: PermanentLosses::default(),
            failures: Failures::default(),
            cluster: None,
            steps: StepGraphs::default(),
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

    /// The most that a packet waits before a switch's programs while nothing else does, in any switch.
    pub fn accelerator_latency(&self) -> Span {
        let ports = self.switches.iter().map(|switch| self.fabric.ports(switch.forwarding.node).len()).max();
        self.settings.accelerator.map_or(Span::ZERO, |kind| kind.longest(ports.unwrap_or(0)))
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many messages and ranks of jobs are not finished.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Plans an action for a later time.
    pub fn plan(&mut self, time: Time, action: Action) {
        let number = self.schedule.add(time, action);
        self.fabric.queue.push(time, EventId::new(EventKind::Action, number));
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
        let soonest = self.endpoint_timers.not_before().min(self.node_timers.not_before());
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
            EventKind::LateArrival => {
                let link = LinkId(event.id.number());
                if let Some(packet) = self.fabric.arrive_reordered(link) {
                    self.deliver(link, packet);
                }
            }
            EventKind::Submit => self.submit(EndpointId(event.id.number())),
            EventKind::Action => self.run_action(event.id.number()),
            EventKind::Departure => {
                let link = LinkId(event.id.number());
                self.fabric.depart(link);
                let near = self.fabric.link(link).from;
                if near.index() < self.hosts.len() {
                    self.feed(near);
                }
            }
            EventKind::PauseOrder => self.fabric.handle_order(LinkId(event.id.number())),
            EventKind::ProgressCheck => self.check_progress(EndpointId(event.id.number())),
            EventKind::StepWake => self.wake_step(event.id.number()),
        }
    }

    #[inline]
    fn deliver(&mut self, from: LinkId, packet: Packet) {
        let to = self.fabric.link(from).to;
        let Some(switch) = self.switches.get_mut(to.index().wrapping_sub(self.hosts.len())) else {
            return self.receive(to, packet);
        };
        if packet.dst != to && !packet.flags.every_hop() {
            return switch.forwarding.forward(&mut self.fabric, &self.table, Origin::Link(from), packet);
        }
        switch.process(&mut self.fabric, &self.table, from, packet, &mut self.traffic.scratch);
        self.node_timers.set(to.0, switch.next_timeout(packet.lane, self.node_timers.armed(to.0)));
        self.check_operators(to.0 - self.hosts.len() as u32);
    }

    #[inline]
    fn receive(&mut self, host: NodeId, packet: Packet) {
        self.fabric.record_delivered(host, &packet);
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
        self.hosts[host.index()].fill_nic(&mut self.fabric, &self.table, &mut self.traffic);
        self.rearm(host);
    }

    fn run_action(&mut self, number: u32) {
        let action = self.schedule.take(number);
        self.carry_out(action);
    }

    /// Fetches the memory that the next events will touch.
    #[inline]
    fn prefetch(&self) {
        self.fabric.prefetch();
        if !self.traffic.endpoints.is_empty() {
            self.prefetch_endpoints();
        }
    }

    #[inline]
    fn prefetch_endpoints(&self) {
        if let Some((endpoint, _)) = self.upcoming_endpoint(ENDPOINTS_AHEAD) {
            prefetch::whole(&self.hosts[endpoint.host.index()]);
            prefetch::whole(endpoint);
        }
        if let Some((endpoint, _)) = self.upcoming_endpoint(MACHINES_AHEAD) {
            prefetch::whole(&*endpoint.machine);
            let host = &self.hosts[endpoint.host.index()];
            prefetch::whole(&*host.endpoints);
            prefetch::first_line(self.fabric.link(host.uplink));
        }
        if let Some((endpoint, _)) = self.upcoming_endpoint(HEAPS_AHEAD) {
            endpoint.machine.prefetch(Upcoming::Something);
        }
        if let Some((endpoint, link)) = self.upcoming_endpoint(SLOTS_AHEAD) {
            let upcoming = match link {
                Some(link) => self.fabric.front_payload(link).map(Upcoming::Packet),
                None => Some(Upcoming::Transmit),
            };
            upcoming.into_iter().for_each(|upcoming| endpoint.machine.prefetch(upcoming));
        }
    }

    /// The first endpoint of the host whose event comes `ahead` events after the next one, and the link if a packet arrives.
    #[inline]
    fn upcoming_endpoint(&self, ahead: usize) -> Option<(&Endpoint, Option<LinkId>)> {
        let id = self.fabric.queue.upcoming(ahead)?;
        let (link, arriving) = match id.kind() {
            EventKind::Arrival => (LinkId(id.number()), Some(LinkId(id.number()))),
            EventKind::Departure => (LinkId(id.number()).reverse(), None),
            _ => return None,
        };
        Some((self.traffic.endpoints.get(self.first_endpoint[link.index()] as usize)?, arriving))
    }
}
