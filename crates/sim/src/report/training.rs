//! Jobs that come and go in a report.

use std::fmt;

use serde::Serialize;
use tributary_proto::contract::time::Time;

use super::text::{number, time};
use super::{JobReport, percentile};
use crate::driver::{Job, Simulation};

/// How a job that came and went was there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StayReport {
    /// What it trains.
    pub model: String,
    /// When it arrived, in seconds ...
    pub arrived: f64,
    /// ... got its hosts ...
    pub placed: f64,
    /// ... and gave them back.
    pub left: Option<f64>,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingReport {
    /// Jobs that arrived, or are to.
    pub jobs: usize,
    /// Those that have left.
    pub left: usize,
    /// Seconds from a job's hosts to its end, the mean of those that have left ...
    pub mean_seconds: Option<f64>,
    /// ... and the longest.
    pub max_seconds: Option<f64>,
    /// Seconds that jobs waited for hosts and memory, the mean ...
    pub mean_wait_seconds: Option<f64>,
    /// ... and the longest.
    pub max_wait_seconds: Option<f64>,
    /// The most jobs that were there at a time.
    pub most_at_a_time: usize,
    /// Workers that hosts still have.
    pub workers_left: u64,
    /// Bytes of switches that programs of jobs hold which have left.
    pub forgotten_bytes: usize,
    /// Jobs that no room was found for though no other was there, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl TrainingReport {
    /// What keeps the run from being right.
    pub(super) fn failure(&self, finished: bool) -> Option<String> {
        if let Some(sentence) = self.refused.first() {
            return Some(sentence.clone());
        }
        if self.left < self.jobs {
            return Some(format!("{} of {} jobs that came and went did not leave", self.jobs - self.left, self.jobs));
        }
        if finished && (self.workers_left > 0 || self.forgotten_bytes > 0) {
            let (workers, bytes) = (self.workers_left, self.forgotten_bytes);
            return Some(format!("all jobs have left, and {workers} workers and {bytes} bytes of switches are taken"));
        }
        None
    }
}

impl fmt::Display for TrainingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = number(self.jobs as u64, "job", "jobs");
        writeln!(f, "\n{jobs} came and went, at most {} at a time", self.most_at_a_time)?;
        if let (Some(mean), Some(max)) = (self.mean_seconds, self.max_seconds) {
            writeln!(f, "  training    {} on average, {} at most", time(mean), time(max))?;
        }
        if let (Some(mean), Some(max)) = (self.mean_wait_seconds, self.max_wait_seconds) {
            writeln!(f, "  waiting     {} on average, {} at most", time(mean), time(max))?;
        }
        self.refused.iter().try_for_each(|sentence| writeln!(f, "  REFUSED     {sentence}"))
    }
}

pub(super) fn stay(job: &Job) -> Option<StayReport> {
    let stay = job.stay.as_ref()?;
    Some(StayReport {
        model: stay.model.clone(),
        arrived: stay.arrived.as_secs_f64(),
        placed: stay.placed.as_secs_f64(),
        left: stay.left.map(Time::as_secs_f64),
    })
}

pub(super) fn report(simulation: &Simulation, jobs: &[JobReport]) -> Option<TrainingReport> {
    let cluster = simulation.cluster()?;
    let stays = || jobs.iter().filter_map(|job| Some((job, job.stay.as_ref()?)));
    let mut seconds: Vec<f64> = stays().filter_map(|(job, stay)| job.training_seconds(stay)).collect();
    let mut waits: Vec<f64> = stays().map(|(_, stay)| stay.placed - stay.arrived).collect();
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    seconds.sort_by(f64::total_cmp);
    waits.sort_by(f64::total_cmp);
    let max = |values: &[f64]| (!values.is_empty()).then(|| percentile(values, 1.0));
    Some(TrainingReport {
        jobs: cluster.total(),
        left: stays().filter(|(_, stay)| stay.left.is_some()).count(),
        mean_seconds: mean(&seconds),
        max_seconds: max(&seconds),
        mean_wait_seconds: mean(&waits),
        max_wait_seconds: max(&waits),
        most_at_a_time: most_at_a_time(stays().map(|(_, stay)| stay)),
        workers_left: cluster.workers(),
        forgotten_bytes: simulation.forgotten_bytes(),
        refused: cluster.refused().iter().map(|(name, why)| format!("{name} cannot run: {why}")).collect(),
    })
}

impl JobReport {
    /// From its hosts to the last rank's last result.
    pub fn training_seconds(&self, stay: &StayReport) -> Option<f64> {
        let last = self.iterations.last().filter(|_| self.complete)?;
        Some(last.end? - stay.placed)
    }
}

fn most_at_a_time<'a>(stays: impl Iterator<Item = &'a StayReport>) -> usize {
    let mut changes: Vec<(f64, i32)> =
        stays.flat_map(|stay| [(stay.placed, 1), (stay.left.unwrap_or(f64::INFINITY), -1)]).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let counts = changes.into_iter().scan(0, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    counts.max().unwrap_or(0).max(0) as usize
}
