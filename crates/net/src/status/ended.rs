//! The jobs that have ended lately, for operators who come after the fact: what `GET /ended` answers. Their number and age are
//! bounded.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::{Span, Time};

/// The jobs that ended in the last hour, the last one first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// The jobs.
    pub ended: Vec<EndedJob>,
}

/// A job that has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedJob {
    /// The job's name.
    pub name: String,
    /// The job's id in packets.
    pub id: u16,
    /// The client that was charged for it: a tenant, or an address.
    pub client: String,
    /// The protocol.
    pub protocol: String,
    /// The number of ranks.
    pub world_size: u16,
    /// How it ended, as in the log: `left`, `lost`, `superseded`, `operator`, `stopped` or `not_installed`.
    pub end: String,
    /// Why, if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Seconds since it ended.
    pub ended_s_ago: f64,
    /// Seconds from its installation to its end.
    pub lasted_s: f64,
    /// Packets of its members.
    pub packets: u64,
    /// Sums completed.
    pub blocks: u64,
    /// Bytes of tensor summed.
    pub goodput_bytes: u64,
    /// Packets with its id that were dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// The most ended jobs that are kept ...
const MOST: usize = 256;
/// ... and for how long.
const KEPT_FOR: Span = Span::from_millis(3_600_000);

/// Ended jobs, the oldest first.
#[derive(Default)]
pub(crate) struct EndedJobs(VecDeque<(Time, EndedJob)>);

impl EndedJobs {
    /// Keeps a job that has ended now.
    pub fn push(&mut self, now: Time, job: EndedJob) {
        self.expire(now);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back((now, job));
    }

    /// The jobs, the last one first.
    pub fn list(&mut self, now: Time) -> Vec<EndedJob> {
        self.expire(now);
        let jobs = self.0.iter().rev();
        jobs.map(|(at, job)| EndedJob { ended_s_ago: now.since(*at).as_secs_f64(), ..job.clone() }).collect()
    }

    fn expire(&mut self, now: Time) {
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > KEPT_FOR) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_jobs_are_kept_for_an_hour_and_at_most_256_of_them() {
        let job = |number: usize| EndedJob { name: number.to_string(), ..EndedJob::default() };
        let mut jobs = EndedJobs::default();
        for number in 0..10_000 {
            jobs.push(Time::ZERO, job(number));
        }
        let now = Time::ZERO + Span::from_millis(1_800_000);
        jobs.push(now, job(10_000));
        let listed = jobs.list(now);
        assert_eq!((listed.len(), listed[0].name.as_str(), listed[1].ended_s_ago), (MOST, "10000", 1_800.0));
        let names: Vec<String> = jobs.list(now + KEPT_FOR).into_iter().map(|job| job.name).collect();
        assert_eq!(names, ["10000"]);
    }
}
