//! `tributary sim sweep`: parameters times seeds over all cores, resumable.

use std::fs;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use serde_json::json;
use tributary_sim::config::ConfigError;
use tributary_sim::sweep::{self, Finished, Line, Store, Sweep, SweepPoint, summarise, write_tables};

use super::cluster;
use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output;
use crate::program::Program;

/// The flags of `tributary sim sweep`.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment's file, with a [sweep] table
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Keep finished runs here, and do not run again what is kept; FILE.sweep if left out
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run on the workers of the Dask cluster whose scheduler has this address, instead of here
    #[arg(long, value_name = "ADDR:PORT")]
    on: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the points that are not kept yet, and prints the table of all.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    let file = args.file.display();
    let text = fs::read_to_string(&args.file).map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
    let wrong = |error: ConfigError| Failure::new(format!("{file}: {error}"));
    let sweep = Sweep::parse(&text).map_err(wrong)?;
    let folder = args.out.unwrap_or_else(|| args.file.with_extension("sweep"));
    let store = Store::open(&folder)?;
    let interrupt = Interrupt::on_signals()?;

    let open: Vec<SweepPoint> = sweep.points.iter().filter(|point| store.find(point).is_none()).cloned().collect();
    let kept = sweep.points.len() - open.len();
    let outdated = open.iter().filter(|point| store.is_outdated(point)).count();
    sweep::check(&sweep.keys, &open, interrupt.flag()).map_err(wrong)?;
    let watch = Watch::new(sweep.points.len(), kept);
    let ran = match &args.on {
        None => sweep::run(&open, &store, &|_| watch.count(), interrupt.flag()).map_err(Failure::from),
        Some(address) => cluster::run(program, address, &open, &store, &|| watch.count(), &interrupt),
    };
    watch.bar.finish_and_clear();

    let finished: Vec<Finished> = sweep.points.iter().filter_map(|point| store.find(point)).collect();
    let lines = summarise(&finished);
    let written = write_tables(&folder, &sweep, &finished);
    if args.json {
        output::json(&json!({
            "origin": sweep.origin, "keys": sweep.keys, "runs": sweep.points.len(), "finished": finished.len(),
            "lines": lines
        }))?;
    } else {
        output::line(&render(&sweep.keys, &lines))?;
        for line in failures(&sweep.keys, &lines) {
            output::line(&line)?;
        }
        let shown = folder.display();
        let repeated = match outdated {
            0 => String::new(),
            _ => format!("; {outdated} were there of another build of tributary or of other files, and were run again"),
        };
        output::line(&format!(
            "{} of {} runs are in {shown}, {kept} of them from before{repeated}",
            finished.len(),
            sweep.points.len()
        ))?;
    }
    ran?;
    written.map_err(|error| Failure::new(error.to_string()))?;
    if interrupt.is_set() {
        let rest = sweep.points.len() - finished.len();
        return Err(Failure::Reported(format!("interrupted with {rest} runs left; the same command goes on")));
    }
    match finished.iter().find(|run| run.failure.is_some()) {
        None => Ok(()),
        Some(run) => {
            let why = run.failure.as_deref().unwrap_or_default();
            let failed: usize = lines.iter().map(|line| line.failed).sum();
            Err(Failure::Reported(format!("{failed} runs failed; the first, with seed {}: {why}", run.seed)))
        }
    }
}

/// How often a sweep that nobody watches at a terminal says how far it is.
const SAYS_EVERY: Duration = Duration::from_secs(10);

/// How many runs are done: a bar on a terminal, else a line now and then on stderr.
struct Watch {
    bar: ProgressBar,
    said: Mutex<Instant>,
}

impl Watch {
    fn new(points: usize, kept: usize) -> Watch {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed}, about {eta} left")
            .expect("a fixed template");
        let bar = ProgressBar::new(points as u64).with_position(kept as u64).with_style(style);
        bar.reset_eta();
        Watch { bar, said: Mutex::new(Instant::now()) }
    }

    fn count(&self) {
        self.bar.inc(1);
        let Ok(mut said) = self.said.lock() else { return };
        if std::io::stderr().is_terminal() || said.elapsed() < SAYS_EVERY {
            return;
        }
        *said = Instant::now();
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        eprintln!("{done} of {all} runs, about {} left", HumanDuration(self.bar.eta()));
    }
}

fn render(keys: &[String], lines: &[Line]) -> String {
    let fixed = [
        "runs",
        "failed",
        "goodput Gbit/s",
        "median",
        "deviation",
        "from",
        "to",
        "collective us",
        "flows us",
        "makespan us",
    ];
    let mut table = output::Table::new(keys.iter().map(String::as_str).chain(fixed));
    for line in lines {
        let number =
            |value: Option<f64>, factor: f64| value.map_or("-".into(), |value| format!("{:.2}", factor * value));
        let mut cells = line.values.clone();
        cells.extend([line.runs.to_string(), line.failed.to_string()]);
        let goodput = line.goodput_gbps.map(|of| [of.mean, of.median, of.deviation, of.min, of.max]);
        cells.extend([0, 1, 2, 3, 4].map(|index| number(goodput.map(|goodput| goodput[index]), 1.0)));
        let times = [line.seconds, line.flow_seconds, line.makespan_seconds];
        cells.extend(times.map(|figure| number(figure.map(|figure| figure.mean), 1e6)));
        table.row(cells);
    }
    table.render()
}

/// Why runs failed, combination by combination.
fn failures(keys: &[String], lines: &[Line]) -> Vec<String> {
    let of = |line: &Line| {
        let values = keys.iter().zip(&line.values).map(|(key, value)| format!("{key} = {value}, ")).collect::<String>();
        line.failures.iter().map(|failure| format!("failed: {values}{failure}")).collect::<Vec<_>>()
    };
    lines.iter().flat_map(of).collect()
}
