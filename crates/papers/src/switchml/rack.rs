//! The testbed of SwitchML's evaluation as a simulated network: workers around one switch, with one job.

use serde::Deserialize;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::host::HostStats;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::options::{Defaults, Options, TO_THE_LETTER};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::switchml::PROTOCOL;
use tributary_sim::engine::{HostCosts, JobPlan, Settings, Simulation};
use tributary_sim::net::Framing;
use tributary_sim::net::{ImpairmentSpec, LinkImpairment};
use tributary_sim::topology::star;
use tributary_sim::topology::{LinkId, LinkSpec, Rate};

use crate::{ReproduceError, Watch};

/// How often a long run checks whether it must stop.
const CHECK_EVERY: Span = Span::from_millis(1);
/// A run that has not ended by then is stuck.
const LATEST: Time = Time(600_000_000_000_000);

/// The cables and the switch.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rack {
    /// Propagation on each cable.
    pub delay_us: f64,
    /// How long a packet is inside the switch.
    pub switch_latency_us: f64,
    /// The capacity of each output queue.
    pub queue_kib: u64,
    /// Bytes on a link around each vector: gap, preamble, Ethernet, IP, UDP and the protocol's headers. If left out,
    /// ours.
    #[serde(default)]
    pub framing_bytes: Option<u16>,
}

/// The hosts of parameter servers, of which there are as many as workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Servers {
    /// On the workers' hosts.
    Colocated,
    /// On dedicated hosts, which doubles the number of hosts.
    Dedicated,
}

/// The type of a tensor's elements, and how they are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// Their type.
    pub dtype: DType,
    /// True if floats are summed in fixed point, as in the paper.
    pub fixed_point: bool,
}

impl Default for Elements {
    /// The paper's native type, which needs no scaling.
    fn default() -> Elements {
        Elements { dtype: DType::I32, fixed_point: false }
    }
}

/// One job on a rack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RackJob {
    /// The rack.
    pub rack: Rack,
    /// Every link's rate.
    pub gbit: u64,
    /// The protocol.
    pub protocol: &'static Protocol,
    /// The servers that sum, if the protocol has any.
    pub servers: Option<Servers>,
    /// Ranks, one on each host.
    pub workers: u32,
    /// Elements in the tensor.
    pub elements: u32,
    /// The kind of elements.
    pub of: Elements,
    /// Elements of four bytes in a packet.
    pub elements_per_packet: u16,
    /// Pool size.
    pub slots: u16,
    /// The retransmission timeout, fixed; `None` for the machines' own.
    pub rto: Option<Span>,
    /// True if losses are mended as in Algorithms 3 and 4 to the letter.
    pub to_the_letter: bool,
    /// Nanoseconds that each packet costs a host, sent or received.
    pub host_ns: f64,
    /// Probability of loss for each packet on each link.
    pub loss: f64,
    /// The seed of everything random.
    pub seed: u64,
}

/// A tensor on a rack that loses packets, as in files.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct LossyRack {
    /// The rack.
    pub rack: Rack,
    /// Link rate.
    pub gbit: u64,
    /// Ranks.
    pub workers: u32,
    /// Elements in the tensor.
    pub elements: u32,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Pool size.
    pub slots: u16,
    /// Retransmission timeout of every protocol.
    pub rto_us: u64,
}

impl LossyRack {
    /// The job under one protocol, with `loss` percent of all packets lost on each link.
    pub fn job(&self, protocol: &'static Protocol, loss: f64, seed: u64) -> RackJob {
        RackJob {
            workers: self.workers,
            elements: self.elements,
            elements_per_packet: self.elements_per_packet,
            slots: self.slots,
            rto: Some(Span::from_micros(self.rto_us)),
            loss: loss / 100.0,
            seed,
            ..RackJob::ideal(self.rack, self.gbit, protocol)
        }
    }
}

/// The result of a job.
pub struct RackRun {
    /// The time from the first rank's submission until the last rank has the sum (the papers' tensor aggregation time).
    pub tat: Span,
    /// The counts of each rank.
    pub stats: Vec<HostStats>,
}

impl Rack {
    /// Bytes on a link around each vector.
    pub fn framing_bytes(&self) -> u16 {
        self.framing_bytes.unwrap_or(Framing::ETHERNET.overhead + PROTOCOL.header_len as u16)
    }

    /// The largest share of a link's rate that vectors can have.
    pub fn payload_share(&self, elements_per_packet: u16) -> f64 {
        let vector = 4.0 * f64::from(elements_per_packet);
        vector / (vector + f64::from(self.framing_bytes()))
    }

    fn framing(&self) -> Result<Framing, ReproduceError> {
        let headers = PROTOCOL.header_len as u16;
        let overhead = self.framing_bytes().checked_sub(headers).ok_or_else(|| {
            ReproduceError::Bad(format!("framing_bytes must leave room for our headers, {headers} bytes"))
        })?;
        Ok(Framing { overhead, ..Framing::ETHERNET })
    }
}

impl RackJob {
    /// The least job: one element of one worker, links that lose nothing, and hosts whose packets cost nothing.
    pub fn ideal(rack: Rack, gbit: u64, protocol: &'static Protocol) -> RackJob {
        RackJob {
            rack,
            gbit,
            protocol,
            servers: None,
            workers: 1,
            elements: 1,
            of: Elements::default(),
            elements_per_packet: 1,
            slots: 1,
            rto: None,
            to_the_letter: false,
            host_ns: 0.0,
            loss: 0.0,
            seed: 1,
        }
    }

    /// The job, installed in its network, before its first event.
    pub fn build(&self) -> Result<Simulation, ReproduceError> {
        let us = |us: f64| Span::from_secs_f64(us * 1e-6);
        let link = LinkSpec {
            rate: Rate(self.gbit * 1_000_000_000),
            delay: us(self.rack.delay_us),
            queue_bytes: self.rack.queue_kib << 10,
            mark_bytes: None,
        };
        let settings = Settings { seed: self.seed, framing: self.rack.framing()?, ..Settings::default() };
        let dedicated: Vec<NodeId> = match self.servers {
            Some(Servers::Dedicated) => (self.workers..2 * self.workers).map(NodeId).collect(),
            _ => Vec::new(),
        };
        let hosts = self.workers + dedicated.len() as u32;
        let mut sim = Simulation::new(star(hosts, link, us(self.rack.switch_latency_us)), settings);
        if self.host_ns > 0.0 {
            let per_packet = Span::from_secs_f64(1e-9 * self.host_ns);
            sim.set_host_costs(HostCosts { per_packet, per_byte: Span::ZERO, free_at: Time::ZERO });
        }
        let installed = match self.servers {
            None => sim.install(self.plan()?),
            Some(_) => sim.install_served(self.plan()?, &dedicated),
        };
        installed.map_err(|error| ReproduceError::Bad(error.to_string()))?;
        if self.loss > 0.0 {
            let faults = ImpairmentSpec { loss: self.loss, ..ImpairmentSpec::default() };
            for link in 0..2 * hosts {
                sim.fabric.set_impairment(LinkId(link), Some(LinkImpairment::new(faults, self.seed, link)));
            }
        }
        Ok(sim)
    }

    fn plan(&self) -> Result<JobPlan, ReproduceError> {
        let fixed = |rto| TimerConfig { initial_rto: rto, min_rto: rto, max_rto: rto };
        Ok(JobPlan {
            sparse: None,
            custom_op: None,
            magnitudes: tributary_sim::engine::Magnitudes::Random,
            name: self.name(),
            protocol: self.protocol,
            members: (0..self.workers).map(NodeId).collect(),
            spec: Spec::allreduce(self.elements, self.of.dtype, ReduceOp::Sum),
            operations: Default::default(),
            iterations: 1,
            start: Time::ZERO,
            compute: Span::ZERO,
            options: self.options()?,
            elements_per_packet: self.elements_per_packet,
            slots: self.slots,
            roots: vec![0],
            timers: self.rto.map_or_else(TimerConfig::default, fixed),
            timeout: None,
        })
    }

    fn options(&self) -> Result<Options, ReproduceError> {
        let numbers = self.of.fixed_point.then(|| (Numbers::OPTION.name.to_owned(), "fixed".to_owned()));
        let resend = self.to_the_letter.then(|| ("resend".to_owned(), TO_THE_LETTER.to_owned()));
        let given = numbers.into_iter().chain(resend).collect();
        let options = self.protocol.options.read_with(&given, Defaults::Simulated);
        options.map_err(|error| ReproduceError::Bad(error.to_string()))
    }

    /// A name for errors.
    pub fn name(&self) -> String {
        format!("{} with {} workers at {} Gbit/s", self.protocol.name, self.workers, self.gbit)
    }

    /// Builds the job and runs it to its end.
    pub fn run(&self, watch: &Watch<'_>) -> Result<RackRun, ReproduceError> {
        let mut sim = self.build()?;
        while !sim.run_until_finished(sim.fabric.now + CHECK_EVERY) {
            watch.check()?;
            if sim.fabric.now > LATEST {
                break;
            }
        }
        self.finish(&sim, watch)
    }

    /// The result of a simulation that has ended: every sum must contain every contribution exactly once.
    pub fn finish(&self, sim: &Simulation, watch: &Watch<'_>) -> Result<RackRun, ReproduceError> {
        (watch.traced)(&format!("{:016x}", sim.fabric.trace_hash()));
        let job = &sim.traffic.jobs.all()[0];
        let wrong = |why: String| ReproduceError::Wrong { what: self.name(), why };
        if let Some(error) = job.errors.first() {
            return Err(wrong(format!("{:?}", error.kind)));
        }
        match (job.iterations[0].start, job.iterations[0].end) {
            (Some(start), Some(end)) if job.is_complete() => Ok(RackRun {
                tat: end.since(start),
                stats: sim.traffic.endpoints.iter().map(|endpoint| endpoint.machine.stats().clone()).collect(),
            }),
            _ => Err(wrong("it never ended".into())),
        }
    }

    /// Summed elements per second of a run.
    pub fn elements_per_second(&self, run: &RackRun) -> f64 {
        f64::from(self.elements) / run.tat.as_secs_f64()
    }

    /// The largest number of elements per second that the links can carry in each direction.
    pub fn best_elements_per_second(&self) -> f64 {
        self.gbit as f64 * 1e9 / 32.0 * self.rack.payload_share(self.elements_per_packet)
    }
}
