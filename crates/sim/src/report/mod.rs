//! The result of a run: text for people, JSON and tables for programs.

mod bottlenecks;
mod figures;
mod flows;
mod jobs;
mod links;
mod page;
mod pauses;
mod samples;
mod steps;
mod switches;
mod tables;
mod text;
mod topology;
mod training;

use std::time::Duration;

use serde::Serialize;

pub use self::topology::draw;
pub use bottlenecks::{BottleneckReport, BottleneckShare, LastShare};
pub use figures::{Figure, Mark, Series};
pub use flows::{FlowClass, FlowReport, FlowRow, TransportReport};
pub use jobs::{IterationReport, JobReport, OperatorReport, SlotsReport, TreeReport};
pub use links::{LinkGroup, LinkRow};
pub use pauses::{PauseBranch, PauseTree, PausesReport};
pub use samples::{CoresSample, LinkSample, Samples, SamplesReport};
pub use steps::{SpanRow, StepReport};
pub use switches::{CoresReport, KindCycles, MetricReport, MetricRow, SharedMetrics};
pub use tables::{FileError, write_whole};
pub use training::{LifetimeReport, TrainingReport};

use crate::capture::Found;
use crate::config::{Config, Duration as Length, FaultSection, LinkSet, Links, NodeName};
use crate::engine::{JobIndex, Simulation};
use crate::provenance::Origin;
use crate::topology::Graph;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The program, and the file that it was given.
    pub origin: Origin,
    /// What the file most likely does not mean.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
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
    /// Training steps, in the file's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepReport>,
    /// Jobs that come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingReport>,
    /// Messages with an end.
    pub flows: Option<FlowReport>,
    /// Flows under a transport.
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
    /// Why senders were stopped, if the file asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses: Option<PausesReport>,
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
    /// What every rank of a training step did.
    #[serde(skip)]
    pub span_rows: Vec<SpanRow>,
    /// Every finished message: its bytes and its seconds.
    #[serde(skip)]
    pub flow_rows: Vec<FlowRow>,
    /// Every metric that only its protocol has, switch by switch.
    #[serde(skip)]
    pub metric_rows: Vec<MetricRow>,
    /// The speed of the run; the only part that differs between equal runs.
    pub speed: Speed,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Nothing is left to wait for.
    Finished,
    /// The file's `end` was reached.
    End,
    /// No event was left.
    Idle,
}

/// One `[[fault]]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultReport {
    /// "switch 4 dead", "core links: loss 0.1 %".
    pub what: String,
    /// When it begins, in seconds.
    pub at: f64,
    /// When it ends; `None` if it never ends.
    pub until: Option<f64>,
}

/// What a run took of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// To build the network.
    pub set_up: Duration,
    /// To run.
    pub run: Duration,
    /// Of processors to run, by all threads.
    pub processor: Duration,
}

/// The speed of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speed {
    /// Seconds to build the network.
    pub set_up_seconds: f64,
    /// Seconds to run.
    pub run_seconds: f64,
    /// Seconds of processor time to run, of all threads.
    pub processor_seconds: f64,
    /// Events.
    pub events: u64,
    /// Packets that came out of links, for each second of processor time.
    pub hops_per_second: f64,
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
    pub fn new(config: &Config, simulation: &Simulation, stop: Stop, taken: Taken) -> Report {
        let (fabric, graph) = (&simulation.fabric, simulation.graph());
        let seconds = fabric.now.as_secs_f64();
        let mut flow_rows = flows::message_rows(simulation);
        let messages = flows::message_report(simulation.traffic.flows.all().len(), &flow_rows);
        let transport_rows = flows::transport_rows(simulation);
        let transport = flows::transport_report(simulation, &transport_rows);
        flow_rows.extend(transport_rows);
        let background = simulation.traffic.flows.background;
        let link_rows = links::rows(simulation);
        let metrics = simulation.switch_metrics();
        let jobs = simulation.traffic.jobs.all().iter().map(|job| jobs::report(simulation, job, &metrics));
        let jobs: Vec<JobReport> = jobs.collect();
        Report {
            origin: Origin::here(),
            warnings: Vec::new(),
            seed: config.seed,
            hosts: graph.hosts(),
            switches: graph.switches(),
            finished: stop == Stop::Finished,
            stop,
            end: config.end,
            seconds,
            trace_hash: format!("{:016x}", fabric.trace_hash()),
            hops: fabric.hops(),
            steps: steps::reports(simulation),
            training: training::report(simulation, &jobs),
            jobs,
            flows: messages,
            transport,
            background: (background.packets > 0).then(|| BackgroundReport {
                packets: background.packets,
                received_gbps: background.bytes as f64 * 8e-9 / seconds,
            }),
            faults: fault_reports(config),
            links: links::groups(graph, &link_rows),
            lossless_drops: config.network.lossless.map(|_| links::overflows(&link_rows)),
            pauses: pauses::report(simulation),
            switch_memory_bytes: simulation.switch_memory_bytes(),
            cores: switches::cores_reports(simulation),
            shared: switches::of_shared(&metrics),
            sampled: None,
            samples: None,
            link_rows,
            flow_rows,
            span_rows: steps::rows(simulation),
            metric_rows: switches::metric_rows(simulation, &metrics),
            speed: Speed {
                set_up_seconds: taken.set_up.as_secs_f64(),
                run_seconds: taken.run.as_secs_f64(),
                processor_seconds: taken.processor.as_secs_f64(),
                events: simulation.events(),
                hops_per_second: fabric.hops() as f64 / taken.processor.as_secs_f64(),
            },
        }
    }

    /// Says which file's text the run was read from.
    #[must_use]
    pub fn of_file(self, text: &str) -> Report {
        Report { origin: Origin::of_file(text), ..self }
    }

    /// A metric of shared memory, by name: the sum of a counter, or the largest value of a gauge; of the first protocol
    /// that has it.
    pub fn shared_figure(&self, name: &str) -> Option<f64> {
        let metrics = self.shared.iter().flat_map(|shared| &shared.metrics);
        metrics.into_iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    /// Adds what each job waited for.
    #[must_use]
    pub(crate) fn with_journeys(mut self, graph: &Graph, found: &Found) -> Report {
        for (index, job) in self.jobs.iter_mut().enumerate() {
            job.bottlenecks = BottleneckReport::new(graph, job, &found.of(JobIndex(index as u16)));
        }
        self
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

/// The smallest value that a share of all values does not exceed; 0 if there are no values.
pub fn percentile(ascending: &[f64], share: f64) -> f64 {
    let rank = (ascending.len() as f64 * share).ceil() as usize;
    ascending.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

impl Report {
    /// Why the run failed, in a sentence; `None` if every sum is verified and everything finished.
    pub fn failure(&self) -> Option<String> {
        self.first_failure().map(|sentence| match self.stop {
            Stop::End => format!("{sentence}; the run was over at end = {}, which the file may put later", self.end),
            Stop::Finished | Stop::Idle => sentence,
        })
    }

    fn first_failure(&self) -> Option<String> {
        let of_jobs = |sentence: fn(&JobReport) -> Option<String>| {
            self.jobs.iter().find_map(|job| Some(format!("{}: {}", job.name, sentence(job)?)))
        };
        if let Some(sentence) = of_jobs(|job| job.errors.first().filter(|_| job.wrong_sums > 0).cloned()) {
            return Some(sentence);
        }
        if let Some((job, sentence)) = self.jobs.iter().find_map(|job| Some((job, job.stuck.as_ref()?))) {
            return Some(format!("{} {sentence}", job.name));
        }
        if let Some(sentence) = of_jobs(|job| job.errors.first().cloned()) {
            return Some(sentence);
        }
        if let Some(job) = self.jobs.iter().find(|job| !job.complete) {
            let (completed, all) = (job.completed, job.collectives);
            return Some(format!(
                "{} did not complete in {} s of simulated time: {completed} of its {all} collectives are complete",
                job.name, self.seconds
            ));
        }
        if let Some(sentence) = self.steps.iter().find_map(StepReport::failure) {
            return Some(sentence);
        }
        if let Some(sentence) = self.training.as_ref().and_then(|training| training.failure(self.finished)) {
            return Some(sentence);
        }
        if let Some(lost) = self.lossless_drops.filter(|&lost| lost > 0) {
            return Some(format!(
                "the lossless network lost {lost} packets to full queues: its queues need more bytes"
            ));
        }
        if let Some(lost) = self.flows.filter(|flows| flows.finished < flows.flows) {
            return Some(format!("{} of {} messages were not received whole", lost.flows - lost.finished, lost.flows));
        }
        let flows = self.transport.as_ref().filter(|_| !self.finished)?;
        let (unfinished, name) = (flows.started - flows.finished, flows::flows_under(&flows.congestion_control));
        Some(format!("{unfinished} of {} {name} did not finish", flows.started))
    }
}

/// The faults of a file, in its order.
fn fault_reports(config: &Config) -> Vec<FaultReport> {
    let report = |fault: &FaultSection| FaultReport {
        what: describe_fault(fault),
        at: fault.at.0.as_secs_f64(),
        until: fault.until.map(|until| until.0.as_secs_f64()),
    };
    config.faults.iter().map(report).collect()
}

fn describe_fault(fault: &FaultSection) -> String {
    let dead = fault.dead.map(|node| format!("{} dead", String::from(node)));
    let shares = [
        ("loss", fault.loss),
        ("corruption", fault.corruption),
        ("duplication", fault.duplication),
        ("reordering", fault.reordering),
    ];
    let shares = shares.into_iter().filter(|(_, share)| share.0 > 0.0).map(|(name, share)| format!("{name} {share}"));
    let down = match (fault.flap, fault.down) {
        (Some(period), _) => Some(format!("flap every {period}")),
        (None, true) => Some("down".to_string()),
        (None, false) => None,
    };
    let effects: Vec<String> = shares.chain(down).collect();
    let links = fault.links.as_ref().filter(|_| !effects.is_empty());
    let links = links.map(|links| format!("{}: {}", links_name(links), effects.join(", ")));
    dead.into_iter().chain(links).collect::<Vec<_>>().join("; ")
}

fn links_name(links: &Links) -> String {
    let node_name = |node: NodeName| String::from(node);
    match links {
        Links::Set(LinkSet::All) => "all links".to_string(),
        Links::Set(LinkSet::Hosts) => "hosts' links".to_string(),
        Links::Set(LinkSet::Core) => "core links".to_string(),
        Links::Between(pairs) => match &pairs[..] {
            [[a, b]] => format!("{} to {}", node_name(*a), node_name(*b)),
            pairs => format!("{} links", pairs.len()),
        },
    }
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
