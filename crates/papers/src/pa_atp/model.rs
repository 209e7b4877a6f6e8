//! Section III-C and figure 6: the model's AWD, the memory that jobs fill, and the gain of throughput; and the same sawtooth
//! in the simulator, where each job has a straggler.

use serde::Deserialize;
use toml::{Table, Value};
use tributary_control::config::OptionTable;
use tributary_proto::aggregation::best_effort::Memory;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::Time;
use tributary_sim::config::Config;
use tributary_sim::experiment::run;
use tributary_sim::report::{Report, Samples};

use crate::finding::{Figure, Series, mean};
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
    /// Packets in flight on the path: BDP.
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
    /// Packets in flight on the path: BDP.
    pub path: u32,
    /// Jobs: N.
    pub jobs: usize,
}

/// The sawtooth of some jobs' AWD, in blocks of all these jobs (eqs. 5, 6, 7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Teeth {
    /// The peak of blocks in flight and in memory: R_max.
    pub most: f64,
    /// The height from there down to the least: A.
    pub amplitude: f64,
    /// Round trips from one cut to the next: T.
    pub period: f64,
}

impl Teeth {
    /// The sawtooth of `jobs` jobs, where marks begin at `threshold`: eta (M + BDP).
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

/// What is run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sawtooth {
    /// The network and one job, which exists as often as a point says; samples are taken.
    pub setup: Config,
    /// How many hosts each job has: the first rank, a leader, is on the first of them.
    pub hosts_per_job: u32,
    /// Numbers of jobs.
    pub jobs: Vec<u16>,
    /// The threshold of marks: eta (M + BDP), with the setup's switches.
    pub threshold: f64,
}

/// A fall of AWD by at least this share, from one sample to the next, is a cut.
const CUT: f64 = 0.004;

impl Experiment for Sawtooth {
    /// Findings for each number of jobs: `most-<jobs>` and `amplitude-<jobs>`, the values of eqs. 7 and 5 for the sum
    /// of all jobs' AWDs, measured divided by computed, after the first third of the run.
    fn run(&self, context: &Context<'_>) -> Result<Findings, ReproduceError> {
        let runs = context.watch.all(&self.jobs, |&jobs| self.measure(context, jobs))?;
        let mut findings = Findings::default();
        for (&jobs, report) in self.jobs.iter().zip(&runs) {
            let Some(samples) = &report.samples else {
                return Err(ReproduceError::Bad("AWD is sampled: the setup needs a [report] with sample".into()));
            };
            let all = total(samples, jobs);
            let steady = &all[all.len() / 3..];
            let [most, amplitude] = teeth(steady).ok_or_else(|| ReproduceError::Wrong {
                what: format!("{jobs} jobs"),
                why: "AWD was cut less than three times: the run is too short".into(),
            })?;
            let model = Teeth::of(jobs.into(), self.threshold);
            for (name, measured, computed) in [("most", most, model.most), ("amplitude", amplitude, model.amplitude)] {
                findings.value(format!("{name}-{jobs}"), measured / computed);
                findings
                    .cause(format!("{name}-{jobs}"), format!("{measured:.1} blocks, and {computed:.1} by the model"));
                findings.note(format!("{jobs} jobs, {name}: {measured:.1} blocks, and {computed:.1} by the model."));
            }
            findings.figures.push(Figure {
                title: format!("AWD of {jobs} jobs together"),
                x: "time (ms)".into(),
                y: "blocks".into(),
                log_x: false,
                series: vec![Series::new(
                    "AWD",
                    all.iter().map(|&(at, ahead)| [1e3 * at.as_secs_f64(), ahead]).collect(),
                )],
                marks: Vec::new(),
            });
        }
        Ok(findings)
    }
}

impl Sawtooth {
    fn measure(&self, context: &Context<'_>, jobs: u16) -> Result<Report, ReproduceError> {
        let mut config = self.setup.clone();
        let [job] = &config.jobs[..] else { return Err(ReproduceError::Bad("the setup has one job".into())) };
        let of = |number: u32| tributary_sim::config::JobSection {
            hosts: tributary_sim::config::Hosts::List(
                (0..self.hosts_per_job).map(|host| number * self.hosts_per_job + host).collect(),
            ),
            ..job.clone()
        };
        config.jobs = (0..u32::from(jobs)).map(of).collect();
        for job in &mut config.jobs {
            let given = Table::from_iter([(
                "initial_ahead".to_string(),
                Value::Integer((self.threshold as u64 / u64::from(jobs)) as i64),
            )]);
            let given = OptionTable::deserialize(given).map_err(|error| ReproduceError::Bad(error.to_string()))?;
            job.options.extend(given);
        }
        let report = run(&config).map_err(|error| ReproduceError::Bad(error.to_string()))?;
        (context.watch.traced)(&report.trace_hash);
        match report.failure() {
            Some(why) => Err(ReproduceError::Wrong { what: format!("{jobs} jobs"), why }),
            None => Ok(report),
        }
    }
}

/// The sum of the AWDs of all jobs' first ranks, step by step.
fn total(samples: &Samples, jobs: u16) -> Vec<(Time, f64)> {
    let of_leaders = |rank: Option<Rank>, name: &str| rank == Some(Rank(0)) && name == "ahead_blocks";
    let leaders = samples.job_samples().filter(|(_, gauge, _)| of_leaders(gauge.rank, gauge.name));
    let leaders: Vec<(Time, f64)> = leaders.map(|(time, _, ahead)| (time, ahead)).collect();
    leaders.chunks_exact(jobs.into()).map(|step| (step[0].0, step.iter().map(|(_, ahead)| ahead).sum())).collect()
}

/// The mean peak, and the mean fall from a peak to the next trough; `None` if there are fewer than three peaks.
fn teeth(all: &[(Time, f64)]) -> Option<[f64; 2]> {
    let (mut peaks, mut falls) = (Vec::new(), Vec::new());
    let mut at = 1;
    while at < all.len() {
        let peak = all[at - 1].1;
        if all[at].1 > peak * (1.0 - CUT) {
            at += 1;
            continue;
        }
        // Cuts of several rounds in a row are one fall.
        while at + 1 < all.len() && all[at + 1].1 <= all[at].1 {
            at += 1;
        }
        peaks.push(peak);
        falls.push(peak - all[at].1);
        at += 1;
    }
    (peaks.len() > 2).then(|| [mean(&peaks), mean(&falls)])
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

    #[test]
    fn teeth_are_peaks_and_what_lies_between_them_and_troughs() {
        let rise = |from: u32, to: u32| (from..=to).map(f64::from);
        let values: Vec<f64> =
            [rise(60, 100), rise(80, 120), rise(80, 110), rise(70, 90)].into_iter().flatten().collect();
        let all: Vec<(Time, f64)> =
            values.into_iter().enumerate().map(|(at, ahead)| (Time(at as u64), ahead)).collect();
        assert_eq!(teeth(&all), Some([110.0, (20.0 + 40.0 + 40.0) / 3.0]));
        assert_eq!(teeth(&all[..60]), None, "one cut is not a sawtooth");
    }
}
