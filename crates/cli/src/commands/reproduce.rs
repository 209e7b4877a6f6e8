//! `tributary reproduce`: the published results beside ours, as a table, as data, and as pictures.

mod folder;

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tributary_papers::{Change, Entry, Memory, Outcome, ReproduceError, Row, Tally, Verdict, Watch, catalogue, find};

use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output::{self, Table};
use crate::program::Program;

use self::folder::Folder;

const EXAMPLES: &str = "\
Examples:
  tributary reproduce list
  tributary reproduce switchml-fig6
  tributary reproduce switchml-fig6 --seeds 10 --out figures
  tributary reproduce all --quick
  tributary reproduce canary-fig7a --set 'network.queue=256 KiB' --set 'lines.2.slots=64'
  tributary reproduce all --vary --seeds 1

A number is the median over seeds, with the least and the greatest beside it. A row agrees if that
whole range keeps the rule, and agrees in part if only the median and some of the range do. Limits
that the paper does not print are said to be ours. Rows that follow by construction (from a
formula of the paper, or from how inputs were chosen), rows for which a parameter was fitted, and
rows of our own questions say so, and are counted apart; a row that differs counts as measured,
whatever it follows from.

list says about how long each takes on two cores with five seeds: seconds, minutes (up to 20) or an
hour (up to two). --quick makes seconds of each.

With --out, what is finished is kept in DIR/points, so that the same command goes on where it was
stopped; what another build of this program found there is made again. Each experiment has ID.json,
ID.csv with the points of its figures, ID-rows.csv with its table and ID.png, in which published
numbers are points beside ours. DIR/index.html and DIR/rows.csv have all of the run.

--set changes a parameter of the experiment files (crates/papers/src/*/experiments: keys below
[parameters], list elements by number), to see what it moves. Every verdict then says that it is
not the file's.

Exit code 0 means that everything was run, not that everything agrees: a row that differs stays in
the table, with the cause as far as the run could measure it.";

/// The flags of `tributary reproduce`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The experiments, `<paper>-<figure>`; or `all`; or `list`, which lists them
    #[arg(value_name = "ID", required = true)]
    pub ids: Vec<String>,
    /// Small inputs: seconds, and figures that are less exact
    #[arg(long)]
    pub quick: bool,
    /// The paper's sizes where the file makes them smaller: hours
    #[arg(long, conflicts_with = "quick")]
    pub full: bool,
    /// Seeds of everything that is random; ranges are over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Change a parameter of every experiment that is named, as in 'network.queue=64 KiB' or 'lines.2.slots=64'
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run it again with each of the other values that its file names of what the paper leaves open, and say what each
    /// row is then, and where verdicts hold
    #[arg(long, conflicts_with = "set")]
    pub vary: bool,
    /// Threads for each simulation; results are the same on any number of them. Where there are fewer runs than cores,
    /// as in a single point with --full, they make it faster
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Write data (JSON, CSV) and pictures (PNG) into this directory, and go on with what is missing there
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON, one object a line for each experiment, instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Runs the experiments.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    if args.ids == ["list"] {
        return list(args.json);
    }
    let mut entries = chosen(&args.ids)?;
    let mut runs = 0;
    for entry in &mut entries {
        if args.full {
            entry.make_full();
        }
        for setting in &args.set {
            entry.change(setting)?;
        }
        runs += entry.runs(args.quick, args.seeds)?;
        if args.vary {
            runs += entry.runs_of_others(args.quick, args.seeds)?;
        }
    }
    let mut folder = args.out.as_deref().map(|out| Folder::new(out, program)).transpose()?;
    let interrupt = Interrupt::on_signals()?;
    let memory = match &folder {
        Some(folder) => Memory::in_folder(&folder.points())
            .map_err(|error| Failure::new(format!("{} cannot be made: {error}", folder.points().display())))?,
        None => Memory::default(),
    };
    let progress = progress(runs);
    let mut tally = Tally::default();
    for (index, entry) in entries.iter().enumerate() {
        progress.set_message(entry.id.clone());
        let watch = Watch {
            expect: &|points| progress.inc_length(points as u64),
            done: &|| progress.inc(1),
            traced: &|_| {},
            stop: interrupt.flag(),
            threads: args.threads,
        };
        let run = entry.run(args.quick, args.seeds, &watch, &memory);
        let mut outcome = run.map_err(|error| stopped(error, &args))?;
        if args.vary {
            entry.vary(&mut outcome, args.seeds, &watch, &memory)?;
        }
        tally.add(&outcome.rows);
        progress.suspend(|| show(&outcome, index > 0, args.json, folder.as_mut()))?;
    }
    progress.finish_and_clear();
    let page = folder.map(|folder| folder.finish(&tally)).transpose()?;
    if args.json {
        return Ok(());
    }
    if entries.len() > 1 {
        output::line(&format!("\n{tally}"))?;
    }
    page.map_or(Ok(()), |said| Ok(output::line(&said)?))
}

/// The failure of a stopped run, which says what is kept.
fn stopped(error: ReproduceError, args: &Args) -> Failure {
    match (&error, &args.out) {
        (ReproduceError::Stopped, Some(out)) => {
            let points = out.join("points");
            Failure::new(format!("{error}; the same command goes on with what is missing in {}", points.display()))
        }
        (ReproduceError::Stopped, None) => {
            Failure::new(format!("{error}; with --out DIR, what is finished would have been kept there"))
        }
        _ => error.into(),
    }
}

/// Prints an outcome, and writes it if files were asked for.
fn show(outcome: &Outcome, is_later: bool, as_json: bool, folder: Option<&mut Folder>) -> Result<(), Failure> {
    if as_json {
        output::json(outcome)?;
    } else {
        let gap = if is_later { "\n" } else { "" };
        output::line(&format!("{gap}{}", render(outcome)))?;
    }
    let Some(folder) = folder else { return Ok(()) };
    let data = folder.write(outcome)?;
    if as_json { Ok(()) } else { Ok(output::line(&format!("wrote {}", data.display()))?) }
}

/// The experiments with these ids.
fn chosen(ids: &[String]) -> Result<Vec<Entry>, Failure> {
    if ids.iter().any(|id| id == "all") {
        return Ok(catalogue());
    }
    let entry = |id: &String| {
        find(id).ok_or_else(|| {
            Failure::usage(format!("\"{id}\" is not an experiment; `tributary reproduce list` shows them all"))
        })
    };
    ids.iter().map(entry).collect()
}

fn list(as_json: bool) -> Result<(), Failure> {
    let entries = catalogue();
    if as_json {
        let line = |e: &Entry| json!({"id": e.id, "title": e.title, "source": e.source, "takes": e.takes});
        let all: Vec<_> = entries.iter().map(line).collect();
        return Ok(output::json(&all)?);
    }
    let mut table = Table::new(["id", "takes", "what", "published in"]);
    for entry in &entries {
        table.row([&*entry.id, entry.takes.text(), &entry.title, &entry.source]);
    }
    Ok(output::line(&table.render())?)
}

/// One bar for all experiments; its length grows with the runs that are known.
fn progress(runs: usize) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} runs, {elapsed}, about {eta} left")
        .expect("a valid template");
    bar.set_style(style);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// The table, and a line for each disagreement.
fn render(outcome: &Outcome) -> String {
    let mut text = format!("{}: {} ({})", outcome.id, outcome.title, outcome.source);
    if outcome.quick {
        text += "\nquick: small inputs, so rows may differ that agree in full";
    }
    if outcome.full {
        text += "\nfull: the paper's sizes, where the file makes them smaller";
    }
    for Change { key, value, file } in &outcome.changes {
        let file = file.as_ref().map_or("nothing".to_string(), |file| format!("\"{file}\""));
        let _ = write!(text, "\nchanged: {key} is \"{value}\", in the file {file}");
    }
    for (kind, settings) in [("fitted", &outcome.fitted), ("left open", &outcome.open)] {
        for setting in settings {
            let _ = write!(text, "\n{kind}: {}: {}", setting.what, setting.because);
        }
    }
    let is_changed = if outcome.changes.is_empty() { "" } else { ", changed" };
    let mut table = Table::new(["", "published", "ours", "ratio", "agrees if", "verdict", "why not"]);
    for row in &outcome.rows {
        let [what, published, ours, ratio, rule, verdict, fault] = &row.cells;
        let ratio = if ratio.is_empty() { "-" } else { ratio };
        table.row([&**what, published, ours, ratio, rule, &format!("{verdict}{is_changed}"), fault]);
    }
    let _ = write!(text, "\n{}", table.render());
    for row in outcome.rows.iter().filter(|row| row.verdict != Verdict::Agrees) {
        let cause = row.cause.as_deref().unwrap_or("the run has measured no cause");
        let _ = write!(text, "\n{}: {}: {cause}", row.verdict.text(), row.published.what);
    }
    for row in &outcome.rows {
        if let Some(construction) = &row.published.construction {
            let _ = write!(text, "\nby construction: {}: {construction}", row.published.what);
        }
        if !row.elsewhere.is_empty() {
            let _ = write!(text, "\nholds: {}: {}", row.published.what, where_it_holds(row));
        }
    }
    for note in &outcome.notes {
        let _ = write!(text, "\nnote: {note}");
    }
    for left_out in &outcome.left_out {
        let _ = write!(text, "\nleft out: {left_out}");
    }
    text
}

/// With which other values of the settings the verdict is the same, and with which it differs; and the row's number
/// with each of them.
fn where_it_holds(row: &Row) -> String {
    let with = |same: bool| {
        let of = row.elsewhere.iter().filter(|other| (other.verdict == row.verdict) == same);
        of.map(|other| match (row.in_unit(other.ours.median), same) {
            (ours, true) => format!("{} ({ours})", other.with),
            (ours, false) => format!("{} ({ours}: {})", other.with, other.verdict.text()),
        })
        .collect::<Vec<_>>()
        .join(", ")
    };
    let (same, other) = (with(true), with(false));
    match (same.is_empty(), other.is_empty()) {
        (false, true) => format!("the same with {same}"),
        (true, false) => format!("not with {other}"),
        _ => format!("the same with {same}; not with {other}"),
    }
}
