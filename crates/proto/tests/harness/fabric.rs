//! A fabric in virtual time: hosts and switches by node, cables of one delay, and a say in the fate of every packet.
//!
//! Nodes are numbered hosts first. Every switch on the way handles a packet; what it routes takes the first of the
//! ports on a shortest way, or the one that [`Fabric::choice`] picks.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::contract::config::{FabricPlan, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::metric::named;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::switch::{NoQueues, SharedReport, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use super::fate::{Fate, FateOf, Sent, Words};

pub const DELAY: Span = Span::from_nanos(500);

enum Event {
    Arrival { from: NodeId, to: NodeId, bytes: Vec<u8>, ecn: Ecn },
    Submission { host: usize, collective: Collective },
    Timer(NodeId),
}

/// Which way a switch takes for a packet, of this number of ways.
pub type ChoiceOf = Box<dyn FnMut(NodeId, usize) -> usize>;
/// The machine of a host.
pub type MachineOf = Box<dyn Fn(usize) -> Box<dyn Host>>;
/// What the switch at a node is told of the job.
pub type SharedJobOf = Box<dyn Fn(NodeId, &Cables) -> SharedJob>;

/// The neighbours of each node, in the order of its ports.
pub struct Cables(pub Vec<Vec<NodeId>>);

impl Cables {
    /// Leaves with hosts, each joined to every spine.
    pub fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32) -> Cables {
        let hosts = leaves * per_leaf;
        let mut cables = Cables(vec![Vec::new(); (hosts + leaves + spines) as usize]);
        (0..hosts).for_each(|host| cables.join(host, hosts + host / per_leaf));
        for leaf in 0..leaves {
            (0..spines).for_each(|spine| cables.join(hosts + leaf, hosts + leaves + spine));
        }
        cables
    }

    /// Switches in a row, with these numbers of hosts: the way between some leads through others' switch.
    pub fn row(per_switch: &[u32]) -> Cables {
        let hosts: u32 = per_switch.iter().sum();
        let mut cables = Cables(vec![Vec::new(); hosts as usize + per_switch.len()]);
        let mut host = 0;
        for (switch, &count) in (hosts..).zip(per_switch) {
            (host..host + count).for_each(|host| cables.join(host, switch));
            host += count;
        }
        (1..per_switch.len() as u32).for_each(|switch| cables.join(hosts + switch - 1, hosts + switch));
        cables
    }

    fn join(&mut self, a: u32, b: u32) {
        self.0[a as usize].push(NodeId(b));
        self.0[b as usize].push(NodeId(a));
    }

    /// The plan of a fabric of which each host's first cable leads to its switch.
    pub fn plan(&self, hosts: u32, roots: Vec<NodeId>) -> FabricPlan {
        FabricPlan {
            hosts: (0..hosts).map(NodeId).collect(),
            switches: self.0[..hosts as usize].iter().map(|peers| peers[0]).collect(),
            roots: roots.into(),
        }
    }

    /// The port of a node that leads to a neighbour.
    pub fn port(&self, node: NodeId, peer: NodeId) -> Option<PortId> {
        self.0[node.index()].iter().position(|&other| other == peer).map(|port| PortId(port as u16))
    }

    /// The neighbours that lie on a shortest way, living or dead; hosts pass nothing on.
    fn ways(&self, hosts: usize, from: NodeId, to: NodeId) -> Vec<NodeId> {
        let mut distance = vec![usize::MAX; self.0.len()];
        distance[to.index()] = 0;
        let mut reached = VecDeque::from([to]);
        while let Some(node) = reached.pop_front() {
            if node.index() < hosts && node != to {
                continue;
            }
            for &next in &self.0[node.index()] {
                if distance[next.index()] == usize::MAX {
                    distance[next.index()] = distance[node.index()] + 1;
                    reached.push_back(next);
                }
            }
        }
        let closer = |next: &&NodeId| distance[next.index()].checked_add(1) == Some(distance[from.index()]);
        self.0[from.index()].iter().filter(closer).copied().collect()
    }
}

/// What a fabric is made of, for a protocol whose packets have the words `W`.
pub struct Fabric<W: Words> {
    pub now: Time,
    pub hosts: Vec<Box<dyn Host>>,
    pub alive: Vec<bool>,
    pub switches: Vec<Pipeline>,
    pub events: Vec<Vec<HostEvent>>,
    pub fate: FateOf<W>,
    pub choice: ChoiceOf,
    pub sent: Vec<Sent<W>>,
    protocol: &'static Protocol,
    config: SharedSwitchConfig,
    machine: MachineOf,
    shared_job: SharedJobOf,
    cables: Cables,
    queue: BTreeMap<(Time, u64), Event>,
    timers: Vec<Option<Time>>,
    serial: u64,
    of_hosts: HostRecorder,
    of_switches: SwitchRecorder,
}

impl<W: Words> Fabric<W> {
    pub fn new(
        protocol: &'static Protocol,
        cables: Cables,
        (hosts, machine): (u32, MachineOf),
        config: SharedSwitchConfig,
        shared_job: SharedJobOf,
    ) -> Fabric<W> {
        let nodes = cables.0.len();
        let mut fabric = Fabric {
            now: Time::ZERO,
            hosts: (0..hosts as usize).map(&machine).collect(),
            alive: vec![true; nodes],
            switches: Vec::new(),
            events: (0..hosts).map(|_| Vec::new()).collect(),
            fate: Box::new(|_| Fate::Arrives),
            choice: Box::new(|_, _| 0),
            sent: Vec::new(),
            protocol,
            config,
            machine,
            shared_job,
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
        pipeline.install_shared(&(self.shared_job)(node, &self.cables), Vec::new());
        pipeline
    }

    /// The node of a switch.
    pub fn switch(&self, switch: usize) -> NodeId {
        NodeId((self.hosts.len() + switch) as u32)
    }

    /// A switch has lost all that it knew.
    pub fn restart(&mut self, switch: usize) {
        self.switches[switch] = self.pipeline(self.switch(switch));
    }

    /// A host has lost all that it knew.
    pub fn restart_host(&mut self, host: usize) {
        self.hosts[host] = (self.machine)(host);
        self.timers[host] = None;
    }

    /// What a switch says of the memory that jobs share.
    pub fn shared(&self, switch: usize) -> SharedReport {
        self.switches[switch].shared(self.protocol.code).expect("it is shared")
    }

    /// What a switch counts and measures under a name.
    pub fn figure(&self, switch: usize, name: &str) -> f64 {
        named(&self.shared(switch).metrics, name).unwrap_or_else(|| panic!("it has no {name}"))
    }

    /// The slots that a switch holds.
    pub fn in_use_at(&self, switch: usize) -> u32 {
        self.shared(switch).slots_in_use
    }

    /// The slots that all switches hold.
    pub fn in_use(&self) -> u32 {
        (0..self.switches.len()).map(|switch| self.in_use_at(switch)).sum()
    }

    /// The most that a switch has held at once.
    pub fn peak_of(&self, switch: usize) -> u32 {
        self.shared(switch).slots_peak
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
        let ingress = self.cables.port(to, from).expect("a cable");
        let mut packet = PacketMut::new(&mut bytes, ecn);
        let pipeline = &mut self.switches[to.index() - self.hosts.len()];
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
            self.send(node, self.cables.0[host][0], bytes, ecn);
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
        let peer = |port: PortId| self.cables.0[switch.index()][port.index()];
        let peers: Vec<NodeId> = match verdict {
            Verdict::Consume | Verdict::Drop(_) => return,
            Verdict::Port(port) => vec![peer(port)],
            Verdict::Multicast(ports) => ports.iter().map(peer).collect(),
            Verdict::Route(node) => {
                let ways = self.cables.ways(self.hosts.len(), switch, node);
                if ways.is_empty() {
                    return;
                }
                vec![ways[(self.choice)(switch, ways.len()) % ways.len()]]
            }
            Verdict::Group(_) => panic!("nobody has installed a group"),
        };
        for to in peers {
            self.send(switch, to, bytes.clone(), ecn);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>, ecn: Ecn) {
        let (kind, header) = W::read(&bytes);
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
    pub fn count(&self, kind: W::Kind, from: NodeId) -> usize {
        self.sent.iter().filter(|sent| sent.kind == kind && sent.from == from).count()
    }
}
