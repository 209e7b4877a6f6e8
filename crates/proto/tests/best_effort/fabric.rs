//! A fabric in virtual time: hosts and switches by node, cables of one delay, and a say in the fate of every packet.
//!
//! Nodes are numbered hosts first. Every switch on the way handles a packet; what it routes takes the first of the
//! ports on a shortest way.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::aggregation::best_effort::wire::{Header, Kind};
use tributary_proto::contract::config::{FabricPlan, HostConfig, JobConfig, SharedJob, SharedSwitchConfig, TreeLeaf};
use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{JobId, NodeId, PortId, Rank, ServerId};
use tributary_proto::contract::metric::named;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{Lag, NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

pub use crate::cables::{Fate, FateOf, Sent, bad_cables};
use crate::setup::{job, plan, switch, timers};

pub const DELAY: Span = Span::from_nanos(500);

enum Event {
    Arrival { from: NodeId, to: NodeId, bytes: Vec<u8>, ecn: Ecn },
    Submission { host: usize, collective: Collective },
    Timer(NodeId),
}

/// What a test chooses.
#[derive(Clone)]
pub struct Choice<'a> {
    pub protocol: &'static Protocol,
    pub slots: u16,
    /// The last ones of the hosts are servers, and bring nothing.
    pub servers: u16,
    pub job: &'a [(&'a str, &'a str)],
    pub switch: &'a [(&'a str, &'a str)],
}

impl Choice<'_> {
    /// A window of 16 blocks, and what people get who choose nothing.
    pub fn of(protocol: &'static Protocol) -> Choice<'static> {
        Choice { protocol, slots: 16, servers: 0, job: &[], switch: &[] }
    }
}

/// The machine of a rank, or of a server on a host of its own: these are numbered after the ranks.
fn machine(protocol: &'static Protocol, job: &JobConfig, plan: &FabricPlan, rank: Rank) -> Box<dyn Host> {
    let (trees, serves) = (TreeLeaf::of_rank(rank), rank.0.checked_sub(job.world_size).map(ServerId));
    let config = HostConfig { job: job.clone(), rank, trees, serves, timers: timers(), fabric: plan.clone() };
    match serves {
        Some(_) => protocol.server_machine().expect("jobs can have servers")(Values::Elements, &config),
        None => protocol.host(Values::Elements, &config),
    }
}

pub struct Fabric {
    pub now: Time,
    pub hosts: Vec<Box<dyn Host>>,
    pub alive: Vec<bool>,
    pub switches: Vec<Pipeline>,
    pub events: Vec<Vec<HostEvent>>,
    pub fate: FateOf,
    pub sent: Vec<Sent>,
    protocol: &'static Protocol,
    config: SharedSwitchConfig,
    plan: FabricPlan,
    job: JobConfig,
    cables: Vec<Vec<NodeId>>,
    queue: BTreeMap<(Time, u64), Event>,
    timers: Vec<Option<Time>>,
    serial: u64,
    of_hosts: HostRecorder,
    of_switches: SwitchRecorder,
}

impl Fabric {
    /// Hosts round one switch.
    pub fn star(hosts: u32, choice: &Choice<'_>) -> Fabric {
        Fabric::leaf_spine(1, 0, hosts, choice)
    }

    /// Leaves with hosts, each joined to every spine.
    pub fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32, choice: &Choice<'_>) -> Fabric {
        let hosts = leaves * per_leaf;
        let mut cables = vec![Vec::new(); (hosts + leaves + spines) as usize];
        let mut join = |a: u32, b: u32| {
            cables[a as usize].push(NodeId(b));
            cables[b as usize].push(NodeId(a));
        };
        (0..hosts).for_each(|host| join(host, hosts + host / per_leaf));
        for leaf in 0..leaves {
            (0..spines).for_each(|spine| join(hosts + leaf, hosts + leaves + spine));
        }
        Fabric::new(cables, hosts, choice)
    }

    /// Switches in a row, with these numbers of hosts: the way between some leads through others' switch.
    pub fn row(per_switch: &[u32], choice: &Choice<'_>) -> Fabric {
        let hosts = per_switch.iter().sum();
        let mut cables = vec![Vec::new(); hosts as usize + per_switch.len()];
        let mut join = |a: u32, b: u32| {
            cables[a as usize].push(NodeId(b));
            cables[b as usize].push(NodeId(a));
        };
        let mut host = 0;
        for (switch, &count) in (hosts..).zip(per_switch) {
            (host..host + count).for_each(|host| join(host, switch));
            host += count;
        }
        (1..per_switch.len() as u32).for_each(|switch| join(hosts + switch - 1, hosts + switch));
        Fabric::new(cables, hosts, choice)
    }

    fn new(cables: Vec<Vec<NodeId>>, hosts: u32, choice: &Choice<'_>) -> Fabric {
        let plan = plan(&cables, hosts);
        let world_size = hosts as u16 - choice.servers;
        let job = job(choice.protocol, world_size, choice.slots, choice.job);
        let machine = |rank: u16| machine(choice.protocol, &job, &plan, Rank(rank));
        let nodes = cables.len();
        let mut fabric = Fabric {
            now: Time::ZERO,
            hosts: (0..hosts as u16).map(machine).collect(),
            alive: vec![true; nodes],
            switches: Vec::new(),
            events: (0..hosts).map(|_| Vec::new()).collect(),
            fate: Box::new(|_| Fate::Arrives),
            sent: Vec::new(),
            protocol: choice.protocol,
            config: switch(choice.protocol, choice.switch),
            plan,
            job,
            cables,
            queue: BTreeMap::new(),
            timers: vec![None; nodes],
            serial: 0,
            of_hosts: HostRecorder::default(),
            of_switches: SwitchRecorder::default(),
        };
        fabric.switches = (hosts as usize..nodes).map(|node| fabric.pipeline(NodeId(node as u32))).collect();
        fabric
    }

    fn pipeline(&self, node: NodeId) -> Pipeline {
        let config = SharedSwitchConfig { node, ..self.config.clone() };
        let mut pipeline = Pipeline::default();
        let machine = self.protocol.shared_switch(Values::Elements, &config).expect("jobs share");
        pipeline.share(self.protocol.code, machine);
        pipeline.install_shared(&self.shared_job(node, self.job.clone()), Vec::new());
        pipeline
    }

    /// What a switch is told of a job of all hosts.
    fn shared_job(&self, node: NodeId, job: JobConfig) -> SharedJob {
        let port = |host: &NodeId| self.cables[node.index()].iter().position(|peer| peer == host);
        let ports = self.plan.hosts.iter().map(|host| port(host).map(|port| PortId(port as u16))).collect();
        SharedJob { job, fabric: self.plan.clone(), ports, trees: Vec::new(), share_bytes: 0 }
    }

    /// A switch has lost all that it knew.
    pub fn restart(&mut self, switch: usize) {
        self.switches[switch] = self.pipeline(NodeId((self.hosts.len() + switch) as u32));
    }

    /// A server has lost all that it knew.
    pub fn restart_server(&mut self, host: usize) {
        assert!(host >= usize::from(self.job.world_size), "it is a server");
        self.hosts[host] = machine(self.protocol, &self.job, &self.plan, Rank(host as u16));
        self.timers[host] = None;
    }

    /// The node of a switch.
    pub fn switch(&self, switch: usize) -> NodeId {
        NodeId((self.hosts.len() + switch) as u32)
    }

    /// Takes the job out of a switch.
    pub fn remove_job(&mut self, switch: usize) {
        self.switches[switch].remove(JobId(1));
    }

    /// Aggregators that all switches hold.
    pub fn in_use(&self) -> u32 {
        self.switches.iter().map(|switch| switch.shared(self.protocol.code).expect("it is shared").slots_in_use).sum()
    }

    /// The most that a switch has held at once.
    pub fn peak_of(&self, switch: usize) -> u32 {
        self.switches[switch].shared(self.protocol.code).expect("it is shared").slots_peak
    }

    /// What a switch counts and measures under a name.
    pub fn figure(&self, switch: usize, name: &str) -> f64 {
        let report = self.switches[switch].shared(self.protocol.code).expect("it is shared");
        named(&report.metrics, name).unwrap_or_else(|| panic!("it has no {name}"))
    }

    /// The rank that a switch says its results wait for.
    pub fn lag(&self, switch: usize) -> Option<Lag> {
        self.switches[switch].report(JobId(1)).expect("the job").machine.expect("it is shared").lag
    }

    pub fn submit(&mut self, host: usize, collective: Collective) {
        self.hosts[host].submit(self.now, collective).expect("nothing has failed");
        self.drain(host);
    }

    /// A straggler's.
    pub fn submit_at(&mut self, at: Time, host: usize, collective: Collective) {
        self.push(at, Event::Submission { host, collective });
    }

    /// The caller of a host submits nothing more.
    pub fn finish(&mut self, host: usize) {
        self.hosts[host].finish(self.now);
        self.drain(host);
    }

    /// Any bytes reach a node now, over the cable from another.
    pub fn inject(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>) {
        self.push(self.now, Event::Arrival { from, to, bytes, ecn: Ecn::NotCapable });
    }

    fn push(&mut self, at: Time, event: Event) {
        self.serial += 1;
        self.queue.insert((at, self.serial), event);
    }

    /// Runs until nothing is left to happen, or `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            match event {
                Event::Arrival { from, to, bytes, ecn } => self.arrive(from, to, bytes, ecn),
                Event::Submission { host, collective } => self.submit(host, collective),
                Event::Timer(node) => self.time_out(node),
            }
        }
        self.now = self.now.max(end);
    }

    /// Runs for so long.
    pub fn run(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    /// Runs until every host has something to tell, or gives up after ten seconds.
    pub fn run_until_notified(&mut self) {
        for _ in 0..1000 {
            self.run(Span::from_millis(10));
            if self.events.iter().all(|events| !events.is_empty()) {
                return;
            }
        }
    }

    fn arrive(&mut self, from: NodeId, to: NodeId, mut bytes: Vec<u8>, ecn: Ecn) {
        if !self.alive[to.index()] {
            return;
        }
        if let Some(host) = self.hosts.get_mut(to.index()) {
            let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn };
            self.of_hosts.packet(&mut **host, self.now, Addr::Node(from), packet);
            return self.drain(to.index());
        }
        let switch = to.index() - self.hosts.len();
        let ingress = self.cables[to.index()].iter().position(|&peer| peer == from).expect("a cable");
        let mut packet = PacketMut::new(&mut bytes, ecn);
        let (pipeline, ingress) = (&mut self.switches[switch], PortId(ingress as u16));
        let verdict = self.of_switches.packet(pipeline, self.now, ingress, &mut packet, &NoQueues);
        let (len, ecn) = (packet.len, packet.ecn);
        self.carry_out(to, verdict, bytes[..len].to_vec(), ecn);
        self.drain_switch(to);
    }

    fn time_out(&mut self, node: NodeId) {
        if self.timers[node.index()].is_none_or(|due| due > self.now) || !self.alive[node.index()] {
            return;
        }
        self.timers[node.index()] = None;
        if node.index() < self.hosts.len() {
            self.of_hosts.timeout(&mut *self.hosts[node.index()], self.now);
            self.drain(node.index());
        } else {
            let switch = node.index() - self.hosts.len();
            self.of_switches.timeout(&mut self.switches[switch], self.now);
            self.drain_switch(node);
        }
    }

    fn drain(&mut self, host: usize) {
        let node = NodeId(host as u32);
        let due = self.of_hosts.drain(&mut *self.hosts[host], self.now);
        for Made { to, bytes, wire_len, ecn } in std::mem::take(&mut self.of_hosts.sent) {
            assert!(matches!(to, Addr::Node(_)));
            assert_eq!(wire_len, bytes.len(), "what is in memory is on the wire");
            self.send(node, self.cables[host][0], bytes, ecn);
        }
        self.events[host].append(&mut self.of_hosts.events);
        self.arm(node, due);
    }

    fn drain_switch(&mut self, node: NodeId) {
        for Made { to, bytes, ecn, .. } in self.of_switches.take() {
            self.carry_out(node, to, bytes, ecn);
        }
        let due = self.switches[node.index() - self.hosts.len()].poll_timeout();
        self.arm(node, due);
    }

    fn arm(&mut self, node: NodeId, due: Option<Time>) {
        let due = due.map(|due| due.max(self.now));
        if due != self.timers[node.index()] {
            self.timers[node.index()] = due;
            due.inspect(|&due| self.push(due, Event::Timer(node)));
        }
    }

    fn carry_out(&mut self, switch: NodeId, verdict: Verdict, bytes: Vec<u8>, ecn: Ecn) {
        let ports: Vec<NodeId> = match verdict {
            Verdict::Consume | Verdict::Drop(_) => return,
            Verdict::Port(port) => vec![self.cables[switch.index()][port.index()]],
            Verdict::Multicast(ports) => ports.iter().map(|port| self.cables[switch.index()][port.index()]).collect(),
            Verdict::Route(node) => self.way(switch, node).into_iter().collect(),
            Verdict::Group(_) => panic!("nobody has installed a group"),
        };
        for to in ports {
            self.send(switch, to, bytes.clone(), ecn);
        }
    }

    /// The first neighbour that lies on a shortest way.
    fn way(&self, from: NodeId, to: NodeId) -> Option<NodeId> {
        let mut distance = vec![usize::MAX; self.cables.len()];
        distance[to.index()] = 0;
        let mut reached = VecDeque::from([to]);
        while let Some(node) = reached.pop_front() {
            // Hosts pass nothing on.
            if node.index() < self.hosts.len() && node != to {
                continue;
            }
            for &next in &self.cables[node.index()] {
                if distance[next.index()] == usize::MAX {
                    distance[next.index()] = distance[node.index()] + 1;
                    reached.push_back(next);
                }
            }
        }
        let closer = |next: &&NodeId| distance[next.index()].checked_add(1) == Some(distance[from.index()]);
        self.cables[from.index()].iter().find(closer).copied()
    }

    fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>, ecn: Ecn) {
        let kind = Kind::of(&bytes).expect("a kind of the family's");
        let header = Header::parse(&bytes).expect("a header of the family's");
        let sent = Sent { at: self.now, from, to, kind, header, len: bytes.len() };
        let fate = (self.fate)(&sent);
        self.sent.push(sent);
        let at = self.now + DELAY;
        let mut arrive = |at, ecn| {
            let bytes = bytes.clone();
            self.push(at, Event::Arrival { from, to, bytes, ecn });
        };
        match fate {
            Fate::Arrives => arrive(at, ecn),
            Fate::IsMarked if ecn == Ecn::NotCapable => arrive(at, ecn),
            Fate::IsMarked => arrive(at, Ecn::CongestionExperienced),
            Fate::IsLost => {}
            Fate::IsLate(by) => arrive(at + by, ecn),
            Fate::IsDoubled(by) => {
                arrive(at, ecn);
                arrive(at + by, ecn);
            }
        }
    }

    /// Packets of a kind that were sent by a node.
    pub fn count(&self, kind: Kind, from: NodeId) -> usize {
        self.sent.iter().filter(|sent| sent.kind == kind && sent.from == from).count()
    }
}
