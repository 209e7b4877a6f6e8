//! Parameters that were chosen because the rows then agree, and the other values for which each verdict holds.

use serde::{Deserialize, Serialize};
use toml::Value;

use super::judge::{Outcome, Verdict};
use super::{Entry, Memory, ReproduceError, Watch};

/// Parameters that were chosen together, with the rows in view.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// The parameters that were chosen.
    pub what: String,
    /// What the paper says about them, and which rows decided.
    pub because: String,
    /// Other values that may be just as right.
    pub others: Vec<Other>,
}

/// Other values of the fitted parameters.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// A short description of them.
    pub name: String,
    /// The parameters, by key.
    #[serde(skip_serializing)]
    pub set: toml::Table,
}

/// The verdict on a row with other values of the fitted parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    /// The description of the values.
    pub with: String,
    /// The verdict.
    pub verdict: Verdict,
}

impl Entry {
    /// The experiment with each of the other values.
    pub(super) fn others(&self) -> Vec<(String, Entry)> {
        let others = self.fitted.iter().flat_map(|fitted| &fitted.others);
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

    /// Runs the experiment with each of the other values, and notes each row's verdict.
    pub fn vary(
        &self,
        outcome: &mut Outcome,
        seeds: u64,
        watch: &Watch<'_>,
        memory: &Memory,
    ) -> Result<(), ReproduceError> {
        for (with, entry) in self.others() {
            let other = entry.run(outcome.quick, seeds, watch, memory)?;
            for row in &mut outcome.rows {
                let same = other.rows.iter().find(|other| other.published.key == row.published.key);
                let verdict = same.map(|other| other.verdict);
                row.elsewhere.extend(verdict.map(|verdict| Elsewhere { with: with.clone(), verdict }));
            }
        }
        Ok(())
    }
}
