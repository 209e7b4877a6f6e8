//! One file describes an experiment: network, jobs, background traffic, faults, seed.
//!
//! Unknown keys and impossible values are errors of one sentence. `docs/simulator-reference.md` shows every key.

mod cores;
mod foreign;
mod job;
mod keys;
mod lossless;
mod names;
mod network;
mod shape;
mod step;
mod traffic;
mod training;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_control::config::OptionTable;
use tributary_proto::contract::time::Span;

pub use cores::{AcceleratorSection, CoresSection, Full, SubsetName};
pub use foreign::network_of;
pub use job::{
    CollectiveKind, ExpressionSource, JobSection, OperatorSource, ParameterServers, RootChoice, ServerWord, Shares,
    StragglerSection, Timeouts,
};
pub use keys::{overlay, set_key};
pub(crate) use lossless::check_credits;
pub use lossless::{LosslessKind, LosslessSection};
pub use names::{Hosts, LinkSet, Links, NodeName, Placement, SwitchName, Tier};
pub use network::{Network, NoiseSection, Routing};
pub use shape::{
    ClosShape, DragonflyShape, DumbbellShape, GraphLink, GraphShape, GridShape, LeafSpineShape, LinkOverride,
    RailsShape, StarShape, TorusShape,
};
pub use step::{LayerSection, NodeSection, StepCollective, StepKind, StepSection};
pub use traffic::{
    BurstTimes, BurstsSection, Flows, OneFlow, Pattern, Sizes, TrafficSection, Transport, TransportSection,
};
pub use training::{SmallModels, TrainingSection};
pub use tributary_control::quantity::{Bytes, DataRate, Duration, Share};

/// An experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The seed of everything random.
    #[serde(default = "one")]
    pub seed: u64,
    /// The simulated time at which the run ends at the latest.
    #[serde(default = "ten_seconds")]
    pub end: Duration,
    /// The network.
    pub network: Network,
    /// What packets cost hosts' processors; nothing if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<HostCostSection>,
    /// Ranks that reduce together.
    #[serde(default, rename = "job", skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobSection>,
    /// Training steps, which their ranks repeat.
    #[serde(default, rename = "step", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSection>,
    /// Jobs that come and go.
    #[serde(default, rename = "training", skip_serializing_if = "Vec::is_empty")]
    pub trainings: Vec<TrainingSection>,
    /// Other traffic on the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficSection>,
    /// The memory, cores and accelerators of switches, the same in all switches.
    #[serde(default, skip_serializing_if = "is_default")]
    pub switches: Switches,
    /// The behaviour of flows under DCTCP.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transport: TransportSection,
    /// Faults.
    #[serde(default, rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultSection>,
    /// What the report contains besides totals.
    #[serde(default, skip_serializing_if = "is_default")]
    pub report: ReportSection,
}

/// `[hosts]`: each host has a processor that sends and receives one packet after the other, and memory that its ranks
/// share. What ranks compute runs on other processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostCostSection {
    /// For each packet that is sent or received.
    pub per_packet: Duration,
    /// For each byte that it has on the link.
    pub per_byte: Duration,
    /// The rate of its memory each way, for jobs with several ranks on a host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<DataRate>,
}

/// `[switches]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Switches {
    /// The cores on which handlers run and take time: `[switches.cores]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoresSection>,
    /// The accelerator before their programs: `[switches.accelerator]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorSection>,
    /// Options of memory that jobs share, by protocol: `[switches.NAME]`.
    #[serde(flatten)]
    pub options: BTreeMap<String, OptionTable>,
}

/// `[[fault]]`: a fault that begins at some time and may end at another.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSection {
    /// When it begins.
    pub at: Duration,
    /// When it ends; if left out, it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
    /// The links that it affects, both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
    /// Each packet is lost with this probability.
    pub loss: Share,
    /// Each packet's bits flip with this probability, so that the frame check drops it.
    pub corruption: Share,
    /// Each packet arrives twice with this probability.
    pub duplication: Share,
    /// Each packet arrives late with this probability, so that others overtake it.
    pub reordering: Share,
    /// The most that it is late.
    pub delay: Duration,
    /// Packets that join the links' queues meanwhile leave at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// The links are dead.
    pub down: bool,
    /// The links go down and come back alternately, after this time each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flap: Option<Duration>,
    /// A node that dies. A switch comes back without its programs' state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<NodeName>,
}

/// `[report]`: queues, links and switches over time. Nothing is sampled if `sample` is left out.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReportSection {
    /// How often samples are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// The links that are sampled.
    #[serde(default = "all_links")]
    pub links: Links,
    /// True if the report says why senders were stopped, which only networks with PAUSE have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pauses: bool,
    /// True if the report says which link or switch each job waits for, and which rank. The run then takes one thread.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bottlenecks: bool,
}

fn all_links() -> Links {
    Links::Set(LinkSet::All)
}

impl Default for ReportSection {
    fn default() -> ReportSection {
        ReportSection { sample: None, links: all_links(), pauses: false, bottlenecks: false }
    }
}

/// How often links and switches are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a step of time, as in \"10 us\", or \"auto\"")]
pub enum Sample {
    /// A word.
    Word(SampleWord),
    /// After each such simulated time.
    Every(Duration),
}

/// Words for how often samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleWord {
    /// In equal steps, as many as a figure needs.
    Auto,
}

impl ReportSection {
    /// Refuses a step of no time.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.sample {
            Some(Sample::Every(Duration(Span::ZERO))) => Err(invalid("report: sample = 0 is not a step of time")),
            _ => Ok(()),
        }
    }
}

/// Why a file is not an experiment, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

pub(crate) fn invalid(sentence: impl Into<String>) -> ConfigError {
    ConfigError(sentence.into())
}

/// A JSON object as the table of a file.
pub(crate) fn json_table(text: &str) -> Result<toml::Table, ConfigError> {
    serde_json::from_str(text).map_err(|error| invalid(error.to_string()))
}

/// A parser's message may have several lines; the sentence has one.
fn one_line(message: &str) -> String {
    message.lines().collect::<Vec<_>>().join(", ")
}

/// The kind of a file that is not an experiment of one run, and how such a file is used.
pub(crate) fn other_kind(table: &toml::Table) -> Option<&'static str> {
    let has = |key: &str| table.contains_key(key);
    if has("sweep") {
        return Some("this file has a [sweep]: run it with `tributary sim sweep FILE`");
    }
    (has("parameters") && has("published")).then_some(
        "this file holds published results and is for `tributary reproduce ID`: the id is the file's name without \
         .toml, and `tributary reproduce list` shows all of them",
    )
}

fn is_default<T: Default + PartialEq>(section: &T) -> bool {
    *section == T::default()
}

fn one() -> u64 {
    1
}

/// A job needs a number.
const MAX_JOBS: u64 = 60_000;

fn ten_seconds() -> Duration {
    Duration(Span::from_millis(10_000))
}

impl Config {
    /// Reads an experiment from a JSON object, as programs make it.
    pub fn parse_json(text: &str) -> Result<Config, ConfigError> {
        let table = json_table(text)?;
        if table.contains_key("sweep") {
            return Err(invalid("the experiment has a \"sweep\": run it with `tributary.sim.sweep`"));
        }
        Config::deserialize(table).map_err(|error| invalid(one_line(error.message())))?.with_equal_jobs()
    }

    /// Reads a file's text. Whether its sections fit together is checked when it is built.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let read: Result<Config, _> = toml::from_str(text);
        let config = read.map_err(|error| {
            if let Some(sentence) = toml::from_str(text).ok().and_then(|table: toml::Table| other_kind(&table)) {
                return invalid(sentence);
            }
            let message = one_line(error.message());
            match error.span() {
                Some(span) => invalid(format!("line {}: {message}", text[..span.start].matches('\n').count() + 1)),
                None => invalid(message),
            }
        })?;
        config.with_equal_jobs()
    }

    /// The same with a section for each of several equal jobs.
    fn with_equal_jobs(mut self) -> Result<Config, ConfigError> {
        let all: u64 = self.jobs.iter().map(|job| u64::from(job.count)).sum();
        if let Some(index) = self.jobs.iter().position(|job| job.count == 0) {
            return Err(invalid(format!("job {index}: count = 0: leave the section out")));
        }
        if all > MAX_JOBS {
            return Err(invalid(format!("the file has {all} jobs; at most {MAX_JOBS} are possible")));
        }
        self.jobs = self.jobs.into_iter().flat_map(JobSection::each).collect();
        Ok(self)
    }
}
