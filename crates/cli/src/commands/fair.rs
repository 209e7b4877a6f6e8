//! `tributary fair`: the shares of a job and of a DCTCP flow on one cable, with real packets: PANAMA's figure 10.
//!
//! There are two switches and four hosts in namespaces. The flow starts first; then a job of two ranks joins, and both
//! need the cable between the switches. `tributary reproduce panama-fig10` does the same in the simulator.

mod shares;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tributary_net::pool_size::packet_bytes;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::figure::{Figure, Series};

use super::collective::protocol;
use super::fabric::{ChosenFile, FabricStage};
use crate::failure::Failure;
use crate::output;
use crate::program::Program;
use crate::python;
use crate::stage::{Interrupt, Process};

use shares::{FRAME_BYTES, Recording, Shares};

const EXAMPLES: &str = "\
Examples:
  tributary fair                            the job's windows follow marks, and then they do not
  tributary fair --congestion-control on --seconds 4
  tributary fair --out pictures             writes fair.json and draws fair.png

A flow under DCTCP has a cable of 200 Mbit/s between two switches by itself; then a job of two ranks
joins, whose contributions go the same way. SHARE is what each has over the last half of the time
that both are there, in parts of half the cable, headers and framing counted: 1 is fair. A queue
marks nothing of what finds 64 KiB waiting or less, all that finds more than 512 KiB, and between
them a share that rises. Needs root and iproute2; pictures need matplotlib.";

/// The fabric: the cable between the switches, and everything else.
const FILE: &str = "secret = \"a fabric of this machine alone\"\nrate_mbps = 200\nqueue_kib = 1024\nlossless = true\nmark_above_kib = 64\nmark_all_above_kib = 512\n\
                    [graph]\nhosts = [\"job0\", \"flow0\", \"job1\", \"flow1\"]\nswitches = [\"left\", \"right\"]\n\
                    links = [[\"job0\", \"left\"], [\"flow0\", \"left\"], [\"job1\", \"right\"], [\"flow1\", \"right\"], \
                    [\"left\", \"right\"]]\n[[link]]\nbetween = [\"left\", \"right\"]\n";
/// The option that makes the protocol's windows follow marks.
const OPTION: &str = "congestion_control";
/// Time for a process to say that it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The size of the tensor that ranks sum again and again.
const ELEMENTS: &str = "2000000";

/// The flags of `tributary fair`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The job's protocol [default: the first with an option congestion_control]
    #[arg(long, value_name = "NAME", value_parser = protocol)]
    pub protocol: Option<&'static Protocol>,
    /// Whether the job's windows follow marks
    #[arg(long, value_enum, default_value_t = Control::Both)]
    pub congestion_control: Control,
    /// The cable's rate, in 10^6 bits per second
    #[arg(long, value_name = "MBPS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub rate_mbps: u32,
    /// How long both are there
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Write the figures to this directory, as JSON and as a picture
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Which lines of the figure are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Control {
    /// Windows follow marks
    On,
    /// Windows are constant
    Off,
    /// One after the other
    Both,
}

impl Control {
    fn lines(self) -> &'static [&'static str] {
        match self {
            Control::On => &["on"],
            Control::Off => &["off"],
            Control::Both => &["on", "off"],
        }
    }
}

/// All observations, in the form that `tributary.plots` draws.
#[derive(Serialize)]
struct Outcome {
    id: &'static str,
    title: String,
    quick: bool,
    protocol: &'static str,
    rate_mbps: u32,
    seconds: u64,
    lines: Vec<Line>,
    figures: Vec<Figure>,
}

#[derive(Serialize)]
struct Line {
    congestion_control: &'static str,
    #[serde(flatten)]
    shares: Shares,
}

/// Runs the lines, and reports and draws the results.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    let protocol = chosen(args.protocol)?;
    let interrupt = Interrupt::on_signals()?;
    let mut outcome = Outcome {
        id: "fair",
        title: format!("{} and a flow under DCTCP on one cable of {} Mbit/s", protocol.name, args.rate_mbps),
        quick: false,
        protocol: protocol.name,
        rate_mbps: args.rate_mbps,
        seconds: args.seconds,
        lines: Vec::new(),
        figures: Vec::new(),
    };
    for &congestion_control in args.congestion_control.lines() {
        let recording = record(&args, protocol, congestion_control, program, &interrupt)?;
        outcome.figures.extend(figures(&recording, congestion_control));
        outcome.lines.push(Line { congestion_control, shares: recording.shares(args.rate_mbps)? });
    }
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory)?;
        let file = directory.join("fair.json");
        std::fs::write(&file, serde_json::to_vec_pretty(&outcome).map_err(std::io::Error::from)?)?;
        python::draw(&file, program).map_err(Failure::new)?;
    }
    match args.json {
        true => output::json(&outcome)?,
        false => output::line(&render(&outcome))?,
    }
    Ok(())
}

/// A protocol with the option to follow marks or not.
fn chosen(asked: Option<&'static Protocol>) -> Result<&'static Protocol, Failure> {
    let has_choice = |protocol: &Protocol| protocol.options.specs.iter().any(|option| option.name == OPTION);
    let first = || protocols::ALL.iter().copied().find(|protocol| has_choice(protocol));
    match asked.or_else(first) {
        Some(protocol) if has_choice(protocol) => Ok(protocol),
        Some(protocol) => {
            Err(Failure::usage(format!("{} has no option {OPTION}: its windows always do the same", protocol.name)))
        }
        None => Err(Failure::usage(format!("no protocol has the option {OPTION}"))),
    }
}

fn render(outcome: &Outcome) -> String {
    let mut table =
        output::Table::new(["CONGESTION CONTROL", "JOB MBIT/S", "SHARE", "FLOW MBIT/S", "SHARE", "FLOW ALONE"]);
    for Line { congestion_control, shares } in &outcome.lines {
        table.row([
            (*congestion_control).to_owned(),
            format!("{:.1}", shares.job_mbps),
            format!("{:.3}", shares.job_share),
            format!("{:.1}", shares.flow_mbps),
            format!("{:.3}", shares.flow_share),
            format!("{:.1}", shares.flow_alone_mbps),
        ]);
    }
    format!("{}, over the last half of {} s:\n\n{}", outcome.title, outcome.seconds, table.render())
}

/// One line: the flow by itself, then both.
fn record(
    args: &Args,
    protocol: &'static Protocol,
    congestion_control: &str,
    program: &Program,
    interrupt: &Interrupt,
) -> Result<Recording, Failure> {
    let mut file = tempfile::Builder::new().prefix("tributary-fair-").suffix(".toml").tempfile()?;
    std::io::Write::write_all(&mut file, format!("{FILE}rate_mbps = {}\n", args.rate_mbps).as_bytes())?;
    let chosen = ChosenFile { path: file.path().to_owned(), switch_options: Vec::new() };
    let fabric = Arc::new(chosen.read()?);
    let elements_per_packet = fabric.elements_per_packet;
    let stage = FabricStage::open(program, fabric, chosen, interrupt)?;
    stage.wait_ready()?;
    let mut receiver = flow_end(&stage, "flow1", &["--receive"])?;
    receiver.next_line(START_TIMEOUT)?;
    let sender = flow_end(&stage, "flow0", &[])?;
    let both = Duration::from_secs(args.seconds);
    wait(both / 4, interrupt)?;
    let ranks = [0, 1].map(|rank| start_rank(&stage, protocol, rank, congestion_control));
    let [first, second] = ranks;
    let (first, second) = (first?, second?);
    wait(both, interrupt)?;
    let recording = Recording::read(
        &first.kill(),
        &sender.kill(),
        packet_bytes(protocol, elements_per_packet) as u64 + FRAME_BYTES,
    )?;
    drop((receiver, second));
    stage.close()?;
    Ok(recording)
}

fn flow_end(stage: &FabricStage, host: &str, more: &[&str]) -> Result<Process, Failure> {
    let node = stage.fabric.node_named(host).expect("the file names it");
    let mut command = stage.command(node)?;
    command.arg("traffic").arg("--fabric").arg(stage.file());
    command.args(["--from", "flow0", "--to", "flow1", "--transport", "dctcp", "--json"]).args(more);
    Process::spawn(format!("the flow on {host}"), command, &stage.interrupt)
}

fn start_rank(
    stage: &FabricStage,
    protocol: &Protocol,
    rank: u16,
    congestion_control: &str,
) -> Result<Process, Failure> {
    let node = stage.fabric.node_named(&format!("job{rank}")).expect("the file names it");
    let mut command = stage.command(node)?;
    command
        .args(["allreduce", "--json", "--watch", "100", "--job", "fair", "--world", "2", "--trees", "1"])
        .args(["--switch", &stage.fabric.udp(stage.fabric.leaf_of(node)).to_string(), "--rank", &rank.to_string()])
        .args(["--protocol", protocol.name, "--option", &format!("{OPTION}={congestion_control}")])
        .args(["--elements", ELEMENTS, "--iters", "1000000", "--timeout", "60"]);
    Process::spawn(format!("rank {rank}"), command, &stage.interrupt)
}

fn wait(time: Duration, interrupt: &Interrupt) -> Result<(), Failure> {
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until {
        interrupt.check()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn figures(recording: &Recording, congestion_control: &str) -> [Figure; 2] {
    let figure = |what: &str, y: &str, [job, flow]: [Vec<[f64; 2]>; 2]| Figure {
        title: format!("{what}, congestion control {congestion_control}"),
        x: "time (s)".into(),
        y: y.into(),
        log_x: false,
        series: vec![Series::new("job", job), Series::new("flow", flow)],
        marks: Vec::new(),
    };
    [
        figure("Throughput", "throughput (Mbit/s)", recording.rates()),
        figure("Windows", "window (packets)", recording.windows()),
    ]
}

#[cfg(test)]
mod tests {
    use tributary_control::fabric::FabricFile;

    use super::*;

    #[test]
    fn the_file_is_a_fabric_whose_middle_cable_is_slow() {
        let fabric = FabricFile::parse(&format!("{FILE}rate_mbps = 50\n")).unwrap();
        let rates: Vec<_> = fabric.cables.iter().filter_map(|cable| cable.bits_per_s).collect();
        assert_eq!(rates, [200_000_000, 200_000_000, 200_000_000, 200_000_000, 50_000_000]);
    }
}
