//! The experiment files. They are part of the program, so that an installed one has them too.

use serde::{Deserialize, Serialize};
use toml::Value;

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
use super::{Context, Findings, Memory, ReproduceError, Watch};
use crate::config::{overlay, set_key};

macro_rules! embedded {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("../../../../experiments/", $id, ".toml")))),*]
    };
}

/// What several files have in common: the name that their `base` gives, and text.
const BASES: &[(&str, &str)] = embedded! {
    "canary-base"
};

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
    changes: Vec<(String, Value)>,
}

/// A parameter that is not what the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its key, `network.queue`.
    pub key: String,
    /// What it is now.
    pub value: String,
    /// What the file says, if it says anything.
    pub file: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    about: String,
    #[serde(default)]
    left_out: Vec<String>,
    parameters: toml::Table,
    #[serde(default)]
    quick: toml::Table,
    published: Vec<Published>,
}

/// What a file lies over.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Base {
    about: String,
    parameters: toml::Table,
    quick: toml::Table,
}

impl Base {
    fn parse(id: &str, name: Option<&str>) -> Result<Base, ReproduceError> {
        let Some(name) = name else { return Ok(Base::default()) };
        let (_, text) = BASES
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ReproduceError::Bad(format!("{id}: there is no base \"{name}\"")))?;
        toml::from_str(text).map_err(|error| ReproduceError::Bad(format!("{name}: {}", error.to_string().trim())))
    }
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
        let file: File = toml::from_str(text).map_err(bad)?;
        let Base { about, mut parameters, mut quick } = Base::parse(id, file.base.as_deref())?;
        overlay(&mut parameters, file.parameters);
        overlay(&mut quick, file.quick);
        let entry = Entry {
            id: id.to_string(),
            title: file.title,
            source: file.source,
            about: [about, file.about].join("\n").trim().to_string(),
            published: file.published,
            left_out: file.left_out,
            parameters,
            quick,
            changes: Vec::new(),
        };
        entry.kind(false).and_then(|_| entry.kind(true))?;
        Ok(entry)
    }

    /// Changes a parameter: `network.queue=64 KiB`, `lines.2.slots=64`, in both sizes of the experiment. A value is TOML,
    /// or else a text.
    pub fn change(&mut self, setting: &str) -> Result<(), ReproduceError> {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| ReproduceError::Bad(format!("\"{setting}\" is no KEY=VALUE, as in network.queue=64 KiB")))?;
        let value = toml::from_str(&format!("value = {value}"))
            .ok()
            .and_then(|mut table: toml::Table| table.remove("value"))
            .unwrap_or_else(|| Value::String(value.into()));
        self.changes.push((key.into(), value));
        Ok(())
    }

    /// The parameters, with the small inputs or without, and what was changed.
    fn table(&self, quick: bool) -> Result<(toml::Table, Vec<Change>), ReproduceError> {
        let mut table = self.parameters.clone();
        if quick {
            overlay(&mut table, self.quick.clone());
        }
        let mut changes = Vec::new();
        for (key, value) in &self.changes {
            let written = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
            let file = set_key(&mut table, key, value.clone()).map_err(|part| {
                ReproduceError::Bad(format!("{}: \"{key}\" leads nowhere: there is no \"{part}\"", self.id))
            })?;
            changes.push(Change { key: key.clone(), value: written(value), file: file.as_ref().map(written) });
        }
        Ok((table, changes))
    }

    /// The parameters; `quick`: with the small inputs.
    pub fn kind(&self, quick: bool) -> Result<Kind, ReproduceError> {
        let (table, _) = self.table(quick)?;
        Kind::deserialize(table).map_err(|error| ReproduceError::Bad(format!("{}: {}", self.id, error.message())))
    }

    /// How many simulations it makes, where one takes long: those are announced here and not to the watch.
    pub fn runs(&self, quick: bool, seeds: u64) -> Result<usize, ReproduceError> {
        Ok(match self.kind(quick)? {
            Kind::Goodput(goodput) => goodput.run_count(seeds),
            _ => 0,
        })
    }

    /// Runs the experiment, and judges what it found.
    pub fn run(&self, quick: bool, seeds: u64, watch: &Watch<'_>, memory: &Memory) -> Result<Outcome, ReproduceError> {
        let findings = self.kind(quick)?.run(&Context { seeds, watch, memory })?;
        let (_, changes) = self.table(quick)?;
        let missing = |key| ReproduceError::Bad(format!("{}: nothing is measured under \"{key}\"", self.id));
        Outcome::new(self, quick, changes, findings).map_err(missing)
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
