//! Swarm tests: a seed draws a whole world, which first runs with faults and then heals.
//!
//! While faults last, no result may be wrong. Once they have ended, everything must finish. If a node died for good,
//! every rank must end, and ranks that cannot finish must be told. The checkers of [`crate::check`] watch the whole
//! trace. A world is a [`Config`]: a seed that fails can be printed as a file and run again.

mod world;

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::time::Time;

pub use world::{Ending, ORDERED, World, world};

use crate::check::{Checker, Findings};
use crate::config::Config;
use crate::driver::{Simulation, Wrong};
use crate::experiment::build;

/// The result of one world.
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

/// More events than any world needs: a run with more never ends.
const MOST_EVENTS: u64 = 30_000_000;

/// Runs many seeds on several threads, and reports each outcome as soon as it is ready; stops early if told to.
pub fn run_seeds(seeds: Range<u64>, threads: usize, tell: &mut dyn FnMut(Outcome) -> ControlFlow<()>) {
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
            if tell(outcome).is_break() {
                break;
            }
        }
        drop(outcomes);
    });
}

/// Draws the world of a seed, runs it, and checks the result.
pub fn run_seed(seed: u64) -> Outcome {
    run_world(seed, &world(seed))
}

/// Runs a world and checks the result.
pub fn run_world(seed: u64, world: &World) -> Outcome {
    let mut simulation = match build(&world.config) {
        Ok(simulation) => simulation,
        Err(error) => {
            let failures = vec![format!("the world is impossible: {error}")];
            return Outcome { seed, failures, events: 0, trace_hash: 0 };
        }
    };
    // A rank that misses something for good must be told by its machine.
    simulation.never_give_up();
    let judge_of = if world.config.network.lossless.is_some() { Checker::lossless } else { Checker::new };
    let (checker, findings) = judge_of(simulation.graph());
    simulation.fabric.set_tracer(Some(Box::new(checker)));
    let finished = run_to_end(&mut simulation, &world.config);
    let mut failures = Vec::new();
    if !finished {
        let now = simulation.fabric.now.as_secs_f64();
        failures.push(format!("{} ranks or flows did not end by {now:.6} s", simulation.open()));
    }
    failures.extend(judge(&simulation, world.ending));
    if finished {
        failures.extend(left_behind(&mut simulation, &findings));
    }
    let violations = findings.violations();
    failures.extend(violations.iter().map(|violation| violation.sentence(simulation.graph())));
    Outcome { seed, failures, events: simulation.events(), trace_hash: simulation.fabric.trace_hash() }
}

fn run_to_end(simulation: &mut Simulation, config: &Config) -> bool {
    let end = Time::ZERO + config.end.0;
    while simulation.open() > 0 && simulation.events() < MOST_EVENTS && simulation.step(end) {}
    simulation.open() == 0
}

/// The errors of what machines reported.
fn judge(simulation: &Simulation, ending: Ending) -> Vec<String> {
    let mut failures = Vec::new();
    for job in simulation.traffic.jobs.all() {
        for complaint in &job.complaints {
            let allowed = ending == Ending::SomeDie && matches!(complaint.what, Wrong::Failed(_));
            if !allowed {
                failures.push(format!("{}: {}", job.plan.name, complaint.sentence(job)));
            }
        }
        if ending == Ending::AllHeals && !job.is_complete() {
            failures.push(format!("{} is not complete", job.plan.name));
        }
        // A full table of sparse elements refuses a packet, which comes again.
        let may_refuse = job.plan.density_ppm.is_some();
        let overflows = simulation.drops_in_switches(job).get(DropReason::Overflow);
        if overflows > 0 && !may_refuse {
            failures.push(format!("{}: switches had no room for {overflows} packets", job.plan.name));
        }
    }
    failures
}

/// Packets under way when all ranks have ended must arrive or be lost, and no packet may be left then.
fn left_behind(simulation: &mut Simulation, findings: &Findings) -> Vec<String> {
    simulation.silence();
    let mut failures = Vec::new();
    if simulation.run(Time(u64::MAX - 1)) {
        failures.push("events are left when nobody sends any more".to_string());
    }
    for (switch, shared) in simulation.shared().filter(|(_, shared)| shared.slots_held > 0) {
        failures.push(format!("switch {} still holds {} slots", switch, shared.slots_held));
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
