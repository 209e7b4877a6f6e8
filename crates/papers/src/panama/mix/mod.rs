//! PANAMA figure 8: short flows, long flows and training jobs in one network, under increasing load.

mod measure;

use serde::Deserialize;
use tributary_control::config::OptionTable;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;
use tributary_sim::config::{Bytes, Config, Share};

use self::measure::{Measured, Traffic};
use crate::finding::{Figure, Finding, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// The network, one training and the flows; their loads are set here.
    pub setup: Config,
    /// Bytes of models and flows, and computation times, are divided by this. The network is not scaled.
    pub scale: u32,
    /// The load of flows, divided equally among their kinds.
    pub flow_load: Share,
    /// The load of flows and jobs together in percent, run by run.
    pub loads: Vec<f64>,
    /// Flows of at least this many bytes, before the division, are long.
    pub long: Bytes,
    /// The period of arrivals in which flows and jobs must begin to be judged.
    pub judged: [Share; 2],
    /// The lines of the figure.
    pub lines: Vec<Line>,
    /// The ratios.
    #[serde(default)]
    pub ratios: Vec<Ratio>,
    /// What the picture shows.
    pub shows: What,
}

/// A way to run the jobs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Findings are named after it.
    pub name: String,
    /// The protocol with which they reduce, if not the training's; then without the training's slots, trees and
    /// options.
    #[serde(default)]
    pub protocol: Option<String>,
    /// The protocol's options.
    #[serde(default)]
    pub options: OptionTable,
    /// The trees of a job.
    #[serde(default)]
    pub trees: Option<u16>,
    /// The slots of a job.
    #[serde(default)]
    pub slots: Option<u16>,
    /// Short flows, long flows and jobs each have a network of their own.
    #[serde(default)]
    pub separate: bool,
}

/// A figure of one line divided by another line's, at one load, seed by seed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// The figure.
    pub what: What,
    /// The line of the dividend.
    pub of: String,
    /// The line of the divisor.
    pub over: String,
    /// The load in percent.
    pub load: f64,
}

/// The measured figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The 99th percentile of short flows' completion times, ms.
    P99,
    /// The mean of short flows' completion times, ms.
    Mean,
    /// The mean throughput of long flows, Gbit/s.
    Long,
    /// The mean training time of jobs, ms.
    Training,
}

impl What {
    const ALL: [What; 4] = [What::P99, What::Mean, What::Long, What::Training];

    fn key(self) -> &'static str {
        match self {
            What::P99 => "p99",
            What::Mean => "mean",
            What::Long => "long",
            What::Training => "training",
        }
    }

    /// A title for pictures, and the name of the axis.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            What::P99 => ("Short flows", "99th percentile of completion times (ms)"),
            What::Mean => ("Short flows", "mean completion time (ms)"),
            What::Long => ("Long flows", "throughput (Gbit/s)"),
            What::Training => ("Jobs", "training time (ms)"),
        }
    }
}

/// One run.
#[derive(Clone, Copy)]
struct Run<'a> {
    line: &'a Line,
    load: f64,
    carries: Traffic,
    seed: u64,
}

impl Experiment for Mix {
    /// Findings `<what>-<line>-<load>` over seeds, where `<what>` is `p99`, `mean`, `long` or `training`, and
    /// `<what>-<line>-over-<line>-<load>`, compared seed by seed.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let runs = self.runs(context.seeds);
        let found = context.watch.all_announced(&runs, |run| self.measure(context, run))?;
        let found = Found { mix: self, seeds: context.seeds, runs: &runs, found };
        let mut findings = Findings::default();
        for &load in &self.loads {
            for line in &self.lines {
                for what in What::ALL {
                    let values = found.of(what, line, load);
                    if !values.is_empty() {
                        findings.value(format!("{}-{}-{load}", what.key(), line.name), Finding::over("seeds", &values));
                    }
                }
                findings.note(found.note(line, load));
            }
        }
        for ratio in &self.ratios {
            let Ratio { what, of, over, load } = ratio;
            let key = format!("{}-{of}-over-{over}-{load}", what.key());
            let [dividends, divisors] =
                [found.of(*what, self.line(of)?, *load), found.of(*what, self.line(over)?, *load)];
            let ratios: Vec<f64> =
                dividends.iter().zip(&divisors).map(|(dividend, divisor)| dividend / divisor).collect();
            if ratios.is_empty() {
                return Err(ReproduceError::Bad(format!("{key}: nothing of the kind began in the judged period")));
            }
            findings.cause(&*key, found.cause(ratio));
            findings.value(key, Finding::over("seeds", &ratios));
        }
        findings.note(format!(
            "Scale {}: models, flows, the limit of {} between short and long, and times of computation are divided by it; rates, \
             delays, queues and packets are not.",
            self.scale, self.long
        ));
        findings.figures.push(found.figure());
        Ok(findings)
    }

    fn run_count(&self, seeds: u64) -> usize {
        self.runs(seeds).len()
    }
}

impl Mix {
    fn line(&self, name: &str) -> Result<&Line, ReproduceError> {
        let unknown = || ReproduceError::Bad(format!("there is no line \"{name}\""));
        self.lines.iter().find(|line| line.name == name).ok_or_else(unknown)
    }

    fn protocol(&self, line: &Line) -> Result<&'static Protocol, ReproduceError> {
        match &line.protocol {
            None => Ok(self.setup.trainings.first().ok_or_else(|| ReproduceError::Bad("no training".into()))?.protocol),
            Some(name) => {
                protocols::named(name).ok_or_else(|| ReproduceError::Bad(format!("\"{name}\" is not a protocol")))
            }
        }
    }

    /// Line by line, load by load, with all seeds in a row.
    fn runs(&self, seeds: u64) -> Vec<Run<'_>> {
        let mut runs = Vec::new();
        for line in &self.lines {
            for &load in &self.loads {
                for &carries in Traffic::of(line.separate) {
                    runs.extend((1..=seeds).map(|seed| Run { line, load, carries, seed }));
                }
            }
        }
        runs
    }
}

/// All measurements.
struct Found<'a> {
    mix: &'a Mix,
    seeds: u64,
    runs: &'a [Run<'a>],
    found: Vec<Measured>,
}

impl Found<'_> {
    fn at<'s>(&'s self, line: &'s Line, load: f64) -> impl Iterator<Item = &'s Measured> {
        let meant = move |run: &Run<'_>| run.line.name == line.name && run.load == load;
        self.runs.iter().zip(&self.found).filter(move |(run, _)| meant(run)).map(|(_, found)| found)
    }

    /// One value for each seed; empty if some seed has none.
    fn of(&self, what: What, line: &Line, load: f64) -> Vec<f64> {
        let values: Vec<f64> = self.at(line, load).filter_map(|found| found.figure(what)).collect();
        if values.len() as u64 == self.seeds { values } else { Vec::new() }
    }

    fn note(&self, line: &Line, load: f64) -> String {
        let sum = |figure: fn(&Measured) -> u64| self.at(line, load).map(figure).sum::<u64>();
        let median = |what| match self.of(what, line, load) {
            values if values.is_empty() => "none".to_string(),
            values => format!("{:.3}", Finding::over("seeds", &values).median),
        };
        format!(
            "{} at {load} %: short flows p99 {} ms, mean {} ms ({}); long flows {} Gbit/s ({}); training {} ms ({} jobs); {} marks, \
             {} orders to pause.",
            line.name,
            median(What::P99),
            median(What::Mean),
            sum(|found| found.short),
            median(What::Long),
            sum(|found| found.long),
            median(What::Training),
            sum(|found| found.jobs),
            sum(|found| found.marks),
            sum(|found| found.pauses),
        )
    }

    /// The measurements of both lines, for rows that differ.
    fn cause(&self, ratio: &Ratio) -> String {
        let of = |name: &str| self.mix.line(name).map_or_else(|_| String::new(), |line| self.note(line, ratio.load));
        format!("{} {}", of(&ratio.of), of(&ratio.over))
    }

    fn figure(&self) -> Figure {
        let what = self.mix.shows;
        let (title, y) = what.words();
        let series = self.mix.lines.iter().map(|line| {
            let mut series = Series::new(&line.name, Vec::new());
            for &load in &self.mix.loads {
                let values = self.of(what, line, load);
                if !values.is_empty() {
                    let found = Finding::over("seeds", &values);
                    series.points.push([load, found.median]);
                    series.ranges.push([found.low, found.high]);
                }
            }
            series
        });
        let series = series.collect();
        Figure { title: title.into(), x: "load (%)".into(), y: y.into(), log_x: false, series, marks: Vec::new() }
    }
}
