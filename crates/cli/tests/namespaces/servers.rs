//! Parameter servers as processes on hosts of their own, and beside the workers.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tributary_testbed::Faults;

use crate::namespaces::network::{Network, error_of, tributary};
use crate::namespaces::sharing::served;

const WORKERS: usize = 4;
const SERVERS: usize = 2;
const PS: [&str; 2] = ["--protocol", "ps"];
/// Longer than any test lives. A rank that did not learn of a death asks by itself at three quarters of the timeout ...
const ENDLESS: [&str; 8] = ["--elements", "1000000", "--iters", "1000000", "--timeout", "60s", "--protocol", "ps"];
/// ... which is well after this.
const FAIL_WITHIN: Duration = Duration::from_secs(20);

/// A server on this host.
fn serving(network: &Network, host: usize) -> Command {
    let mut command = tributary(network.star.host(host));
    command.args(["ps", "--switch", &network.switch_addr().to_string()]);
    command
}

/// Servers on the hosts after the workers', each at a known port.
struct Servers(Vec<Child>);

impl Servers {
    fn start(network: &Network) -> Servers {
        Servers((WORKERS..WORKERS + SERVERS).map(|host| start(network, host)).collect())
    }
}

/// A server on this host, on offer at a known port.
fn start(network: &Network, host: usize) -> Child {
    let mut command = serving(network, host);
    let mut server = command.args(["--listen", "0.0.0.0:4242"]).stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("on offer"), "{line}");
    server
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            // Fails only where a test has killed it already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn sums_are_exact(network: &Network, name: &str) {
    let mut sent_again = 0;
    for dtype in ["i32", "f32", "bf16"] {
        let words = [&PS[..], &["--elements", "300000", "--iters", "5", "--timeout", "60s", "--dtype", dtype]].concat();
        let reports = network.sum(&format!("{name}-{dtype}"), WORKERS, &words);
        sent_again += reports.iter().map(|report| report["retransmissions"].as_u64().unwrap()).sum::<u64>();
        assert!(reports.iter().all(|report| report["in_network"] == 0.0), "hosts sum");
    }
    assert!(sent_again > 0, "nothing was lost");
}

#[test]
fn two_servers_sum_exactly_for_four_workers_though_links_lose_1_percent() {
    let Some(network) = Network::build_serving(WORKERS + SERVERS, Faults::loss(1.0)) else { return };
    let _servers = Servers::start(&network);
    sums_are_exact(&network, "dedicated");
    let listed = network.status().switch.servers;
    assert_eq!(listed.iter().map(|server| server.state.as_str()).collect::<Vec<_>>(), ["present"; SERVERS]);
}

#[test]
fn a_server_beside_each_worker_sums_exactly_though_links_lose_1_percent() {
    let Some(network) = Network::build(WORKERS, Faults::loss(1.0)) else { return };
    sums_are_exact(&network, "colocated");
}

#[test]
fn a_killed_server_is_named_by_every_rank_and_the_next_job_does_without_it() {
    let Some(network) = Network::build_serving(WORKERS + SERVERS, Faults::default()) else { return };
    let mut servers = Servers::start(&network);
    let workers = network.workers("orphans", WORKERS, &ENDLESS);
    network.until("everybody joined", |status| {
        status.jobs.iter().any(|job| job.name == "orphans" && job.state == "running").then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    servers.0[1].kill().unwrap();
    let death = Instant::now();
    let addr = format!("{}:4242", network.star.host_addr(WORKERS + 1));
    for worker in workers {
        let error = error_of(worker);
        assert!(error.contains(&format!("server 1 ({addr}) is gone: its process ended")), "{error}");
    }
    assert!(death.elapsed() < FAIL_WITHIN, "{:?}", death.elapsed());
    eprintln!("every rank was told within {:?}", death.elapsed());
    network.sum("next", WORKERS, &[&PS[..], &["--elements", "100000"]].concat());
}

/// Of jobs that share a switch's memory, which has room for little: servers sum the rest, and one that is killed is named.
#[test]
fn servers_sum_what_does_not_fit_a_switch_though_links_lose_1_percent_and_a_killed_one_is_named() {
    let faults = Faults::loss(1.0);
    let Some(network) = Network::build_serving_with(WORKERS + SERVERS, faults, &["--aggregators", "32"]) else {
        return;
    };
    for protocol in served() {
        let mut servers = Servers::start(&network);
        let words = ["--protocol", protocol.name, "--elements", "300000", "--iters", "3", "--timeout", "60s"];
        let reports = network.sum(&format!("{protocol}-sums"), WORKERS, &words);
        for report in &reports {
            assert_eq!(report["servers"], SERVERS, "{report}");
            let share = report["in_network"].as_f64().unwrap();
            assert!(share > 0.0 && share < 1.0, "some had room: {report}");
        }
        let words = [&ENDLESS[..6], &["--protocol", protocol.name]].concat();
        let workers = network.workers(&format!("{protocol}-orphans"), WORKERS, &words);
        network.until_busy(&format!("{protocol}-orphans"), 1_000);
        servers.0[0].kill().unwrap();
        let (addr, death) = (format!("{}:4242", network.star.host_addr(WORKERS)), Instant::now());
        for worker in workers {
            let error = error_of(worker);
            assert!(error.contains(&format!("server 0 ({addr}) is gone: its process ended")), "{error}");
        }
        assert!(death.elapsed() < FAIL_WITHIN, "{:?}", death.elapsed());
        eprintln!("{protocol}: every rank was told within {:?}", death.elapsed());
    }
}

/// What a server held of a job is nowhere else, so the job does not outlive it, though another process is at its address at once:
/// every rank is told which server is gone. The next job is served by the new one.
#[test]
fn a_server_that_is_started_again_in_the_middle_of_a_job_ends_that_job_by_name_and_serves_the_next() {
    let served_here = ["--aggregators", "32"];
    let Some(network) = Network::build_serving_with(WORKERS + SERVERS, Faults::default(), &served_here) else { return };
    let mut servers = Servers::start(&network);
    for protocol in served() {
        let words = [&ENDLESS[..6], &["--protocol", protocol.name]].concat();
        let workers = network.workers(&format!("{protocol}-orphans"), WORKERS, &words);
        network.until_busy(&format!("{protocol}-orphans"), 1_000);
        servers.0[0].kill().unwrap();
        servers.0[0].wait().unwrap();
        let death = Instant::now();
        servers.0[0] = start(&network, WORKERS);
        let addr = format!("{}:4242", network.star.host_addr(WORKERS));
        for worker in workers {
            let error = error_of(worker);
            assert!(error.contains(&format!("server 0 ({addr}) is gone: its process ended")), "{error}");
        }
        eprintln!("{protocol}: every rank was told within {:?}", death.elapsed());
        let words = ["--elements", "100000", "--dtype", "i32", "--protocol", protocol.name];
        for report in network.sum(&format!("{protocol}-next"), WORKERS, &words) {
            assert_eq!(report["servers"], SERVERS, "{report}");
        }
    }
}

#[test]
fn a_killed_worker_with_a_server_beside_it_is_named_by_every_other() {
    let Some(network) = Network::build(WORKERS, Faults::default()) else { return };
    let mut workers = network.workers("orphans", WORKERS, &ENDLESS);
    network.until("everybody joined", |status| {
        status.jobs.iter().any(|job| job.name == "orphans" && job.state == "running").then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    let mut victim = workers.remove(2);
    victim.kill().unwrap();
    victim.wait().unwrap();
    for worker in workers {
        let error = error_of(worker);
        assert!(error.contains("rank 2 is gone: its process ended"), "{error}");
    }
}

#[test]
fn a_server_whose_host_the_operator_has_not_named_is_refused_and_serves_nobody() {
    let Some(network) = Network::build(2, Faults::default()) else { return };
    let error = error_of(serving(&network, 1).spawn().unwrap());
    let addr = network.star.host_addr(1);
    assert!(error.contains(&format!("{addr} is neither: start the switch with --servers {addr}")), "{error}");
    assert!(network.status().switch.servers.is_empty());
}
