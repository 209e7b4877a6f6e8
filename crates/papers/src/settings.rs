//! Settings that a paper leaves open, and what each row says with other values of them.

use serde::{Deserialize, Serialize};
use toml::Value;

use crate::finding::Finding;
use crate::judge::{Outcome, Verdict};
use crate::{Entry, Memory, ReproduceError, Watch};

/// Parameters that the paper leaves open and that were chosen together: `fitted` if the rows were in view, because
/// they then agree, and `open` if not.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The parameters that were chosen.
    pub what: String,
    /// What the paper says about them, and what decided.
    pub because: String,
    /// Other values that may be just as right.
    pub others: Vec<Other>,
}

/// Other values of a setting.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// A short description of them.
    pub name: String,
    /// The parameters, by key.
    #[serde(skip_serializing)]
    pub set: toml::Table,
}

/// A row with other values of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elsewhere {
    /// The description of the values.
    pub with: String,
    /// What is measured with them.
    pub ours: Finding,
    /// The verdict on it.
    pub verdict: Verdict,
}

impl Entry {
    /// The experiment with each of the other values.
    pub(super) fn others(&self) -> Vec<(String, Entry)> {
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

    /// How many simulations [`Entry::vary`] makes, as [`Entry::runs`] counts them.
    pub fn runs_of_others(&self, quick: bool, seeds: u64) -> Result<usize, ReproduceError> {
        self.others().iter().map(|(_, entry)| entry.runs(quick, seeds)).sum()
    }

    /// Runs the experiment with each of the other values, and notes what each row says then. Where values do not let
    /// the experiment come to its end, a note says why.
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
