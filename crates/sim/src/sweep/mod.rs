//! Parameters times seeds: many runs of one file over all cores, resumable.
//!
//! A sweep is an experiment's file with an additional table, which names keys of the file and the values that each
//! takes:
//!
//! ```toml
//! [sweep]
//! seeds = 5                                  # 1 to 5; or a list
//! [sweep.over]
//! "job.0.trees" = [1, 2, 4]                  # the first [[job]]
//! "network.routing" = ["ecmp", "random"]
//! ```
//!
//! `[[sweep.together]]` names keys whose values change together: all take their first values, then their second, and so
//! on. `[[sweep.line]]` names a setting of several keys, with which all values run.
//!
//! [`Sweep`] makes the points, [`WorkOrder`] sends one to another machine, [`Store`] keeps the finished ones, and
//! [`summarise`] makes the table at the end.

mod lines;
mod plan;
mod results;
mod summary;

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Time;

pub use plan::{Sweep, SweepPoint};
pub use results::{Finished, Store, StoreError};
pub use summary::{Line, Spread, job_run_table, run_table, summarise, summary_table, write_tables};

use crate::config::{ConfigError, Duration, invalid};
use crate::experiment::{self, NamedFile, Progress, RunError, run_watched};
use crate::provenance::Program;

/// Builds every point, and runs none. The error is the first point's in the points' order, with the values of its keys.
/// `stop` ends the check early, without an error.
pub fn check(keys: &[String], points: &[SweepPoint], stop: &AtomicBool) -> Result<(), ConfigError> {
    let next = AtomicUsize::new(0);
    let first_error: Mutex<Option<(usize, ConfigError)>> = Mutex::new(None);
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = points.get(number) else { return };
            let (Err(error), Ok(mut first_error)) = (experiment::check(&point.config), first_error.lock()) else {
                continue;
            };
            if first_error.as_ref().is_none_or(|(first, _)| number < *first) {
                *first_error = Some((number, error));
            }
            // The points before it are being checked by now, and only the first error counts.
            return;
        }
    };
    on_all_cores(points.len(), &work);
    match first_error.into_inner() {
        Ok(Some((number, error))) => {
            let point = &points[number];
            let seed = format!("seed = {}", point.config.seed);
            let with = [plan::setting(keys, &point.values), seed];
            let with: Vec<String> = with.into_iter().filter(|text| !text.is_empty()).collect();
            Err(invalid(format!("with {}: {error}", with.join(", "))))
        }
        _ => Ok(()),
    }
}

fn on_all_cores(most: usize, work: &(dyn Fn() + Sync)) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(most);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
}

/// Runs every point that is not in the store; `done` is called for each. Returns the error of the first point that
/// could not be run or kept; finished points stay. `stop` ends the sweep at once.
pub fn run(
    points: &[SweepPoint],
    store: &Store,
    done: &(dyn Fn(&Finished) + Sync),
    stop: &AtomicBool,
) -> Result<(), StoreError> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<StoreError>> = Mutex::new(None);
    let work = || {
        while !stop.load(Ordering::Relaxed) && failed.lock().is_ok_and(|failed| failed.is_none()) {
            let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let kept = match run_point(point, stop) {
                Some(finished) => store.keep(point, &finished).map(|()| done(&finished)),
                None => return,
            };
            if let (Err(error), Ok(mut failed)) = (kept, failed.lock()) {
                failed.get_or_insert(error);
            }
        }
    };
    on_all_cores(points.len(), &work);
    match failed.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Runs one point; `None` if it was stopped.
pub fn run_point(point: &SweepPoint, stop: &AtomicBool) -> Option<Finished> {
    let mut patience = point.give_up_after.map(Patience::new);
    let watched = run_watched(&point.config, &mut |progress| {
        let gives_up = patience.as_mut().is_some_and(|patience| patience.is_over(progress));
        if gives_up || stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match watched {
        Err(RunError::Stopped(at)) if patience.as_ref().is_some_and(|patience| patience.is_out) => {
            let (at, limit) = (Duration(at), point.give_up_after.unwrap_or_default());
            Some(Finished::refused(point, format!("given up: nothing finished for {limit}; it was stopped at {at}")))
        }
        Ok(report) => Some(Finished::new(point, &report.of_file(&point.text))),
        Err(RunError::Config(error)) => Some(Finished::refused(point, error.to_string())),
        Err(RunError::Stopped(_)) => None,
    }
}

/// Whether anything still finishes in a run.
struct Patience {
    limit: Duration,
    /// What was open at the last look, and since when nothing of it has finished.
    open: u64,
    since: Time,
    is_out: bool,
}

impl Patience {
    fn new(limit: Duration) -> Patience {
        Patience { limit, open: 0, since: Time::ZERO, is_out: false }
    }

    /// True if nothing has finished for too long. A run is looked at after a fixed number of events, so that the answer is
    /// the same on every machine.
    fn is_over(&mut self, progress: &Progress) -> bool {
        if progress.open < self.open {
            self.since = progress.now;
        }
        self.open = progress.open;
        self.is_out = progress.now.since(self.since) > self.limit.0;
        self.is_out
    }
}

/// One point, with the program that planned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkOrder {
    program: Program,
    values: Vec<String>,
    config: String,
    files: Vec<NamedFile>,
    give_up_after: Option<Duration>,
}

/// Why an order is refused.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Another program might give other results.
    #[error(
        "the sweep was planned by {planned}, and this machine has {}; install the same build on both",
        Program::this()
    )]
    Program {
        /// The program that planned it.
        planned: Program,
    },
    /// A file that the experiment names is another one here.
    #[error("{} is not the same file here as where the sweep was planned; copy it to every machine", .0.display())]
    File(PathBuf),
    /// The file is not an experiment.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl WorkOrder {
    /// The order for a point.
    pub fn new(point: &SweepPoint) -> WorkOrder {
        WorkOrder {
            program: Program::this(),
            values: point.values.clone(),
            config: point.text.clone(),
            files: point.files.clone(),
            give_up_after: point.give_up_after,
        }
    }

    /// Runs the point.
    pub fn run(self) -> Result<Finished, OrderError> {
        if !self.program.is_this() {
            return Err(OrderError::Program { planned: self.program });
        }
        let point = SweepPoint::read(self.values, self.config, self.give_up_after)?;
        if let Some((file, _)) = self.files.into_iter().zip(&point.files).find(|(planned, here)| planned != *here) {
            return Err(OrderError::File(file.path));
        }
        Ok(run_point(&point, &AtomicBool::new(false)).expect("it cannot be stopped"))
    }
}
