//! From a file to a report: builds the network of a [`Config`], runs it, and measures.

mod build;
mod faults;
mod hosts;
mod indices;
mod plan;
mod programs;
mod sampling;
mod shares;
mod step;
mod threads;
mod traffic;
mod training;
mod transport;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use self::plan::switch_options;
use self::sampling::Sampler;
use crate::capture::{Found, Journeys};
use crate::config::{Config, ConfigError, Flows, JobSection, Pattern, Routing, Sizes, Transport};
use crate::engine::Simulation;
use crate::provenance::sha256;
use crate::report::{Report, Stop, Taken};
use crate::routing::Table;
use crate::topology::{Graph, window_end};
pub use build::build;

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Simulated time.
    pub now: Time,
    /// How many events there were.
    pub events: u64,
    /// How many messages and ranks of jobs are not finished.
    pub open: u64,
    /// How many there were at the beginning.
    pub total: u64,
}

/// Why a run gives no report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The file is not an experiment.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The watch has stopped the run.
    #[error("the run was stopped after {} of simulated time", .0)]
    Stopped(Span),
}

/// Checks that an experiment can be run: builds it without running it.
pub fn check(config: &Config) -> Result<(), ConfigError> {
    Sampler::new(config, &build(config)?).map(drop)
}

/// Another file that an experiment names, and that decides its result too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile {
    /// Its path, as the experiment has it.
    pub path: PathBuf,
    /// The SHA-256 of its content; empty if it cannot be read, which building the experiment reports.
    pub sha256: String,
}

/// The files that an experiment names, with the hash of what they contain now.
pub fn named_files(config: &Config) -> Vec<NamedFile> {
    let operators = config.jobs.iter().filter_map(programs::file);
    let cycles = config.switches.cores.iter().filter_map(|cores| cores.operators.clone());
    let traffic = config.traffic.iter().flat_map(|section| {
        let sizes = match &section.sizes {
            Some(Sizes::File(path)) => Some(path.clone()),
            Some(Sizes::Published(_)) | None => None,
        };
        let flows = match &section.flows {
            Some(Flows::File(path)) => Some(path.clone()),
            Some(Flows::Here(_)) | None => None,
        };
        sizes.into_iter().chain(flows)
    });
    let named =
        |path: PathBuf| NamedFile { sha256: fs::read(&path).map_or_else(|_| String::new(), |it| sha256(&it)), path };
    operators.chain(cycles).chain(traffic).map(named).collect()
}

/// Runs an experiment to its end.
pub fn run(config: &Config) -> Result<Report, RunError> {
    run_watched(config, &mut |_| ControlFlow::Continue(()))
}

/// Runs an experiment. `watch` gets the progress several times a second, and may stop the run.
pub fn run_watched(config: &Config, watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Result<Report, RunError> {
    run_on_threads(config, 1, watch)
}

/// Runs an experiment on several threads, with the same result. A network of one switch, one with links without delay, and
/// one whose report says what jobs waited for run on one thread.
pub fn run_on_threads(
    config: &Config,
    threads: u16,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Report, RunError> {
    let begun = Instant::now();
    let mut simulation = build(config)?;
    let mut sampler = Sampler::new(config, &simulation)?;
    let warnings = warnings(config, simulation.graph())?;
    let found = config.report.bottlenecks.then(|| follow_packets(&mut simulation));
    let set_up = begun.elapsed();
    let (begun, mut processor) = (Instant::now(), Duration::ZERO);
    let since = processor_time();
    let stop = match simulation.graph().lookahead() {
        Some(lookahead) if threads > 1 && found.is_none() && simulation.open() > 0 => {
            let whole = threads::advance(config, simulation, sampler, lookahead, threads, watch)?;
            (simulation, sampler, processor) = (whole.simulation, whole.sampler, whole.processor_of_others);
            whole.stop
        }
        _ => advance(&mut simulation, &mut sampler, Time::ZERO + config.end.0, watch)?,
    };
    let (run, processor) = (begun.elapsed(), processor + processor_time().saturating_sub(since));
    let report =
        Report::new(config, &simulation, stop, Taken { set_up, run, processor }).with_samples(sampler.into_samples());
    let report = match &found {
        Some(found) => report.with_journeys(simulation.graph(), found),
        None => report,
    };
    Ok(Report { warnings, ..report })
}

/// Follows the packets of all jobs from now on.
fn follow_packets(simulation: &mut Simulation) -> Found {
    let (journeys, found) = Journeys::new(simulation.graph().hosts());
    simulation.fabric.set_tracer(Some(Box::new(journeys)));
    found
}

/// What this thread has taken of a processor.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Events between two calls of the watch: about a tenth of a second.
const EVENTS_PER_REPORT: u64 = 1 << 20;

fn advance(
    simulation: &mut Simulation,
    sampler: &mut Sampler,
    end: Time,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Stop, RunError> {
    let total = simulation.open();
    if total == 0 {
        return Ok(Stop::Finished);
    }
    let mut report_at = simulation.events() + EVENTS_PER_REPORT;
    let mut why = Stop::Finished;
    while simulation.open() > 0 {
        let stop = sampler.stop(end);
        while simulation.open() > 0 && simulation.events() != report_at && simulation.step(stop) {}
        if simulation.events() == report_at {
            report_at += EVENTS_PER_REPORT;
            let (now, events) = (simulation.fabric.now, simulation.events());
            if watch(&Progress { now, events, open: simulation.open(), total }).is_break() {
                return Err(RunError::Stopped(now.since(Time::ZERO)));
            }
            continue;
        }
        // Events after the end are not awaited: other threads do not know when they come.
        if simulation.open() == 0 {
            break;
        }
        let next = simulation.next_time();
        if next > end || next.0 == u64::MAX {
            why = match next.0 {
                u64::MAX => Stop::Idle,
                _ => Stop::End,
            };
            break;
        }
        sampler.take(simulation, next);
    }
    let last = last_moment(simulation).min(end);
    if why == Stop::Finished {
        sampler.run_to(simulation, last);
    }
    sampler.take(simulation, last);
    Ok(why)
}

/// A run ends with the window in which the last event happened, because other threads may have come so far.
fn last_moment(simulation: &Simulation) -> Time {
    let now = simulation.fabric.now;
    simulation.graph().lookahead().map_or(now, |lookahead| Time(window_end(now, lookahead).0 - 1))
}

// What a file most likely does not mean: it runs, and its report says so.

/// The warnings about a file, each a sentence.
fn warnings(config: &Config, graph: &Graph) -> Result<Vec<String>, ConfigError> {
    Ok(paths(config, graph)?.into_iter().chain(marks(config, graph)).collect())
}

/// Switches of some protocols wait for packets of one block to meet, and they only meet if they go one way.
fn paths(config: &Config, graph: &Graph) -> Result<Vec<String>, ConfigError> {
    if config.network.routing != Routing::Ecmp || !has_equal_paths(graph) {
        return Ok(Vec::new());
    }
    let options = switch_options(config)?;
    let waits = config.jobs.iter().enumerate().filter(|(_, job)| {
        options.derive(job.protocol, |shared| shared.longest_wait).is_some_and(|longest| longest > Span::ZERO)
    });
    let warning = |(index, job): (usize, &JobSection)| {
        let name = job.name.clone().unwrap_or_else(|| format!("job {index}"));
        format!(
            "{name}: under routing = \"ecmp\" the ranks' packets of a block take different paths, and few of them are \
             summed on their way: {} needs a rule that goes by the destination, as routing = \
             \"default_unless_half_full\"; background_routing = \"ecmp\" keeps it for the other traffic",
            job.protocol.name
        )
    };
    Ok(waits.map(warning).collect())
}

/// True if a packet has a choice somewhere.
fn has_equal_paths(graph: &Graph) -> bool {
    let table = Table::new(graph, |_| true);
    graph.hosts() > 0 && (0..graph.switches()).any(|switch| table.next_hops(switch, NodeId(0)).0.len() > 1)
}

/// DCTCP without marks is a sender that only losses slow down.
fn marks(config: &Config, graph: &Graph) -> Option<String> {
    let uses_it = config.traffic.iter().enumerate().any(|(index, section)| {
        let is_reliable = !matches!(section.pattern, Pattern::Permutation | Pattern::Uniform | Pattern::Stream);
        let has_flows = section.load.0 > 0.0 && (is_reliable || section.transport == Some(Transport::Dctcp));
        has_flows && transport::uses_dctcp(config, index)
    });
    (uses_it && !transport::has_marks(graph)).then(|| {
        "flows run under DCTCP and no queue marks packets, so that only losses slow them down: set mark_above in \
         [network], as in \"100 kB\" at 10 Gbit/s"
            .to_string()
    })
}
