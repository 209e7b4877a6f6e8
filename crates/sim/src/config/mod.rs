//! One file describes an experiment: network, jobs, background traffic, faults, seed.
//!
//! Unknown keys and impossible values are errors of one sentence. `docs/simulator.md` shows every key.

mod cores;
mod fault;
mod hosts;
mod keys;
mod network;
mod node;
mod report;
mod shape;
mod training;
mod work;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_control::config::OptionTable;
use tributary_proto::contract::time::Span;

pub use cores::{CoresSection, Full, SubsetName};
pub use fault::{FaultSection, LinkSet, Links};
pub use hosts::{Hosts, Placement};
pub use keys::{overlay, set_key};
pub use network::{LinkOverride, LosslessSection, Network, NoiseSection, Routing};
pub use node::{NodeName, SwitchName, Tier};
pub use report::{ReportSection, Sample, SampleWord};
pub use shape::{ClosShape, DumbbellShape, GraphLink, GraphShape, LeafSpineShape, StarShape};
pub use training::{SmallModels, TrainingSection};
pub use tributary_control::quantity::{Bytes, DataRate, Duration, Share};
pub use work::{
    CollectiveKind, ExpressionSource, JobSection, OperatorSource, ParameterServers, Pattern, RootChoice, ServerWord,
    StragglerSection, Timeouts, TrafficSection, Transport, TransportSection,
};

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
    /// Ranks that reduce together.
    #[serde(default, rename = "job", skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobSection>,
    /// Jobs that come and go.
    #[serde(default, rename = "training", skip_serializing_if = "Vec::is_empty")]
    pub trainings: Vec<TrainingSection>,
    /// Other traffic on the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficSection>,
    /// The memory and cores of switches, the same in all switches.
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

/// `[switches]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Switches {
    /// The cores on which handlers run and take time: `[switches.cores]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<CoresSection>,
    /// Options of memory that jobs share, by protocol: `[switches.NAME]`.
    #[serde(flatten)]
    pub options: BTreeMap<String, OptionTable>,
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
        Config::deserialize(table).map_err(|error| invalid(one_line(error.message())))
    }

    /// Reads a file's text. Whether its parts fit together is checked when it is built.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        toml::from_str(text).map_err(|error| {
            if let Some(sentence) = toml::from_str(text).ok().and_then(|table: toml::Table| other_kind(&table)) {
                return invalid(sentence);
            }
            let message = one_line(error.message());
            match error.span() {
                Some(span) => invalid(format!("line {}: {message}", text[..span.start].matches('\n').count() + 1)),
                None => invalid(message),
            }
        })
    }
}
