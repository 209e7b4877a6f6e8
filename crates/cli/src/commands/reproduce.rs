//! `tributary reproduce`: the published results beside ours, as a table, as data, and as pictures.

use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tributary_sim::reproduce::{Entry, Outcome, Verdict, Watch, catalogue, find};

use crate::failure::Failure;
use crate::output::{self, Table};
use crate::program::Program;
use crate::python::draw;
use crate::stage::Interrupt;

const EXAMPLES: &str = "\
Examples:
  tributary reproduce --list
  tributary reproduce switchml-fig6
  tributary reproduce switchml-fig6 --seeds 10 --out figures
  tributary reproduce all --quick

Exit code 0 means that everything was run, not that everything agrees: a row that differs stays in
the table, with the cause as far as the run could measure it.";

/// The flags of `tributary reproduce`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The experiments, `<paper>-<figure>`, or `all`
    #[arg(value_name = "ID", required_unless_present = "list")]
    pub ids: Vec<String>,
    /// List the experiments
    #[arg(long, conflicts_with = "ids")]
    pub list: bool,
    /// Small inputs: seconds, and figures that are less exact
    #[arg(long)]
    pub quick: bool,
    /// Seeds of everything that is random; ranges are over them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Write data (JSON, CSV) and pictures (PNG) into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON, one object a line for each experiment, instead of tables
    #[arg(long)]
    pub json: bool,
}

/// Runs the experiments.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    if args.list {
        return list(args.json);
    }
    let entries = chosen(&args.ids)?;
    if let Some(out) = &args.out {
        fs::create_dir_all(out).map_err(|error| Failure::new(format!("{} cannot be made: {error}", out.display())))?;
    }
    let interrupt = Interrupt::on_signals()?;
    for (index, entry) in entries.iter().enumerate() {
        let progress = progress(&entry.id);
        let watch = Watch {
            expect: &|points| progress.inc_length(points as u64),
            done: &|| progress.inc(1),
            stop: interrupt.flag(),
        };
        let outcome = entry.run(args.quick, args.seeds, &watch);
        progress.finish_and_clear();
        let outcome = outcome?;
        if args.json {
            output::json(&outcome)?;
        } else {
            let gap = if index > 0 { "\n" } else { "" };
            output::line(&format!("{gap}{}", render(&outcome)))?;
        }
        if let Some(out) = &args.out {
            let said = write(&outcome, out, program)?;
            if !args.json {
                output::line(&said)?;
            }
        }
    }
    Ok(())
}

/// The experiments with these ids.
fn chosen(ids: &[String]) -> Result<Vec<Entry>, Failure> {
    if ids.iter().any(|id| id == "all") {
        return Ok(catalogue());
    }
    let entry = |id: &String| {
        find(id).ok_or_else(|| {
            Failure::usage(format!("\"{id}\" is no experiment; `tributary reproduce --list` shows them all"))
        })
    };
    ids.iter().map(entry).collect()
}

fn list(as_json: bool) -> Result<(), Failure> {
    let entries = catalogue();
    if as_json {
        let all: Vec<_> = entries.iter().map(|e| json!({"id": e.id, "title": e.title, "source": e.source})).collect();
        return Ok(output::json(&all)?);
    }
    let mut table = Table::new(["id", "what", "published in"]);
    for entry in &entries {
        table.row([&entry.id, &entry.title, &entry.source]);
    }
    Ok(output::line(&table.render())?)
}

fn progress(id: &str) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} runs, {elapsed}").expect("a valid template");
    bar.set_style(style);
    bar.set_message(id.to_string());
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

/// The table, and a line for each disagreement.
fn render(outcome: &Outcome) -> String {
    let mut text = format!("{}: {} ({})", outcome.id, outcome.title, outcome.source);
    if outcome.quick {
        text += "\nquick: small inputs, so rows may differ that agree in full";
    }
    let mut table = Table::new(["", "published", "ours", "ratio", "verdict"]);
    for row in &outcome.rows {
        let verdict = match row.verdict {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
        };
        let ratio = row.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.3}"));
        table.row([&*row.published.what, &row.published_text(), &row.ours_text(), &ratio, verdict]);
    }
    let _ = write!(text, "\n{}", table.render());
    for row in outcome.rows.iter().filter(|row| row.verdict == Verdict::Differs) {
        let cause = row.cause.as_deref().unwrap_or("the run has measured no cause");
        let _ = write!(text, "\ndiffers: {}: {cause}", row.published.what);
    }
    for note in &outcome.notes {
        let _ = write!(text, "\nnote: {note}");
    }
    for left_out in &outcome.left_out {
        let _ = write!(text, "\nleft out: {left_out}");
    }
    text
}

/// Writes data and pictures; says what is where.
fn write(outcome: &Outcome, folder: &Path, program: &Program) -> Result<String, Failure> {
    let named = |ending: &str| folder.join(format!("{}.{ending}", outcome.id));
    let put = |path: &Path, text: String| {
        fs::write(path, text).map_err(|error| Failure::new(format!("{} cannot be written: {error}", path.display())))
    };
    let data = named("json");
    put(&data, serde_json::to_string_pretty(outcome)? + "\n")?;
    put(&named("csv"), csv(outcome))?;
    if outcome.figures.is_empty() {
        return Ok(format!("wrote {}", data.display()));
    }
    match draw(&data, program) {
        Ok(()) => Ok(format!("wrote {} and the picture beside it", data.display())),
        Err(reason) => Ok(format!("wrote {}; no picture: {reason}", data.display())),
    }
}

/// The figures' points, one a line.
fn csv(outcome: &Outcome) -> String {
    let mut text = "figure,series,x,y\n".to_string();
    for figure in &outcome.figures {
        for series in &figure.series {
            for [x, y] in &series.points {
                let _ = writeln!(text, "\"{}\",\"{}\",{x},{y}", figure.title, series.name);
            }
        }
    }
    text
}
