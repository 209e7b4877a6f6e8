//! The answer to `GET /history`: what a switch did in the last minutes. It says which jobs stand still and since when,
//! which ranks are slow, and what goodput and losses were at each sample. There is no clock and no socket here: the
//! samples come with their times.
//!
//! The memory is bounded. It holds [`SAMPLES`] samples of some 40 bytes for each present job, and one bit for each of the
//! job's ranks at each sample of the last minute.

mod job;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use self::job::Watched;
pub use self::job::{JobHistory, Straggler};
use crate::status::{EndedJob, SwitchStatus};

/// Seconds from one sample to the next.
pub const SAMPLE_S: f64 = 1.0;
/// The number of samples that are remembered. They cover five minutes.
pub const SAMPLES: usize = 300;

/// The answer to `GET /history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Seconds from one sample to the next: from one number of a list to the next number.
    pub every_s: f64,
    /// The switch.
    pub switch: SwitchHistory,
    /// The switch's jobs, as in `GET /status`.
    pub jobs: Vec<JobHistory>,
}

/// What an operator sees at one moment: an event of `GET /events`, and what `GET /status`, `/history` and `/ended` answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overview {
    /// The switch and its jobs.
    pub status: SwitchStatus,
    /// The last minutes.
    pub history: History,
    /// The jobs that ended in the last hour, the last one first.
    pub ended: Vec<EndedJob>,
}

/// What a switch received and sent; lists begin with the oldest sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchHistory {
    /// UDP payload received, in Gbit/s.
    pub rx_gbps: Vec<f64>,
    /// UDP payload sent, in Gbit/s.
    pub tx_gbps: Vec<f64>,
    /// Packets per second that the kernel dropped because a receive buffer was full.
    pub overflows_per_s: Vec<f64>,
    /// Packets that the kernel has dropped for this reason since the start.
    pub overflows: u64,
}

/// The counters of a switch at one sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_s: f64,
    rx_bytes: u64,
    tx_bytes: u64,
    overflows: u64,
}

/// Records samples of a switch.
#[derive(Debug, Default)]
pub struct Recorder {
    samples: VecDeque<Sample>,
    jobs: BTreeMap<(String, Option<u16>), Watched>,
}

impl Recorder {
    /// Takes in the switch's present status, `at_s` seconds after the start of the switch. Jobs that are gone are
    /// forgotten.
    pub fn record(&mut self, at_s: f64, status: &SwitchStatus) {
        let total = |count: fn(&crate::status::ShardStatus) -> u64| status.switch.shards.iter().map(count).sum();
        let (rx_bytes, tx_bytes) = (total(|shard| shard.rx_bytes), total(|shard| shard.tx_bytes));
        let sample = Sample { at_s, rx_bytes, tx_bytes, overflows: total(|shard| shard.rx_overflows) };
        push(&mut self.samples, sample);
        self.jobs.retain(|known, _| status.jobs.iter().any(|job| (&job.name, job.id) == (&known.0, known.1)));
        for job in &status.jobs {
            self.jobs.entry((job.name.clone(), job.id)).or_default().record(at_s, job);
        }
    }

    /// What the samples show, without jobs that came after the last sample.
    pub fn history(&self) -> History {
        let gbps = |bytes: fn(&Sample) -> u64| rates(&self.samples, 8e-9, move |sample| (sample.at_s, bytes(sample)));
        let switch = SwitchHistory {
            rx_gbps: gbps(|sample| sample.rx_bytes).collect(),
            tx_gbps: gbps(|sample| sample.tx_bytes).collect(),
            overflows_per_s: rates(&self.samples, 1.0, |sample| (sample.at_s, sample.overflows)).collect(),
            overflows: self.samples.back().map_or(0, |sample| sample.overflows),
        };
        let jobs = self.jobs.iter().map(|((name, id), watched)| watched.history(name, *id)).collect();
        History { every_s: SAMPLE_S, switch, jobs }
    }
}

/// Adds a sample, and drops the oldest.
fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == SAMPLES {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The growth of a counter per second, from each sample to the next, times `unit`. A counter that has fallen has restarted.
fn rates<T>(samples: &VecDeque<T>, unit: f64, at: impl Fn(&T) -> (f64, u64)) -> impl Iterator<Item = f64> {
    samples.iter().zip(samples.iter().skip(1)).map(move |(before, after)| {
        let ((from_s, from), (to_s, to)) = (at(before), at(after));
        in_four_digits(unit * to.saturating_sub(from) as f64 / (to_s - from_s).max(f64::EPSILON))
    })
}

/// A number of at least 0 with four digits: readers draw rates, and hundreds of jobs have many of them.
fn in_four_digits(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::in_four_digits;

    #[test]
    fn rates_have_four_digits_whatever_their_size() {
        let text = |number| in_four_digits(number).to_string();
        assert_eq!([0.0, 1.0 / 3.0, 123_456.0, 9.999_96e-7].map(text), ["0", "0.3333", "123500", "0.000001"]);
    }
}
