//! The answer to `GET /history`: what a switch did in the last minutes. It says which jobs stand still and since when,
//! which ranks are slow, and what goodput and losses were at each look. There is no clock and no socket here: the looks
//! bring their times.
//!
//! The memory is bounded. It holds [`LOOKS`] looks of some 40 bytes for each present job, and one bit for each of the
//! job's ranks at each look of the last minute.

mod job;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use self::job::Watched;
pub use self::job::{JobHistory, Straggler};
use crate::status::SwitchStatus;

/// Seconds from one look to the next.
pub const LOOK_S: f64 = 1.0;
/// The number of looks that are remembered. They cover five minutes.
pub const LOOKS: usize = 300;

/// The answer to `GET /history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// Seconds from one look to the next: from one number of a list to the next number.
    pub every_s: f64,
    /// The switch.
    pub switch: SwitchHistory,
    /// The switch's jobs, as in `GET /status`.
    pub jobs: Vec<JobHistory>,
}

/// What a switch received and sent; lists begin with the oldest look.
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

/// The counters of a switch at one look.
#[derive(Clone, Copy, Debug)]
struct Look {
    at_s: f64,
    rx_bytes: u64,
    tx_bytes: u64,
    overflows: u64,
}

/// Takes looks at a switch, and remembers them.
#[derive(Debug, Default)]
pub struct Recorder {
    looks: VecDeque<Look>,
    jobs: BTreeMap<(String, Option<u16>), Watched>,
}

impl Recorder {
    /// Takes in the switch's present status, `at_s` seconds after the start of the switch. Jobs that are gone are
    /// forgotten.
    pub fn look(&mut self, at_s: f64, status: &SwitchStatus) {
        let total = |count: fn(&crate::status::ShardStatus) -> u64| status.switch.shards.iter().map(count).sum();
        let (rx_bytes, tx_bytes) = (total(|shard| shard.rx_bytes), total(|shard| shard.tx_bytes));
        let look = Look { at_s, rx_bytes, tx_bytes, overflows: total(|shard| shard.rx_overflows) };
        push(&mut self.looks, look);
        self.jobs.retain(|known, _| status.jobs.iter().any(|job| (&job.name, job.id) == (&known.0, known.1)));
        for job in &status.jobs {
            self.jobs.entry((job.name.clone(), job.id)).or_default().look(at_s, job);
        }
    }

    /// What the looks show, without jobs that came after the last look.
    pub fn history(&self) -> History {
        let gbps =
            |bytes: fn(&Look) -> u64| rates(&self.looks, move |look| (look.at_s, bytes(look))).map(|rate| rate * 8e-9);
        let switch = SwitchHistory {
            rx_gbps: gbps(|look| look.rx_bytes).collect(),
            tx_gbps: gbps(|look| look.tx_bytes).collect(),
            overflows_per_s: rates(&self.looks, |look| (look.at_s, look.overflows)).collect(),
            overflows: self.looks.back().map_or(0, |look| look.overflows),
        };
        let jobs = self.jobs.iter().map(|((name, id), watched)| watched.history(name, *id)).collect();
        History { every_s: LOOK_S, switch, jobs }
    }
}

/// Remembers a look, and forgets the oldest.
fn push<T>(looks: &mut VecDeque<T>, look: T) {
    if looks.len() == LOOKS {
        looks.pop_front();
    }
    looks.push_back(look);
}

/// The growth of a counter per second, from each look to the next. A counter that has fallen has begun anew.
fn rates<T>(looks: &VecDeque<T>, at: impl Fn(&T) -> (f64, u64)) -> impl Iterator<Item = f64> {
    looks.iter().zip(looks.iter().skip(1)).map(move |(before, after)| {
        let ((from_s, from), (to_s, to)) = (at(before), at(after));
        to.saturating_sub(from) as f64 / (to_s - from_s).max(f64::EPSILON)
    })
}
