//! One job over the last minutes: when its last sum was completed, and which ranks its sums waited for.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tributary_control::LargeSums;

use super::{push, rates};
use crate::status::JobStatus;
use crate::status::operation::OperationStatus;

/// The number of seconds over which ranks are judged.
pub const JUDGED_S: f64 = 60.0;

/// A job as the last samples show it; lists begin with the oldest sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobHistory {
    /// The job's name.
    pub name: String,
    /// The job's id in packets; none while the job forms.
    pub id: Option<u16>,
    /// The job's state, as in `GET /status`.
    pub state: String,
    /// The protocol that the switch runs for the job.
    pub protocol: String,
    /// The number of ranks.
    pub world_size: u16,
    /// Ranks that have not come, or are lost.
    pub missing: Vec<u16>,
    /// Ranks that some sum waited for at the last sample.
    pub waiting_for: Vec<u16>,
    /// Collectives that are over on the rank that is furthest ahead.
    pub collectives: u64,
    /// The collective that ranks were in at the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationStatus>,
    /// Where large sums are made, as in `GET /status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_sums: Option<LargeSums>,
    /// Sums completed so far.
    pub blocks: u64,
    /// Sums completed per second over the last minute.
    pub blocks_per_s: f64,
    /// Seconds without a completed sum, while a sum waits for some rank.
    pub still_s: Option<f64>,
    /// Ranks that others waited for in the last minute, the one most waited for first.
    pub stragglers: Vec<Straggler>,
    /// Seconds that the figures of the last minute cover.
    pub watched_s: f64,
    /// Gbit/s of tensor summed.
    pub goodput_gbps: Vec<f64>,
    /// Packets dropped per second.
    pub drops_per_s: Vec<f64>,
}

/// A rank that others waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Straggler {
    /// The rank.
    pub rank: u16,
    /// The share of samples at which some sum had contributions of other ranks and not this rank's: 0 to 1.
    pub share: f64,
}

/// The counters of a job at one sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_s: f64,
    blocks: u64,
    goodput_bytes: u64,
    drops: u64,
}

/// The remembered samples at a job.
#[derive(Debug, Default)]
pub(super) struct Watched {
    samples: VecDeque<Sample>,
    /// For each sample of the last minute, its time, and a bit for each rank that some sum waited for. There are no bits
    /// if sums waited for all ranks alike, because then no rank is slower than the others.
    waits: VecDeque<(f64, Box<[u64]>)>,
    /// When a sum was last seen to complete, or when it was last seen that nothing waits.
    moved_at_s: f64,
    /// The job's state at the last sample.
    state: String,
    protocol: String,
    world_size: u16,
    missing: Vec<u16>,
    waiting_for: Vec<u16>,
    collectives: u64,
    operation: Option<OperationStatus>,
    large_sums: Option<LargeSums>,
}

impl Watched {
    pub(super) fn record(&mut self, at_s: f64, job: &JobStatus) {
        let has_moved = self.samples.back().is_none_or(|last| last.blocks != job.blocks);
        if has_moved || job.waiting_for.is_empty() {
            self.moved_at_s = at_s;
        }
        let sample =
            Sample { at_s, blocks: job.blocks, goodput_bytes: job.goodput_bytes, drops: job.drops.values().sum() };
        push(&mut self.samples, sample);
        self.waits.push_back((at_s, uneven(job)));
        while self.waits.front().is_some_and(|(then_s, _)| at_s - then_s > JUDGED_S) {
            self.waits.pop_front();
        }
        (self.state, self.protocol) = (job.state.clone(), job.protocol.clone());
        self.world_size = job.world_size;
        (self.missing, self.waiting_for) = (job.missing.clone(), job.waiting_for.clone());
        (self.collectives, self.operation) = (job.collectives, job.operation.clone());
        self.large_sums.clone_from(&job.large_sums);
    }

    pub(super) fn history(&self, name: &str, id: Option<u16>) -> JobHistory {
        let last = self.samples.back().expect("a job is watched from its first sample");
        let minute =
            self.samples.iter().find(|sample| last.at_s - sample.at_s <= JUDGED_S).expect("the last sample is one");
        let watched_s = last.at_s - minute.at_s;
        let completed = last.blocks.saturating_sub(minute.blocks) as f64;
        JobHistory {
            name: name.to_owned(),
            id,
            state: self.state.clone(),
            protocol: self.protocol.clone(),
            world_size: self.world_size,
            missing: self.missing.clone(),
            waiting_for: self.waiting_for.clone(),
            collectives: self.collectives,
            operation: self.operation.clone(),
            large_sums: self.large_sums.clone(),
            blocks: last.blocks,
            blocks_per_s: if watched_s > 0.0 { completed / watched_s } else { 0.0 },
            still_s: (last.at_s > self.moved_at_s).then_some(last.at_s - self.moved_at_s),
            stragglers: self.stragglers(),
            watched_s,
            goodput_gbps: rates(&self.samples, 8e-9, |sample| (sample.at_s, sample.goodput_bytes)).collect(),
            drops_per_s: rates(&self.samples, 1.0, |sample| (sample.at_s, sample.drops)).collect(),
        }
    }

    fn stragglers(&self) -> Vec<Straggler> {
        let times = |rank: u16| self.waits.iter().filter(|(_, bits)| has(bits, rank)).count();
        let share = |rank| Straggler { rank, share: times(rank) as f64 / self.waits.len() as f64 };
        let mut all: Vec<Straggler> =
            (0..self.world_size).map(share).filter(|straggler| straggler.share > 0.0).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }
}

/// A bit for each rank that a job waits for, unless it waits for all.
fn uneven(job: &JobStatus) -> Box<[u64]> {
    if job.waiting_for.is_empty() || job.waiting_for.len() >= usize::from(job.world_size) {
        return Box::default();
    }
    let mut bits = vec![0; usize::from(job.world_size).div_ceil(64)];
    for &rank in job.waiting_for.iter().filter(|&&rank| rank < job.world_size) {
        bits[usize::from(rank / 64)] |= 1_u64 << (rank % 64);
    }
    bits.into()
}

fn has(bits: &[u64], rank: u16) -> bool {
    bits.get(usize::from(rank / 64)).is_some_and(|word| word >> (rank % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Recorder, SAMPLES};
    use crate::status::SwitchStatus;

    fn job(blocks: u64, waiting_for: &[u16]) -> serde_json::Value {
        serde_json::json!({
            "name": "a", "id": 1, "state": "running", "protocol": "pigeon", "age_s": 1.0, "world_size": 3, "members": [],
            "switches": [], "parent": null, "missing": [], "slots": 8, "slots_waiting": 0, "waiting_for": waiting_for,
            "elements_per_packet": 64, "memory_bytes": 0, "packets": 0, "packets_per_s": 0.0, "blocks": blocks,
            "contributions": 0, "goodput_bytes": blocks * 250_000_000, "goodput_gbps": 0.5, "ate_per_s": 0.0,
            "drops": {"stale": blocks, "ahead": 1},
        })
    }

    fn status(jobs: &[serde_json::Value]) -> SwitchStatus {
        let json = serde_json::json!({
            "switch": {
                "version": "0", "uptime_s": 1.0, "listen": "127.0.0.1:1", "http": null, "parent": null, "memory_bytes": 1,
                "memory_used_bytes": 0, "max_jobs": 1, "shards": [], "rejected_packets": {}, "servers": [], "shared": [],
            },
            "jobs": jobs,
        });
        serde_json::from_value(json).expect("a status")
    }

    /// The history after several samples, which are a second apart.
    fn after(samples: &[(u64, &[u16])]) -> JobHistory {
        let mut recorder = Recorder::default();
        for (&(blocks, waiting), at) in samples.iter().zip(0_u32..) {
            recorder.record(at.into(), &status(&[job(blocks, waiting)]));
        }
        recorder.history().jobs.pop().expect("a job")
    }

    #[test]
    fn a_job_stands_still_from_the_last_sum_that_was_completed() {
        assert_eq!(after(&[(5, &[2]), (9, &[2]), (9, &[2]), (9, &[2])]).still_s, Some(2.0));
    }

    #[test]
    fn a_job_that_waits_for_nobody_does_not_stand_still() {
        assert_eq!(after(&[(9, &[]), (9, &[]), (9, &[])]).still_s, None);
        // If the first sample already sees that sums wait, nobody knows since when.
        assert_eq!(after(&[(9, &[]), (9, &[1])]).still_s, Some(1.0));
        assert_eq!(after(&[(9, &[1])]).still_s, None);
    }

    #[test]
    fn the_rank_most_waited_for_comes_first_and_ranks_that_all_lack_alike_count_for_nothing() {
        let seen = after(&[(1, &[2]), (2, &[1, 2]), (3, &[0, 1, 2]), (4, &[])]);
        assert_eq!(seen.stragglers, [Straggler { rank: 2, share: 0.5 }, Straggler { rank: 1, share: 0.25 }]);
        assert_eq!(seen.blocks_per_s, 1.0);
    }

    #[test]
    fn goodput_and_drops_are_reported_from_sample_to_sample() {
        let seen = after(&[(1, &[]), (2, &[]), (2, &[]), (5, &[])]);
        assert_eq!(seen.goodput_gbps, [2.0, 0.0, 6.0]);
        assert_eq!(seen.drops_per_s, [1.0, 0.0, 3.0]);
        // A counter that restarts, as when a job takes another's place.
        assert_eq!(after(&[(7, &[]), (1, &[])]).goodput_gbps, [0.0]);
    }

    #[test]
    fn ranks_are_judged_by_the_last_minute_and_samples_are_dropped_after_five() {
        let mut recorder = Recorder::default();
        recorder.record(0.0, &status(&[job(0, &[2])]));
        recorder.record(40.0, &status(&[job(40, &[])]));
        recorder.record(61.0, &status(&[job(61, &[])]));
        let seen = &recorder.history().jobs[0];
        assert_eq!((seen.stragglers.len(), seen.watched_s, seen.blocks_per_s), (0, 21.0, 1.0));
        for at in 0..2 * SAMPLES as u32 {
            recorder.record(f64::from(100 + at), &status(&[job(100, &[1])]));
        }
        let seen = recorder.history();
        assert_eq!((seen.jobs[0].goodput_gbps.len(), seen.switch.rx_gbps.len()), (SAMPLES - 1, SAMPLES - 1));
        assert_eq!(seen.jobs[0].stragglers, [Straggler { rank: 1, share: 1.0 }]);
    }

    #[test]
    fn a_job_of_the_same_name_that_came_later_is_another() {
        let mut recorder = Recorder::default();
        recorder.record(0.0, &status(&[job(100, &[2])]));
        recorder.record(1.0, &status(&[]));
        assert_eq!(recorder.history().jobs, []);
        recorder.record(2.0, &status(&[job(3, &[])]));
        let seen = &recorder.history().jobs[0];
        assert_eq!((seen.watched_s, seen.stragglers.len()), (0.0, 0));
    }
}
