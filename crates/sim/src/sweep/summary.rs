//! The tables at the end of a sweep: each combination of values over its seeds, and each run.

use serde::Serialize;

use super::store::Finished;
use crate::table::Table;

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
