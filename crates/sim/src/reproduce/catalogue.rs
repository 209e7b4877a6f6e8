//! The experiment files. They are part of the program, so that an installed one has them too.

use serde::Deserialize;

use super::descriptors::Descriptors;
use super::goodput::Goodput;
use super::judge::{Outcome, Published};
use super::levels::Levels;
use super::loss::Loss;
use super::payload::Payload;
use super::pool::Pool;
use super::replay::Replay;
use super::scaling::Scaling;
use super::timeline::Timeline;
use super::volume::Volume;
use super::{Context, Findings, ReproduceError, Watch};

macro_rules! embedded {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("../../../../experiments/", $id, ".toml")))),*]
    };
}

/// Every file: id and text.
const FILES: &[(&str, &str)] = embedded! {
    "switchml-s3"
    "switchml-table2"
    "switchml-fig3"
    "switchml-payload"
    "switchml-fig6"
    "switchml-fig7"
    "switchml-fig9"
    "switchml-s7"
    "canary-fig2"
    "canary-fig6"
    "canary-fig7a"
    "canary-fig7b"
    "canary-fig8"
    "canary-fig9"
    "canary-fig10"
    "canary-fig11"
    "canary-s322"
    "canary-s42"
};

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// `<paper>-<figure>`.
    pub id: String,
    /// What it is.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// How it is set up, and what the paper does not say.
    pub about: String,
    /// What was published.
    pub published: Vec<Published>,
    /// What was published besides, and why no row shows it.
    pub left_out: Vec<String>,
    parameters: toml::Table,
    quick: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    about: String,
    #[serde(default)]
    left_out: Vec<String>,
    parameters: toml::Table,
    #[serde(default)]
    quick: toml::Table,
    published: Vec<Published>,
}

/// The kinds of experiments, with their parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// Bytes that each worker sends and receives.
    Volume(Volume),
    /// Goodput by the elements of a packet.
    Payload(Payload),
    /// Speed-up of training from profiles.
    Replay(Replay),
    /// Elements per second by workers.
    Scaling(Scaling),
    /// Aggregation time by loss.
    Loss(Loss),
    /// Packets over time.
    Timeline(Timeline),
    /// Aggregation time and round trip by pool size.
    Pool(Pool),
    /// Workers by levels of switches.
    Levels(Levels),
    /// Canary's formulas for descriptors and groups.
    Descriptors(Descriptors),
    /// Goodput on a fat tree, alone and under background traffic.
    Goodput(Box<Goodput>),
}

/// All experiments.
pub fn catalogue() -> Vec<Entry> {
    FILES.iter().map(|(id, text)| Entry::parse(id, text).expect("the tests read every embedded file")).collect()
}

/// The experiment with this id.
pub fn find(id: &str) -> Option<Entry> {
    catalogue().into_iter().find(|entry| entry.id == id)
}

impl Entry {
    /// Reads a file's text.
    pub fn parse(id: &str, text: &str) -> Result<Entry, ReproduceError> {
        let bad = |error: toml::de::Error| ReproduceError::Bad(format!("{id}: {}", error.to_string().trim()));
        let File { title, source, about, left_out, parameters, quick, published } =
            toml::from_str(text).map_err(bad)?;
        let entry = Entry { id: id.to_string(), title, source, about, published, left_out, parameters, quick };
        entry.kind(false).and_then(|_| entry.kind(true))?;
        Ok(entry)
    }

    /// The parameters; `quick`: with the small inputs.
    pub fn kind(&self, quick: bool) -> Result<Kind, ReproduceError> {
        let mut table = self.parameters.clone();
        if quick {
            table.extend(self.quick.clone());
        }
        Kind::deserialize(table).map_err(|error| ReproduceError::Bad(format!("{}: {}", self.id, error.message())))
    }

    /// Runs the experiment, and judges what it found.
    pub fn run(&self, quick: bool, seeds: u64, watch: &Watch<'_>) -> Result<Outcome, ReproduceError> {
        let findings = self.kind(quick)?.run(&Context { seeds, watch })?;
        let missing = |key| ReproduceError::Bad(format!("{}: nothing is measured under \"{key}\"", self.id));
        Outcome::new(self, quick, findings).map_err(missing)
    }
}

impl Kind {
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        match self {
            Kind::Volume(volume) => volume.run(context),
            Kind::Payload(payload) => payload.run(context),
            Kind::Replay(replay) => replay.run(),
            Kind::Scaling(scaling) => scaling.run(context),
            Kind::Loss(loss) => loss.run(context),
            Kind::Timeline(timeline) => timeline.run(context),
            Kind::Pool(pool) => pool.run(context),
            Kind::Levels(levels) => levels.run(),
            Kind::Descriptors(descriptors) => descriptors.run(),
            Kind::Goodput(goodput) => goodput.run(context),
        }
    }
}
