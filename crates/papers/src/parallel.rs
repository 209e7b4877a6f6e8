//! Runs the points of an experiment on all cores. Each point is deterministic, so their order does not matter.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use tributary_sim::config::Config;
use tributary_sim::experiment::{RunError, run_on_threads};
use tributary_sim::report::Report;

use crate::ReproduceError;

/// The callbacks of a progress bar, and the stop flag of Ctrl-C.
pub struct Watch<'a> {
    /// Called with the number of further points to be run.
    pub expect: &'a (dyn Fn(usize) + Sync),
    /// Called when a point is done.
    pub done: &'a (dyn Fn() + Sync),
    /// Called with the hash of a simulation's trace, in hexadecimal, when the simulation ends. Points run at the same
    /// time, so hashes come in any order.
    pub traced: &'a (dyn Fn(&str) + Sync),
    /// No point begins once this is true.
    pub stop: &'a AtomicBool,
    /// How many threads run one simulation, at least 1. Results are the same with any number. Fewer points are
    /// then run at the same time.
    pub threads: u16,
}

impl<'a> Watch<'a> {
    /// A watch that reports nothing, with one thread for each simulation.
    pub fn silent(stop: &'a AtomicBool) -> Watch<'a> {
        Watch { expect: &|_| {}, done: &|| {}, traced: &|_| {}, stop, threads: 1 }
    }

    /// An error once the flag is set.
    pub fn check(&self) -> Result<(), ReproduceError> {
        if self.stop.load(Ordering::Relaxed) { Err(ReproduceError::Stopped) } else { Ok(()) }
    }

    /// Runs one simulation to its end and checks its result. `what` names it in errors.
    pub fn simulate(&self, config: &Config, what: &str) -> Result<Report, ReproduceError> {
        let watched = run_on_threads(config, self.threads, &mut |_| match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        let report = watched.map_err(|error| match error {
            RunError::Stopped(_) => ReproduceError::Stopped,
            RunError::Config(error) => ReproduceError::Bad(format!("{what}: {error}")),
        })?;
        (self.traced)(&report.trace_hash);
        match report.failure() {
            Some(why) => Err(ReproduceError::Wrong { what: what.to_owned(), why }),
            None => Ok(report),
        }
    }

    /// Runs all points; returns their results in the points' order.
    pub fn all<P: Sync, R: Send>(
        &self,
        points: &[P],
        run: impl Fn(&P) -> Result<R, ReproduceError> + Sync,
    ) -> Result<Vec<R>, ReproduceError> {
        (self.expect)(points.len());
        self.all_announced(points, run)
    }

    /// The same for points that were announced to the watch already ([`crate::Entry::runs`]).
    pub fn all_announced<P: Sync, R: Send>(
        &self,
        points: &[P],
        run: impl Fn(&P) -> Result<R, ReproduceError> + Sync,
    ) -> Result<Vec<R>, ReproduceError> {
        let results: Vec<Mutex<Option<Result<R, ReproduceError>>>> = points.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(point) = points.get(index) else { return };
                let result = self.check().and_then(|()| run(point));
                *results[index].lock().expect("a point that panics ends the run") = Some(result);
                (self.done)();
            }
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let at_once = (cores / usize::from(self.threads)).max(1).min(points.len());
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(work);
            }
        });
        let done =
            |slot: Mutex<Option<_>>| slot.into_inner().expect("no thread panicked").expect("every point was run");
        results.into_iter().map(done).collect()
    }
}
