//! Runs an experiment and judges what it finds, also with other values of what the paper leaves open.

use crate::catalogue::Entry;
use crate::row::{Elsewhere, Judged, Outcome, judge};
use crate::{Context, Findings, Memory, ReproduceError, Watch};

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
