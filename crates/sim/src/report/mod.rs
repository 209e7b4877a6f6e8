//! The result of a run: text for people, JSON and tables for programs.

mod cores;
mod faults;
mod figures;
mod files;
mod jobs;
mod links;
mod metrics;
mod samples;
mod tables;
mod text;
mod timeline;
mod training;
mod transport;
mod verdict;

use std::time::Duration;

use serde::Serialize;

pub use cores::{CoresReport, KindCycles};
pub use faults::FaultReport;
pub use files::{FileError, write_whole};
pub use jobs::{IterationReport, JobReport, OperatorReport, SlotsReport};
pub use links::{LinkGroup, LinkRow};
pub use metrics::{MetricReport, MetricRow, SharedMetrics};
pub use samples::{CoresSample, LinkSample, Samples, SamplesReport};
pub use training::{LifetimeReport, TrainingReport};
pub use transport::{FlowClass, TransportReport};
pub use verdict::Stop;

use crate::config::{Config, Duration as Length};
use crate::engine::{JobIndex, Simulation};

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How many hosts the network has.
    pub hosts: u32,
    /// How many switches the network has.
    pub switches: u32,
    /// True if all messages, flows and ranks of jobs have ended; ranks may have failed.
    pub finished: bool,
    /// Why the run ended.
    pub stop: Stop,
    /// The file's `end`.
    #[serde(skip)]
    pub end: Length,
    /// Simulated seconds.
    pub seconds: f64,
    /// The hash of all arrivals and losses, in hexadecimal: equal for equal runs.
    pub trace_hash: String,
    /// Packets that came out of links.
    pub hops: u64,
    /// Jobs, in the file's order.
    pub jobs: Vec<JobReport>,
    /// Jobs that come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingReport>,
    /// Messages with an end.
    pub flows: Option<FlowReport>,
    /// Flows under DCTCP.
    pub transport: Option<TransportReport>,
    /// Traffic without end.
    pub background: Option<BackgroundReport>,
    /// The faults of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultReport>,
    /// Links, by levels and direction.
    pub links: Vec<LinkGroup>,
    /// Packets that a lossless network lost to full queues; `None` if PAUSE is not used.
    pub lossless_drops: Option<u64>,
    /// The most memory that programs took in one switch, in bytes.
    pub switch_memory_bytes: usize,
    /// The processors of switches, if the file gives them some and they handled packets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<CoresReport>,
    /// The metrics of memory that jobs share in switches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedMetrics>,
    /// Samples of links and switches over time, if the file asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<SamplesReport>,
    /// The samples, step by step.
    #[serde(skip)]
    pub samples: Option<Samples>,
    /// Every direction of every link.
    #[serde(skip)]
    pub link_rows: Vec<LinkRow>,
    /// Every finished message: its bytes and its seconds.
    #[serde(skip)]
    pub flow_rows: Vec<FlowRow>,
    /// Every metric that only its protocol has, switch by switch.
    #[serde(skip)]
    pub metric_rows: Vec<MetricRow>,
    /// The speed of the run; the only part that differs between equal runs.
    pub speed: Speed,
}

/// The speed of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Seconds to build the network.
    pub set_up_seconds: f64,
    /// Seconds to run.
    pub run_seconds: f64,
    /// Events.
    pub events: u64,
    /// Packets that came out of links, for each second.
    pub hops_per_second: f64,
}

/// All messages with an end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FlowReport {
    /// How many there were.
    pub flows: usize,
    /// How many were completely received.
    pub finished: usize,
    /// Of finished messages, the mean completion time in seconds.
    pub mean_seconds: f64,
    /// Median.
    pub p50_seconds: f64,
    /// 99th percentile.
    pub p99_seconds: f64,
    /// The longest.
    pub max_seconds: f64,
}

/// One finished message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRow {
    /// "message" or "dctcp".
    pub kind: &'static str,
    /// Sender.
    pub src: u32,
    /// Receiver.
    pub dst: u32,
    /// Bytes: for a message on links, under DCTCP of data.
    pub bytes: u64,
    /// When it arose, in seconds.
    pub start: f64,
    /// Its completion time.
    pub seconds: f64,
}

/// Traffic without end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BackgroundReport {
    /// Packets received.
    pub packets: u64,
    /// Gigabits received in a second, by all hosts together.
    pub received_gbps: f64,
}

impl Report {
    /// The report of a simulation at present.
    pub fn new(config: &Config, simulation: &Simulation, stop: Stop, set_up: Duration, run: Duration) -> Report {
        let (fabric, graph) = (&simulation.fabric, simulation.graph());
        let seconds = fabric.now.as_secs_f64();
        let mut flow_rows = flow_rows(simulation);
        let flows = flow_report(simulation.traffic.flows.all().len(), &flow_rows);
        let transport_rows = transport::rows(simulation);
        let transport = transport::report(simulation, &transport_rows);
        flow_rows.extend(transport_rows);
        let background = simulation.traffic.flows.background;
        let link_rows = links::rows(simulation);
        let metrics = simulation.switch_metrics();
        let jobs = simulation.traffic.jobs.all().iter().map(|job| jobs::report(simulation, job, &metrics));
        let jobs: Vec<JobReport> = jobs.collect();
        Report {
            seed: config.seed,
            hosts: graph.hosts(),
            switches: graph.switches(),
            finished: stop == Stop::Finished,
            stop,
            end: config.end,
            seconds,
            trace_hash: format!("{:016x}", fabric.trace_hash()),
            hops: fabric.hops(),
            training: training::report(simulation, &jobs),
            jobs,
            flows,
            transport,
            background: (background.packets > 0).then(|| BackgroundReport {
                packets: background.packets,
                received_gbps: background.bytes as f64 * 8e-9 / seconds,
            }),
            faults: faults::reports(config),
            links: links::groups(graph, &link_rows),
            lossless_drops: config.network.lossless.map(|_| links::overflows(&link_rows)),
            switch_memory_bytes: simulation.switch_memory_bytes(),
            cores: cores::reports(simulation),
            shared: metrics::of_shared(&metrics),
            sampled: None,
            samples: None,
            link_rows,
            flow_rows,
            metric_rows: metrics::rows(simulation, &metrics),
            speed: Speed {
                set_up_seconds: set_up.as_secs_f64(),
                run_seconds: run.as_secs_f64(),
                events: simulation.events(),
                hops_per_second: fabric.hops() as f64 / run.as_secs_f64(),
            },
        }
    }

    /// A metric of shared memory, by name: the sum of a counter, or the largest value of a gauge; of the first protocol
    /// that has it.
    pub fn shared_figure(&self, name: &str) -> Option<f64> {
        let metrics = self.shared.iter().flat_map(|shared| &shared.metrics);
        metrics.into_iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    /// Adds samples that were taken during the run.
    #[must_use]
    pub fn with_samples(mut self, samples: Option<Samples>) -> Report {
        if let Some(samples) = &samples {
            for (index, job) in self.jobs.iter_mut().enumerate() {
                job.slots_in_use = job.slots_in_use(samples, JobIndex(index as u16));
            }
        }
        Report { sampled: samples.as_ref().map(Samples::summary), samples, ..self }
    }
}

fn flow_rows(simulation: &Simulation) -> Vec<FlowRow> {
    let flows = simulation.traffic.flows.all().iter();
    flows
        .filter_map(|flow| {
            let seconds = flow.end?.since(flow.start).as_secs_f64();
            let start = flow.start.as_secs_f64();
            Some(FlowRow { kind: "message", src: flow.src.0, dst: flow.dst.0, bytes: flow.bytes, start, seconds })
        })
        .collect()
}

fn flow_report(flows: usize, rows: &[FlowRow]) -> Option<FlowReport> {
    if flows == 0 {
        return None;
    }
    let mut seconds: Vec<f64> = rows.iter().map(|row| row.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    Some(FlowReport {
        flows,
        finished: rows.len(),
        mean_seconds: seconds.iter().sum::<f64>() / seconds.len().max(1) as f64,
        p50_seconds: percentile(&seconds, 0.5),
        p99_seconds: percentile(&seconds, 0.99),
        max_seconds: percentile(&seconds, 1.0),
    })
}

/// The smallest value that a share of all values does not exceed; 0 if there are no values.
pub fn percentile(ascending: &[f64], share: f64) -> f64 {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| percentile(&values, share)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
