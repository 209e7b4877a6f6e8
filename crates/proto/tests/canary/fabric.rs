//! A fabric in virtual time: hosts and switches by node, cables of one delay, and a say in the fate of every packet.
//!
//! Nodes are numbered hosts first. Every switch on the way handles a packet; what it routes takes the first of the
//! ports on a shortest way, or the one that [`Fabric::choice`] picks.

use std::collections::{BTreeMap, VecDeque};

use tributary_proto::canary::PROTOCOL;
use tributary_proto::canary::wire::{HEADER_LEN, Header, Kind};
use tributary_proto::contract::config::{FabricPlan, HostConfig, SharedSwitchConfig};
use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{JobId, NodeId, PortId, Rank};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use crate::setup::{figure, install, job, timers};

pub const DELAY: Span = Span::from_nanos(500);

/// What becomes of a packet on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    IsLost,
    /// Twice, the second time so much later.
    IsDoubled(Span),
    IsLate(Span),
}

/// A packet on a cable.
pub struct Sent {
    pub from: NodeId,
    pub to: NodeId,
    pub kind: Kind,
    pub header: Header,
    pub vector_bytes: usize,
}

enum Event {
    Arrival { from: NodeId, to: NodeId, bytes: Vec<u8> },
    Timer(NodeId),
}

pub type FateOf = Box<dyn FnMut(&Sent) -> Fate>;

/// Cables that lose about a tenth of all packets, double some and delay some, as the seed will have it.
pub fn bad_cables(seed: u64) -> FateOf {
    let mut state = seed;
    Box::new(move |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match state >> 33 & 31 {
            0..=2 => Fate::IsLost,
            3 => Fate::IsDoubled(Span::from_nanos(state >> 50)),
            4 => Fate::IsLate(Span::from_nanos(state >> 48)),
            _ => Fate::Arrives,
        }
    })
}

pub type ChoiceOf = Box<dyn FnMut(NodeId, &Header, usize) -> usize>;

pub struct Fabric {
    pub now: Time,
    pub hosts: Vec<Box<dyn Host>>,
    pub alive: Vec<bool>,
    pub switches: Vec<Pipeline>,
    pub events: Vec<Vec<HostEvent>>,
    pub fate: FateOf,
    pub choice: ChoiceOf,
    pub sent: Vec<Sent>,
    config: SharedSwitchConfig,
    jobs: Vec<JobId>,
    cables: Vec<Vec<NodeId>>,
    queue: BTreeMap<(Time, u64), Event>,
    timers: Vec<Option<Time>>,
    serial: u64,
    of_hosts: HostRecorder,
    of_switches: SwitchRecorder,
}

impl Fabric {
    /// Leaves with hosts, each joined to every spine; trees end in the leader's own leaf.
    pub fn leaf_spine(leaves: u32, spines: u32, per_leaf: u32, slots: u16, config: SharedSwitchConfig) -> Fabric {
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
        Fabric::new(cables, hosts, Vec::new(), slots, config)
    }

    pub fn new(
        cables: Vec<Vec<NodeId>>,
        hosts: u32,
        roots: Vec<NodeId>,
        slots: u16,
        config: SharedSwitchConfig,
    ) -> Fabric {
        let plan = FabricPlan {
            hosts: (0..hosts).map(NodeId).collect(),
            switches: cables[..hosts as usize].iter().map(|peers| peers[0]).collect(),
            roots: roots.into(),
        };
        let machine = |rank: u32| {
            let worker = HostConfig::worker(job(hosts as u16, slots), Rank(rank as u16));
            PROTOCOL.host(Values::Elements, &HostConfig { timers: timers(), fabric: plan.clone(), ..worker })
        };
        let nodes = cables.len();
        let mut fabric = Fabric {
            now: Time::ZERO,
            hosts: (0..hosts).map(machine).collect(),
            alive: vec![true; nodes],
            switches: Vec::new(),
            events: (0..hosts).map(|_| Vec::new()).collect(),
            fate: Box::new(|_| Fate::Arrives),
            choice: Box::new(|_, _, _| 0),
            sent: Vec::new(),
            config,
            jobs: vec![JobId(1)],
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
        let machine = PROTOCOL.shared_switch(Values::Elements, &config).expect("Canary's jobs share");
        pipeline.share(PROTOCOL.code, machine);
        self.jobs.iter().for_each(|&job| install(&mut pipeline, job));
        pipeline
    }

    /// A switch has lost all that it knew.
    pub fn restart(&mut self, switch: NodeId) {
        let index = switch.index() - self.hosts.len();
        self.switches[index] = self.pipeline(switch);
    }

    /// Descriptors that a switch holds.
    pub fn in_use_at(&self, switch: usize) -> u32 {
        self.switches[switch].shared(PROTOCOL.code).expect("it is shared").slots_in_use
    }

    /// The most that it held at once.
    pub fn peak_of(&self, switch: usize) -> u32 {
        self.switches[switch].shared(PROTOCOL.code).expect("it is shared").slots_peak
    }

    /// What a switch counts and measures under a name.
    pub fn figure(&self, switch: usize, name: &str) -> f64 {
        figure(&self.switches[switch], name)
    }

    pub fn in_use(&self) -> u32 {
        (0..self.switches.len()).map(|switch| self.in_use_at(switch)).sum()
    }

    pub fn submit(&mut self, host: usize, collective: Collective) {
        self.hosts[host].submit(self.now, collective).expect("nothing has failed");
        self.drain(host);
    }

    /// The caller of a host submits nothing more.
    pub fn finish(&mut self, host: usize) {
        self.hosts[host].finish(self.now);
        self.drain(host);
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
                Event::Arrival { from, to, bytes } => self.arrive(from, to, bytes),
                Event::Timer(node) => self.time_out(node),
            }
        }
        self.now = self.now.max(end);
    }

    /// Runs for so long.
    pub fn run(&mut self, span: Span) {
        self.run_until(self.now + span);
    }

    fn arrive(&mut self, from: NodeId, to: NodeId, mut bytes: Vec<u8>) {
        if !self.alive[to.index()] {
            return;
        }
        if let Some(host) = self.hosts.get_mut(to.index()) {
            let packet = Packet { bytes: &bytes, wire_len: bytes.len(), ecn: Ecn::NotCapable };
            self.of_hosts.packet(&mut **host, self.now, Addr::Node(from), packet);
            return self.drain(to.index());
        }
        let switch = to.index() - self.hosts.len();
        let ingress = self.cables[to.index()].iter().position(|&peer| peer == from).expect("a cable");
        let mut packet = PacketMut::new(&mut bytes, Ecn::NotCapable);
        let (pipeline, ingress) = (&mut self.switches[switch], PortId(ingress as u16));
        let verdict = self.of_switches.packet(pipeline, self.now, ingress, &mut packet, &NoQueues);
        let len = packet.len;
        self.carry_out(to, verdict, bytes[..len].to_vec());
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
        for Made { to, bytes, .. } in std::mem::take(&mut self.of_hosts.sent) {
            assert!(matches!(to, Addr::Node(_)));
            self.send(node, self.cables[host][0], bytes);
        }
        self.events[host].append(&mut self.of_hosts.events);
        self.arm(node, due);
    }

    fn drain_switch(&mut self, node: NodeId) {
        for Made { to, bytes, .. } in self.of_switches.take() {
            self.carry_out(node, to, bytes);
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

    fn carry_out(&mut self, switch: NodeId, verdict: Verdict, bytes: Vec<u8>) {
        match verdict {
            Verdict::Consume | Verdict::Drop(_) => {}
            Verdict::Multicast(ports) => {
                for port in ports.iter() {
                    self.send(switch, self.cables[switch.index()][port.index()], bytes.clone());
                }
            }
            Verdict::Route(node) => {
                let header = Header::parse(&bytes).expect("a switch sends what can be read");
                let ways = self.ways(switch, node);
                if !ways.is_empty() {
                    let choice = (self.choice)(switch, &header, ways.len()) % ways.len();
                    self.send(switch, ways[choice], bytes);
                }
            }
            Verdict::Port(_) | Verdict::Group(_) => panic!("Canary knows no such verdict"),
        }
    }

    /// The neighbours that lie on a shortest way, living or dead.
    fn ways(&self, from: NodeId, to: NodeId) -> Vec<NodeId> {
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
        self.cables[from.index()].iter().filter(closer).copied().collect()
    }

    fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>) {
        let kind = Kind::of(&bytes).expect("a kind of Canary's");
        let header = Header::parse(&bytes).expect("a header of Canary's");
        let vector_bytes = bytes.len() - HEADER_LEN;
        let sent = Sent { from, to, kind, header, vector_bytes };
        let fate = (self.fate)(&sent);
        self.sent.push(sent);
        let at = self.now + DELAY;
        let mut arrive = |at| {
            let bytes = bytes.clone();
            self.push(at, Event::Arrival { from, to, bytes });
        };
        match fate {
            Fate::Arrives => arrive(at),
            Fate::IsLost => {}
            Fate::IsLate(by) => arrive(at + by),
            Fate::IsDoubled(by) => {
                arrive(at);
                arrive(at + by);
            }
        }
    }
}
