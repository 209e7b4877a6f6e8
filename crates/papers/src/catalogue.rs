//! All experiment files, and how a file is read and changed.

use serde::{Deserialize, Serialize};
use toml::Value;
use tributary_sim::config::{overlay, set_key};

use crate::goodput::Goodput;
use crate::judge::Published;
use crate::paper::{Change, Experiment, Paper, Read, Setting, read};
use crate::row::{Elsewhere, Judged, Outcome, judge};
use crate::{Context, Findings, Memory, ReproduceError, Watch};

/// The papers whose results are reproduced, in the order in which they are listed.
const PAPERS: &[&Paper] = &[
    // One line for each paper.
    &crate::switchml::PAPER,
    &crate::canary::PAPER,
    &crate::panama::PAPER,
    &crate::pa_atp::PAPER,
    &crate::flare::PAPER,
    &crate::thc::PAPER,
];

/// The kinds of experiments that belong to no paper.
const KINDS: &[(&str, Read)] = &[("goodput", read::<Goodput>)];

/// About how long an experiment takes on two cores, with five seeds and the inputs of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Takes {
    /// Up to half a minute.
    #[serde(rename = "seconds")]
    Seconds,
    /// Up to twenty minutes.
    #[serde(rename = "minutes")]
    Minutes,
    /// Up to two hours.
    #[serde(rename = "an hour")]
    Hour,
}

impl Takes {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Takes::Seconds => "seconds",
            Takes::Minutes => "minutes",
            Takes::Hour => "an hour",
        }
    }
}

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// `<paper>-<figure>`.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// About how long it takes.
    pub takes: Takes,
    /// Its setup, and what the paper does not say.
    pub about: String,
    /// The published values.
    pub published: Vec<Published>,
    /// Published values without a row, and why they have none.
    pub left_out: Vec<String>,
    /// Parameters that the paper leaves open and that were chosen with the rows in view.
    pub fitted: Vec<Setting>,
    /// Parameters that the paper leaves open and that were chosen without the rows.
    pub open: Vec<Setting>,
    parameters: toml::Table,
    quick: toml::Table,
    full: toml::Table,
    /// True if it has the paper's sizes where the file makes them smaller.
    is_full: bool,
    changes: Vec<(String, Value)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    takes: Takes,
    #[serde(default)]
    base: Option<String>,
    #[serde(default)]
    about: String,
    #[serde(default)]
    left_out: Vec<String>,
    #[serde(default)]
    fitted: Vec<Setting>,
    #[serde(default)]
    open: Vec<Setting>,
    parameters: toml::Table,
    #[serde(default)]
    quick: toml::Table,
    #[serde(default)]
    full: toml::Table,
    published: Vec<Published>,
}

/// The common part of several files.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Base {
    about: String,
    #[serde(default)]
    fitted: Vec<Setting>,
    #[serde(default)]
    open: Vec<Setting>,
    parameters: toml::Table,
    quick: toml::Table,
    #[serde(default)]
    full: toml::Table,
}

impl Base {
    fn parse(id: &str, name: Option<&str>) -> Result<Base, ReproduceError> {
        let Some(name) = name else { return Ok(Base::default()) };
        let (_, text) = PAPERS
            .iter()
            .flat_map(|paper| paper.bases)
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ReproduceError::Bad(format!("{id}: there is no base \"{name}\"")))?;
        toml::from_str(text).map_err(|error| ReproduceError::Bad(format!("{name}: {}", error.to_string().trim())))
    }
}

/// All experiments.
pub fn catalogue() -> Vec<Entry> {
    let files = PAPERS.iter().flat_map(|paper| paper.files);
    files.map(|(id, text)| Entry::parse(id, text).expect("the tests read every embedded file")).collect()
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
        let base = Base::parse(id, file.base.as_deref())?;
        let Base { about, mut fitted, mut open, mut parameters, mut quick, mut full } = base;
        overlay(&mut parameters, file.parameters);
        overlay(&mut quick, file.quick);
        overlay(&mut full, file.full);
        fitted.extend(file.fitted);
        open.extend(file.open);
        let entry = Entry {
            id: id.to_string(),
            title: file.title,
            source: file.source,
            takes: file.takes,
            about: [about, file.about].join("\n").trim().to_string(),
            published: file.published,
            left_out: file.left_out,
            fitted,
            open,
            parameters,
            quick,
            full,
            is_full: false,
            changes: Vec::new(),
        };
        let mut full = entry.clone();
        full.make_full();
        for (_, entry) in entry.others().into_iter().chain([(String::new(), entry.clone()), (String::new(), full)]) {
            entry.experiment(false).and_then(|_| entry.experiment(true))?;
        }
        Ok(entry)
    }

    /// Takes the paper's sizes where the file makes them smaller; false if the file makes none smaller.
    pub fn make_full(&mut self) -> bool {
        self.is_full = !self.full.is_empty();
        self.is_full
    }

    /// True if it has the paper's sizes where its file makes them smaller.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Changes a parameter: `network.queue=64 KiB`, `lines.2.slots=64`, in both sizes of the experiment. A value is
    /// TOML, or else text.
    pub fn change(&mut self, setting: &str) -> Result<(), ReproduceError> {
        let (key, value) = setting.split_once('=').ok_or_else(|| {
            ReproduceError::Bad(format!("\"{setting}\" is not KEY=VALUE, as in network.queue=64 KiB"))
        })?;
        let value = toml::from_str(&format!("value = {value}"))
            .ok()
            .and_then(|mut table: toml::Table| table.remove("value"))
            .unwrap_or_else(|| Value::String(value.into()));
        self.change_to(key, value);
        Ok(())
    }

    /// Changes a parameter to a value.
    fn change_to(&mut self, key: &str, value: Value) {
        self.changes.push((key.into(), value));
    }

    /// The parameters, with or without the small inputs, and the changes.
    pub(crate) fn table(&self, quick: bool) -> Result<(toml::Table, Vec<Change>), ReproduceError> {
        let mut table = self.parameters.clone();
        if self.is_full {
            overlay(&mut table, self.full.clone());
        }
        if quick {
            overlay(&mut table, self.quick.clone());
        }
        let mut changes = Vec::new();
        for (key, value) in &self.changes {
            let written = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
            let file = set_key(&mut table, key, value.clone())
                .map_err(|missing| ReproduceError::Bad(format!("{}: \"{key}\" leads nowhere: {missing}", self.id)))?;
            changes.push(Change { key: key.clone(), value: written(value), file: file.as_ref().map(written) });
        }
        Ok((table, changes))
    }

    /// The parameters; with the small inputs if `quick`.
    pub fn experiment(&self, quick: bool) -> Result<Box<dyn Experiment>, ReproduceError> {
        let bad = |why: &str| ReproduceError::Bad(format!("{}: {why}", self.id));
        let (mut table, _) = self.table(quick)?;
        let Some(Value::String(kind)) = table.remove("kind") else {
            return Err(bad("[parameters] needs a kind, as in kind = \"goodput\""));
        };
        let mut kinds = PAPERS.iter().flat_map(|paper| paper.kinds).chain(KINDS);
        let (_, read) = kinds
            .find(|(name, _)| *name == kind)
            .ok_or_else(|| bad(&format!("there is no kind of experiment \"{kind}\"")))?;
        read(table).map_err(|error| bad(error.message()))
    }

    /// The experiment with each of the other values.
    pub(crate) fn others(&self) -> Vec<(String, Entry)> {
        let others = self.fitted.iter().chain(&self.open).flat_map(|setting| &setting.others);
        others
            .map(|other| {
                let mut entry = self.clone();
                for (key, value) in &other.set {
                    entry.change_to(key, Value::clone(value));
                }
                (other.name.clone(), entry)
            })
            .collect()
    }
}

// Runs an experiment and judges what it finds, also with other values of what the paper leaves open.

impl Entry {
    /// How many simulations it makes, if a simulation takes long: such simulations are counted here and not announced
    /// to the watch.
    pub fn runs(&self, quick: bool, seeds: u64) -> Result<usize, ReproduceError> {
        Ok(self.experiment(quick)?.run_count(seeds))
    }

    /// Runs the experiment, and judges its findings.
    pub fn run(&self, quick: bool, seeds: u64, watch: &Watch<'_>, memory: &Memory) -> Result<Outcome, ReproduceError> {
        let (table, changes) = self.table(quick)?;
        let experiment = self.experiment(quick)?;
        let question = format!("{} with {seeds} seeds\n{table}", self.id);
        let known = memory.get::<Findings>(&question);
        if known.is_some() {
            (0..experiment.run_count(seeds)).for_each(|_| (watch.done)());
        }
        let findings = match known {
            Some(findings) => findings,
            None => experiment.run(&Context { seeds, watch, memory })?,
        };
        memory.keep(&question, &findings);
        let missing = |key| ReproduceError::Bad(format!("{}: nothing is measured under \"{key}\"", self.id));
        let Judged { rows, left_out } = judge(&self.published, !changes.is_empty(), &findings).map_err(missing)?;
        Ok(Outcome {
            id: self.id.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            quick,
            full: self.is_full(),
            rows,
            left_out: self.left_out.iter().cloned().chain(left_out).collect(),
            changes,
            fitted: self.fitted.clone(),
            open: self.open.clone(),
            notes: findings.notes,
            figures: findings.figures,
        })
    }

    /// How many simulations [`Entry::vary`] makes, as [`Entry::runs`] counts them.
    pub fn runs_of_others(&self, quick: bool, seeds: u64) -> Result<usize, ReproduceError> {
        self.others().iter().map(|(_, entry)| entry.runs(quick, seeds)).sum()
    }

    /// Runs the experiment with each of the other values, and adds the result to each row. If the experiment
    /// fails with some values, a note says why.
    pub fn vary(
        &self,
        outcome: &mut Outcome,
        seeds: u64,
        watch: &Watch<'_>,
        memory: &Memory,
    ) -> Result<(), ReproduceError> {
        for (with, entry) in self.others() {
            let other = match entry.run(outcome.quick, seeds, watch, memory) {
                Err(ReproduceError::Stopped) => return Err(ReproduceError::Stopped),
                Err(why) => {
                    outcome.notes.push(format!("Not measured with {with}: {why}."));
                    continue;
                }
                Ok(other) => other,
            };
            for row in &mut outcome.rows {
                let same = other.rows.iter().find(|other| other.published.key == row.published.key);
                let elsewhere =
                    same.map(|other| Elsewhere { with: with.clone(), ours: other.ours, verdict: other.verdict });
                row.elsewhere.extend(elsewhere);
            }
        }
        Ok(())
    }
}
