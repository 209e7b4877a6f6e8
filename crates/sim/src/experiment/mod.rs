//! From a file to a report: builds what a [`Config`] describes, runs it, and measures.

mod build;
mod hosts;
mod shared;
mod threads;
mod traffic;

use std::ops::ControlFlow;
use std::time::Instant;

use tributary_proto::time::{Span, Time};

pub use build::build;

use crate::config::{Config, ConfigError};
use crate::driver::{Simulation, look_ahead, window_end};
use crate::report::Report;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Simulated time.
    pub now: Time,
    /// Events so far.
    pub events: u64,
    /// Messages and ranks of jobs that are not finished.
    pub open: u64,
    /// All there were.
    pub total: u64,
}

/// Why there is no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The file describes no experiment.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Whoever watched wanted no more.
    #[error("the run was stopped after {} of simulated time", .0)]
    Stopped(Span),
}

/// Runs an experiment to its end.
pub fn run(config: &Config) -> Result<Report, RunError> {
    run_watched(config, &mut |_| ControlFlow::Continue(()))
}

/// Runs an experiment; `watch` is told some times a second how far it is, and may stop it.
pub fn run_watched(config: &Config, watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Report, RunError> {
    run_on_threads(config, 1, watch)
}

/// The same on so many threads, with the same result. A network of one switch, or of links without delay, runs on one.
pub fn run_on_threads(
    config: &Config,
    threads: u16,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, RunError> {
    let begun = Instant::now();
    let mut simulation = build(config)?;
    let set_up = begun.elapsed();
    let begun = Instant::now();
    let finished = match look_ahead(simulation.graph()) {
        Some(look_ahead) if threads > 1 && simulation.open() > 0 => {
            let (whole, finished) = threads::advance(config, simulation, look_ahead, threads, watch)?;
            simulation = whole;
            finished
        }
        _ => advance(&mut simulation, Time::ZERO + config.end.0, watch)?,
    };
    Ok(Report::new(config, &simulation, finished, set_up, begun.elapsed()))
}

/// Events between two looks at the watch: about a tenth of a second.
const EVENTS_PER_LOOK: u64 = 1 << 20;

fn advance(
    simulation: &mut Simulation,
    end: Time,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<bool, RunError> {
    let total = simulation.open();
    if total == 0 {
        return Ok(true);
    }
    loop {
        let until = simulation.events() + EVENTS_PER_LOOK;
        let more = loop {
            if simulation.open() == 0 || !simulation.step(end) {
                break false;
            }
            if simulation.events() == until {
                break true;
            }
        };
        if !more {
            let finished = simulation.open() == 0;
            if finished {
                finish_window(simulation, end);
            }
            return Ok(finished);
        }
        let (now, events) = (simulation.fabric.now, simulation.events());
        if watch(&Progress { now, events, open: simulation.open(), total }).is_break() {
            return Err(RunError::Stopped(now.since(Time::ZERO)));
        }
    }
}

/// A run ends with the window in which the last job or flow finishes: so far other threads may be by then.
fn finish_window(simulation: &mut Simulation, end: Time) {
    if let Some(look_ahead) = look_ahead(simulation.graph()) {
        let last = Time(window_end(simulation.fabric.now, look_ahead).0 - 1);
        while simulation.step(last.min(end)) {}
    }
}
