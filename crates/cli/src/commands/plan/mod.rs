//! `tributary plan`: a training step on a network that need not exist, under each protocol.

mod calibrate;
mod experiment;
mod network;
mod outcome;

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use tributary_sim::RunError;
use tributary_sim::config::{Bytes, DataRate, Duration};
use tributary_sim::report::write_whole;

use self::calibrate::HostCosts;
use self::experiment::{Experiment, MODELS, StepShape, Way};
use self::network::Links;
use self::outcome::{Outcome, Row};
use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::flags::parse_switch;
use crate::output;
use crate::program::Program;
use crate::python::draw;

const EXAMPLES: &str = "\
Examples:
  tributary plan --hosts 8 --rate '10 Gbit/s' --model resnet-50 --compute '120 ms'
  tributary plan --hosts 16 --parameters 7_000_000_000 --type bf16 --kind fsdp --compute '2 s'
  tributary plan --network FILE.toml --model bert-base --compute '90 ms' --json
  tributary plan --hosts 8 --model gpt2 --compute '200 ms' --out plan --plot
  tributary plan --live 10.0.0.1 --rate '25 Gbit/s' --model gpt2 --compute '200 ms' --calibrate

--compute is what one rank computes in a step, forward and backward: time it on one machine
without any network. The model becomes equal layers (--layers), whose gradients are reduced in
buckets while earlier layers compute, as PyTorch's DDP does; with --kind fsdp parameters are
gathered and gradients scattered layer by layer.

A network is a star of --hosts with links of --rate; or that of a file; or that of a running
switch: as many hosts as its jobs have now, those of child switches in racks. A switch knows
neither rates nor delays, and a fabric's file no delays: flags say these. Each protocol's own
machines run the step packet by packet; `gloo` is hosts that sum over TCP as PyTorch's Gloo does,
with DCTCP for TCP.
Large models are scaled down, times with them, and the table says so: delays do not scale, so
that short steps look somewhat slower than they are; --scale 1 is exact.

Hosts' processors cost nothing, unless --calibrate measures how long this machine's are busy for
a packet and for a byte: two ranks and a switch run here for some seconds. In the plan each host
has one such processor for its packets, beside those that compute; a switch has none, and nor
does PCIe (docs/simulator.md: what is modelled).

Columns: `step`; `exposed`: the time in which ranks wait for the network; `goodput` of
collectives while any is under way; `memory` of the fullest switch; `lost`: packets; `again`:
packets that hosts sent again.";

/// The flags of `tributary plan`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Hosts round one switch, a rank on each [default: 8, or those of --live]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1024), conflicts_with = "network")]
    hosts: Option<u16>,
    /// The rate of each link [default: 10 Gbit/s]
    #[arg(long, value_name = "RATE")]
    rate: Option<DataRate>,
    /// The delay of each link [default: 1 us]
    #[arg(long, value_name = "TIME")]
    delay: Option<Duration>,
    /// A network with a rank on each host: an experiment, a fabric, or what `sim topology` reads
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
    /// The network of a running switch; port 17777 where none is given
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_switch, conflicts_with = "network")]
    live: Option<String>,
    /// The model, for its number of parameters
    #[arg(long, value_name = "NAME", value_parser = model, required_unless_present = "parameters", help = models_help())]
    model: Option<u64>,
    /// The number of parameters, as in 25_557_032
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "model")]
    parameters: Option<u64>,
    /// What a rank computes in a step: forward and backward
    #[arg(long, value_name = "TIME")]
    compute: Duration,
    /// How the model is trained: ddp or fsdp
    #[arg(long, value_name = "KIND", default_value = "ddp", value_parser = ["ddp", "fsdp"])]
    kind: String,
    /// The equal layers that the model is made of
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    layers: u32,
    /// DDP: the size of a bucket of gradients
    #[arg(long, value_name = "BYTES", default_value = "25 MiB")]
    bucket: Bytes,
    /// The type of parameters and gradients: f32, f16 or bf16
    #[arg(long = "type", value_name = "TYPE", default_value = "f32", value_parser = ["f32", "f16", "bf16"])]
    dtype: String,
    /// Only this protocol, or gloo; may be given several times
    #[arg(long, value_name = "NAME", value_parser = Way::parse)]
    protocol: Vec<Way>,
    /// Measure what packets cost this machine's processors, and plan with hosts like it
    #[arg(long)]
    calibrate: bool,
    /// Divide sizes and computations by this, and multiply times by it; chosen for a run of seconds if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    scale: Option<u64>,
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write plan.json into this directory, and the experiment of each protocol for `tributary sim run`
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw steps and exposed communication there, too: figures.png
    #[arg(long, requires = "out")]
    plot: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn model(name: &str) -> Result<u64, String> {
    let known = MODELS.iter().find(|model| model.name == name);
    let names = || MODELS.map(|model| model.name).join(", ");
    known.map(|model| model.parameters).ok_or_else(|| format!("write one of {}, or --parameters N", names()))
}

fn models_help() -> String {
    let models = MODELS.map(|model| format!("{} ({:.1} M)", model.name, model.parameters as f64 * 1e-6));
    format!("The model, for its number of parameters: {}", models.join(", "))
}

fn number(text: &str) -> Result<u64, String> {
    let number = text.replace('_', "").parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "write a whole number above 0, as in 25_557_032".to_string())
}

/// Runs the step under each protocol, and prints the table and the recommendation.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    let links = match (&args.network, &args.live) {
        (Some(file), _) => Links::of_file(file, args.rate, args.delay)?,
        (None, Some(switch)) => Links::of_switch(switch, args.hosts, args.rate, args.delay)?,
        (None, None) => Links::star(args.hosts.unwrap_or(8).into(), args.rate, args.delay),
    };
    let step = StepShape {
        kind: args.kind.clone(),
        parameters: args.model.or(args.parameters).unwrap_or_default(),
        compute: args.compute,
        layers: args.layers,
        bucket: args.bucket,
        dtype: args.dtype.clone(),
    };
    let mut experiment = Experiment::new(links, step, args.scale, args.seed).map_err(Failure::usage)?;
    let chosen = if args.protocol.is_empty() { experiment.ways() } else { args.protocol.clone() };
    let interrupt = Interrupt::on_signals()?;
    if args.calibrate {
        experiment.costs = Some(HostCosts::measure(program, &interrupt)?);
    }
    let outcome = Outcome::new(&experiment, simulate(&experiment, &chosen, &interrupt)?);
    if args.json {
        output::json(&outcome)?
    } else {
        output::line(&outcome.text())?
    }
    match &args.out {
        None => Ok(()),
        Some(folder) => keep(&outcome, &experiment, folder, args.plot.then_some(program)).map_err(Failure::Reported),
    }
}

/// Runs the step in each way.
fn simulate(experiment: &Experiment, chosen: &[Way], interrupt: &Interrupt) -> Result<Vec<Row>, Failure> {
    let bar = ProgressBar::new(chosen.len() as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} protocols, {msg}").expect("a fixed template"));
    let mut rows = Vec::new();
    for &way in chosen {
        let name = way.name();
        bar.set_message(format!("{name}: begins"));
        let config = experiment.config(way).map_err(Failure::new)?;
        let report = tributary_sim::run_watched(&config, &mut |progress| {
            let simulated = progress.now.as_secs_f64() * 1e3;
            bar.set_message(format!(
                "{name}: {simulated:.1} ms simulated, {:.1} M events",
                progress.events as f64 * 1e-6
            ));
            if interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match report {
            Ok(report) => rows.push(Row::new(way, &report, experiment.scale)),
            Err(RunError::Config(error)) => rows.push(Row::refused(way, error.to_string())),
            Err(error) => return Err(error.into()),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// Writes the files, and draws them.
fn keep(outcome: &Outcome, experiment: &Experiment, folder: &Path, plot: Option<&Program>) -> Result<(), String> {
    let write = |name: String, text: String| {
        write_whole(folder.join(name), |out| out.write_all(text.as_bytes())).map_err(|error| error.to_string())
    };
    fs::create_dir_all(folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    let json = serde_json::to_string_pretty(outcome).map_err(|error| error.to_string())?;
    write("plan.json".into(), json + "\n")?;
    for row in &outcome.rows {
        write(format!("{}.toml", row.protocol), experiment.text(Way::parse(row.protocol)?)?)?;
    }
    let Some(program) = plot else { return Ok(()) };
    write("figures.json".into(), outcome.figures().to_string())?;
    let drawn = draw(&folder.join("figures.json"), program);
    drawn.map_err(|reason| format!("the results are written, but not drawn: {reason}"))
}
