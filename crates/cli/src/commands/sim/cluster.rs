//! Points of a sweep on a Dask cluster: the package's `tributary.sim.cluster` takes orders and returns results.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use tributary_sim::sweep::{Finished, Store, SweepPoint, WorkOrder};

use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::program::Program;
use crate::python::Module;

/// How often a wait checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
struct Answer {
    /// The number of the order.
    number: usize,
    /// The result, as JSON.
    finished: String,
}

/// Runs points on the cluster whose scheduler has this address, and keeps their results; `done` is called for each.
pub fn run(
    program: &Program,
    address: &str,
    points: &[SweepPoint],
    store: &Store,
    done: &dyn Fn(),
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    if points.is_empty() {
        return Ok(());
    }
    let module = Module::new(program, "tributary.sim.cluster", "dask");
    let mut command = module.command();
    // In its own process group, so that Ctrl-C reaches only this program, which then ends the child.
    command.arg(address).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Failure::new(module.not_started(&error)))?;
    let (Some(mut orders), Some(answers), Some(mut errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        unreachable!("all three are pipes")
    };
    let (sender, lines) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for point in points {
                let Ok(order) = serde_json::to_string(&WorkOrder::new(point)) else { return };
                // Fails if the program has ended; the program says why.
                if writeln!(orders, "{order}").is_err() {
                    return;
                }
            }
        });
        scope.spawn(move || {
            BufReader::new(answers).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let errors = scope.spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        let kept = keep(&lines, points, store, done, interrupt);
        if kept.is_err() || interrupt.is_set() {
            // The program must end now, and may have ended already.
            let _ = child.kill();
        }
        let status = child.wait()?;
        let said = errors.join().unwrap_or_default();
        match kept {
            Ok(()) if status.success() || interrupt.is_set() => Ok(()),
            Ok(()) => Err(Failure::new(module.failed(&said))),
            Err(failure) => Err(failure),
        }
    })
}

/// Keeps results until there are no more, or until the sweep must stop.
fn keep(
    lines: &mpsc::Receiver<String>,
    points: &[SweepPoint],
    store: &Store,
    done: &dyn Fn(),
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    while !interrupt.is_set() {
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => {
                let foreign = || Failure::new(format!("the cluster's program said what it should not: {line}"));
                let answer: Answer = serde_json::from_str(&line).map_err(|_| foreign())?;
                let finished: Finished = serde_json::from_str(&answer.finished).map_err(|_| foreign())?;
                let point = points.get(answer.number).filter(|point| finished.is_of(point));
                store.keep(point.ok_or_else(foreign)?, &finished)?;
                done();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}
