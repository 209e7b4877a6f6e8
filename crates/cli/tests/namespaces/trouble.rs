//! Processes that die in the middle: whoever is left says who is missing, and the next job works.

use tributary_testbed::Faults;

use crate::network::{Network, complaint, ended};

/// Longer than any test lives, and so is the timeout.
const ENDLESS: [&str; 6] = ["--elements", "1000000", "--iters", "1000000", "--timeout", "600"];

#[test]
fn a_killed_worker_is_named_by_every_other_long_before_the_timeout() {
    for protocol in ["switchml", "ring"] {
        let Some(network) = Network::build(4, Faults::default()) else { return };
        let mut workers = network.workers("orphans", 4, &[&ENDLESS[..], &["--protocol", protocol]].concat());
        network.until("everybody joined", |status| {
            status.jobs.iter().any(|job| job.name == "orphans" && job.state == "running").then_some(())
        });
        std::thread::sleep(std::time::Duration::from_secs(1));
        let mut victim = workers.remove(2);
        victim.kill().unwrap();
        victim.wait().unwrap();
        for worker in workers {
            let complaint = complaint(worker);
            assert!(complaint.contains("rank 2 is gone: its process ended"), "{complaint}");
        }
        network.sum("next", 4, &["--elements", "100000", "--protocol", protocol]);
    }
}

#[test]
fn a_killed_switch_is_named_and_a_new_one_serves_the_next_job() {
    let Some(mut network) = Network::build(4, Faults::default()) else { return };
    let workers = network.workers("orphans", 4, &ENDLESS);
    network.until_busy("orphans", 10_000);
    network.kill_switch();
    let address = network.switch_addr().to_string();
    for worker in workers {
        let complaint = complaint(worker);
        assert!(complaint.contains("the switch") && complaint.contains(&address), "{complaint}");
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
        let complaint = complaint(worker);
        assert!(complaint.contains("switch"), "{complaint}");
    }
    network.sum("orphans", 2, &["--elements", "100000"]);
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let Some(network) = Network::build(3, Faults::default()) else { return };
    let words = ["--elements", "1000", "--timeout", "2"];
    let workers = [network.worker("lonely", 0, 3, &words), network.worker("lonely", 2, 3, &words)];
    for worker in workers {
        let complaint = complaint(worker);
        assert!(complaint.contains("rank 1") || complaint.contains("ranks 1"), "{complaint}");
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
