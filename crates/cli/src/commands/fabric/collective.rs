//! Hosts of a fabric sum, while other hosts send other traffic and switches are killed.

use std::time::{Duration, Instant};

use tributary_proto::contract::ids::NodeId;

use super::cluster::FabricCluster;
use super::plan::{Kill, Plan, Stream};
use super::report::{Death, Report};
use crate::cluster::{Process, WorkerReport};
use crate::failure::Failure;

/// Time for processes to start and find each other on a busy machine, on top of what a sum may take.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the program checks whether it is time to kill a switch.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long switches may take to free what they hold for sums that are over.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the plan to its end.
pub fn run(cluster: &mut FabricCluster, plan: &Plan) -> Result<Report, Failure> {
    let before = cluster.all_status()?;
    let streams = plan.streams.iter().map(|(from, stream)| start_stream(cluster, *from, stream));
    // The streams end when they are dropped, with this function.
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let mut workers = Vec::new();
    for (rank, &host) in plan.workers.iter().enumerate() {
        workers.push(start_worker(cluster, plan, rank, host)?);
    }
    let death = plan.kill.as_ref().map(|(switch, kill)| die(cluster, &mut workers, *switch, kill)).transpose()?;
    let deadline = Instant::now() + START_TIMEOUT + plan.timeout * plan.iters;
    let mut ranks = Vec::new();
    for worker in workers {
        let lines = worker.finish(deadline)?;
        let last = lines.last().map(String::as_str).unwrap_or_default();
        let report: WorkerReport = serde_json::from_str(last)
            .map_err(|error| Failure::new(format!("a worker ended with '{last}': {error}")))?;
        ranks.push(report);
    }
    drop(streams);
    let names = plan.workers.iter().map(|&host| cluster.fabric.name(host).to_string()).collect();
    Ok(Report::new(plan, names, ranks, &before, drained(cluster)?, death))
}

/// Kills the switch when it is time, unless all hosts have their sums by then.
fn die(cluster: &mut FabricCluster, workers: &mut [Process], switch: NodeId, kill: &Kill) -> Result<Death, Failure> {
    await_first_blocks(cluster, workers)?;
    pause(cluster, kill.after)?;
    let in_time = !all_ended(workers)?;
    if in_time {
        cluster.kill(switch);
        if let Some(back) = kill.back {
            pause(cluster, back)?;
            cluster.restart(switch)?;
        }
    }
    Ok(Death { switch: cluster.fabric.name(switch).to_string(), in_time })
}

fn all_ended(workers: &mut [Process]) -> Result<bool, Failure> {
    for worker in workers {
        if !worker.has_ended()? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn pause(cluster: &FabricCluster, pause: Duration) -> Result<(), Failure> {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        cluster.interrupt.check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// The state of all switches once jobs hold no shared memory any more, or when that takes too long.
fn drained(cluster: &FabricCluster) -> Result<Vec<tributary_net::status::SwitchStatus>, Failure> {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    loop {
        let all = cluster.all_status()?;
        let in_use: u32 = all.iter().flat_map(|status| &status.switch.shared).map(|shared| shared.slots_in_use).sum();
        if in_use == 0 || Instant::now() >= deadline {
            return Ok(all);
        }
        std::thread::sleep(POLL_INTERVAL * 10);
    }
}

fn start_worker(cluster: &FabricCluster, plan: &Plan, rank: usize, host: NodeId) -> Result<Process, Failure> {
    let leaf = cluster.fabric.udp(cluster.fabric.leaf_of(host));
    let mut command = cluster.command(host)?;
    command
        .args(["allreduce", "--json", "--job", "fabric", "--switch", &leaf.to_string()])
        .args(["--protocol", plan.protocol.name, "--dtype", plan.dtype.name()])
        .args(["--rank", &rank.to_string(), "--world-size", &plan.workers.len().to_string()])
        .args(["--elements", &plan.elements.to_string(), "--iters", &plan.iters.to_string()])
        .args(["--timeout", &format!("{}s", plan.timeout.as_secs_f64())]);
    for (name, value) in &plan.options {
        command.args(["--option", &format!("{name}={value}")]);
    }
    if let Some(trees) = plan.trees {
        command.args(["--trees", &trees.to_string()]);
    }
    Process::spawn(format!("rank {rank} on {}", cluster.fabric.name(host)), command, &cluster.interrupt)
}

fn start_stream(cluster: &FabricCluster, from: NodeId, stream: &Stream) -> Result<Process, Failure> {
    let mut command = cluster.command(from)?;
    command.args(["lab", "traffic", "--fabric"]).arg(cluster.file());
    command.args(["--from", &stream.from, "--to", &stream.to, "--rate", &stream.rate.to_string()]);
    if let Some(via) = &stream.via {
        command.args(["--via", via]);
    }
    Process::spawn(format!("traffic from {}", stream.from), command, &cluster.interrupt)
}

/// Waits until the job runs and its first contributions were added, or until it is over.
fn await_first_blocks(cluster: &FabricCluster, workers: &mut [Process]) -> Result<(), Failure> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        cluster.interrupt.check()?;
        let controller = cluster.status(cluster.fabric.controller)?;
        if controller.jobs.iter().any(|job| job.contributions > 0) || all_ended(workers)? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Failure::new("the hosts have not begun to sum"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
