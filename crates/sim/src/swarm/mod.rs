//! Swarm tests: a seed draws a whole scenario, which first runs with faults and then heals.
//!
//! While faults last, no result may be wrong. Once they have ended, everything must finish. If a node died permanently,
//! every rank must end, and ranks that cannot finish must get an error. The checkers of [`crate::check`] watch the whole
//! trace. A scenario is a [`Config`]: a seed that fails can be printed as a file and run again.

mod scenario;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::time::Time;

pub use scenario::{Ending, ORDERED, Scenario, scenario};

use crate::check::{Checker, Findings};
use crate::config::Config;
use crate::engine::{JobErrorKind, Simulation};
use crate::experiment::build;
use crate::net::Service;

/// The result of one scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// The errors, in sentences.
    pub failures: Vec<String>,
    /// How many events there were.
    pub events: u64,
    /// The hash of its trace.
    pub trace_hash: u64,
}

/// More events than any scenario needs: a run with more does not end.
const MAX_EVENTS: u64 = 30_000_000;

/// Runs many seeds on several threads, and reports each outcome as soon as it is ready; `report` may stop the
/// run.
pub fn run_seeds(seeds: Range<u64>, threads: usize, report: &mut dyn FnMut(Outcome) -> ControlFlow<()>) {
    let next = AtomicU64::new(seeds.start);
    let (sender, outcomes) = std::sync::mpsc::sync_channel(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, end) = (sender.clone(), &next, seeds.end);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // The receiver is gone if the run was stopped.
                    if seed >= end || sender.send(run_seed(seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in &outcomes {
            if report(outcome).is_break() {
                break;
            }
        }
        drop(outcomes);
    });
}

/// Draws the scenario of a seed, runs it, and checks the result.
pub fn run_seed(seed: u64) -> Outcome {
    run_scenario(seed, &scenario(seed))
}

/// Runs a scenario and checks the result.
pub fn run_scenario(seed: u64, scenario: &Scenario) -> Outcome {
    let mut simulation = match build(&scenario.config) {
        Ok(simulation) => simulation,
        Err(error) => {
            let failures = vec![format!("the scenario is impossible: {error}")];
            return Outcome { seed, failures, events: 0, trace_hash: 0 };
        }
    };
    // A rank that lacks something permanently must learn it from its machine.
    simulation.never_give_up();
    let (graph, network) = (simulation.graph(), &scenario.config.network);
    let (checker, findings) = match network.lossless {
        Some(_) => Checker::lossless_by_class(graph, network.service.as_ref().map_or(1, Service::classes)),
        None => Checker::with_queues(graph, network.shared_buffer().ok().flatten(), network.service.clone()),
    };
    let checker = if network.cut_through { checker.cutting_through(graph) } else { checker };
    simulation.fabric.set_tracer(Some(Box::new(checker)));
    let finished = run_to_end(&mut simulation, &scenario.config);
    let mut failures = Vec::new();
    if !finished {
        let now = simulation.fabric.now.as_secs_f64();
        failures.push(format!("{} ranks or flows did not end by {now:.6} s", simulation.open()));
    }
    failures.extend(check_results(&simulation, scenario.ending));
    if finished {
        failures.extend(check_drained(&mut simulation, &findings));
    }
    let violations = findings.violations();
    failures.extend(violations.iter().map(|violation| violation.sentence(simulation.graph())));
    Outcome { seed, failures, events: simulation.events(), trace_hash: simulation.fabric.trace_hash() }
}

fn run_to_end(simulation: &mut Simulation, config: &Config) -> bool {
    let end = Time::ZERO + config.end.0;
    while simulation.open() > 0 && simulation.events() < MAX_EVENTS && simulation.step(end) {}
    simulation.open() == 0
}

/// What is wrong with the results that machines reported.
fn check_results(simulation: &Simulation, ending: Ending) -> Vec<String> {
    let mut failures = Vec::new();
    for job in simulation.traffic.jobs.all() {
        for error in &job.errors {
            let allowed = ending == Ending::SomeDie && matches!(error.kind, JobErrorKind::CollectiveFailed(_));
            if !allowed {
                failures.push(format!("{}: {}", job.plan.name, job.sentence(error)));
            }
        }
        if ending == Ending::AllHeals && !job.is_complete() {
            failures.push(format!("{} is not complete", job.plan.name));
        }
        // A full table of sparse elements refuses a packet, which comes again.
        let may_refuse = job.plan.sparse.is_some();
        let overflows = simulation.drops_in_switches(job).get(DropReason::Overflow);
        if overflows > 0 && !may_refuse {
            failures
                .push(format!("{}: switches refused {overflows} packets because their memory was full", job.plan.name));
        }
    }
    failures
}

/// Packets in flight when all ranks have ended must arrive or be lost, and no packet may be left then.
fn check_drained(simulation: &mut Simulation, findings: &Findings) -> Vec<String> {
    simulation.silence();
    let mut failures = Vec::new();
    if simulation.run(Time(u64::MAX - 1)) {
        failures.push("events are left after all hosts have stopped".to_string());
    }
    for (switch, shared) in simulation.shared().filter(|(_, shared)| shared.slots_in_use > 0) {
        failures.push(format!("switch {} still holds {} slots", switch, shared.slots_in_use));
    }
    if findings.alive() > 0 {
        failures.push(format!("{} packets neither arrived nor were lost", findings.alive()));
    }
    let payloads = simulation.fabric.payloads.in_use();
    if payloads > 0 {
        failures.push(format!("{payloads} payloads are held by no packet"));
    }
    failures
}
