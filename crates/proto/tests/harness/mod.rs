//! A network in virtual time for tests of the machines: one thread, one seed, one order of events.
//!
//! A star of hosts round a switch, or a tree of switches with hosts at its leaves. A switch forwards what workers send
//! to one another, and hands what is sent to `Addr::Switch(shard)` to the pipeline of that shard. On a switch, port `i`
//! leads to its `i`-th child, hosts first, and the port after the last child to its parent; group 0 is all children.
//!
//! Drive it with [`Network::submit_at`] and [`Network::run_until`] or [`Network::run_until_idle`]; between runs, break
//! things. Links count bytes with [`link::FRAMING`]; processing takes no time.
#![allow(dead_code)] // Each test binary uses its own part.

pub mod encoded;
pub mod events;
pub mod fabric;
pub mod fate;
pub mod golden;
pub mod hosts;
pub mod link;
pub mod nodes;
pub mod reduction;
pub mod sparse;

use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent, SubmitError};
use tributary_proto::contract::ids::{GroupId, JobId, OpId, PortId, Rank, ServerId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::{Span, Time};

use events::{Event, EventQueue};
use link::{Link, LinkConfig, SplitMix};
use nodes::{HostNode, Node, Port, Queues, SwitchNode, TraceEntry, hash};

/// A packet on a link.
#[derive(Clone)]
pub struct Flight {
    pub route: Route,
    pub bytes: Vec<u8>,
    pub wire_len: usize,
    pub ecn: Ecn,
}

/// Where a packet is on its way to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The pipeline of this shard in the next switch.
    Shard(TreeId),
    /// A host, that sees it come from `from`.
    Host { to: usize, from: Addr },
}

/// The whole network.
pub struct Network {
    pub now: Time,
    pub hosts: Vec<HostNode>,
    pub switches: Vec<SwitchNode>,
    /// Every packet put on a link, if recording.
    pub trace: Option<Vec<TraceEntry>>,
    /// The host of server 0; 0 where every worker's host is a server besides.
    pub first_server: usize,
    /// Hosts' timers fire at multiples of this: late, as a kernel's do. Zero for on time.
    pub timer_grain: Span,
    queue: EventQueue,
    of_hosts: HostRecorder,
    of_switches: SwitchRecorder,
}

impl Network {
    /// Hosts round one switch that has these pipelines, one a shard. An empty vector makes a plain forwarder.
    pub fn star(seed: u64, link: LinkConfig, hosts: Vec<Box<dyn Host>>, pipelines: Vec<Pipeline>) -> Network {
        Network::tree(seed, link, hosts, |_| 0, vec![(pipelines, None)])
    }

    /// Hosts at the leaves of a tree. `leaf_of` names each host's switch; each switch has its pipelines and the index
    /// of its parent. Children of a switch: its hosts in ascending order, then its switches in ascending order.
    pub fn tree(
        seed: u64,
        link: LinkConfig,
        hosts: Vec<Box<dyn Host>>,
        leaf_of: impl Fn(usize) -> usize,
        switches: Vec<(Vec<Pipeline>, Option<usize>)>,
    ) -> Network {
        let mut seeds = SplitMix(seed);
        let mut new_link = || Link::new(link, seeds.next());
        let parents: Vec<Option<usize>> = switches.iter().map(|(_, parent)| *parent).collect();
        let mut net_switches: Vec<SwitchNode> =
            switches.into_iter().map(|(pipelines, _)| SwitchNode::new(pipelines)).collect();
        let mut net_hosts = Vec::new();
        for (index, machine) in hosts.into_iter().enumerate() {
            let leaf = leaf_of(index);
            let port = net_switches[leaf].add_port(Node::Host(index), PortId(0), new_link());
            net_hosts.push(HostNode::new(machine, Port::new(Node::Switch(leaf), port, new_link())));
        }
        for (index, parent) in parents.iter().enumerate() {
            if let Some(parent) = *parent {
                // The port towards the parent comes after all children; its number is known once they are counted.
                net_switches[parent].add_port(Node::Switch(index), PortId::UNKNOWN, new_link());
            }
        }
        for node in &mut net_switches {
            node.groups.insert(GroupId(0), (0..node.ports.len()).map(|port| PortId(port as u16)).collect());
        }
        for (index, parent) in parents.iter().enumerate() {
            if let Some(parent) = *parent {
                let child_port = net_switches[parent].port_to(Node::Switch(index)).expect("added above");
                let up = net_switches[index].add_port(Node::Switch(parent), child_port, new_link());
                net_switches[index].parent = Some(up);
                net_switches[parent].ports[child_port.index()].peer_port = up;
            }
        }
        let mut network = Network {
            now: Time::ZERO,
            hosts: net_hosts,
            switches: net_switches,
            trace: None,
            first_server: 0,
            timer_grain: Span::ZERO,
            queue: EventQueue::default(),
            of_hosts: HostRecorder::default(),
            of_switches: SwitchRecorder::default(),
        };
        (0..network.hosts.len()).for_each(|host| network.drain_host(host));
        (0..network.switches.len()).for_each(|switch| network.arm_switch(switch));
        network
    }

    /// Records every packet from here on.
    pub fn record_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// Changes every link from here on, both directions.
    pub fn set_links(&mut self, change: impl Fn(&mut LinkConfig)) {
        self.hosts.iter_mut().for_each(|host| change(&mut host.port.link.config));
        self.switches.iter_mut().flat_map(|switch| &mut switch.ports).for_each(|port| change(&mut port.link.config));
    }

    /// Submits at once.
    pub fn submit(&mut self, host: usize, collective: Collective) -> Result<OpId, SubmitError> {
        let outcome = self.hosts[host].machine.submit(self.now, collective);
        self.drain_host(host);
        outcome
    }

    /// Submits when the time has come: a straggler, if that is late. It must be accepted then.
    pub fn submit_at(&mut self, at: Time, host: usize, collective: Collective) {
        self.queue.push(at, Event::Submit { host, collective });
    }

    /// The driver of a host gives up all that is queued there.
    pub fn abort(&mut self, host: usize) {
        self.hosts[host].machine.abort(self.now);
        self.drain_host(host);
    }

    /// Drains a host that was told something behind the network's back.
    pub fn kick(&mut self, host: usize) {
        self.drain_host(host);
    }

    /// From here on the host says and hears nothing.
    pub fn kill_host(&mut self, host: usize) {
        self.hosts[host].alive = false;
    }

    /// From here on the switch passes nothing; its state is lost.
    pub fn kill_switch(&mut self, switch: usize) {
        self.switches[switch].alive = false;
        self.switches[switch].pipelines.clear();
    }

    /// The switch is back, with these pipelines.
    pub fn restart_switch(&mut self, switch: usize, pipelines: Vec<Pipeline>) {
        self.switches[switch].alive = true;
        self.switches[switch].pipelines = pipelines;
        self.arm_switch(switch);
    }

    /// The job has this many slots in each shard of a switch from here on.
    pub fn resize(&mut self, switch: usize, job: JobId, slots: u16) {
        for shard in 0..self.switches[switch].pipelines.len() {
            let pipeline = &mut self.switches[switch].pipelines[shard];
            assert!(pipeline.resize(job, slots), "it is installed");
            self.of_switches.timeout(pipeline, self.now);
            self.send_made(switch, TreeId(shard as u16));
        }
        self.arm_switch(switch);
    }

    /// Any bytes reach a host now, as if from `from`.
    pub fn inject_to_host(&mut self, host: usize, from: Addr, bytes: &[u8]) {
        let route = Route::Host { to: host, from };
        let flight = Flight { route, bytes: bytes.to_vec(), wire_len: bytes.len(), ecn: Ecn::NotCapable };
        self.queue.push(self.now, Event::Arrive { node: Node::Host(host), port: PortId(0), flight });
    }

    /// Any bytes reach a shard of a switch now, through `ingress`; those of an unauthorised client come from
    /// [`PortId::UNKNOWN`].
    pub fn inject_to_switch(&mut self, switch: usize, shard: TreeId, ingress: PortId, bytes: &[u8]) {
        let route = Route::Shard(shard);
        let flight = Flight { route, bytes: bytes.to_vec(), wire_len: bytes.len(), ecn: Ecn::NotCapable };
        self.queue.push(self.now, Event::Arrive { node: Node::Switch(switch), port: ingress, flight });
    }

    /// Runs until nothing is under way and no timer is set, or the limit; what each host told its caller since the
    /// last call.
    pub fn run_until_idle(&mut self, limit: Time) -> Vec<Vec<HostEvent>> {
        while self.step(limit) {}
        self.hosts.iter_mut().map(|host| std::mem::take(&mut host.events)).collect()
    }

    /// When the last host was told the last thing: the completion time, where `now` may be that of an idle timer.
    pub fn last_event(&self) -> Time {
        self.hosts.iter().map(|host| host.last_event).max().unwrap_or_default()
    }

    /// Runs to a point in time, which is `now` afterwards. Events stay with the hosts until `run_until_idle`.
    pub fn run_until(&mut self, at: Time) {
        while self.step(at) {}
        self.now = self.now.max(at);
    }

    /// One event, if one is due by `limit`.
    fn step(&mut self, limit: Time) -> bool {
        let Some((at, event)) = self.queue.pop_until(limit) else { return false };
        self.now = at;
        match event {
            Event::Arrive { node: Node::Host(host), flight, .. } => self.arrive_at_host(host, flight),
            Event::Arrive { node: Node::Switch(switch), port, flight } => self.arrive_at_switch(switch, port, flight),
            Event::Submit { host, collective } => {
                if self.hosts[host].alive {
                    self.hosts[host].machine.submit(at, collective).expect("a submission that is not refused");
                    self.drain_host(host);
                }
            }
            Event::Timer { node: Node::Host(host) } => {
                let node = &mut self.hosts[host];
                if node.alive && node.timer.take_if(|due| *due == at).is_some() {
                    self.of_hosts.timeout(&mut *node.machine, at);
                    self.drain_host(host);
                }
            }
            Event::Timer { node: Node::Switch(switch) } => {
                let node = &mut self.switches[switch];
                if node.alive && node.timer.take_if(|due| *due == at).is_some() {
                    for shard in 0..node.pipelines.len() {
                        self.of_switches.timeout(&mut self.switches[switch].pipelines[shard], at);
                        self.send_made(switch, TreeId(shard as u16));
                    }
                    self.arm_switch(switch);
                }
            }
        }
        true
    }

    fn arrive_at_host(&mut self, host: usize, flight: Flight) {
        let Route::Host { to, from } = flight.route else { return };
        let node = &mut self.hosts[host];
        if to != host || !node.alive {
            return;
        }
        let packet = Packet { bytes: &flight.bytes, wire_len: flight.wire_len, ecn: flight.ecn };
        self.of_hosts.packet(&mut *node.machine, self.now, from, packet);
        self.drain_host(host);
    }

    /// Puts on the link what a host wants sent, keeps what it says, and sets its timer.
    fn drain_host(&mut self, host: usize) {
        let due = self.of_hosts.drain(&mut *self.hosts[host].machine, self.now);
        let from = match host.checked_sub(self.first_server) {
            Some(server) if self.first_server > 0 => Addr::Server(ServerId(server as u16)),
            // Also where it is a server besides: its address says no more.
            _ => Addr::Worker(Rank(host as u16)),
        };
        for Made { to, bytes, wire_len, ecn } in std::mem::take(&mut self.of_hosts.sent) {
            let route = match to {
                Addr::Switch(shard) => Route::Shard(shard),
                // The first of the switches on the way, all of which handle it.
                Addr::Node(_) => Route::Shard(TreeId(0)),
                Addr::Worker(worker) => Route::Host { to: worker.index(), from },
                Addr::Server(server) => Route::Host { to: self.first_server + server.index(), from },
            };
            self.send(Node::Host(host), PortId(0), Flight { route, bytes, wire_len, ecn });
        }
        let node = &mut self.hosts[host];
        for event in self.of_hosts.events.drain(..) {
            node.events.push(event);
            node.last_event = self.now;
        }
        let grain = self.timer_grain.0.max(1);
        let due = due.map(|due| Time(due.max(self.now).0.div_ceil(grain) * grain));
        if due != node.timer {
            node.timer = due;
            due.inspect(|&due| self.queue.push(due, Event::Timer { node: Node::Host(host) }));
        }
    }

    fn arrive_at_switch(&mut self, switch: usize, ingress: PortId, flight: Flight) {
        if !self.switches[switch].alive {
            return;
        }
        match flight.route {
            Route::Host { to, .. } => {
                if let Some(port) = self.port_towards(switch, to) {
                    self.send(Node::Switch(switch), port, flight);
                }
            }
            Route::Shard(shard) => self.process(switch, shard, ingress, flight),
        }
    }

    fn process(&mut self, switch: usize, shard: TreeId, ingress: PortId, mut flight: Flight) {
        let node = &mut self.switches[switch];
        let Some(pipeline) = node.pipelines.get_mut(shard.index()) else { return };
        let len = flight.bytes.len();
        let mut packet = PacketMut { bytes: &mut flight.bytes, len, wire_len: flight.wire_len, ecn: flight.ecn };
        let queues = Queues { ports: &node.ports, now: self.now };
        let verdict = self.of_switches.packet(pipeline, self.now, ingress, &mut packet, &queues);
        let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
        flight.bytes.truncate(len);
        self.carry_out(switch, shard, verdict, Flight { wire_len, ecn, ..flight });
        self.send_made(switch, shard);
        self.arm_switch(switch);
    }

    /// Sends what the machines of a shard have made by themselves.
    fn send_made(&mut self, switch: usize, shard: TreeId) {
        for Made { to, bytes, wire_len, ecn } in self.of_switches.take() {
            self.carry_out(switch, shard, to, Flight { route: Route::Shard(shard), bytes, wire_len, ecn });
        }
    }

    fn arm_switch(&mut self, switch: usize) {
        let node = &mut self.switches[switch];
        let due = node.pipelines.iter().filter_map(|pipeline| pipeline.poll_timeout()).min();
        let due = due.map(|due| due.max(self.now));
        if due != node.timer {
            node.timer = due;
            due.inspect(|&due| self.queue.push(due, Event::Timer { node: Node::Switch(switch) }));
        }
    }

    /// Does what a verdict says with a packet that a shard let through.
    fn carry_out(&mut self, switch: usize, shard: TreeId, verdict: Verdict, flight: Flight) {
        let ports: Vec<PortId> = match verdict {
            Verdict::Consume | Verdict::Drop(_) => return,
            Verdict::Port(port) => vec![port],
            Verdict::Multicast(set) => set.iter().collect(),
            Verdict::Group(group) => self.switches[switch].groups[&group].clone(),
            Verdict::Route(node) => self.port_towards(switch, node.index()).into_iter().collect(),
        };
        for port in ports {
            // A verdict may name the port of an unauthorised client, which leads nowhere.
            let Some(peer) = self.switches[switch].ports.get(port.index()).map(|port| port.peer) else { continue };
            let route = match peer {
                Node::Host(to) => Route::Host { to, from: Addr::Switch(shard) },
                Node::Switch(_) => Route::Shard(shard),
            };
            self.send(Node::Switch(switch), port, Flight { route, ..flight.clone() });
        }
    }

    fn port_towards(&self, switch: usize, host: usize) -> Option<PortId> {
        let mut below = Node::Host(host);
        let Node::Switch(mut at) = self.hosts.get(host)?.port.peer else { return None };
        while at != switch {
            let Some(up) = self.switches[at].parent else { return self.switches[switch].parent };
            below = Node::Switch(at);
            let Node::Switch(next) = self.switches[at].ports[up.index()].peer else { return None };
            at = next;
        }
        self.switches[switch].port_to(below)
    }

    /// Puts a packet on the link behind a port.
    fn send(&mut self, from: Node, port: PortId, mut flight: Flight) {
        let out = match from {
            Node::Host(host) => &mut self.hosts[host].port,
            Node::Switch(switch) => &mut self.switches[switch].ports[port.index()],
        };
        let (peer, peer_port) = (out.peer, out.peer_port);
        if let Some(trace) = &mut self.trace {
            let (len, hash) = (flight.wire_len, hash(&flight.bytes));
            trace.push(TraceEntry { time: self.now, from, to: peer, wire_len: len, hash });
        }
        out.link.flip(&mut flight.bytes);
        let (arrivals, ecn) = out.link.send(self.now, flight.wire_len, flight.ecn);
        for at in arrivals {
            let flight = Flight { ecn, ..flight.clone() };
            self.queue.push(at, Event::Arrive { node: peer, port: peer_port, flight });
        }
    }
}
