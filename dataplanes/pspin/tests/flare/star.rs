//! Hosts around one switch whose handlers run on cores, in virtual time. Links have one rate and one delay, and lose
//! nothing. The machines are Flare's own; the processor is the network simulator's. What a handler costs comes from the
//! table of cycles or from running the handler itself.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_proto::contract::config::{Below, HostConfig, JobConfig, SwitchConfig};
use tributary_proto::contract::drive::record::{HostRecorder, Made, SwitchRecorder};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::switch::{NoQueues, Verdict};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::tensors::{FingerprintTensor, Roster, SparseDraw, SparseFingerprint};
use tributary_sim::config::CoresSection;
use tributary_sim::cores::prices::{Code, Prices};
use tributary_sim::cores::steps::{Called, Machine};
use tributary_sim::cores::{self, Processor};

use crate::handlers::{Contribution, Handlers, Setup};

const HOSTS: u16 = 8;
const JOB: JobId = JobId(1);
/// 100 Gbit/s, and the delay from a host to the switch.
const PS_PER_BYTE: u64 = 80;
const DELAY: u64 = 500_000;
/// Ethernet with preamble and gap, IPv4 and UDP.
const FRAMING: usize = 66;
const CYCLE: u64 = 1_000;
/// 1 KiB of elements in a packet.
pub const ELEMENTS_PER_PACKET: u16 = 256;

/// One allreduce over all hosts.
pub struct Job {
    /// The collective.
    pub spec: Spec,
    /// Elements of a million that each rank contributes; `None` for a dense tensor.
    pub density_ppm: Option<u32>,
    /// Blocks in flight.
    pub slots: u16,
    /// The protocol's options.
    pub options: Vec<(&'static str, String)>,
    /// Slots of a sparse block's table, or the indices that it spans.
    pub cells: u32,
    /// How handlers are written.
    pub code: Code,
}

/// What a run took.
pub struct Ran {
    /// Cycles of all handlers, without waiting for locks.
    pub cycles: f64,
    /// When the last rank was done, in picoseconds.
    pub time: f64,
    /// Packets whose handler could not run, and why.
    pub not_run: (u64, Option<String>),
}

/// Something that happens at a time.
enum Event {
    AtSwitch { rank: u16, bytes: Vec<u8>, wire_len: usize },
    AtHost { rank: u16, bytes: Vec<u8>, wire_len: usize },
}

/// A packet in the processor, and the packets that follow from it.
struct InFlight {
    ingress: PortId,
    bytes: Vec<u8>,
    wire_len: usize,
    made: Vec<Made<Verdict>>,
}

/// The switch's side of a handler's call.
struct Switch {
    pipeline: Pipeline,
    recorder: SwitchRecorder,
    prices: Prices,
    /// Runs every handler; without it, the table is charged.
    handlers: Option<Handlers>,
    cells: u32,
    in_flight: Vec<Option<InFlight>>,
}

impl Machine for Switch {
    fn call(&mut self, now: u64, packet: &cores::Packet, buffer: u32) -> Called {
        let in_flight =
            self.in_flight[packet.tag as usize].as_mut().expect("a packet stays until its handler has ended");
        let contribution =
            Contribution::of(packet.needs, in_flight.ingress, &in_flight.bytes, in_flight.wire_len, self.cells);
        let mut arrived = PacketMut::new(&mut in_flight.bytes, Ecn::NotCapable);
        arrived.wire_len = in_flight.wire_len;
        let verdict = self.recorder.packet(&mut self.pipeline, Time(now), in_flight.ingress, &mut arrived, &NoQueues);
        let (len, wire_len) = (arrived.len, arrived.wire_len);
        in_flight.made.push(Made {
            to: verdict,
            bytes: in_flight.bytes[..len].to_vec(),
            wire_len,
            ecn: Ecn::NotCapable,
        });
        in_flight.made.extend(self.recorder.take());
        let work = self.pipeline.take_work(JOB).expect("Flare's machines count their work");
        let called = self.prices.called(packet.needs, buffer, &work, CYCLE);
        let Some(handlers) = &mut self.handlers else { return called };
        // A handler accepts packets that the machine refuses: stale ones, or ones that it has no memory for.
        let was_accepted = work.copied + work.combined + work.hit + work.inserted + work.spilled > 0;
        let contribution = contribution.filter(|contribution| contribution.is_empty() || was_accepted);
        match contribution.and_then(|contribution| handlers.run(packet, buffer, &contribution)) {
            Some(cycles) => Handlers::corrected(called, packet, cycles * CYCLE),
            None => called,
        }
    }
}

/// A host, and its cable to the switch.
struct Node {
    machine: Box<dyn Host>,
    recorder: HostRecorder,
    up_free_at: u64,
    down_free_at: u64,
    done_at: Option<u64>,
}

/// The hosts, the switch, and the packets between them.
struct Star {
    nodes: Vec<Node>,
    switch: Switch,
    processor: Processor,
    /// By time, and by number among events of one time.
    events: BTreeMap<(u64, u64), Event>,
    next_number: u64,
    now: u64,
}

/// Runs a job; its handlers run too if `runs`, and are charged by the table otherwise.
pub fn run(job: &Job, runs: bool) -> Ran {
    let mut star = Star::new(job, runs);
    let tensors = tensors(job);
    for (rank, tensor) in (0..HOSTS).zip(tensors) {
        let node = &mut star.nodes[usize::from(rank)];
        node.machine.submit(Time(0), Collective { tensor, deadline: None }).unwrap();
        node.recorder.timeout(&mut *node.machine, Time(0));
        star.collect(rank);
    }
    while star.nodes.iter().any(|node| node.done_at.is_none()) {
        star.step();
    }
    let counters = star.processor.counters();
    let cycles = (counters.service() - counters.lock_waiting) as f64 / CYCLE as f64;
    let time = star.nodes.iter().filter_map(|node| node.done_at).max().expect("there are hosts") as f64;
    let not_run = star.switch.handlers.map_or((0, None), |handlers| (handlers.not_run, handlers.why));
    Ran { cycles, time, not_run }
}

fn tensors(job: &Job) -> Vec<Box<dyn Tensor>> {
    let roster = Roster::new(HOSTS);
    let draw = job.density_ppm.map(|ppm| SparseDraw::new(job.spec, HOSTS, 0, ppm));
    let tensor = |rank| match &draw {
        Some(draw) => Box::new(SparseFingerprint::new(Arc::clone(draw), rank)) as Box<dyn Tensor>,
        None => Box::new(FingerprintTensor::new(job.spec, Arc::clone(&roster), rank, 0)),
    };
    (0..HOSTS).map(tensor).collect()
}

impl Star {
    fn new(job: &Job, runs: bool) -> Star {
        let given = job.options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let config = JobConfig {
            job: JOB,
            key: JobKey(1),
            protocol: PROTOCOL.code,
            world: HOSTS,
            slots: job.slots,
            elements_per_packet: ELEMENTS_PER_PACKET,
            trees: 1,
            levels: false,
            options: PROTOCOL.options.read_with(&given, Defaults::Simulated).unwrap(),
        };
        let node = |rank| {
            let machine = PROTOCOL.host(Values::Fingerprint, &HostConfig::worker(config.clone(), Rank(rank)));
            Node { machine, recorder: HostRecorder::default(), up_free_at: 0, down_free_at: 0, done_at: None }
        };
        let section = CoresSection { clusters: 4, ..CoresSection::default() };
        let shape = section.shape().unwrap();
        let setup = Setup {
            code: job.code,
            dtype: job.spec.dtype,
            children: HOSTS.into(),
            blocks: job.slots.into(),
            payload_bytes: 4 * u32::from(ELEMENTS_PER_PACKET),
        };
        let switch = Switch {
            pipeline: pipeline(&config),
            recorder: SwitchRecorder::default(),
            prices: Prices::new(job.code, job.spec.dtype).unwrap(),
            handlers: runs.then(|| Handlers::new(setup, shape)),
            cells: job.cells,
            in_flight: Vec::new(),
        };
        let (nodes, processor) = ((0..HOSTS).map(node).collect(), Processor::new(shape));
        Star { nodes, switch, processor, events: BTreeMap::new(), next_number: 0, now: 0 }
    }

    /// Goes on to the next time at which something happens: the processor first, then packets, then timers.
    fn step(&mut self) {
        let timers = self.nodes.iter().filter_map(|node| node.machine.poll_timeout());
        let timer = timers.chain(self.switch.pipeline.poll_timeout()).map(|time| time.0).min();
        let packet = self.events.keys().next().map(|&(at, _)| at);
        let next = [timer, packet, self.processor.next_time()].into_iter().flatten().min();
        self.now = next.expect("somebody waits for nothing").max(self.now);
        for finished in self.processor.advance(self.now, &mut self.switch) {
            let own = (!finished.completes).then_some(finished.packet.tag);
            for tag in own.into_iter().chain(finished.sent) {
                let in_flight = self.switch.in_flight[tag as usize].take().expect("a packet leaves once");
                in_flight.made.into_iter().for_each(|made| self.leave_switch(made));
            }
        }
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
            match entry.remove() {
                Event::AtSwitch { rank, bytes, wire_len } => self.arrive(PortId(rank), bytes, wire_len),
                Event::AtHost { rank, bytes, wire_len } => self.deliver(rank, &bytes, wire_len),
            }
        }
        self.run_timers();
    }

    fn run_timers(&mut self) {
        let now = Time(self.now);
        for rank in 0..HOSTS {
            let node = &mut self.nodes[usize::from(rank)];
            if node.machine.poll_timeout().is_some_and(|due| due <= now) {
                node.recorder.timeout(&mut *node.machine, now);
                self.collect(rank);
            }
        }
        self.switch.recorder.timeout(&mut self.switch.pipeline, now);
        self.switch.recorder.take().into_iter().for_each(|made| self.leave_switch(made));
    }

    /// A packet arrives at the processor.
    fn arrive(&mut self, ingress: PortId, bytes: Vec<u8>, wire_len: usize) {
        let (owner, claim) = self.switch.pipeline.claim(ingress, &bytes);
        let tag = self.switch.in_flight.len() as u32;
        let packet = cores::Packet {
            owner: owner.0.into(),
            needs: claim.needs,
            start: (self.switch.prices.begin(claim.needs) * CYCLE as f64).round() as u64,
            tag,
            ..cores::Packet::new(claim.block, ingress.0.into(), (wire_len + FRAMING) as u64)
        };
        self.switch.in_flight.push(Some(InFlight { ingress, bytes, wire_len, made: Vec::new() }));
        self.processor.arrive(self.now, packet, &mut self.switch).expect("the packet memory is large enough");
    }

    fn deliver(&mut self, rank: u16, bytes: &[u8], wire_len: usize) {
        let node = &mut self.nodes[usize::from(rank)];
        let packet = Packet { bytes, wire_len, ecn: Ecn::NotCapable };
        node.recorder.packet(&mut *node.machine, Time(self.now), Addr::Switch(TreeId(0)), packet);
        self.collect(rank);
    }

    /// Sends a host's packets one after the other, and notes when its collective is done.
    fn collect(&mut self, rank: u16) {
        let node = &mut self.nodes[usize::from(rank)];
        for event in std::mem::take(&mut node.recorder.events) {
            let HostEvent::Done { tensor, .. } = event else { panic!("rank {rank} failed") };
            assert!(is_complete(&*tensor), "rank {rank} has another sum");
            node.done_at = Some(self.now);
        }
        for made in std::mem::take(&mut node.recorder.sent) {
            let at = sent_at(&mut self.nodes[usize::from(rank)].up_free_at, self.now, made.wire_len);
            self.schedule(at, Event::AtSwitch { rank, bytes: made.bytes, wire_len: made.wire_len });
        }
    }

    fn leave_switch(&mut self, made: Made<Verdict>) {
        let ranks = match made.to {
            Verdict::Group(_) => 0..HOSTS,
            Verdict::Port(port) => port.0..port.0 + 1,
            _ => return,
        };
        for rank in ranks {
            let at = sent_at(&mut self.nodes[usize::from(rank)].down_free_at, self.now, made.wire_len);
            self.schedule(at, Event::AtHost { rank, bytes: made.bytes.clone(), wire_len: made.wire_len });
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.events.insert((at, self.next_number), event);
        self.next_number += 1;
    }
}

/// When a packet arrives that a link takes now or as soon as it is free.
fn sent_at(free_at: &mut u64, now: u64, wire_len: usize) -> u64 {
    *free_at = now.max(*free_at) + (wire_len + FRAMING) as u64 * PS_PER_BYTE;
    *free_at + DELAY
}

fn is_complete(tensor: &dyn Any) -> bool {
    let dense = tensor.downcast_ref().map(FingerprintTensor::verification);
    let sparse = || tensor.downcast_ref().map(SparseFingerprint::verification);
    dense.or_else(sparse).expect("the tensor that was submitted").is_complete()
}

fn pipeline(job: &JobConfig) -> Pipeline {
    let members: Vec<PortId> = (0..HOSTS).map(PortId).collect();
    let (tree, below, group) = (TreeId(0), Below::workers(HOSTS), GroupId(0));
    let config = SwitchConfig { job: job.clone(), tree, members: members.clone(), below, group, parent: None };
    let machine = PROTOCOL.switch(Values::Fingerprint, &config);
    let mut pipeline = Pipeline::default();
    let (protocol, others) = (PROTOCOL.code, Vec::new());
    pipeline.install(JOB, InstalledJob { protocol, key: job.key, members, others, machine });
    pipeline
}
