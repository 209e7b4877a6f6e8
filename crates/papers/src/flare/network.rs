//! Flare's hosts and switches with real elements. Packets arrive in any order or are lost: one randomly drawn packet
//! after the other is delivered, and time passes with each.

use tributary_proto::contract::config::{Below, HostConfig, JobConfig, Parent, SwitchConfig, TreeLeaf};
use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_sim::rng::{Purpose, Rng};

use crate::ReproduceError;

/// More steps than any run here needs.
const MOST_STEPS: u64 = 20_000_000;

/// The setting of a run: which ranks are in which rack, and what happens to packets.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// The ranks below each leaf; a single rack is one switch.
    pub racks: &'a [Vec<u16>],
    /// Options of the job.
    pub options: &'a [(&'a str, &'a str)],
    /// Elements of four bytes in a packet.
    pub elements_per_packet: u16,
    /// Share of packets that are lost.
    pub loss: f64,
    /// The seed of the order of arrival.
    pub seed: u64,
}

#[derive(Clone, Copy)]
enum Node {
    Host(usize),
    Switch(usize),
}

/// A packet in flight.
struct Flight {
    to: Node,
    /// For a switch, the port at which it comes in.
    ingress: PortId,
    bytes: Vec<u8>,
    wire_len: usize,
}

/// One end of a switch's cable.
type Cable = (Node, PortId);

/// The machines, and the packets between them.
pub struct Network {
    hosts: Vec<Box<dyn Host>>,
    recorders: Vec<HostRecorder>,
    /// For each rank, the leaf and its port.
    at: Vec<(usize, PortId)>,
    switches: Vec<(Pipeline, Vec<Cable>)>,
    flights: Vec<Flight>,
    /// The packets that each rank has sent, as they were sent.
    pub sent: Vec<Vec<Vec<u8>>>,
    rng: Rng,
    loss: f64,
    now: Time,
}

fn wrong(why: impl Into<String>) -> ReproduceError {
    ReproduceError::Wrong { what: "Flare's machines".into(), why: why.into() }
}

impl Network {
    /// Hosts around a switch, or in racks below a root.
    pub fn new(setting: &Setting<'_>) -> Result<Network, ReproduceError> {
        let given = setting.options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options = PROTOCOL.options.read(&given).map_err(|error| ReproduceError::Bad(error.to_string()))?;
        let world_size: usize = setting.racks.iter().map(Vec::len).sum();
        let levels = setting.racks.len() > 1;
        let job = JobConfig {
            job: JobId(1),
            key: JobKey(1),
            protocol: PROTOCOL.code,
            world_size: world_size as u16,
            slots: 8,
            elements_per_packet: setting.elements_per_packet,
            trees: 1,
            levels,
            options,
        };
        let mut at = vec![(0, PortId(0)); world_size];
        let mut switches = Vec::new();
        let root = setting.racks.len();
        for (leaf, ranks) in setting.racks.iter().enumerate() {
            for (port, &rank) in ranks.iter().enumerate() {
                let at_leaf = at.get_mut(usize::from(rank)).ok_or_else(|| wrong("a rank is beyond the others"))?;
                *at_leaf = (leaf, PortId(port as u16));
            }
            let below: Vec<Below> = ranks.iter().map(|&rank| Below::Worker(Rank(rank))).collect();
            let parent = levels.then_some(Parent { port: PortId(ranks.len() as u16), child: ChildId(leaf as u16) });
            let hosts = ranks.iter().map(|&rank| (Node::Host(rank.into()), PortId(0)));
            let up = parent.map(|_| (Node::Switch(root), PortId(leaf as u16)));
            switches.push((pipeline(&job, below, parent), hosts.chain(up).collect()));
        }
        if levels {
            let below = setting.racks.iter().map(|ranks| Below::Switch(ranks.iter().copied().map(Rank).collect()));
            let cables = setting.racks.iter().enumerate();
            let cables = cables.map(|(leaf, ranks)| (Node::Switch(leaf), PortId(ranks.len() as u16))).collect();
            switches.push((pipeline(&job, below.collect(), None), cables));
        }
        let host = |(rank, (_, port)): (usize, &(usize, PortId))| {
            let trees = vec![TreeLeaf { child: ChildId(port.0) }];
            let config = HostConfig { trees, ..HostConfig::worker(job.clone(), Rank(rank as u16)) };
            PROTOCOL.host(Values::Elements, &config)
        };
        Ok(Network {
            hosts: at.iter().enumerate().map(host).collect(),
            recorders: at.iter().map(|_| HostRecorder::default()).collect(),
            at,
            switches,
            flights: Vec::new(),
            sent: vec![Vec::new(); world_size],
            rng: Rng::new(setting.seed, Purpose::LinkFaults, 0),
            loss: setting.loss,
            now: Time::ZERO,
        })
    }

    /// Runs one allreduce over the ranks' tensors; returns the tensors in the order of ranks.
    pub fn run(&mut self, tensors: Vec<Box<dyn Tensor>>) -> Result<Vec<Box<dyn Tensor>>, ReproduceError> {
        for (rank, tensor) in tensors.into_iter().enumerate() {
            let collective = Collective { tensor, deadline: None };
            self.hosts[rank].submit(self.now, collective).map_err(|error| wrong(error.to_string()))?;
            self.recorders[rank].drain(&mut *self.hosts[rank], self.now);
            self.collect(rank);
        }
        for _ in 0..MOST_STEPS {
            if self.recorders.iter().all(|recorder| !recorder.events.is_empty()) {
                return self.recorders.iter_mut().map(done).collect();
            }
            self.step()?;
        }
        Err(wrong(format!("no end after {MOST_STEPS} packets")))
    }

    fn step(&mut self) -> Result<(), ReproduceError> {
        self.now += Span::from_micros(1);
        if self.flights.is_empty() {
            return self.wait();
        }
        let drawn = self.rng.below(self.flights.len() as u32) as usize;
        let flight = self.flights.swap_remove(drawn);
        if !self.rng.chance(self.loss) {
            self.deliver(flight);
        }
        Ok(())
    }

    /// No packet is in flight: the earliest timeout of a host expires.
    fn wait(&mut self) -> Result<(), ReproduceError> {
        let due = self.hosts.iter().filter_map(|host| host.poll_timeout()).min();
        self.now = due.ok_or_else(|| wrong("nobody waits for anything"))?.max(self.now);
        for rank in 0..self.hosts.len() {
            if self.hosts[rank].poll_timeout().is_some_and(|due| due <= self.now) {
                self.recorders[rank].timeout(&mut *self.hosts[rank], self.now);
                self.collect(rank);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, mut flight: Flight) {
        match flight.to {
            Node::Host(rank) => {
                let packet = Packet { bytes: &flight.bytes, wire_len: flight.wire_len, ecn: Ecn::NotCapable };
                let from = Addr::Switch(TreeId(0));
                self.recorders[rank].packet(&mut *self.hosts[rank], self.now, from, packet);
                self.collect(rank);
            }
            Node::Switch(at) => {
                let mut recorder = SwitchRecorder::default();
                let mut packet = PacketMut::new(&mut flight.bytes, Ecn::NotCapable);
                packet.wire_len = flight.wire_len;
                let pipeline = &mut self.switches[at].0;
                let verdict = recorder.packet(pipeline, self.now, flight.ingress, &mut packet, &NoQueues);
                let (len, wire_len) = (packet.len, packet.wire_len);
                flight.bytes.truncate(len);
                let rewritten = Made { to: verdict, bytes: flight.bytes, wire_len, ecn: Ecn::NotCapable };
                for made in std::iter::once(rewritten).chain(recorder.take()) {
                    self.leave(at, made);
                }
            }
        }
    }

    /// Takes a packet that a switch sends.
    fn leave(&mut self, at: usize, made: Made<Verdict>) {
        let cables = &self.switches[at].1;
        // The group is all children, whose ports come before the port upwards.
        let is_root = at + 1 == self.switches.len();
        let children = cables.len() - usize::from(!is_root);
        let ports: Vec<usize> = match made.to {
            Verdict::Port(port) => vec![port.index()],
            Verdict::Group(_) => (0..children).collect(),
            _ => return,
        };
        for (to, ingress) in ports.into_iter().filter_map(|port| cables.get(port).copied()) {
            self.flights.push(Flight { to, ingress, bytes: made.bytes.clone(), wire_len: made.wire_len });
        }
    }

    /// Takes the packets that a rank has sent.
    fn collect(&mut self, rank: usize) {
        let (leaf, ingress) = self.at[rank];
        for made in std::mem::take(&mut self.recorders[rank].sent) {
            self.sent[rank].push(made.bytes.clone());
            let (to, wire_len) = (Node::Switch(leaf), made.wire_len);
            self.flights.push(Flight { to, ingress, bytes: made.bytes, wire_len });
        }
    }
}

fn done(recorder: &mut HostRecorder) -> Result<Box<dyn Tensor>, ReproduceError> {
    match recorder.events.pop() {
        Some(HostEvent::Done { tensor, .. }) => Ok(tensor),
        Some(HostEvent::Failed { error, .. }) => Err(wrong(error.to_string())),
        None => Err(wrong("a rank has not ended")),
    }
}

fn pipeline(job: &JobConfig, below: Vec<Below>, parent: Option<Parent>) -> Pipeline {
    let members: Vec<PortId> = (0..below.len() as u16).map(PortId).collect();
    let (tree, group, job) = (TreeId(0), GroupId(0), job.clone());
    let config = SwitchConfig { job: job.clone(), tree, members: members.clone(), below, group, parent };
    let others = parent.iter().map(|parent| parent.port).collect();
    let machine = PROTOCOL.switch(Values::Elements, &config);
    let mut pipeline = Pipeline::default();
    pipeline.install(job.job, InstalledJob { protocol: PROTOCOL.code, key: job.key, members, others, machine });
    pipeline
}
