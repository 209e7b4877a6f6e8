//! Section III-C and figure 6: the model's AWD, memory that jobs fill, and gain of throughput.

use serde::Deserialize;
use tributary_proto::aggregation::best_effort::options::Memory;

use crate::finding::{Figure, Series};
use crate::{Context, Experiment, Findings, ReproduceError};

/// What is computed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Blocks that fit into the switch: the paper's M.
    pub aggregators: f64,
    /// Curves of figure 6.
    pub curves: Vec<Curve>,
    /// Packets that are summed in a round trip, as shares of BDP: C_A.
    pub shares: Vec<f64>,
    /// Memories whose threshold of AECN marks is compared with eq. 9's bound.
    pub thresholds: Vec<Threshold>,
}

/// A link's rate and a number of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Packets that the path holds: BDP.
    pub path: f64,
    /// Jobs: N.
    pub jobs: f64,
}

/// A switch's memory.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Blocks that fit: M.
    pub aggregators: u32,
    /// Packets that the path holds: BDP.
    pub path: u32,
    /// Jobs: N.
    pub jobs: usize,
}

/// The sawtooth of some jobs' AWD, in blocks of all these jobs (eqs. 5, 6, 7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Teeth {
    /// The most that is under way or held: R_max.
    pub most: f64,
    /// The height from there down to the least: A.
    pub amplitude: f64,
    /// Round trips from one cut to the next: T.
    pub period: f64,
}

impl Teeth {
    /// The sawtooth of so many jobs, where marks begin at `threshold`: eta (M + BDP).
    pub fn of(jobs: f64, threshold: f64) -> Teeth {
        Teeth {
            most: threshold + jobs,
            amplitude: (2.0 * jobs * threshold).sqrt() / 2.0,
            period: (2.0 * threshold / jobs).sqrt() / 2.0,
        }
    }
}

/// Eqs. 10 to 12: the throughput of PA-ATP divided by that of ATP, which is `summed`, in packets a round trip; `eta` is
/// at its bound.
fn gain(aggregators: f64, Curve { path, jobs }: Curve, summed: f64) -> f64 {
    let most = aggregators + path - summed;
    let swing = (2.0 * jobs * (most - jobs)).sqrt();
    let least = most - swing / 2.0;
    let throughput = match least >= aggregators {
        true => most - swing / 4.0 - aggregators + summed,
        false => (most - aggregators).powi(2) / swing + summed,
    };
    throughput / summed
}

impl Experiment for Model {
    /// Findings `gain-<BDP>-<jobs>-<share>`; `rate-least`, the least ratio of the gain at the greatest BDP to the gain
    /// at the least BDP, over curves with equally many jobs; `shares-most` and `jobs-most`, the greatest ratio of a
    /// gain to the one with less summed, and to the one with fewer jobs; and `threshold-<M>-<jobs>`, where our switches
    /// begin to mark, as a share of eq. 9's bound with C_A = BDP.
    fn run(&self, _: &Context<'_>) -> Result<Findings, ReproduceError> {
        let mut findings = Findings::default();
        let gain_of = |curve: Curve, share: f64| gain(self.aggregators, curve, share * curve.path);
        let mut figure = Figure {
            title: "Throughput of PA-ATP over ATP, by the model".into(),
            x: "summed in a round trip, parts of BDP".into(),
            y: "gain".into(),
            log_x: false,
            series: Vec::new(),
            marks: Vec::new(),
        };
        for &curve in &self.curves {
            let Curve { path, jobs } = curve;
            let points: Vec<[f64; 2]> = self.shares.iter().map(|&share| [share, gain_of(curve, share)]).collect();
            for [share, gain] in &points {
                findings.value(format!("gain-{path}-{jobs}-{share}"), *gain);
            }
            figure.series.push(Series::new(format!("BDP {path}, {jobs} jobs"), points));
        }
        findings.figures.push(figure);
        let pairs = || self.curves.iter().flat_map(|a| self.curves.iter().map(move |b| (*a, *b)));
        let over = |chosen: &dyn Fn(Curve, Curve) -> bool| -> Vec<f64> {
            let pairs = pairs().filter(|&(a, b)| chosen(a, b));
            pairs
                .flat_map(|(a, b)| self.shares.iter().map(move |&share| gain_of(a, share) / gain_of(b, share)))
                .collect()
        };
        let rates = over(&|a, b| a.jobs == b.jobs && a.path > b.path);
        let jobs = over(&|a, b| a.path == b.path && a.jobs > b.jobs);
        let shares = self.curves.iter().flat_map(|&curve| {
            self.shares.windows(2).map(move |pair| gain_of(curve, pair[1]) / gain_of(curve, pair[0]))
        });
        findings.value("rate-least", rates.into_iter().fold(f64::INFINITY, f64::min));
        findings.value("jobs-most", jobs.into_iter().fold(0.0, f64::max));
        findings.value("shares-most", shares.fold(0.0, f64::max));
        for &Threshold { aggregators, path, jobs } in &self.thresholds {
            let memory = Memory::new(aggregators, path.into());
            let whole = f64::from(aggregators) + f64::from(path);
            let bound = 1.0 - (f64::from(path) + jobs as f64) / whole;
            findings.value(format!("threshold-{aggregators}-{jobs}"), memory.threshold(jobs) as f64 / whole / bound);
            findings.note(format!("M = {aggregators}, BDP = {path}, {jobs} jobs: eta is at most {bound:.4}."));
        }
        Ok(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eq. 11 for a memory that is never empty, and eq. 12 for one that is, are equal where both apply.
    #[test]
    fn the_two_equations_of_the_gain_meet() {
        let curve = Curve { path: 416.0, jobs: 1.0 };
        let at = |summed: f64| gain(40_000.0, curve, summed);
        let most = |summed: f64| 40_416.0 - summed;
        let least = |summed: f64| most(summed) - (2.0 * (most(summed) - 1.0)).sqrt() / 2.0;
        let meet = (1..416).map(f64::from).find(|&summed| least(summed) < 40_000.0).unwrap();
        assert!((at(meet) / at(meet - 1.0) - 1.0).abs() < 0.01, "{meet}");
    }

    #[test]
    fn the_sawtooth_is_that_of_equations_5_to_7() {
        let Teeth { most, amplitude, period } = Teeth::of(8.0, 2_000.0);
        assert_eq!(most, 2_008.0);
        assert!((amplitude - 8.0 * period).abs() < 1e-9, "each job's window grows by one a round trip");
    }
}
