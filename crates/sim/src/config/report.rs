//! The parts of a report besides totals.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Span;

use super::Duration;
use super::fault::{LinkSet, Links};
use super::{ConfigError, invalid};

/// `[report]`: queues, links and switches over time. Nothing is sampled if `sample` is left out.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReportSection {
    /// How often samples are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// The links that are sampled.
    #[serde(default = "all")]
    pub links: Links,
}

fn all() -> Links {
    Links::Set(LinkSet::All)
}

impl Default for ReportSection {
    fn default() -> ReportSection {
        ReportSection { sample: None, links: all() }
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
    /// In equal steps, as many as a picture needs.
    Auto,
}

impl ReportSection {
    /// Refuses a step of no time.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self.sample {
            Some(Sample::Every(Duration(Span::ZERO))) => Err(invalid("report: sample = 0 is no step of time")),
            _ => Ok(()),
        }
    }
}
