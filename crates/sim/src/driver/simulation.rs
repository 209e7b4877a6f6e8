//! The main loop.

use tributary_proto::host::Collective;
use tributary_proto::ids::NodeId;
use tributary_proto::switch::MIN_TRANSMIT_LEN;
use tributary_proto::time::Time;

use super::flows::{FlowId, Flows};
use super::host::HostNode;
use super::jobs::{JobIndex, Jobs};
use super::seat::{Scratch, Seat, SeatId};
use super::switch::SwitchNode;
use crate::events::{Event, EventId, EventKind, TimerTable};
use crate::net::{Fabric, Framing, LinkId, Packet};
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
    /// What a UDP payload costs on a link.
    pub framing: Framing,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { seed: 1, balancing: Balancing::Ecmp, nic_bytes: 16 << 10, framing: Framing::ETHERNET }
    }
}

/// What hosts send.
#[derive(Default)]
pub struct Traffic {
    /// Members of jobs.
    pub seats: Vec<Seat>,
    /// Jobs.
    pub jobs: Jobs,
    /// Messages without a protocol.
    pub flows: Flows,
    /// Where machines write.
    pub scratch: Scratch,
}

/// A network with its hosts and switches, at one moment.
pub struct Simulation {
    /// Links, packets, events.
    pub fabric: Fabric,
    /// Jobs and messages.
    pub traffic: Traffic,
    pub(super) settings: Settings,
    pub(super) graph: Graph,
    pub(super) table: Table,
    pub(super) hosts: Vec<HostNode>,
    pub(super) switches: Vec<SwitchNode>,
    pub(super) seat_timers: TimerTable,
    switch_timers: TimerTable,
    events: u64,
}

impl Simulation {
    /// The network of a graph that was checked, at rest.
    pub fn new(graph: Graph, settings: Settings) -> Simulation {
        let fabric = Fabric::new(&graph, settings.framing);
        let hosts = (0..graph.hosts()).map(|host| HostNode::new(NodeId(host), &fabric, settings.nic_bytes)).collect();
        let table = Table::new(&graph, |_| true);
        let divisors = default_divisors(&graph);
        let switches = (0..graph.switches())
            .map(|index| {
                let node = graph.switch(index);
                let divisor = divisors[usize::from(graph.level(node))];
                SwitchNode::new(node, index, Chooser::new(settings.balancing, settings.seed, index, divisor))
            })
            .collect();
        Simulation {
            fabric,
            traffic: Traffic { scratch: vec![0; MIN_TRANSMIT_LEN], ..Traffic::default() },
            table,
            hosts,
            switches,
            seat_timers: TimerTable::new(0),
            switch_timers: TimerTable::new(graph.switches() as usize),
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

    /// A message comes up at its sender now.
    pub fn send_message(&mut self, from: NodeId, to: NodeId, packets: u32, packet_bytes: u16) -> FlowId {
        let flow = self.traffic.flows.add(from, to, packets, packet_bytes, self.fabric.now);
        let host = &mut self.hosts[from.index()];
        host.start_flow(flow);
        host.fill_nic(&mut self.fabric, &mut self.traffic);
        flow
    }

    /// Runs until nothing is left to happen, or until `end`; true if something is left.
    pub fn run(&mut self, end: Time) -> bool {
        loop {
            let event = self.fabric.queue.peek();
            let timer = self.seat_timers.earliest().into_iter().chain(self.switch_timers.earliest()).min();
            let Some(next) = event.map(|event| event.time).into_iter().chain(timer).min() else { return false };
            if next > end {
                return true;
            }
            self.fabric.now = next;
            self.events += 1;
            match event {
                Some(event) if event.time == next => {
                    self.fabric.queue.pop();
                    self.fabric.prefetch();
                    self.handle(event);
                }
                _ => self.handle_timers(next),
            }
        }
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
                host.fill_nic(&mut self.fabric, &mut self.traffic);
                self.rearm(NodeId(event.id.number()));
            }
            EventKind::Stray => {
                if let Some((link, packet)) = self.fabric.arrive_stray(event.id.number()) {
                    self.deliver(link, packet);
                }
            }
            EventKind::Source => self.submit(SeatId(event.id.number())),
            EventKind::Plan | EventKind::Departure => {}
        }
    }

    #[inline]
    fn deliver(&mut self, from: LinkId, packet: Packet) {
        let to = self.fabric.link(from).to;
        let Some(switch) = self.switches.get_mut(to.index().wrapping_sub(self.hosts.len())) else {
            return self.receive(to, packet);
        };
        if packet.dst != to {
            return switch.forward(&mut self.fabric, &self.table, packet);
        }
        switch.process(&mut self.fabric, &self.table, from, packet, &mut self.traffic.scratch);
        let due = switch.pipelines[usize::from(packet.lane)].poll_timeout();
        self.switch_timers.set(switch.index, due);
    }

    #[inline]
    fn receive(&mut self, host: NodeId, packet: Packet) {
        self.fabric.taken(host, &packet);
        match JobIndex::of_flow(packet.flow) {
            None => self.traffic.flows.receive(FlowId(packet.flow), self.fabric.now),
            Some(job) => self.receive_of_job(host, job, packet),
        }
    }

    fn receive_of_job(&mut self, host: NodeId, job: JobIndex, packet: Packet) {
        let Traffic { seats, jobs, .. } = &mut self.traffic;
        let seat = self.hosts[host.index()].seats.iter().copied().find(|seat| seats[seat.0 as usize].job == job);
        if let Some(seat) = seat {
            let member = &mut seats[seat.0 as usize];
            if member.alive {
                member.receive(&self.fabric, jobs, &packet);
                self.drain(seat);
            }
        }
        self.fabric.payloads.release(packet.payload);
    }

    /// The drain rule of `proto::host`: transmit as far as the NIC takes it, then events, then the timeout.
    fn drain(&mut self, seat: SeatId) {
        let host = self.traffic.seats[seat.0 as usize].host;
        self.hosts[host.index()].fill_nic(&mut self.fabric, &mut self.traffic);
        self.hear(seat);
        self.rearm(host);
    }

    /// Takes what a machine says to its job.
    fn hear(&mut self, id: SeatId) {
        let Traffic { seats, jobs, .. } = &mut self.traffic;
        let seat = &mut seats[id.0 as usize];
        while let Some(event) = seat.poll_event() {
            let job = jobs.get_mut(seat.job);
            let right = job.hear(seat.rank, event, self.fabric.now);
            if right && seat.submitted < job.plan.iterations {
                let at = self.fabric.now + job.plan.compute;
                self.fabric.queue.push(at, EventId::new(EventKind::Source, id.0));
            }
        }
    }

    /// Sets the timers of a host's machines anew.
    fn rearm(&mut self, host: NodeId) {
        for &seat in &self.hosts[host.index()].seats {
            self.seat_timers.set(seat.0, self.traffic.seats[seat.0 as usize].machine.poll_timeout());
        }
    }

    /// A rank submits its next collective.
    fn submit(&mut self, id: SeatId) {
        let now = self.fabric.now;
        let Traffic { seats, jobs, .. } = &mut self.traffic;
        let seat = &mut seats[id.0 as usize];
        let job = jobs.get_mut(seat.job);
        if !seat.alive || seat.submitted == job.plan.iterations {
            return;
        }
        let deadline = job.plan.timeout.map(|timeout| now + timeout);
        let tensor = Box::new(job.tensor(seat.rank, seat.submitted, now));
        seat.submitted += 1;
        // A job that failed refuses; it has complained already.
        if seat.machine.submit(now, Collective { tensor, deadline }).is_ok() {
            seat.eager = true;
            self.drain(id);
        }
    }

    fn handle_timers(&mut self, now: Time) {
        while let Some(seat) = self.seat_timers.pop_due(now) {
            self.traffic.seats[seat as usize].handle_timeout(now);
            self.drain(SeatId(seat));
        }
        while let Some(index) = self.switch_timers.pop_due(now) {
            let switch = &mut self.switches[index as usize];
            switch.handle_timeout(&mut self.fabric, &self.table, &mut self.traffic.scratch);
            let due = switch.pipelines.iter().filter_map(|pipeline| pipeline.poll_timeout()).min();
            self.switch_timers.set(index, due);
        }
    }
}

/// For each level, by what the destination's number is divided before it chooses a default port: the number of ports
/// upwards of all levels below, so that levels do not all choose by the same digits.
fn default_divisors(graph: &Graph) -> Vec<u32> {
    let (first, links) = graph.ports();
    let highest = (0..graph.switches()).map(|index| graph.level(graph.switch(index))).max().unwrap_or(1);
    let mut divisors = vec![1u32; usize::from(highest) + 1];
    for level in 2..=highest {
        let below = (0..graph.switches()).map(|index| graph.switch(index)).find(|&node| graph.level(node) == level - 1);
        let up_ports = below.map_or(1, |node| {
            let own = &links[first[node.index()] as usize..first[node.index() + 1] as usize];
            own.iter().filter(|&&link| graph.level(graph.ends(link).1) >= level).count() as u32
        });
        divisors[usize::from(level)] = divisors[usize::from(level) - 1].saturating_mul(up_ports.max(1));
    }
    divisors
}
