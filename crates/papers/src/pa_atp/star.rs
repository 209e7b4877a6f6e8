//! Jobs of workers and a server on one switch, packet by packet: without a network and without time. The caller decides
//! what is sent and what arrives.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Header, Kind};
use tributary_proto::aggregation::best_effort::{BestEffortHost, BestEffortSwitch, Rules};
use tributary_proto::contract::config::{FabricPlan, HostConfig, JobConfig, SharedJob, SharedSwitchConfig};
use tributary_proto::contract::host::{Collective, Host};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId, Rank};
use tributary_proto::contract::options::{OptionSet, Options};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, PacketMut};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::switch::{MIN_TRANSMIT_LEN, NoQueues, Verdict};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::values::Values;
use tributary_proto::pa_atp::PROTOCOL;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::ReproduceError;

/// The common properties of all jobs of a star.
pub struct Shape<'a> {
    /// The rules of machines.
    pub rules: Rules,
    /// How many workers each job has; each job also has a server.
    pub workers: &'a [u16],
    /// Options of the jobs.
    pub options: &'a [(&'a str, String)],
    /// Blocks that fit into the switch.
    pub aggregators: u64,
    /// Elements of a block.
    pub elements_per_packet: u16,
    /// Blocks of each job.
    pub blocks: usize,
}

/// A packet that waits for its delivery.
pub struct Waiting {
    /// The job.
    pub job: usize,
    /// The receiver.
    pub to: Rank,
    /// The packet's kind.
    pub kind: Kind,
    /// Its block's sequence number.
    pub seq: u32,
    /// Bytes of UDP payload on the wire.
    pub wire_len: usize,
    bytes: Vec<u8>,
}

/// One switch, and the machines of its jobs.
pub struct Star {
    pipeline: Pipeline,
    jobs: Vec<Vec<BestEffortHost>>,
    first_ports: Vec<u16>,
    /// Packets that have left the switch and were not delivered.
    pub waiting: Vec<Waiting>,
}

/// The present, which does not matter for the round trips here.
const NOW: Time = Time::ZERO;
const SWITCH: NodeId = FabricPlan::STAR;

fn wrong(what: &str, why: impl ToString) -> ReproduceError {
    ReproduceError::Wrong { what: what.into(), why: why.to_string() }
}

fn read(set: &OptionSet, given: &[(&str, String)]) -> Result<Options, ReproduceError> {
    let given = given.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    set.read(&given).map_err(|error| ReproduceError::Bad(error.to_string()))
}

impl Star {
    /// All machines, each with its blocks to sum.
    pub fn new(shape: &Shape<'_>) -> Result<Star, ReproduceError> {
        let shared = PROTOCOL.shared.as_ref().ok_or_else(|| wrong("the protocol", "its jobs share no memory"))?;
        let config = SharedSwitchConfig {
            node: SWITCH,
            elements_per_packet: shape.elements_per_packet,
            options: read(&shared.options, &[("aggregators", shape.aggregators.to_string())])?,
        };
        let mut star =
            Star { pipeline: Pipeline::default(), jobs: Vec::new(), first_ports: Vec::new(), waiting: Vec::new() };
        let machine = BestEffortSwitch::new(Values::Elements, shape.rules, &config);
        star.pipeline.share(PROTOCOL.code, Box::new(machine));
        let mut first_port = 0;
        for (number, &workers) in shape.workers.iter().enumerate() {
            star.add_job(shape, number as u32 + 1, workers + 1, first_port)?;
            first_port += workers + 1;
        }
        Ok(star)
    }

    fn add_job(&mut self, shape: &Shape<'_>, id: u32, world_size: u16, first_port: u16) -> Result<(), ReproduceError> {
        let mut options = shape.options.to_vec();
        options.push(("served_by", "last_rank".into()));
        let job = JobConfig {
            job: JobId(id as u16),
            key: JobKey(id.into()),
            protocol: PROTOCOL.code,
            world_size,
            slots: shape.blocks as u16,
            elements_per_packet: shape.elements_per_packet,
            trees: 1,
            levels: false,
            options: read(&PROTOCOL.options, &options)?,
        };
        let nodes = (0..world_size).map(|rank| NodeId(1 + u32::from(first_port + rank)));
        let fabric = FabricPlan {
            hosts: nodes.collect(),
            switches: (0..world_size).map(|_| SWITCH).collect(),
            roots: Default::default(),
        };
        let ports = (0..world_size).map(|rank| Some(PortId(first_port + rank))).collect();
        let plan = SharedJob { job: job.clone(), fabric: fabric.clone(), ports, trees: Vec::new(), share_bytes: 0 };
        self.pipeline.install_shared(&plan, Vec::new());
        let values = vec![1i32; shape.blocks * usize::from(shape.elements_per_packet)];
        let mut members = Vec::new();
        for rank in (0..world_size).map(Rank) {
            let config = HostConfig { fabric: fabric.clone(), ..HostConfig::worker(job.clone(), rank) };
            let mut host = BestEffortHost::new(Values::Elements, shape.rules, &config);
            let tensor = Box::new(ElementTensor::new(InPlaceStorage::new(values.clone()), ReduceOp::Sum));
            let submitted = host.submit(NOW, Collective { tensor, deadline: None });
            submitted.map_err(|error| wrong("a worker", error))?;
            members.push(host);
        }
        self.jobs.push(members);
        self.first_ports.push(first_port);
        Ok(())
    }

    /// The next packet of a member, if it may send one. It passes the switch, and the packets that leave the switch
    /// wait. Returns its kind, its sequence number and its bytes on the wire.
    pub fn send(&mut self, job: usize, rank: Rank) -> Result<Option<(Kind, u32, usize)>, ReproduceError> {
        let member = &mut self.jobs[job][rank.index()];
        let mut buf = vec![0; member.max_packet_len().max(MIN_TRANSMIT_LEN)];
        let Some(transmit) = member.poll_transmit(NOW, &mut buf) else { return Ok(None) };
        let said = described(&buf[..transmit.len])?;
        let mut packet = PacketMut::new(&mut buf[..transmit.len], transmit.ecn);
        let ingress = PortId(self.first_ports[job] + rank.0);
        let verdict = self.pipeline.process(NOW, ingress, &mut packet, &NoQueues);
        let (len, wire_len) = (packet.len, packet.wire_len);
        self.leave(job, verdict, &buf[..len], wire_len)?;
        let mut made_bytes = vec![0; buf.len().max(MIN_TRANSMIT_LEN) + usize::from(u8::MAX)];
        while let Some(made) = self.pipeline.poll_transmit(NOW, &mut made_bytes) {
            self.leave(job, made.verdict, &made_bytes[..made.len], made.wire_len)?;
        }
        Ok(Some((said.0, said.1, transmit.wire_len)))
    }

    /// Queues a packet that leaves the switch.
    fn leave(&mut self, job: usize, verdict: Verdict, bytes: &[u8], wire_len: usize) -> Result<(), ReproduceError> {
        let (first, world_size) = (self.first_ports[job], self.jobs[job].len() as u16);
        let to: Vec<Rank> = match verdict {
            Verdict::Consume => Vec::new(),
            Verdict::Port(port) => vec![Rank(port.0 - first)],
            Verdict::Multicast(ports) => ports.iter().map(|port| Rank(port.0 - first)).collect(),
            Verdict::Route(node) => vec![Rank((node.0 - 1) as u16 - first)],
            other => return Err(wrong("the switch", format!("{other:?}"))),
        };
        let (kind, seq) = described(bytes)?;
        for to in to.into_iter().filter(|rank| rank.0 < world_size) {
            self.waiting.push(Waiting { job, to, kind, seq, wire_len, bytes: bytes.to_vec() });
        }
        Ok(())
    }

    /// Delivers the waiting packets that `meant` chooses, in their order; the others keep waiting.
    pub fn deliver(&mut self, meant: impl Fn(&Waiting) -> bool) -> Result<(), ReproduceError> {
        let (due, rest) = std::mem::take(&mut self.waiting).into_iter().partition(meant);
        self.waiting = rest;
        let due: Vec<Waiting> = due;
        for packet in due {
            let member = &mut self.jobs[packet.job][packet.to.index()];
            let arrived = Packet { bytes: &packet.bytes, wire_len: packet.wire_len, ecn: Ecn::Capable };
            let taken = member.handle_packet(NOW, Addr::Node(SWITCH), arrived);
            taken.map_err(|reason| wrong("a packet", reason.name()))?;
        }
        Ok(())
    }
}

/// The kind of a packet, and its sequence number.
fn described(bytes: &[u8]) -> Result<(Kind, u32), ReproduceError> {
    let bad = |reason: tributary_proto::contract::drop_reason::DropReason| wrong("a packet", reason.name());
    Ok((Kind::of(bytes).map_err(bad)?, Header::parse(bytes).map_err(bad)?.seq))
}
