//! Bytes on cables and completion times of whole simulations, and their ratios: §1's count, and figure 15.

use serde::Deserialize;
use toml::{Table, Value};
use tributary_sim::config::{Config, overlay};
use tributary_sim::report::Report;

use crate::finding::Finding;
use crate::{Context, Experiment, Findings, ReproduceError};

/// Simulations that differ in a few keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// A file for `tributary sim run`, with one job.
    pub setup: Table,
    /// The lines, each a run.
    pub lines: Vec<Line>,
    /// The ratios.
    pub ratios: Vec<Ratio>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Its name in findings.
    pub name: String,
    /// The job's keys.
    pub job: Table,
    /// Keys of the file that differ from the setup.
    #[serde(default)]
    pub with: Table,
}

/// The ratio of two lines' figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// The finding's name.
    pub key: String,
    /// The figure: `host_bytes`, `bytes` or `ms`.
    pub what: String,
    /// The line of the dividend.
    pub of: String,
    /// The line of the divisor.
    pub over: String,
}

/// The group of links from hosts to switches in a report.
const HOST_UP: &str = "host up";

/// The measurements of a run.
#[derive(Clone, Copy)]
struct Measured {
    /// Mean bytes that a host sends, framing included.
    host_bytes: f64,
    /// Bytes on all cables.
    bytes: f64,
    ms: f64,
}

impl Measured {
    fn of(report: &Report) -> Measured {
        let up = report.links.iter().find(|group| group.name == HOST_UP);
        let seconds: f64 = report.jobs.iter().filter_map(|job| job.mean_seconds).sum();
        Measured {
            host_bytes: up.map_or(f64::NAN, |group| group.bytes as f64 / group.links as f64),
            bytes: report.links.iter().map(|group| group.bytes as f64).sum(),
            ms: 1e3 * seconds,
        }
    }

    fn figure(&self, what: &str) -> Option<f64> {
        match what {
            "host_bytes" => Some(self.host_bytes),
            "bytes" => Some(self.bytes),
            "ms" => Some(self.ms),
            _ => None,
        }
    }
}

impl Experiment for Traffic {
    /// Findings `LINE-ms`, `LINE-gb` on all cables, `LINE-host-mb` that a host sends, and each ratio by its key.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let runs: Vec<(&Line, u64)> =
            self.lines.iter().flat_map(|line| (1..=context.seeds).map(move |seed| (line, seed))).collect();
        let measured = context.watch.all_announced(&runs, |&(line, seed)| self.measure(context, line, seed))?;
        let mut findings = Findings::default();
        let of_line = |name: &str| -> Vec<Measured> {
            runs.iter().zip(&measured).filter(|((line, _), _)| line.name == name).map(|(_, found)| *found).collect()
        };
        for line in &self.lines {
            let found = of_line(&line.name);
            let over =
                |figure: fn(&Measured) -> f64| Finding::over("seeds", &found.iter().map(figure).collect::<Vec<_>>());
            findings.value(format!("{}-ms", line.name), over(|run| run.ms));
            findings.value(format!("{}-gb", line.name), over(|run| run.bytes / 1e9));
            findings.value(format!("{}-host-mb", line.name), over(|run| run.host_bytes / 1e6));
            let Measured { ms, bytes, host_bytes } = found[0];
            let (gigabytes, megabytes) = (bytes / 1e9, host_bytes / 1e6);
            let name = &line.name;
            findings.note(format!(
                "{name}: {ms:.3} ms, {gigabytes:.3} GB over all cables, {megabytes:.2} MB sent by a host."
            ));
        }
        for ratio in &self.ratios {
            let of = |name: &str| -> Result<Vec<f64>, ReproduceError> {
                let unknown = || ReproduceError::Bad(format!("{}: there is no {} of {name}", ratio.key, ratio.what));
                let found: Option<Vec<f64>> = of_line(name).iter().map(|run| run.figure(&ratio.what)).collect();
                found.filter(|found| !found.is_empty()).ok_or_else(unknown)
            };
            let ratios: Vec<f64> = of(&ratio.of)?.iter().zip(of(&ratio.over)?).map(|(of, over)| of / over).collect();
            findings.value(&*ratio.key, Finding::over("seeds", &ratios));
        }
        Ok(findings)
    }

    fn run_count(&self, seeds: u64) -> usize {
        self.lines.len() * seeds as usize
    }
}

impl Traffic {
    fn measure(&self, context: &Context<'_>, line: &Line, seed: u64) -> Result<Measured, ReproduceError> {
        let what = format!("{}, seed {seed}", line.name);
        let mut table = self.setup.clone();
        overlay(&mut table, line.with.clone());
        table.insert("seed".into(), Value::Integer(seed as i64));
        let Some(Value::Array(jobs)) = table.get_mut("job") else {
            return Err(ReproduceError::Bad(format!("{what}: the setup has no job")));
        };
        for job in jobs.iter_mut().filter_map(Value::as_table_mut) {
            overlay(job, line.job.clone());
        }
        let config = Config::deserialize(table).map_err(|error| ReproduceError::Bad(format!("{what}: {error}")))?;
        context.watch.simulate(&config, &what).map(|report| Measured::of(&report))
    }
}
