//! `tributary sim run`: one experiment from a file.

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tributary_sim::config::{Config, Sample, SampleWord};
use tributary_sim::experiment::{Progress, RunError};
use tributary_sim::report::{Report, write_whole};
use tributary_sim::table::Format;

use crate::cluster::Interrupt;
use crate::failure::Failure;
use crate::output;
use crate::program::Program;
use crate::python::draw;

/// The flags of `tributary sim run`.
#[derive(clap::Args)]
pub struct Args {
    /// The experiment's file
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Use this seed instead of the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write report.json and tables of jobs, collectives, flows, links, queues and samples into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The form of the tables
    #[arg(long, value_name = "FORM", value_parser = parse_format, default_value = Format::default().name(), requires = "out")]
    format: Format,
    /// Draw collectives, flows, links and queues there too, over time as well: figures.png
    #[arg(long, requires = "out")]
    plot: bool,
    /// Write one page that shows links over time: utilisation, queues and PAUSE; it needs no network
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Threads; the result is the same on any number of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the experiment and prints its report. Fails if a sum is wrong or something did not finish.
pub fn run(args: Args, program: &Program) -> Result<(), Failure> {
    let (text, mut config) = read(&args)?;
    if args.plot || args.html.is_some() {
        config.report.sample.get_or_insert(Sample::Word(SampleWord::Auto));
    }
    config.report.pauses |= args.html.is_some() && config.network.has_pause();
    let interrupt = Interrupt::on_signals()?;
    let mut watch = Watch::new();
    let outcome = tributary_sim::run_on_threads(&config, args.threads, &mut |progress| {
        watch.show(progress);
        if interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    watch.bar.finish_and_clear();
    let report = outcome.map_err(|error| name_file(&args.file, error))?.of_file(&text);
    match args.json {
        true => output::json(&report)?,
        false => output::line(&report.to_string())?,
    }
    // The report is printed by now, even if its files cannot be written.
    let kept = args.out.as_deref().map_or(Ok(()), |directory| keep(&args, &report, directory, program));
    let page = args.html.as_deref().map_or(Ok(()), |path| write_page(&args.file, &config, &report, path));
    let wrong: Vec<String> = report.failure().into_iter().chain(kept.err()).chain(page.err()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Reported(wrong.join("; "))) }
}

/// Adds the file's name to an error about its content.
fn name_file(file: &Path, error: RunError) -> Failure {
    match error {
        RunError::Config(error) => Failure::new(format!("{}: {error}", file.display())),
        error => error.into(),
    }
}

/// Writes the files, and draws them.
fn keep(args: &Args, report: &Report, directory: &Path, program: &Program) -> Result<(), String> {
    report.write_files(directory, args.format).map_err(|error| error.to_string())?;
    if args.plot { plot(&args.file, report, directory, program) } else { Ok(()) }
}

/// Writes the page of links over time.
fn write_page(file: &Path, config: &Config, report: &Report, path: &Path) -> Result<(), String> {
    let graph = config.network.build().map_err(|error| error.to_string())?;
    let page =
        report.page(&graph, &name_of(file)).ok_or("the run was too short for a sample, so that it has no page")?;
    write_whole(path.into(), |out| out.write_all(page.as_bytes())).map_err(|error| error.to_string())
}

fn name_of(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes the figures' data, and the picture beside it.
fn plot(file: &Path, report: &Report, directory: &Path, program: &Program) -> Result<(), String> {
    let data = directory.join("figures.json");
    let name = name_of(file);
    let title = format!("{} hosts, {} switches, seed {}", report.hosts, report.switches, report.seed);
    let figures = json!({ "id": name, "title": title, "quick": false, "figures": report.figures() });
    write_whole(data.clone(), |out| writeln!(out, "{figures}")).map_err(|error| error.to_string())?;
    draw(&data, program).map_err(|reason| format!("the results are written, but not drawn: {reason}"))
}

fn parse_format(name: &str) -> Result<Format, String> {
    let known = Format::ALL.map(Format::name);
    Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| format!("write {}", known.join(" or ")))
}

fn read(args: &Args) -> Result<(String, Config), Failure> {
    let file = args.file.display();
    let text = fs::read_to_string(&args.file).map_err(|error| Failure::new(format!("cannot read {file}: {error}")))?;
    let mut config = Config::parse(&text).map_err(|error| Failure::new(format!("{file}: {error}")))?;
    config.seed = args.seed.unwrap_or(config.seed);
    Ok((text, config))
}

/// The progress of a run: simulated time and events per second.
struct Watch {
    bar: ProgressBar,
    begun: Instant,
    shown: Instant,
}

impl Watch {
    fn new() -> Watch {
        let style = ProgressStyle::with_template("{bar:30} {msg}").expect("a fixed template");
        let bar = ProgressBar::new(1).with_style(style);
        Watch { bar, begun: Instant::now(), shown: Instant::now() }
    }

    fn show(&mut self, progress: &Progress) {
        if self.shown.elapsed() < Duration::from_millis(100) {
            return;
        }
        self.shown = Instant::now();
        self.bar.set_length(progress.total.max(1));
        self.bar.set_position(progress.total.saturating_sub(progress.open));
        let rate = progress.events as f64 / self.begun.elapsed().as_secs_f64() * 1e-6;
        let (now, open) = (progress.now.as_secs_f64() * 1e6, progress.open);
        self.bar.set_message(format!("{now:.1} us simulated, {rate:.1} M events/s, {open} of {} open", progress.total));
    }
}
