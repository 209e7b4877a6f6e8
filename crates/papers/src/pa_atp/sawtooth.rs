//! Section III-C in the simulator: jobs that each have a straggler fill the switch's memory, and AWD rises and falls.

use serde::Deserialize;
use toml::{Table, Value};
use tributary_control::config::OptionTable;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::Time;
use tributary_sim::config::Config;
use tributary_sim::experiment::run;
use tributary_sim::report::{Report, Samples};

use super::model::Teeth;
use crate::finding::{Figure, Series, mean};
use crate::{Context, Experiment, Findings, ReproduceError};

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

    #[test]
    fn teeth_are_peaks_and_what_lies_between_them_and_troughs() {
        let rise = |from: u32, to: u32| (from..=to).map(f64::from);
        let values: Vec<f64> =
            [rise(60, 100), rise(80, 120), rise(80, 110), rise(70, 90)].into_iter().flatten().collect();
        let all: Vec<(Time, f64)> =
            values.into_iter().enumerate().map(|(at, ahead)| (Time(at as u64), ahead)).collect();
        assert_eq!(teeth(&all), Some([110.0, (20.0 + 40.0 + 40.0) / 3.0]));
        assert_eq!(teeth(&all[..60]), None, "one cut is no sawtooth");
    }
}
