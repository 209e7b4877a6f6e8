//! Finished points, each in a file, so that they are not run again.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::plan::SweepPoint;
use crate::config::Duration;
use crate::experiment::NamedFile;
use crate::provenance::Program;
use crate::report::Report;
use crate::rng::mix;

/// The kept result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The program that made the run.
    pub program: Program,
    /// The run's file.
    pub config: String,
    /// The other files that it names.
    pub files: Vec<NamedFile>,
    /// After how long without progress it would have been stopped.
    pub give_up_after: Option<Duration>,
    /// The value of each key of the sweep.
    pub values: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// Why the run failed, if it did.
    pub failure: Option<String>,
    /// Tensor bits divided by time, Gbit/s: the mean over jobs.
    pub goodput_gbps: Option<f64>,
    /// Seconds of a collective: the mean over jobs.
    pub seconds: Option<f64>,
    /// Mean completion time of messages and of flows under DCTCP, seconds.
    pub flow_seconds: Option<f64>,
    /// Seconds from the first submission of any job to the last result of any, if all jobs are complete.
    pub makespan_seconds: Option<f64>,
    /// The hash of the trace, equal for equal runs.
    pub trace_hash: String,
    /// The whole report.
    pub report: serde_json::Value,
}

impl Finished {
    /// The result of a run that ended.
    pub fn new(point: &SweepPoint, report: &Report) -> Finished {
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        Finished {
            failure: report.failure(),
            goodput_gbps: mean(report.jobs.iter().filter_map(|job| job.goodput_gbps).collect()),
            seconds: mean(report.jobs.iter().filter_map(|job| job.seconds).collect()),
            flow_seconds: mean(report.flow_rows.iter().map(|flow| flow.seconds).collect()),
            makespan_seconds: makespan(report),
            trace_hash: report.trace_hash.clone(),
            report: serde_json::to_value(report).unwrap_or_default(),
            ..Finished::refused(point, String::new())
        }
    }

    /// The result of a run whose file is invalid.
    pub fn refused(point: &SweepPoint, sentence: String) -> Finished {
        Finished {
            program: Program::this(),
            config: point.text.clone(),
            files: point.files.clone(),
            give_up_after: point.give_up_after,
            values: point.values.clone(),
            seed: point.config.seed,
            failure: Some(sentence),
            goodput_gbps: None,
            seconds: None,
            flow_seconds: None,
            makespan_seconds: None,
            trace_hash: String::new(),
            report: serde_json::Value::Null,
        }
    }

    /// True if this program would get the same result for the point.
    pub fn is_of(&self, point: &SweepPoint) -> bool {
        self.program.is_this()
            && self.config == point.text
            && self.files == point.files
            && self.give_up_after == point.give_up_after
    }
}

fn makespan(report: &Report) -> Option<f64> {
    let collectives = || report.jobs.iter().flat_map(|job| &job.iterations);
    let first = collectives().map(|collective| collective.start).reduce(f64::min)?;
    let last = collectives().filter_map(|collective| collective.end).reduce(f64::max)?;
    report.jobs.iter().all(|job| job.complete).then_some(last - first)
}

/// Why a point cannot be kept, or the folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {why}; what is finished stays there", .path.display())]
pub struct StoreError {
    what: &'static str,
    path: PathBuf,
    why: io::Error,
}

/// A folder with finished points.
pub struct Store(PathBuf);

impl Store {
    /// Opens the folder, which is made if it does not exist.
    pub fn open(folder: &Path) -> Result<Store, StoreError> {
        let points = folder.join("points");
        match fs::create_dir_all(&points) {
            Ok(()) => Ok(Store(points)),
            Err(why) => Err(StoreError { what: "make", path: points, why }),
        }
    }

    /// The kept result of a point. What is damaged, or was made by another program or of other files, counts as missing.
    pub fn find(&self, point: &SweepPoint) -> Option<Finished> {
        let text = fs::read_to_string(self.path(point)).ok()?;
        let finished: Finished = serde_json::from_str(&text).ok()?;
        finished.is_of(point).then(|| Finished { values: point.values.clone(), ..finished })
    }

    /// True if there is a result of a point that is not found, because another program made it, or of other files.
    pub fn is_outdated(&self, point: &SweepPoint) -> bool {
        self.path(point).exists() && self.find(point).is_none()
    }

    /// Keeps a point: the file is either complete or missing.
    pub fn keep(&self, point: &SweepPoint, finished: &Finished) -> Result<(), StoreError> {
        let path = self.path(point);
        let partial = path.with_extension("part");
        let written = serde_json::to_vec(finished)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&partial, bytes))
            .and_then(|()| fs::rename(&partial, &path));
        written.map_err(|why| {
            let _ = fs::remove_file(&partial);
            StoreError { what: "write", path, why }
        })
    }

    fn path(&self, point: &SweepPoint) -> PathBuf {
        let hash = point.text.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        self.0.join(format!("{hash:016x}.json"))
    }
}
