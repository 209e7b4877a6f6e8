//! One run of an experiment: from a line, a point and a seed to its measurements.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::{Bytes, Config, Duration, Hosts, JobSection, Network, Pattern, Switches, TrafficSection};
use tributary_sim::report::Report;

use super::{Goodput, Line, Point};
use crate::finding::mean;
use crate::{Context, ReproduceError};

/// Bytes on a link around a background packet's payload, if the file gives none.
const OWN_FRAMING: u64 = 98;

/// One run.
pub(super) struct Run<'a> {
    pub line: &'a Line,
    pub point: &'a Point,
    pub congested: bool,
    pub seed: u64,
}

/// The measurements of a run.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Mean over jobs, Gbit/s.
    pub goodput: f64,
    /// Mean over jobs, microseconds.
    pub runtime_us: f64,
    /// The share of its hosts' packets that were sent again.
    pub again: f64,
    /// Mean and greatest utilisation of all links.
    pub mean_use: f64,
    pub most_use: f64,
    /// Mean utilisation of links that end at a host, and of links between switches.
    pub host_use: f64,
    pub core_use: f64,
    /// The rate that a background host receives, Gbit/s; `None` without background.
    pub background_gbps: Option<f64>,
    /// Contributions that missed their partial sum, for each block; `None` if the protocol does not wait.
    pub stragglers: Option<f64>,
    /// The most bytes of vectors in one switch at a time.
    pub slot_bytes: Option<f64>,
    /// Packets whose slot in a switch was taken.
    pub collisions: Option<f64>,
    /// Packets that repaired the tree for such packets on the way back.
    pub restorations: Option<f64>,
}

impl Goodput {
    pub(super) fn measure(
        &self,
        context: &Context<'_>,
        run: &Run<'_>,
        config: &Config,
    ) -> Result<Measured, ReproduceError> {
        let what = format!("{} at {} {}, seed {}", run.line.name, self.axis, run.point.x, run.seed);
        let report = context.watch.simulate(config, &what)?;
        Ok(self.measured(&report, run.point))
    }

    fn measured(&self, report: &Report, point: &Point) -> Measured {
        let bits = 8.0 * self.tensor_of(point).0 as f64;
        let goodputs: Vec<f64> = report.jobs.iter().filter_map(|job| job.goodput_gbps).collect();
        let runtimes: Vec<f64> = goodputs.iter().map(|goodput| bits / goodput * 1e-3).collect();
        let (sent, again) = report
            .jobs
            .iter()
            .fold((0, 0), |(sent, again), job| (sent + job.packets_sent, again + job.retransmissions));
        let uses: Vec<f64> = report.link_rows.iter().map(|row| row.utilisation).collect();
        let most_use = uses.iter().copied().fold(0.0, f64::max);
        let mean_of = |at_host: bool| {
            let rows = report.link_rows.iter().filter(|row| (row.from_level == 0 || row.to_level == 0) == at_host);
            let uses: Vec<f64> = rows.map(|row| row.utilisation).collect();
            if uses.is_empty() { 0.0 } else { mean(&uses) }
        };
        let ranks: usize = report.jobs.iter().map(|job| job.ranks).sum();
        let senders = (report.hosts as usize).saturating_sub(ranks).max(1) as f64;
        let vector = 4.0 * f64::from(self.elements_per_packet);
        let blocks = (bits / 8.0 / vector).ceil() * f64::from(point.jobs);
        Measured {
            goodput: mean(&goodputs),
            runtime_us: mean(&runtimes),
            again: again as f64 / sent.max(1) as f64,
            mean_use: mean(&uses),
            most_use,
            host_use: mean_of(true),
            core_use: mean_of(false),
            background_gbps: report.background.as_ref().map(|background| background.received_gbps / senders),
            stragglers: report.shared_figure("stragglers").map(|stragglers| stragglers / blocks),
            slot_bytes: report.shared_figure("slots_peak").map(|peak| peak * vector),
            collisions: report.shared_figure("collisions"),
            restorations: report.shared_figure("restorations"),
        }
    }

    /// The tensor of a point.
    pub(super) fn tensor_of(&self, point: &Point) -> Bytes {
        point.tensor.unwrap_or(self.tensor)
    }

    /// The run as a file for `tributary sim run`.
    pub(super) fn config(&self, run: &Run<'_>) -> Result<Config, ReproduceError> {
        let bad = |error: String| ReproduceError::Bad(error);
        let protocol = protocols::named(&run.line.protocol)
            .ok_or_else(|| bad(format!("\"{}\" is not a protocol", run.line.protocol)))?;
        let graph = self.network.build().map_err(|error| bad(error.to_string()))?;
        let hosts = (f64::from(graph.hosts()) * run.point.hosts / 100.0).round() as u32 / u32::from(run.point.jobs);
        let section = self.job(run, protocol, hosts);
        let network = self.network_of(run, protocol)?;
        let mut switches = run.line.switches.clone();
        for (protocol, options) in &run.point.switches {
            let over = switches.entry(protocol.clone()).or_default();
            over.extend(options.clone());
        }
        Ok(Config {
            seed: run.seed,
            end: self.end,
            network,
            hosts: None,
            jobs: vec![section; usize::from(run.point.jobs)],
            steps: Vec::new(),
            trainings: Vec::new(),
            traffic: if run.congested { vec![self.background()] } else { Vec::new() },
            faults: Vec::new(),
            transport: Default::default(),
            switches: Switches { options: switches, cores: None, accelerator: None },
            report: Default::default(),
        })
    }

    fn job(&self, run: &Run<'_>, protocol: &'static Protocol, hosts: u32) -> JobSection {
        JobSection {
            name: None,
            count: 1,
            protocol,
            priority: 0,
            hosts: Hosts::Count(hosts.max(2)),
            placement: Default::default(),
            ranks_per_host: 1,
            collective: Default::default(),
            root: None,
            tensor: self.tensor_of(run.point),
            density: None,
            indices: None,
            operator: None,
            data: Default::default(),
            magnitudes: Default::default(),
            dtype: tributary_numeric::DType::I32,
            op: tributary_numeric::ReduceOp::Sum,
            iterations: 1,
            start: Duration::default(),
            compute: Duration::default(),
            options: run.line.options.clone(),
            elements_per_packet: self.elements_per_packet,
            slots: run.point.slots.or(run.line.slots).or(self.slots),
            trees: run.line.trees,
            roots: None,
            root_choice: Default::default(),
            servers: None,
            shares: None,
            stragglers: None,
            rto: self.rto,
            timeout: None,
        }
    }

    /// The traffic of all other hosts in a congested run.
    fn background(&self) -> TrafficSection {
        TrafficSection {
            message: Some(self.message),
            packet: Bytes(4 * u64::from(self.elements_per_packet) + self.framing.map_or(OWN_FRAMING, |bytes| bytes.0)),
            exchange: self.exchange,
            ..TrafficSection::new(Pattern::Uniform)
        }
    }

    /// The network. If the file gives the bytes around a packet's vector, packets of all protocols have
    /// that many.
    fn network_of(&self, run: &Run<'_>, protocol: &Protocol) -> Result<Network, ReproduceError> {
        let mut network = self.network.clone();
        network.noise = run.point.noise.clone().or(network.noise);
        if let Some(framing) = self.framing {
            let header = protocol.header_len as u64;
            network.overhead = Bytes(framing.0.checked_sub(header).ok_or_else(|| {
                ReproduceError::Bad(format!(
                    "framing = {framing} leaves no room for the {header} bytes of {protocol}'s header"
                ))
            })?);
        }
        Ok(network)
    }
}
