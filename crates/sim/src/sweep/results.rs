//! Finished points, each in a file, so that they are not run again; and the tables at the end of a sweep: each combination of
//! values over its seeds, and each run.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use super::plan::{Sweep, SweepPoint};
use crate::experiment::NamedFile;
use crate::provenance::Program;
use crate::report::{FileError, Report, write_whole};
use crate::rng::mix;
use crate::table::{Format, Table};

/// The kept result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The program that made the run.
    pub program: Program,
    /// The run's file.
    pub config: String,
    /// The other files that it names.
    pub files: Vec<NamedFile>,
    /// The value of each key of the sweep.
    pub values: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// Why the run failed, if it did.
    pub failure: Option<String>,
    /// Tensor bits divided by time, Gbit/s: the mean over jobs.
    pub goodput_gbps: Option<f64>,
    /// Seconds of a collective: the mean over jobs.
    pub seconds: Option<f64>,
    /// Mean completion time of messages and of flows under DCTCP, seconds.
    pub flow_seconds: Option<f64>,
    /// The hash of the trace, equal for equal runs.
    pub trace_hash: String,
    /// The whole report.
    pub report: serde_json::Value,
}

impl Finished {
    /// The result of a run that ended.
    pub fn new(point: &SweepPoint, report: &Report) -> Finished {
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        Finished {
            failure: report.failure(),
            goodput_gbps: mean(report.jobs.iter().filter_map(|job| job.goodput_gbps).collect()),
            seconds: mean(report.jobs.iter().filter_map(|job| job.seconds).collect()),
            flow_seconds: mean(report.flow_rows.iter().map(|flow| flow.seconds).collect()),
            trace_hash: report.trace_hash.clone(),
            report: serde_json::to_value(report).unwrap_or_default(),
            ..Finished::refused(point, String::new())
        }
    }

    /// The result of a run whose file is invalid.
    pub fn refused(point: &SweepPoint, sentence: String) -> Finished {
        Finished {
            program: Program::this(),
            config: point.text.clone(),
            files: point.files.clone(),
            values: point.values.clone(),
            seed: point.config.seed,
            failure: Some(sentence),
            goodput_gbps: None,
            seconds: None,
            flow_seconds: None,
            trace_hash: String::new(),
            report: serde_json::Value::Null,
        }
    }

    /// True if this program would get the same result for the point.
    pub fn is_of(&self, point: &SweepPoint) -> bool {
        self.program.is_this() && self.config == point.text && self.files == point.files
    }
}

/// Why a point cannot be kept, or the folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {why}; what is finished stays there", .path.display())]
pub struct StoreError {
    what: &'static str,
    path: PathBuf,
    why: io::Error,
}

/// A folder with finished points.
pub struct Store(PathBuf);

impl Store {
    /// Opens the folder, which is made if it does not exist.
    pub fn open(folder: &Path) -> Result<Store, StoreError> {
        let points = folder.join("points");
        match fs::create_dir_all(&points) {
            Ok(()) => Ok(Store(points)),
            Err(why) => Err(StoreError { what: "make", path: points, why }),
        }
    }

    /// The kept result of a point. What is damaged, or was made by another program or of other files, counts as missing.
    pub fn find(&self, point: &SweepPoint) -> Option<Finished> {
        let text = fs::read_to_string(self.path(point)).ok()?;
        let finished: Finished = serde_json::from_str(&text).ok()?;
        finished.is_of(point).then(|| Finished { values: point.values.clone(), ..finished })
    }

    /// True if there is a result of a point that is not found, because another program made it, or of other files.
    pub fn is_outdated(&self, point: &SweepPoint) -> bool {
        self.path(point).exists() && self.find(point).is_none()
    }

    /// Keeps a point: the file is either complete or missing.
    pub fn keep(&self, point: &SweepPoint, finished: &Finished) -> Result<(), StoreError> {
        let path = self.path(point);
        let partial = path.with_extension("part");
        let written = serde_json::to_vec(finished)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&partial, bytes))
            .and_then(|()| fs::rename(&partial, &path));
        written.map_err(|why| {
            let _ = fs::remove_file(&partial);
            StoreError { what: "write", path, why }
        })
    }

    fn path(&self, point: &SweepPoint) -> PathBuf {
        let hash = point.text.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        self.0.join(format!("{hash:016x}.json"))
    }
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The value of each key.
    pub values: Vec<String>,
    /// How many runs are finished.
    pub runs: usize,
    /// How many of them failed.
    pub failed: usize,
    /// Goodput in Gbit/s over seeds: mean, least, greatest.
    pub goodput_gbps: Option<[f64; 3]>,
    /// Seconds of a collective over seeds: mean, least, greatest.
    pub seconds: Option<[f64; 3]>,
    /// Why runs failed, and with which seeds: "seeds 2, 3: ...".
    pub failures: Vec<String>,
    /// Mean completion time of messages and flows in seconds over seeds: mean, least, greatest.
    pub flow_seconds: Option<[f64; 3]>,
}

/// The lines, in the order of their first runs.
pub fn summarise(finished: &[Finished]) -> Vec<Line> {
    let mut groups: Vec<(&[String], Vec<&Finished>)> = Vec::new();
    for run in finished {
        match groups.iter_mut().find(|(values, _)| *values == run.values) {
            Some((_, group)) => group.push(run),
            None => groups.push((&run.values, vec![run])),
        }
    }
    let line = |(values, runs): (&[String], Vec<&Finished>)| Line {
        values: values.to_vec(),
        runs: runs.len(),
        failed: runs.iter().filter(|run| run.failure.is_some()).count(),
        failures: failures(&runs),
        goodput_gbps: spread(&runs, |run| run.goodput_gbps),
        seconds: spread(&runs, |run| run.seconds),
        flow_seconds: spread(&runs, |run| run.flow_seconds),
    };
    groups.into_iter().map(line).collect()
}

/// Each reason once, with its seeds, in the order of occurrence.
fn failures(runs: &[&Finished]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for run in runs {
        let Some(why) = run.failure.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, seeds)) => seeds.push(run.seed.to_string()),
            None => reasons.push((why, vec![run.seed.to_string()])),
        }
    }
    let words = |(why, seeds): (&str, Vec<String>)| {
        format!("seed{} {}: {why}", if seeds.len() == 1 { "" } else { "s" }, seeds.join(", "))
    };
    reasons.into_iter().map(words).collect()
}

fn spread(runs: &[&Finished], figure: impl Fn(&Finished) -> Option<f64>) -> Option<[f64; 3]> {
    let values: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
    let least = values.iter().copied().reduce(f64::min)?;
    let greatest = values.iter().copied().reduce(f64::max)?;
    Some([values.iter().sum::<f64>() / values.len() as f64, least, greatest])
}

/// The lines as a table: the keys, how many runs, the mean, least and greatest of each figure, and why runs failed.
pub fn summary_table(keys: &[String], lines: &[Line]) -> Table {
    let table = keys.iter().enumerate().fold(Table::new("summary"), |table, (index, key)| {
        table.written(key, lines.iter().map(|line| line.values[index].as_str()))
    });
    let table = table
        .whole("runs", lines.iter().map(|line| line.runs as u64))
        .whole("failed", lines.iter().map(|line| line.failed as u64));
    type Figure = fn(&Line) -> Option<[f64; 3]>;
    let figures: [(&str, Figure); 3] = [
        ("goodput_gbps", |line| line.goodput_gbps),
        ("seconds", |line| line.seconds),
        ("flow_seconds", |line| line.flow_seconds),
    ];
    let table = figures.into_iter().fold(table, |table, (name, figure)| {
        ["mean", "min", "max"].into_iter().enumerate().fold(table, |table, (index, statistic)| {
            table.real(format!("{name}_{statistic}"), lines.iter().map(|line| figure(line).map(|figure| figure[index])))
        })
    });
    table.text("failure", lines.iter().map(|line| line.failures.join("; ")))
}

/// The runs as a table: the keys, the seed, the figures, and why a run failed.
pub fn run_table(keys: &[String], runs: &[Finished]) -> Table {
    let table = keys.iter().enumerate().fold(Table::new("runs"), |table, (index, key)| {
        table.written(key, runs.iter().map(|run| run.values[index].as_str()))
    });
    table
        .whole("seed", runs.iter().map(|run| run.seed))
        .real("goodput_gbps", runs.iter().map(|run| run.goodput_gbps))
        .real("seconds", runs.iter().map(|run| run.seconds))
        .real("flow_seconds", runs.iter().map(|run| run.flow_seconds))
        .text("failure", runs.iter().map(|run| run.failure.clone().unwrap_or_default()))
        .text("trace_hash", runs.iter().map(|run| &run.trace_hash))
}

/// Writes `summary.csv` and `runs.csv` into the sweep's folder.
pub fn write_tables(folder: &Path, sweep: &Sweep, finished: &[Finished]) -> Result<(), FileError> {
    let format = Format::Csv;
    let tables = [summary_table(&sweep.keys, &summarise(finished)), run_table(&sweep.keys, finished)];
    tables.map(|table| table.made_by(&sweep.origin)).iter().try_for_each(|table| {
        write_whole(folder.join(table.name).with_extension(format.name()), |out| table.write(format, out))
    })
}
