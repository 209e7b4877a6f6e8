//! Why a run ended, and whether it is correct.

use serde::Serialize;

use super::{JobReport, Report};

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
        Some(format!("{} of {} flows under DCTCP did not finish", flows.started - flows.finished, flows.started))
    }
}
