//! `tributary sim explore`: all states of a small scenario, instead of some runs of a large one.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tributary_explore::{Bounds, Counterexample, Exploration, Found, Step, explore, replay};
use tributary_numeric::DType;
use tributary_proto::contract::options::name_and_value;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::switch_options;

use crate::cluster::Interrupt;
use crate::commands::collective::{dtype, protocol, read_options};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  tributary sim explore --protocol NAME --slots 2 --blocks 3 --losses 1 --duplicates 1
  tributary sim explore --protocol NAME --timeouts 2
  tributary sim explore --protocol NAME --ranks 3 --leaves 2 --spines 1 --slots 1 --blocks 1
  tributary sim explore --protocol NAME --replay \"s0 s1 d0 l0 t0\"

Any packet on its way may arrive next, be lost or arrive twice, as often as the flags say; any
rank may be late; any timer may run out early. In each state every sum that a rank received must
be right, and the run must come to an end once nothing goes wrong any more. A run that must not be
is printed step by step, with the flag that shows it again.

Start small: each more rank, block, loss or duplicate multiplies the states, of which a million
take some seconds and 0.2 GB. crates/explore/README.md says what is explored and what is not.";

/// The flags of `tributary sim explore`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Whose machines run
    #[arg(long, value_name = "NAME", value_parser = protocol)]
    protocol: &'static Protocol,
    /// Ranks
    #[arg(long, value_name = "N", default_value_t = 2)]
    ranks: u16,
    /// Slots of the job
    #[arg(long, value_name = "N", default_value_t = 2)]
    slots: u16,
    /// Full packets of each collective
    #[arg(long, value_name = "N", default_value_t = 2)]
    blocks: u32,
    /// Collectives, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    collectives: u8,
    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "i32", value_parser = dtype)]
    dtype: DType,
    /// Leaf switches, among which the ranks divide; 0 for one switch with all of them
    #[arg(long, value_name = "N", default_value_t = 0)]
    leaves: u16,
    /// Spine switches above the leaves
    #[arg(long, value_name = "N", default_value_t = 1)]
    spines: u16,
    /// Packets that may be lost
    #[arg(long, value_name = "N", default_value_t = 1)]
    losses: u8,
    /// Packets that may arrive twice
    #[arg(long, value_name = "N", default_value_t = 0)]
    duplicates: u8,
    /// Timers that may run out early; those that run out when nothing else can happen are free
    #[arg(long, value_name = "N", default_value_t = 1)]
    timeouts: u8,
    /// An option of the protocol; may be given several times
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = name_and_value)]
    options: Vec<(String, String)>,
    /// An option of switches; where none is given they have 8 of what is counted
    #[arg(long = "switch-option", value_name = "PROTOCOL.NAME=VALUE")]
    switch_options: Vec<String>,
    /// Stop after this many states
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    most_states: u64,
    /// Run this run of the scenario instead, step by step
    #[arg(long, value_name = "STEPS")]
    replay: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Args {
    fn bounds(&self) -> Result<Bounds, Failure> {
        let mut given = switch_options::Given::new();
        for option in &self.switch_options {
            switch_options::add(&mut given, option).map_err(Failure::usage)?;
        }
        let bounds = Bounds {
            protocol: self.protocol,
            options: read_options(self.protocol, &self.options)?,
            switches: Bounds::switches_with(&given).map_err(Failure::usage)?,
            ranks: self.ranks,
            slots: self.slots,
            blocks: self.blocks,
            dtype: self.dtype,
            collectives: self.collectives,
            leaves: self.leaves,
            spines: self.spines,
            losses: self.losses,
            duplicates: self.duplicates,
            timeouts: self.timeouts,
            most_states: self.most_states,
        };
        bounds.check().map_err(Failure::usage)?;
        Ok(bounds)
    }
}

/// Explores the scenario; fails if a run of it has an error, or if not all states were found.
pub fn run(args: Args) -> Result<(), Failure> {
    let bounds = args.bounds()?;
    if let Some(text) = &args.replay {
        return again(&bounds, text, args.json);
    }
    let interrupt = Interrupt::on_signals()?;
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("a fixed template");
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    let begun = Instant::now();
    let exploration = explore(&bounds, &mut |progress| {
        bar.set_message(format!(
            "{} states, {} of them waiting, {} steps deep",
            progress.states, progress.waiting, progress.depth
        ));
        if interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    bar.finish_and_clear();
    print(&bounds, &exploration, begun.elapsed(), args.json)?;
    match exploration.counterexample {
        Some(Counterexample { found: Found::Wrong(wrong), .. }) => Err(Failure::Reported(wrong)),
        Some(Counterexample { found: Found::NoEnd, .. }) => {
            Err(Failure::Reported("a run does not come to an end, though nothing goes wrong any more".to_owned()))
        }
        None if exploration.is_complete => Ok(()),
        None => Err(Failure::Reported(
            "the states found so far are right, and there are more: make the scenario smaller".to_owned(),
        )),
    }
}

fn print(bounds: &Bounds, exploration: &Exploration, took: Duration, json: bool) -> Result<(), Failure> {
    let Exploration { progress, is_complete, counterexample } = exploration;
    let story = counterexample.as_ref().map(|counterexample| story(bounds, counterexample));
    if json {
        let steps = counterexample.as_ref().map(|counterexample| written(&counterexample.steps));
        return Ok(output::json(&json!({
            "protocol": bounds.protocol.name, "states": progress.states, "steps": progress.steps, "depth": progress.depth,
            "ends": progress.ends, "machine_states": progress.machines, "complete": is_complete,
            "seconds": took.as_secs_f64(), "counterexample": steps, "story": story,
        }))?);
    }
    for line in story.iter().flatten() {
        output::line(line)?;
    }
    if let Some(counterexample) = counterexample {
        output::line(&format!("again: the same flags and --replay \"{}\"", written(&counterexample.steps)))?;
    }
    let all = if *is_complete { "all " } else { "" };
    Ok(output::line(&format!(
        "{all}{} states, {} steps between them, the furthest {} steps away; in {} all ranks have their sums; {:.1} s",
        progress.states,
        progress.steps,
        progress.depth,
        progress.ends,
        took.as_secs_f64()
    ))?)
}

/// The steps of a run as sentences.
fn story(bounds: &Bounds, counterexample: &Counterexample) -> Vec<String> {
    match replay(bounds, &counterexample.steps) {
        Ok(run) => numbered(run.lines),
        // States that differ only in times count as one, so that a run may rarely be joined from two runs that do not
        // fit.
        Err(error) => vec![format!("this run cannot be shown: {error}")],
    }
}

fn numbered(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().enumerate().map(|(number, line)| format!("{:3}  {line}", number + 1)).collect()
}

fn written(steps: &[Step]) -> String {
    steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" ")
}

/// Shows one run of the scenario.
fn again(bounds: &Bounds, text: &str, json: bool) -> Result<(), Failure> {
    let steps: Result<Vec<Step>, String> = text.split_whitespace().map(str::parse).collect();
    let run = replay(bounds, &steps.map_err(Failure::usage)?)?;
    if json {
        output::json(&json!({ "story": run.lines, "wrong": run.wrong, "ended": run.has_ended }))?;
    } else {
        for line in numbered(run.lines) {
            output::line(&line)?;
        }
        let end = if run.has_ended { "all ranks have their sums" } else { "not all ranks have their sums" };
        output::line(run.wrong.as_deref().unwrap_or(end))?;
    }
    run.wrong.map_or(Ok(()), |wrong| Err(Failure::Reported(wrong)))
}
