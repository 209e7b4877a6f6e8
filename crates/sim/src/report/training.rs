//! Jobs that come and go in a report.

use std::fmt;

use serde::Serialize;
use tributary_proto::contract::time::Time;

use super::text::{number, time};
use super::{JobReport, percentile};
use crate::engine::{Job, Simulation};

/// The times of a job that comes and goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LifetimeReport {
    /// The model that it trains.
    pub model: String,
    /// When it arrived, in seconds.
    pub arrived: f64,
    /// When it got its hosts.
    pub placed: f64,
    /// When it returned its hosts.
    pub left: Option<f64>,
}

/// All jobs that come and go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingReport {
    /// How many jobs arrive in all.
    pub jobs: usize,
    /// How many have left.
    pub left: usize,
    /// Mean seconds from a job's hosts to its end, of jobs that have left.
    pub mean_seconds: Option<f64>,
    /// The most of these seconds.
    pub max_seconds: Option<f64>,
    /// Mean seconds that jobs waited for hosts and memory.
    pub mean_wait_seconds: Option<f64>,
    /// The most of these seconds.
    pub max_wait_seconds: Option<f64>,
    /// The most jobs at a time.
    pub most_at_a_time: usize,
    /// Workers that are still on hosts.
    pub workers_left: u64,
    /// Bytes that programs of jobs that have left still hold in switches.
    pub leaked_bytes: usize,
    /// Jobs that did not fit even into an empty network, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl TrainingReport {
    /// Why the run is wrong, if it is.
    pub(super) fn failure(&self, finished: bool) -> Option<String> {
        if let Some(sentence) = self.refused.first() {
            return Some(sentence.clone());
        }
        if self.left < self.jobs {
            return Some(format!("{} of {} jobs that came and went did not leave", self.jobs - self.left, self.jobs));
        }
        if finished && (self.workers_left > 0 || self.leaked_bytes > 0) {
            let (workers, bytes) = (self.workers_left, self.leaked_bytes);
            return Some(format!(
                "all jobs have left, but {workers} workers and {bytes} bytes of switches are still taken"
            ));
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

pub(super) fn lifetime(job: &Job) -> Option<LifetimeReport> {
    let lifetime = job.lifetime.as_ref()?;
    Some(LifetimeReport {
        model: lifetime.model.clone(),
        arrived: lifetime.arrived.as_secs_f64(),
        placed: lifetime.placed.as_secs_f64(),
        left: lifetime.left.map(Time::as_secs_f64),
    })
}

pub(super) fn report(simulation: &Simulation, jobs: &[JobReport]) -> Option<TrainingReport> {
    let cluster = simulation.cluster()?;
    let lifetimes = || jobs.iter().filter_map(|job| Some((job, job.lifetime.as_ref()?)));
    let mut seconds: Vec<f64> = lifetimes().filter_map(|(job, lifetime)| job.training_seconds(lifetime)).collect();
    let mut waits: Vec<f64> = lifetimes().map(|(_, lifetime)| lifetime.placed - lifetime.arrived).collect();
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    seconds.sort_by(f64::total_cmp);
    waits.sort_by(f64::total_cmp);
    let max = |values: &[f64]| (!values.is_empty()).then(|| percentile(values, 1.0));
    Some(TrainingReport {
        jobs: cluster.total(),
        left: lifetimes().filter(|(_, lifetime)| lifetime.left.is_some()).count(),
        mean_seconds: mean(&seconds),
        max_seconds: max(&seconds),
        mean_wait_seconds: mean(&waits),
        max_wait_seconds: max(&waits),
        most_at_a_time: most_at_a_time(lifetimes().map(|(_, lifetime)| lifetime)),
        workers_left: cluster.workers(),
        leaked_bytes: simulation.leaked_bytes(),
        refused: cluster.refused().iter().map(|(name, why)| format!("{name} cannot run: {why}")).collect(),
    })
}

impl JobReport {
    /// Seconds from getting its hosts to the last rank's last result.
    pub fn training_seconds(&self, lifetime: &LifetimeReport) -> Option<f64> {
        let last = self.iterations.last().filter(|_| self.complete)?;
        Some(last.end? - lifetime.placed)
    }
}

fn most_at_a_time<'a>(lifetimes: impl Iterator<Item = &'a LifetimeReport>) -> usize {
    let mut changes: Vec<(f64, i32)> =
        lifetimes.flat_map(|lifetime| [(lifetime.placed, 1), (lifetime.left.unwrap_or(f64::INFINITY), -1)]).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let counts = changes.into_iter().scan(0, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    counts.max().unwrap_or(0).max(0) as usize
}
