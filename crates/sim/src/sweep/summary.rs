//! The tables at the end of a sweep: each combination of values over its seeds, each run, and each job of each run.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::plan::Sweep;
use super::results::Finished;
use crate::report::{FileError, percentile, write_whole};
use crate::rng::{Purpose, Rng};
use crate::table::{Format, Table};

/// One combination of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The value of each key.
    pub values: Vec<String>,
    /// How many runs are finished.
    pub runs: usize,
    /// How many of them failed.
    pub failed: usize,
    /// Goodput in Gbit/s.
    pub goodput_gbps: Option<Spread>,
    /// Seconds of a collective.
    pub seconds: Option<Spread>,
    /// Why runs failed, and with which seeds: "seeds 2, 3: ...".
    pub failures: Vec<String>,
    /// Mean completion time of messages and flows in seconds.
    pub flow_seconds: Option<Spread>,
    /// Seconds until the last job is complete.
    pub makespan_seconds: Option<Spread>,
}

/// A figure over the seeds of one combination of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the seeds; 0 of one seed.
    pub deviation: f64,
    /// The least.
    pub min: f64,
    /// The tenth percentile: a value that occurred.
    pub p10: f64,
    /// The median; of an even number of values the mean of the middle two.
    pub median: f64,
    /// The ninetieth percentile.
    pub p90: f64,
    /// The greatest.
    pub max: f64,
    /// The interval that holds the mean with 95 % confidence: see [`bootstrap`]. Of one seed it is the mean alone.
    pub low95: f64,
    /// Its upper end.
    pub high95: f64,
}

/// The ending of a column, and its value.
type Statistic = (&'static str, fn(&Spread) -> f64);

impl Spread {
    /// Each statistic by the ending of its column.
    const STATISTICS: [Statistic; 9] = [
        ("mean", |spread| spread.mean),
        ("deviation", |spread| spread.deviation),
        ("min", |spread| spread.min),
        ("p10", |spread| spread.p10),
        ("median", |spread| spread.median),
        ("p90", |spread| spread.p90),
        ("max", |spread| spread.max),
        ("low95", |spread| spread.low95),
        ("high95", |spread| spread.high95),
    ];

    /// The spread of some values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        let [p10, p90] = [0.1, 0.9].map(|share| percentile(&values, share));
        // Over one less than the number, as of a sample.
        let deviation = if count == 1 { 0.0 } else { (squares / (count - 1) as f64).sqrt() };
        let [low95, high95] = bootstrap(&values);
        Some(Spread { mean, deviation, min, p10, median, p90, max, low95, high95 })
    }
}

/// How many resamples an interval is made of.
const RESAMPLES: usize = 2_000;

/// The 95 % percentile interval of the mean (Efron and Tibshirani, "An Introduction to the Bootstrap", section 13.3): of the
/// means of resamples, drawn with replacement, all but a fortieth at each end lie in it. It assumes no distribution; of
/// few seeds it is too narrow.
fn bootstrap(values: &[f64]) -> [f64; 2] {
    let (count, mut rng) = (values.len() as u32, Rng::new(0, Purpose::Resamples, values.len() as u64));
    let mut draw = || values[rng.below(count) as usize];
    let mut means: Vec<f64> =
        (0..RESAMPLES).map(|_| (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)).collect();
    means.sort_by(f64::total_cmp);
    [0.025, 0.975].map(|share| percentile(&means, share))
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
        makespan_seconds: spread(&runs, |run| run.makespan_seconds),
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

fn spread(runs: &[&Finished], figure: impl Fn(&Finished) -> Option<f64>) -> Option<Spread> {
    Spread::of(runs.iter().filter_map(|run| figure(run)).collect())
}

/// A table that begins with the sweep's keys, whose values stand in each row.
fn keyed<'a>(name: &'static str, keys: &[String], rows: impl Iterator<Item = &'a [String]> + Clone) -> Table {
    keys.iter().enumerate().fold(Table::new(name), |table, (index, key)| {
        table.written(key, rows.clone().map(|values| values[index].as_str()))
    })
}

/// The lines as a table: the keys, how many runs, the statistics of each figure, and why runs failed.
pub fn summary_table(keys: &[String], lines: &[Line]) -> Table {
    let table = keyed("summary", keys, lines.iter().map(|line| &line.values[..]))
        .whole("runs", lines.iter().map(|line| line.runs as u64))
        .whole("failed", lines.iter().map(|line| line.failed as u64));
    type Figure = fn(&Line) -> Option<Spread>;
    let figures: [(&str, Figure); 4] = [
        ("goodput_gbps", |line| line.goodput_gbps),
        ("seconds", |line| line.seconds),
        ("flow_seconds", |line| line.flow_seconds),
        ("makespan_seconds", |line| line.makespan_seconds),
    ];
    let table = figures.into_iter().fold(table, |table, (name, figure)| {
        Spread::STATISTICS.into_iter().fold(table, |table, (statistic, value)| {
            table.real(format!("{name}_{statistic}"), lines.iter().map(|line| figure(line).as_ref().map(value)))
        })
    });
    table.text("failure", lines.iter().map(|line| line.failures.join("; ")))
}

/// The runs as a table: the keys, the seed, the figures, and why a run failed.
pub fn run_table(keys: &[String], runs: &[Finished]) -> Table {
    keyed("runs", keys, runs.iter().map(|run| &run.values[..]))
        .whole("seed", runs.iter().map(|run| run.seed))
        .real("goodput_gbps", runs.iter().map(|run| run.goodput_gbps))
        .real("seconds", runs.iter().map(|run| run.seconds))
        .real("flow_seconds", runs.iter().map(|run| run.flow_seconds))
        .real("makespan_seconds", runs.iter().map(|run| run.makespan_seconds))
        .text("failure", runs.iter().map(|run| run.failure.clone().unwrap_or_default()))
        .text("trace_hash", runs.iter().map(|run| &run.trace_hash))
}

/// The jobs of all runs as a table: the keys, the seed, and what each run's report says of the job.
pub fn job_run_table(keys: &[String], runs: &[Finished]) -> Table {
    let rows: Vec<(&Finished, &Value)> =
        runs.iter().flat_map(|run| jobs(run).iter().map(move |job| (run, job))).collect();
    let (text, whole, real) = (
        |key: &'static str| rows.iter().map(move |(_, job)| job[key].as_str().unwrap_or_default().to_string()),
        |key: &'static str| rows.iter().map(move |(_, job)| job[key].as_u64().unwrap_or(0)),
        |key: &'static str| rows.iter().map(move |(_, job)| job[key].as_f64()),
    );
    keyed("job_runs", keys, rows.iter().map(|(run, _)| &run.values[..]))
        .whole("seed", rows.iter().map(|(run, _)| run.seed))
        .text("job", text("name"))
        .text("protocol", text("protocol"))
        .whole("ranks", whole("ranks"))
        .flag("complete", rows.iter().map(|(_, job)| job["complete"].as_bool().unwrap_or(false)))
        .real("seconds", real("seconds"))
        .real("goodput_gbps", real("goodput_gbps"))
        .whole("packets_sent", whole("packets_sent"))
        .whole("retransmissions", whole("retransmissions"))
}

fn jobs(run: &Finished) -> &[Value] {
    run.report["jobs"].as_array().map_or(&[], Vec::as_slice)
}

/// Writes `summary.csv`, `runs.csv` and `job_runs.csv` into the sweep's folder.
pub fn write_tables(folder: &Path, sweep: &Sweep, finished: &[Finished]) -> Result<(), FileError> {
    let (keys, format) = (&sweep.keys, Format::Csv);
    let tables = [summary_table(keys, &summarise(finished)), run_table(keys, finished), job_run_table(keys, finished)];
    tables.map(|table| table.made_by(&sweep.origin)).iter().try_for_each(|table| {
        write_whole(folder.join(table.name).with_extension(format.name()), |out| table.write(format, out))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_statistics_of_a_sample() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        let (squares, mean): (f64, f64) = (5.0, 2.5);
        let Spread { low95, high95, .. } = spread;
        let (deviation, median) = ((squares / 3.0).sqrt(), 2.5);
        let expected = Spread { mean, deviation, min: 1.0, p10: 1.0, median, p90: 4.0, max: 4.0, low95, high95 };
        assert_eq!(spread, expected);
        let one = Spread::of(vec![7.0]).unwrap();
        assert_eq!((one.deviation, one.median, one.p10, one.p90), (0.0, 7.0, 7.0, 7.0));
        assert_eq!((one.low95, one.high95), (7.0, 7.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn the_interval_of_the_mean_is_the_normal_one_of_many_seeds_and_holds_the_truth() {
        // 95 % of normal means are within 1.96 s / sqrt(n).
        let mut rng = Rng::new(1, Purpose::Resamples, 99);
        let mut sample =
            |n: usize| (0..n).map(|_| (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0).collect::<Vec<f64>>();
        let spread = Spread::of(sample(400)).unwrap();
        let half = 1.96 * spread.deviation / 20.0;
        assert!(((spread.mean - spread.low95) / half - 1.0).abs() < 0.1, "{spread:?}");
        assert!(((spread.high95 - spread.mean) / half - 1.0).abs() < 0.1, "{spread:?}");
        let holds = (0..200).filter(|_| {
            let spread = Spread::of(sample(30)).unwrap();
            spread.low95 <= 0.0 && spread.high95 >= 0.0
        });
        let share = holds.count() as f64 / 200.0;
        assert!((0.90..=0.98).contains(&share), "{share} of 0.95");
    }
}
