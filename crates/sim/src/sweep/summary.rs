//! The table at the end of a sweep: each combination of values over its seeds.

use serde::Serialize;

use super::store::Finished;

/// One combination of values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What each key is here.
    pub values: Vec<String>,
    /// Runs that are finished.
    pub runs: usize,
    /// Those that failed.
    pub failed: usize,
    /// Goodput in Gbit/s over seeds: mean, least, greatest.
    pub goodput_gbps: Option<[f64; 3]>,
    /// Seconds of a collective over seeds: mean, least, greatest.
    pub seconds: Option<[f64; 3]>,
    /// Mean completion time of messages in seconds over seeds: mean, least, greatest.
    pub flow_seconds: Option<[f64; 3]>,
}

/// Lines in the order in which their first runs come.
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
        goodput_gbps: spread(&runs, |run| run.goodput_gbps),
        seconds: spread(&runs, |run| run.seconds),
        flow_seconds: spread(&runs, |run| run.flow_seconds),
    };
    groups.into_iter().map(line).collect()
}

fn spread(runs: &[&Finished], figure: impl Fn(&Finished) -> Option<f64>) -> Option<[f64; 3]> {
    let values: Vec<f64> = runs.iter().filter_map(|run| figure(run)).collect();
    let least = values.iter().copied().reduce(f64::min)?;
    let greatest = values.iter().copied().reduce(f64::max)?;
    Some([values.iter().sum::<f64>() / values.len() as f64, least, greatest])
}
