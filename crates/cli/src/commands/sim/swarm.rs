//! `tributary sim swarm`: random scenarios with faults, which must give right results and end.

use std::ops::{ControlFlow, Range};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tributary_sim::swarm::{self, Outcome};

use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output;

/// The flags of `tributary sim swarm`.
#[derive(clap::Args)]
pub struct Args {
    /// The seeds to run: from A up to, not including, B
    #[arg(long, value_name = "A..B", value_parser = parse_range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print the scenario of the first seed as a file for `tributary sim run`, and run nothing
    #[arg(long)]
    show: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("\"{text}\" is not a range of seeds: write it as in 0..1000");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let (from, to) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from < to { Ok(from..to) } else { Err(format!("\"{text}\" is an empty range of seeds")) }
}

/// Runs the seeds; fails if any scenario does.
pub fn run(args: Args) -> Result<(), Failure> {
    if args.show {
        let scenario = swarm::scenario(args.seeds.start);
        let file = toml::to_string(&scenario.config)?;
        return Ok(output::line(&format!("# Seed {}, ending {:?}.\n{file}", args.seeds.start, scenario.ending))?);
    }
    let threads = args.threads.map_or_else(cores, usize::from);
    let interrupt = Interrupt::on_signals()?;
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} scenarios, {per_sec}").expect("a fixed template");
    let bar = ProgressBar::new(args.seeds.end - args.seeds.start).with_style(style);
    let (mut ran, mut events, mut failed) = (0u64, 0, Vec::new());
    swarm::run_seeds(args.seeds.clone(), threads, &mut |outcome| {
        bar.inc(1);
        ran += 1;
        events += outcome.events;
        if !outcome.failures.is_empty() {
            bar.suspend(|| output::complain(&story(&outcome)));
            failed.push(outcome.seed);
        }
        if interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    failed.sort_unstable();
    if args.json {
        output::json(&json!({ "scenarios": ran, "events": events, "failed": failed }))?;
    } else {
        output::line(&format!("{ran} scenarios, {events} events, {} failed", failed.len()))?;
    }
    match failed.first() {
        Some(seed) => {
            Err(Failure::Reported(format!("{} scenarios failed, the first is {}", failed.len(), replay(*seed))))
        }
        None if interrupt.is_set() => {
            Err(Failure::Reported(format!("stopped after {ran} scenarios, none of which failed")))
        }
        None => Ok(()),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn replay(seed: u64) -> String {
    format!("tributary sim swarm --seeds {seed}..{}", seed + 1)
}

/// The errors of one scenario, and the command that shows the scenario again.
fn story(outcome: &Outcome) -> String {
    let mut lines = vec![format!("seed {}: {} things are wrong", outcome.seed, outcome.failures.len())];
    lines.extend(outcome.failures.iter().take(5).map(|failure| format!("  {failure}")));
    lines.push(format!("  replay: {}", replay(outcome.seed)));
    lines.push(format!("  packet by packet: tributary sim trace --swarm {}", outcome.seed));
    lines.join("\n")
}
