//! Processes that die in the middle: whoever is left says who is missing, and the next job works.

use std::process::Command;
use std::thread;
use std::time::Duration;

use tributary_testbed::Faults;

use crate::namespaces::network::{Network, ended, error_of};

/// Longer than any test lives, and so is the timeout.
const ENDLESS: [&str; 6] = ["--elements", "1000000", "--iters", "1000000", "--timeout", "600s"];

#[test]
fn a_killed_worker_is_named_by_every_other_long_before_the_timeout() {
    for protocol in ["switchml", "ring"] {
        let Some(network) = Network::build(4, Faults::default()) else { return };
        let mut workers = network.workers("orphans", 4, &[&ENDLESS[..], &["--protocol", protocol]].concat());
        network.until("everybody joined", |status| {
            status.jobs.iter().any(|job| job.name == "orphans" && job.state == "running").then_some(())
        });
        thread::sleep(Duration::from_secs(1));
        let mut victim = workers.remove(2);
        victim.kill().unwrap();
        victim.wait().unwrap();
        for worker in workers {
            let error = error_of(worker);
            assert!(error.contains("rank 2 is gone: its process ended"), "{error}");
        }
        network.sum("next", 4, &["--elements", "100000", "--protocol", protocol]);
    }
}

/// A watch is answered after 30 s, and a stopped process cannot ask again.
#[test]
fn a_worker_that_stands_still_while_its_watch_ends_costs_a_pause_and_no_job() {
    let Some(network) = Network::build(2, Faults::default()) else { return };
    let workers = network.workers("stalls", 2, &ENDLESS);
    network.until_busy("stalls", 1_000);
    // What takes 30 s must have begun a moment ago; the pause is longer than any such moment.
    thread::sleep(Duration::from_millis(28_000));
    let stopped = workers[1].id();
    signal(stopped, "-STOP");
    thread::sleep(Duration::from_millis(4_500));
    signal(stopped, "-CONT");
    let before = network.until_busy("stalls", 1_000).blocks;
    network.until_busy("stalls", before + 10_000);
    for mut worker in workers {
        assert!(worker.try_wait().unwrap().is_none(), "it goes on");
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

fn signal(process: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_killed_switch_is_named_and_a_new_one_serves_the_next_job() {
    let Some(mut network) = Network::build(4, Faults::default()) else { return };
    let workers = network.workers("orphans", 4, &ENDLESS);
    network.until_busy("orphans", 10_000);
    network.kill_switch();
    let address = network.switch_addr().to_string();
    for worker in workers {
        let error = error_of(worker);
        assert!(error.contains("the switch") && error.contains(&address), "{error}");
    }
    network.restart_switch();
    network.sum("next", 4, &["--elements", "100000"]);
}

#[test]
fn a_switch_that_comes_back_in_the_middle_does_not_know_the_job_and_the_workers_say_so() {
    let Some(mut network) = Network::build(2, Faults::default()) else { return };
    let workers = network.workers("orphans", 2, &ENDLESS);
    network.until_busy("orphans", 10_000);
    network.kill_switch();
    network.restart_switch();
    for worker in workers {
        let error = error_of(worker);
        assert!(error.contains("switch"), "{error}");
    }
    network.sum("orphans", 2, &["--elements", "100000"]);
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let Some(network) = Network::build(3, Faults::default()) else { return };
    let words = ["--elements", "1000", "--timeout", "2s"];
    let workers = [network.worker("lonely", 0, 3, &words), network.worker("lonely", 2, 3, &words)];
    for worker in workers {
        let error = error_of(worker);
        assert!(error.contains("rank 1") || error.contains("ranks 1"), "{error}");
    }
}

#[test]
fn slots_of_a_killed_job_come_back() {
    let Some(network) = Network::build(2, Faults::default()) else { return };
    let mut workers = network.workers("gone", 2, &ENDLESS);
    network.until_busy("gone", 1000);
    workers.iter_mut().for_each(|worker| worker.kill().unwrap());
    workers.into_iter().for_each(|worker| drop(ended(worker)));
    network.until("free memory", |status| (status.switch.memory_used_bytes == 0).then_some(()));
}
