//! `tributary sim trace`: what happens in an experiment, packet by packet.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;
use tributary_sim::capture::{Capture, Filter, PcapngCapture, Recorder, RecorderOutcome, TextCapture, pcapng_size};
use tributary_sim::config::{Config, Duration, NodeName};
use tributary_sim::engine::Simulation;
use tributary_sim::experiment;
use tributary_sim::swarm;

use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output;

/// The flags of `tributary sim trace`.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment's file
    #[arg(value_name = "FILE.toml", required_unless_present = "swarm", conflicts_with = "swarm")]
    file: Option<PathBuf>,
    /// The scenario of this swarm seed instead of a file
    #[arg(long, value_name = "SEED")]
    swarm: Option<u64>,
    /// Use this seed instead of the file's
    #[arg(long, value_name = "N", conflicts_with = "swarm")]
    seed: Option<u64>,
    /// Write packets as pcapng, which Wireshark opens, instead of text
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
    /// Only from this simulated time on
    #[arg(long, value_name = "TIME")]
    from: Option<Duration>,
    /// Only up to this simulated time
    #[arg(long, value_name = "TIME")]
    to: Option<Duration>,
    /// Only what happens at this node: "host 3", "switch 0"
    #[arg(long, value_name = "NODE", value_parser = parse_node)]
    node: Option<NodeName>,
    /// Only one packet, as text names it: "host 3#17"
    #[arg(long, value_name = "NODE#SERIAL", value_parser = parse_packet)]
    packet: Option<(NodeName, u32)>,
}

fn parse_node(text: &str) -> Result<NodeName, String> {
    NodeName::try_from(text.to_string())
}

fn parse_packet(text: &str) -> Result<(NodeName, u32), String> {
    let wrong = || format!("\"{text}\" names no packet: write it as in \"host 3#17\"");
    let (node, serial) = text.split_once('#').ok_or_else(wrong)?;
    Ok((parse_node(node)?, serial.parse().map_err(|_| wrong())?))
}

/// Runs the experiment with a recorder.
pub fn run(args: Args) -> Result<(), Failure> {
    let config = config(&args)?;
    let file = args.file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
    let mut simulation = experiment::build(&config).map_err(|error| Failure::new(format!("{file}{error}")))?;
    let end = args.to.map_or(config.end, |to| to.min(config.end));
    let end = Time::ZERO + end.0;
    let is_filtered = args.from.is_some() || args.to.is_some() || args.node.is_some() || args.packet.is_some();
    if let Some(path) = args.pcapng.as_ref().filter(|_| !is_filtered) {
        output::complain(&how_large(path, &config, end)?);
    }
    let outcome = attach(&args, &mut simulation)?;
    let interrupt = Interrupt::on_signals()?;
    let mut steps = 0u64;
    while simulation.open() > 0 && simulation.step(end) {
        steps += 1;
        if steps.is_multiple_of(1 << 14) && (interrupt.is_set() || outcome.failed()) {
            break;
        }
    }
    // Dropping the recorder writes its last lines.
    drop(simulation.fabric.take_tracer());
    match (outcome.take_error(), &args.pcapng) {
        (Some(error), Some(path)) => Err(Failure::new(format!("cannot write {}: {error}", path.display()))),
        (Some(error), None) => Err(error.into()),
        (None, _) => Ok(()),
    }
}

/// How many events are counted before a capture of the whole run, in some seconds.
const MOST_COUNTED: u64 = 20_000_000;

/// The size of a capture of the whole run.
fn how_large(path: &Path, config: &Config, end: Time) -> Result<String, Failure> {
    let size = pcapng_size(experiment::build(config)?, end, MOST_COUNTED)?;
    let (mib, packets) = (size.bytes as f64 / f64::from(1 << 20), size.packets);
    let file = path.display();
    Ok(match size.until {
        None => {
            format!("{file} will have {mib:.1} MiB: {packets} packets; --from, --to, --node and --packet take a part")
        }
        Some(until) => format!(
            "{file} will have more than {mib:.1} MiB: {packets} packets up to {:.6} s of simulated time, and the run \
             goes on; --from, --to, --node and --packet take a part",
            until.as_secs_f64()
        ),
    })
}

fn config(args: &Args) -> Result<Config, Failure> {
    if let Some(seed) = args.swarm {
        return Ok(swarm::scenario(seed).config);
    }
    let path = args.file.as_ref().ok_or_else(|| Failure::usage("name a file, or a seed with --swarm"))?;
    let file = path.display();
    let text = fs::read_to_string(path).map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
    let mut config = Config::parse(&text).map_err(|error| Failure::new(format!("{file}: {error}")))?;
    config.seed = args.seed.unwrap_or(config.seed);
    Ok(config)
}

fn attach(args: &Args, simulation: &mut Simulation) -> Result<RecorderOutcome, Failure> {
    let graph = simulation.graph().clone();
    let node = |name: NodeName| -> Result<NodeId, Failure> { Ok(name.node(&graph)?) };
    let filter = Filter {
        from: args.from.map(|from| Time::ZERO + from.0),
        to: args.to.map(|to| Time::ZERO + to.0),
        node: args.node.map(node).transpose()?,
        packet: args.packet.map(|(name, serial)| Ok::<_, Failure>((node(name)?, serial))).transpose()?,
    };
    match &args.pcapng {
        Some(path) => {
            let wrong = |error: io::Error| Failure::new(format!("cannot write {}: {error}", path.display()));
            let out = BufWriter::new(File::create(path).map_err(wrong)?);
            Ok(record(simulation, PcapngCapture::new(&graph, out).map_err(wrong)?, filter))
        }
        None => Ok(record(simulation, TextCapture::new(&graph, BufWriter::new(io::stdout())), filter)),
    }
}

fn record(simulation: &mut Simulation, capture: impl Capture + 'static, filter: Filter) -> RecorderOutcome {
    let (recorder, outcome) = Recorder::new(capture, filter);
    simulation.fabric.set_tracer(Some(Box::new(recorder)));
    outcome
}
