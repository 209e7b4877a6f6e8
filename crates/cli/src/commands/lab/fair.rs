//! `tributary lab fair`: the shares of a job and of a DCTCP flow on one cable, with real packets: PANAMA's figure 10.
//!
//! There are two switches and four hosts in namespaces. The flow starts first; then a job of two ranks joins, and both
//! need the cable between the switches. `tributary reproduce panama-fig10` does the same in the simulator.

mod shares;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tributary_control::quantity::DataRate;
use tributary_net::pool_size::packet_bytes;
use tributary_proto::contract::options::{Kind, OptionSpec};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::{Figure, Series};

use crate::cluster::{Interrupt, Process};
use crate::commands::collective::protocol;
use crate::commands::fabric::{ChosenFile, FabricCluster};
use crate::failure::Failure;
use crate::flags;
use crate::output;
use crate::program::Program;
use crate::python;

use shares::{FRAME_BYTES, Recording, Shares};

const EXAMPLES: &str = "\
Examples:
  tributary lab fair                            the job's windows follow marks, and then they do not
  tributary lab fair --congestion-control on --duration 4s
  tributary lab fair --out pictures             writes fair.json and draws fair.png

A flow under DCTCP has a cable of 200 Mbit/s between two switches by itself; then a job of two ranks
joins, whose contributions go the same way. SHARE is what each has over the last half of the time
that both are there, in parts of half the cable, headers and framing counted: 1 is fair. A queue
marks nothing of what finds 64 KiB waiting or less, all that finds more than 512 KiB, and between
them a share that rises. Needs root and iproute2; pictures need matplotlib.";

/// The fabric: the cable between the switches, and everything else.
const FILE: &str = "secret = \"a fabric of this machine alone\"\nrate = \"200 Mbit/s\"\nqueue = \"1024 KiB\"\nlossless = true\nmark_above = \"64 KiB\"\nmark_all_above = \"512 KiB\"\n\
                    [graph]\nhosts = [\"job0\", \"flow0\", \"job1\", \"flow1\"]\nswitches = [\"left\", \"right\"]\n\
                    links = [[\"job0\", \"left\"], [\"flow0\", \"left\"], [\"job1\", \"right\"], [\"flow1\", \"right\"], \
                    [\"left\", \"right\"]]\n[[link]]\nbetween = [\"left\", \"right\"]\n";
/// The option that makes the protocol's windows follow marks.
const OPTION: &str = "congestion_control";
/// Time for a process to say that it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The size of the tensor that ranks sum again and again.
const ELEMENTS: &str = "2000000";

/// The flags of `tributary lab fair`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The job's protocol [default: the first whose option congestion_control can be off]
    #[arg(long, value_name = "NAME", value_parser = protocol)]
    pub protocol: Option<&'static Protocol>,
    /// Whether the job's windows follow marks
    #[arg(long, value_enum, default_value_t = Control::Both)]
    pub congestion_control: Control,
    /// The cable's rate, at most 200 Mbit/s
    #[arg(long, value_name = "RATE", default_value = "200 Mbit/s", value_parser = parse_rate)]
    pub rate: DataRate,
    /// How long the job and the flow run side by side
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Write the figures to this directory, as JSON and as a picture
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn parse_rate(text: &str) -> Result<DataRate, String> {
    let rate: DataRate = text.parse()?;
    match (1_000_000..=200_000_000).contains(&rate.0.0) {
        true => Ok(rate),
        false => Err("it is a rate from 1 Mbit/s to 200 Mbit/s".to_owned()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    flags::parse_time(text, Duration::from_secs(2)..=Duration::from_secs(3600))
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
    rate_mbps: f64,
    seconds: f64,
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
    let rate_mbps = args.rate.0.0 as f64 / 1e6;
    let mut outcome = Outcome {
        id: "fair",
        title: format!("{} and a flow under DCTCP on one cable of {}", protocol.name, args.rate),
        quick: false,
        protocol: protocol.name,
        rate_mbps,
        seconds: args.duration.as_secs_f64(),
        lines: Vec::new(),
        figures: Vec::new(),
    };
    for &congestion_control in args.congestion_control.lines() {
        let recording = record(&args, protocol, congestion_control, program, &interrupt)?;
        outcome.figures.extend(figures(&recording, congestion_control));
        outcome.lines.push(Line { congestion_control, shares: recording.shares(rate_mbps)? });
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
fn chosen(requested: Option<&'static Protocol>) -> Result<&'static Protocol, Failure> {
    let can_be_off = |option: &OptionSpec| matches!(option.kind, Kind::Choice(values) if values.contains(&"off"));
    let has_choice =
        |protocol: &Protocol| protocol.options.specs.iter().any(|option| option.name == OPTION && can_be_off(option));
    let first = || protocols::ALL.iter().copied().find(|protocol| has_choice(protocol));
    match requested.or_else(first) {
        Some(protocol) if has_choice(protocol) => Ok(protocol),
        Some(protocol) => Err(Failure::usage(format!("{} has no option {OPTION} that can be off", protocol.name))),
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
    std::io::Write::write_all(&mut file, format!("{FILE}rate = \"{}\"\n", args.rate).as_bytes())?;
    let chosen = ChosenFile { path: file.path().to_owned(), switch_options: Vec::new() };
    let fabric = Arc::new(chosen.read()?);
    let elements_per_packet = fabric.elements_per_packet;
    let cluster = FabricCluster::open(program, fabric, chosen, interrupt)?;
    cluster.wait_ready()?;
    let mut receiver = flow_end(&cluster, "flow1", &["--receive"])?;
    receiver.next_line(START_TIMEOUT)?;
    let sender = flow_end(&cluster, "flow0", &[])?;
    let both = args.duration;
    wait(both / 4, interrupt)?;
    let ranks = [0, 1].map(|rank| start_rank(&cluster, protocol, rank, congestion_control));
    let [first, second] = ranks;
    let (first, second) = (first?, second?);
    wait(both, interrupt)?;
    let recording = Recording::read(
        &first.kill(),
        &sender.kill(),
        packet_bytes(protocol, elements_per_packet) as u64 + FRAME_BYTES,
    )?;
    drop((receiver, second));
    cluster.close()?;
    Ok(recording)
}

fn flow_end(cluster: &FabricCluster, host: &str, more: &[&str]) -> Result<Process, Failure> {
    let node = cluster.fabric.node_named(host).expect("the file names it");
    let mut command = cluster.command(node)?;
    command.args(["lab", "traffic", "--fabric"]).arg(cluster.file());
    command.args(["--from", "flow0", "--to", "flow1", "--transport", "dctcp", "--json"]).args(more);
    Process::spawn(format!("the flow on {host}"), command, &cluster.interrupt)
}

fn start_rank(
    cluster: &FabricCluster,
    protocol: &Protocol,
    rank: u16,
    congestion_control: &str,
) -> Result<Process, Failure> {
    let node = cluster.fabric.node_named(&format!("job{rank}")).expect("the file names it");
    let mut command = cluster.command(node)?;
    command
        .args(["allreduce", "--json", "--watch", "100ms", "--job", "fair", "--world-size", "2", "--trees", "1"])
        .args(["--switch", &cluster.fabric.udp(cluster.fabric.leaf_of(node)).to_string(), "--rank", &rank.to_string()])
        .args(["--protocol", protocol.name, "--option", &format!("{OPTION}={congestion_control}")])
        .args(["--elements", ELEMENTS, "--iters", "1000000", "--timeout", "60s"]);
    Process::spawn(format!("rank {rank}"), command, &cluster.interrupt)
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
        let fabric = FabricFile::parse(&format!("{FILE}rate = \"50 Mbit/s\"\n")).unwrap();
        let rates: Vec<_> = fabric.cables.iter().filter_map(|cable| cable.bits_per_s).collect();
        assert_eq!(rates, [200_000_000, 200_000_000, 200_000_000, 200_000_000, 50_000_000]);
    }
}
