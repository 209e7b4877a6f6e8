//! Runs two jobs at once on a star, for each way to share memory, and observes the switch meanwhile.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tributary_net::status::{JobStatus, MetricNumber, SwitchStatus};
use tributary_testbed::{Shaping, Star, StarOptions};

use super::report::{Memory, Report, Run};
use super::ways::Way;
use super::{Plan, SLOWER};
use crate::cluster::job::Data;
use crate::cluster::{Cluster, Hosts, Interrupt, JobRun, RunningJob, WorkerReport};
use crate::commands::lab::bench::machine::Machine;
use crate::failure::Failure;
use crate::program::Program;

/// Ranks of each job: hosts 0 to 3 are job A's, 4 to 7 job B's.
pub const WORLD_SIZE: u16 = 4;
/// The time between two observations of the switch: its answer changes after this time.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// How long a job may take to form, on a busy machine.
const START: Duration = Duration::from_secs(30);
/// For one collective.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Job B begins after the time that this many of A's collectives would take at the slow link's rate.
const LEAD: f64 = 3.0;
/// Sums of 1 KiB, whose median time is the round trip.
const ROUND_TRIPS: u32 = 200;
const SMALL_ELEMENTS: usize = 256;
/// The least memory: a job with slots of its own gets at least 8 slots of two blocks.
const LEAST_MEMORY: u32 = 32;
/// Ethernet's header.
const FRAME_BYTES: f64 = 14.0;

/// Measures every way as often as planned.
pub fn run(plan: &Plan, program: &Program, interrupt: &Interrupt) -> Result<Report, Failure> {
    let ways = Way::all();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {eta} left: {msg}").expect("a right template");
    let progress = ProgressBar::new(ways.len() as u64 * u64::from(plan.repetitions)).with_style(style);
    let rate = Shaping::gbps(plan.rate_gbps)?;
    let mut star = Star::build(StarOptions { mtu: plan.mtu, ..StarOptions::new(usize::from(2 * WORLD_SIZE), rate) })?;
    star.shape(0, Shaping::gbps(plan.rate_gbps / SLOWER)?)?;
    let mut cluster = Cluster::open(program, Hosts::Star(star), 1, interrupt)?;
    let (path_packets, round_trip_us) = path(plan, &ways, &mut cluster)?;
    let memory = plan.aggregators.unwrap_or((path_packets * 5).div_ceil(4).max(LEAST_MEMORY));
    let mut report = Report::new(Machine::here(), plan, memory, path_packets, round_trip_us);
    for _ in 0..plan.repetitions {
        for way in &ways {
            progress.set_message(way.name.clone());
            let quota = Quota::of(way, memory)?;
            let mut flags = vec!["--cores".to_owned(), "1".to_owned()];
            flags.extend(quota.flags().into_iter().chain(way.switch_flags(memory, path_packets)));
            cluster = cluster.reopen(&flags)?;
            report.runs.push(turn(plan, way, memory, &mut cluster)?);
            progress.inc(1);
        }
    }
    cluster.close()?;
    progress.finish_and_clear();
    report.summarise();
    Ok(report)
}

/// How many full packets a path holds, and its round trip in us: the time of a small sum over job B's links.
fn path(plan: &Plan, ways: &[Way], cluster: &mut Cluster) -> Result<(u32, f64), Failure> {
    let first = ways.first().ok_or_else(|| Failure::new("there is no way to measure"))?;
    let small = job(first, WORLD_SIZE, SMALL_ELEMENTS, ROUND_TRIPS, Vec::new());
    let seconds = slowest(&cluster.allreduce(&small)?);
    let frame_bits = (f64::from(plan.mtu) + FRAME_BYTES) * 8.0;
    Ok(((plan.rate_gbps * 1e9 * seconds / frame_bits).ceil().max(1.0) as u32, seconds * 1e6))
}

/// A quota of slots, in a file that the switch reads when it starts.
struct Quota(Option<tempfile::NamedTempFile>);

impl Quota {
    fn of(way: &Way, memory: u32) -> Result<Quota, Failure> {
        let Some(slots) = way.own_slots(memory) else { return Ok(Quota(None)) };
        let mut file = tempfile::Builder::new().prefix("tributary-bench-").suffix(".toml").tempfile()?;
        write!(file, "[[quota]]\njobs = \"*\"\nmax_slots = {slots}\n")?;
        Ok(Quota(Some(file)))
    }

    fn flags(&self) -> Vec<String> {
        let file = self.0.iter().map(|file| file.path().display().to_string());
        file.flat_map(|path| ["--config".to_owned(), path]).collect()
    }
}

fn job(way: &Way, first_host: u16, elements: usize, iters: u32, flags: Vec<String>) -> JobRun {
    JobRun {
        protocol: way.protocol(),
        first_host: first_host.into(),
        flags,
        data: Data::MadeUp { world_size: WORLD_SIZE, elements },
        outputs: Vec::new(),
        iters,
        timeout: TIMEOUT,
    }
}

fn slowest(workers: &[WorkerReport]) -> f64 {
    workers.iter().map(|worker| worker.seconds).fold(0.0, f64::max)
}

/// Runs both jobs once. A lasts as long as B would at half its links' rate.
fn turn(plan: &Plan, way: &Way, memory: u32, cluster: &mut Cluster) -> Result<[Run; 2], Failure> {
    let flags = way.flags(memory);
    let bits = plan.elements as f64 * 32.0;
    let (slow_s, well_s) = (bits * SLOWER / plan.rate_gbps / 1e9, bits / plan.rate_gbps / 1e9);
    let iters = LEAD + 2.0 * f64::from(plan.iters) * well_s / slow_s;
    let mut a = cluster.start(&job(way, 0, plan.elements, iters.ceil() as u32, flags.clone()))?;
    await_running(cluster, &mut a)?;
    std::thread::sleep(Duration::from_secs_f64(LEAD * slow_s));
    let mut b = cluster.start(&job(way, WORLD_SIZE, plan.elements, plan.iters, flags))?;
    let (names, mut blocks) = ([a.name().to_owned(), b.name().to_owned()], [Memory::default(), Memory::default()]);
    while !b.is_over()? {
        let status = cluster.status()?;
        if names.iter().all(|name| running(&status, name).is_some()) {
            for (name, blocks) in names.iter().zip(&mut blocks) {
                blocks.extend(running(&status, name).and_then(|job| blocks_of_memory(job, way)));
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let b = b.finish()?;
    let a_outlasts_b = !a.is_over()?;
    let a = a.finish()?;
    let [of_a, of_b] = blocks;
    let run = |job, workers: &[WorkerReport], blocks| {
        Run::new(&way.name, job, workers, slowest(workers), blocks, a_outlasts_b)
    };
    Ok([run("A", &a, of_a), run("B", &b, of_b)])
}

fn await_running(cluster: &Cluster, job: &mut RunningJob) -> Result<(), Failure> {
    let deadline = Instant::now() + START;
    while running(&cluster.status()?, job.name()).is_none() && !job.is_over()? {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("the job {} was not formed in time", job.name())));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn running<'a>(status: &'a SwitchStatus, name: &str) -> Option<&'a JobStatus> {
    status.jobs.iter().find(|job| job.name == name && job.state == "running")
}

/// How many blocks fit a job's own slots, or how many of the shared aggregators it uses.
fn blocks_of_memory(job: &JobStatus, way: &Way) -> Option<f64> {
    match way.blocks_per_slot {
        Some(blocks) => Some(f64::from(job.slots) * f64::from(blocks)),
        None => {
            job.metrics.iter().find(|metric| metric.name == "aggregators_in_use").map(|metric| match metric.value {
                MetricNumber::Gauge(value) => value,
                MetricNumber::Counter(value) => value as f64,
            })
        }
    }
}
