//! Two racks, a switch in each, and one above them: workers name their rack's switch, and that is all.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::status::SwitchStatus;
use tributary_proto::protocols;
use tributary_testbed::{Faults, Namespace, Racks, Shaping, StarOptions, requirements};

use crate::namespaces::network::{self, checked, error_of, tributary};

const PORT: u16 = 17777;
const HOSTS_PER_RACK: usize = 2;
/// Longer than any test lives. A rank that did not learn of a death asks by itself at three quarters of the timeout ...
const ENDLESS: [&str; 6] = ["--elements", "1000000", "--iters", "1000000", "--timeout", "60s"];
/// ... which is well after this.
const FAIL_WITHIN: Duration = Duration::from_secs(20);

struct TwoRacks {
    racks: Racks,
    /// Above, first rack, second rack.
    switches: [Child; 3],
    _turn: network::Turn,
}

impl TwoRacks {
    /// Links of 1 Gbit/s, and faults between racks and the switch above; `None`, and why, where none can be built.
    fn build(up_faults: Faults) -> Option<TwoRacks> {
        if let Err(reason) = requirements() {
            eprintln!("skipped: {reason}");
            return None;
        }
        let turn = network::turn();
        let options = StarOptions::new(HOSTS_PER_RACK, Shaping::gbps(1.0).unwrap());
        let racks = Racks::build(2, &options, up_faults).unwrap();
        let parent = start_switch(racks.top(), &[]);
        let below = |rack: usize| {
            let parent = format!("{}:{PORT}", Racks::top_addr(rack));
            start_switch(racks.rack(rack).switch_box(), &["--parent", &parent])
        };
        let switches = [parent, below(0), below(1)];
        Some(TwoRacks { racks, switches, _turn: turn })
    }

    /// Ranks are dealt out in turn: even ones in the first rack, odd ones in the second.
    fn worker(&self, job: &str, rank: usize, words: &[&str]) -> Child {
        let world_size = 2 * HOSTS_PER_RACK;
        let rack = self.racks.rack(rank % 2);
        let mut command = tributary(rack.host(rank / 2));
        command.args(["allreduce", "--switch", &format!("{}:{PORT}", rack.switch_addr()), "--job", job, "--json"]);
        command.args(["--rank", &rank.to_string(), "--world-size", &world_size.to_string()]).args(words);
        command.spawn().unwrap()
    }

    fn workers(&self, job: &str, words: &[&str]) -> Vec<Child> {
        (0..2 * HOSTS_PER_RACK).map(|rank| self.worker(job, rank, words)).collect()
    }

    fn sum(&self, job: &str, words: &[&str]) -> Vec<serde_json::Value> {
        self.workers(job, words).into_iter().map(checked).collect()
    }

    /// The state of the switch above.
    fn status(&self) -> SwitchStatus {
        let addr = (Racks::top_addr(0), PORT).into();
        self.racks.top().inside(|| client::status(addr).unwrap()).unwrap()
    }

    fn until_busy(&self, job: &str) {
        let start = Instant::now();
        while !self.status().jobs.iter().any(|found| found.name == job && found.blocks > 5_000) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:#?}", self.status());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(&mut self, switch: usize) {
        self.switches[switch].kill().unwrap();
        self.switches[switch].wait().unwrap();
    }
}

impl Drop for TwoRacks {
    fn drop(&mut self) {
        for switch in &mut self.switches {
            // Fails only where a test has killed it already.
            let _ = switch.kill();
            let _ = switch.wait();
        }
    }
}

fn start_switch(namespace: &Namespace, words: &[&str]) -> Child {
    let mut command = tributary(namespace);
    command.args(["switch", "--listen", &format!("0.0.0.0:{PORT}"), "--cores", "2"]).args(words);
    let mut switch = command.stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(switch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    switch
}

#[test]
fn two_racks_sum_exactly_though_the_links_between_them_lose_1_percent() {
    let Some(racks) = TwoRacks::build(Faults::loss(1.0)) else { return };
    let mut sent_again = 0;
    for dtype in ["i32", "f32", "bf16"] {
        let reports = racks.sum(dtype, &["--elements", "300000", "--iters", "5", "--timeout", "60s", "--dtype", dtype]);
        sent_again += reports.iter().map(|report| report["retransmissions"].as_u64().unwrap()).sum::<u64>();
    }
    assert!(sent_again > 0, "nothing was lost");
}

#[test]
fn all_ranks_of_both_racks_write_the_same_bits() {
    let Some(racks) = TwoRacks::build(Faults::loss(1.0)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let outputs: Vec<String> =
        (0..4).map(|rank| folder.path().join(format!("{rank}.npy")).display().to_string()).collect();
    let workers: Vec<Child> =
        (0..4).map(|rank| racks.worker("bits", rank, &["--elements", "100007", "--output", &outputs[rank]])).collect();
    workers.into_iter().for_each(|worker| drop(checked(worker)));
    let first = std::fs::read(&outputs[0]).unwrap();
    assert!(outputs.iter().all(|output| std::fs::read(output).unwrap() == first));
}

/// What the workers complain of after a death.
fn errors_in_time(workers: Vec<Child>) -> Vec<String> {
    let death = Instant::now();
    let errors = workers.into_iter().map(error_of).collect();
    assert!(death.elapsed() < FAIL_WITHIN, "after {:?}: {errors:?}", death.elapsed());
    errors
}

#[test]
fn a_killed_worker_is_named_in_both_racks() {
    let Some(racks) = TwoRacks::build(Faults::default()) else { return };
    let mut workers = racks.workers("orphans", &ENDLESS);
    racks.until_busy("orphans");
    let mut victim = workers.remove(3);
    victim.kill().unwrap();
    victim.wait().unwrap();
    for error in errors_in_time(workers) {
        assert!(error.contains("rank 3 is gone: its process ended"), "{error}");
    }
    racks.sum("next", &["--elements", "100000"]);
}

/// The protocols that sum sparse tensors in switches, each with dense ones and with sparse ones.
fn dense_and_sparse() -> Vec<Vec<&'static str>> {
    let able = protocols::ALL.iter().filter(|protocol| protocol.switch.is_some() && protocol.options.sparse.is_some());
    let of_each = able.flat_map(|protocol| {
        let dense = [&ENDLESS[..], &["--protocol", protocol.name]].concat();
        [[&dense[..], &["--sparse", "0.01"]].concat(), dense]
    });
    of_each.collect()
}

#[test]
fn a_killed_worker_is_named_in_dense_jobs_and_in_sparse_ones() {
    let Some(racks) = TwoRacks::build(Faults::default()) else { return };
    assert!(!dense_and_sparse().is_empty());
    for (number, words) in dense_and_sparse().into_iter().enumerate() {
        let job = format!("orphans{number}");
        let mut workers = racks.workers(&job, &words);
        racks.until_busy(&job);
        let mut victim = workers.remove(1);
        victim.kill().unwrap();
        victim.wait().unwrap();
        for error in errors_in_time(workers) {
            assert!(error.contains("rank 1 is gone: its process ended"), "{words:?}: {error}");
        }
    }
}

#[test]
fn killed_switches_are_named_in_sparse_jobs() {
    for (switch, wanted) in [(2, "is gone, and ranks 1, 3 with it"), (0, "the switch above, ")] {
        let Some(mut racks) = TwoRacks::build(Faults::default()) else { return };
        let workers = racks.workers("orphans", &dense_and_sparse()[0]);
        racks.until_busy("orphans");
        racks.kill(switch);
        let errors = errors_in_time(workers);
        assert!(errors[0].contains(wanted) && errors[2].contains(wanted), "{errors:?}");
    }
}

#[test]
fn a_killed_switch_of_a_rack_is_named_with_its_ranks_in_the_other_rack() {
    let Some(mut racks) = TwoRacks::build(Faults::default()) else { return };
    let workers = racks.workers("orphans", &ENDLESS);
    racks.until_busy("orphans");
    racks.kill(2);
    let there = format!("{}:{PORT}", Racks::rack_addr(1));
    for (rank, error) in errors_in_time(workers).into_iter().enumerate() {
        let wanted = match rank % 2 {
            0 => format!("the switch {there} is gone, and ranks 1, 3 with it"),
            _ => format!("the switch 10.77.0.1:{PORT} does not answer any more"),
        };
        assert!(error.contains(&wanted), "rank {rank}: {error}");
    }
}

#[test]
fn a_killed_parent_switch_is_named_in_both_racks() {
    let Some(mut racks) = TwoRacks::build(Faults::default()) else { return };
    let workers = racks.workers("orphans", &ENDLESS);
    racks.until_busy("orphans");
    racks.kill(0);
    for (rank, error) in errors_in_time(workers).into_iter().enumerate() {
        let wanted = format!("the switch above, {}:{PORT}, is gone", Racks::top_addr(rank % 2));
        assert!(error.contains(&wanted), "rank {rank}: {error}");
    }
}
