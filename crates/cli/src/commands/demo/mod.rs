//! `tributary lab demo`: a switch and four workers, each a process, sum real arrays; the program checks and shows the
//! results.
//!
//! `arrays.rs` makes the arrays, `check.rs` checks the result against its bound, and `report.rs` shows it.

mod arrays;
mod check;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tributary_proto::contract::numbers::Numbers;
use tributary_proto::contract::protocol::Protocol;
use tributary_testbed::{Shaping, Star, StarOptions};

use crate::cluster::job::Data;
use crate::cluster::{Cluster, Hosts, Interrupt, JobRun, WorkerReport, job};
use crate::failure::Failure;
use crate::npy::Array;
use crate::output;
use crate::program::Program;

use check::{Allowed, Verdict};
use report::{Line, Report, Setting};

const WORKERS: usize = 4;
const LINK_GBPS: f64 = 1.0;
const TIMEOUT: Duration = Duration::from_secs(20);

const EXAMPLES: &str = "\
Examples:
  tributary lab demo                     25 MB of float32 on each worker, links of 1 Gbit/s if root
  tributary lab demo --elements 1000000 --iters 20
  tributary lab demo --loopback --json   without network namespaces, for a script

Real processes over real sockets: a switch, and four workers with a different .npy file each
(normal, heavy-tailed, tiny and huge magnitudes). The result is compared with a float64 sum and
the bound of a float32 sum, and the same arrays go through our host-based ring over the same
links. With root the links are network namespaces with a rate, otherwise loopback.";

/// The flags of `tributary lab demo`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Elements of each worker's array
    #[arg(long, value_name = "N", default_value_t = 6_250_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub elements: u32,
    /// Sums of the same arrays, back to back; times are medians
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,
    /// Use loopback even where network namespaces are possible
    #[arg(long)]
    pub loopback: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Runs the demo.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    let interrupt = Interrupt::on_signals()?;
    let protocols: Vec<&Protocol> = job::protocols().collect();
    let progress = progress(protocols.len());
    let (hosts, setting) = hosts(args.loopback)?;
    let folder = tempfile::Builder::new().prefix("tributary-demo-").tempdir()?;

    progress.set_message("making an array for each worker");
    let inputs = arrays::write(folder.path(), WORKERS, args.elements as usize)?;
    progress.inc(1);

    let mut cluster = Cluster::open(program, hosts, 1, &interrupt)?;
    let mut report = Report::new(setting, WORKERS, args.elements as usize, args.iters);
    for protocol in protocols {
        progress.set_message(format!("{WORKERS} workers sum {} times with {}", args.iters, protocol.name));
        let job = JobRun {
            protocol,
            first_host: 0,
            flags: Vec::new(),
            data: Data::Files(inputs.clone()),
            outputs: outputs(folder.path(), protocol),
            iters: args.iters,
            timeout: TIMEOUT,
        };
        let workers = cluster.allreduce(&job)?;
        progress.inc(1);
        progress.set_message(format!("comparing {}'s result with a float64 sum", protocol.name));
        let verdict = judge(&inputs, &job, &workers)?;
        report.lines.push(Line::new(protocol, &workers, verdict));
        progress.inc(1);
    }
    cluster.close()?;
    progress.finish_and_clear();
    match args.json {
        true => output::json(&report)?,
        false => output::line(&report.render())?,
    }
    match report.error() {
        Some(error) => Err(Failure::new(error)),
        None => Ok(()),
    }
}

/// A star if possible, else loopback; and a sentence that says which, and why.
fn hosts(loopback: bool) -> Result<(Hosts, Setting), Failure> {
    if loopback {
        return Ok((Hosts::Loopback, Setting { sentence: "on loopback, as requested".into(), has_links: false }));
    }
    match Star::build(StarOptions::new(WORKERS, Shaping::gbps(LINK_GBPS)?)) {
        Ok(star) => {
            let sentence = format!("in network namespaces with links of {LINK_GBPS} Gbit/s each way");
            Ok((Hosts::Star(star), Setting { sentence, has_links: true }))
        }
        Err(reason) => {
            let sentence = format!("on loopback, since {reason}");
            Ok((Hosts::Loopback, Setting { sentence, has_links: false }))
        }
    }
}

fn outputs(folder: &Path, protocol: &'static Protocol) -> Vec<PathBuf> {
    (0..WORKERS).map(|rank| folder.join(format!("{}-{rank}.npy", protocol.name))).collect()
}

/// Compares the workers' outputs with their inputs.
fn judge(inputs: &[PathBuf], job: &JobRun, workers: &[WorkerReport]) -> Result<Verdict, Failure> {
    let inputs = floats(inputs)?;
    let outputs = floats(&job.outputs)?;
    let block = workers.first().map_or(1, |worker| usize::from(worker.elements_per_packet.max(1)));
    let allowed = match (job.protocol.numbers)(&job.protocol.options.defaults()) {
        Numbers::Fixed => Allowed::Theorem1 { block },
        Numbers::Float => Allowed::FloatSum,
        Numbers::Int8(_) | Numbers::Thc4(_) => unreachable!("no protocol sums codes by default"),
    };
    Ok(check::judge(&inputs, &outputs, allowed))
}

fn floats(paths: &[PathBuf]) -> Result<Vec<Vec<f32>>, Failure> {
    paths
        .iter()
        .map(|path| match Array::read(path, None)?.data {
            crate::npy::Data::F32(values) => Ok(values),
            other => Err(Failure::new(format!("{} holds {} and should hold f32", path.display(), other.dtype()))),
        })
        .collect()
}

/// The bar's steps: making the arrays, then a sum and a check for each protocol.
fn progress(protocols: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {bar:30} {elapsed} {msg}").expect("a right template");
    let progress = ProgressBar::new(1 + 2 * protocols as u64).with_style(style);
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}
