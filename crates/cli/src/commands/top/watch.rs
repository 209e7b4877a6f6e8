//! What a switch's jobs did lately, from one look after the other: who stands still since when, and who is waited for
//! most. No clock and no socket is here: the looks bring their times.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use tributary_net::status::JobStatus;

/// Seconds that are remembered.
pub const MEMORY_S: f64 = 60.0;

/// A job as the last looks show it.
#[derive(Debug, PartialEq, Serialize)]
pub struct JobView {
    pub name: String,
    pub id: Option<u16>,
    pub state: String,
    pub protocol: String,
    pub world: u16,
    /// Ranks that have not come, or are lost.
    pub missing: Vec<u16>,
    /// Ranks that some sum waits for at this moment.
    pub waiting_for: Vec<u16>,
    /// Sums completed so far.
    pub blocks: u64,
    /// The same per second over the looks that are remembered.
    pub blocks_per_s: f64,
    pub goodput_gbps: f64,
    /// Seconds without a completed sum, while one waits for somebody.
    pub still_s: Option<f64>,
    /// Ranks that others waited for, the one most waited for first.
    pub stragglers: Vec<Straggler>,
    /// Seconds that the figures above look back.
    pub watched_s: f64,
}

/// A rank that others waited for.
#[derive(Debug, PartialEq, Serialize)]
pub struct Straggler {
    pub rank: u16,
    /// Of all looks, those at which some sum had others' contributions and not this rank's: 0 to 1.
    pub share: f64,
}

#[derive(Debug)]
struct Look {
    at_s: f64,
    blocks: u64,
    /// Empty where all ranks were waited for alike: then nobody is slower than the others.
    waiting_for: Vec<u16>,
}

#[derive(Debug, Default)]
struct Watched {
    looks: VecDeque<Look>,
    /// When a sum was last seen to complete, or nothing waited.
    moved_at_s: f64,
}

/// The jobs of one switch over the last minute.
#[derive(Debug, Default)]
pub struct Watch {
    jobs: BTreeMap<(String, Option<u16>), Watched>,
}

impl Watch {
    /// Takes in what the switch says now, and says what that and the looks before show. Jobs that are gone are forgotten.
    pub fn look(&mut self, at_s: f64, jobs: &[JobStatus]) -> Vec<JobView> {
        let key = |job: &JobStatus| (job.name.clone(), job.id);
        self.jobs.retain(|known, _| jobs.iter().any(|job| key(job) == *known));
        jobs.iter().map(|job| self.jobs.entry(key(job)).or_default().look(at_s, job)).collect()
    }
}

impl Watched {
    fn look(&mut self, at_s: f64, job: &JobStatus) -> JobView {
        let has_moved = self.looks.back().is_none_or(|last| last.blocks != job.blocks);
        if has_moved || job.waiting_for.is_empty() {
            self.moved_at_s = at_s;
        }
        let is_uneven = job.waiting_for.len() < usize::from(job.world);
        let waiting_for = if is_uneven { job.waiting_for.clone() } else { Vec::new() };
        self.looks.push_back(Look { at_s, blocks: job.blocks, waiting_for });
        while self.looks.front().is_some_and(|look| at_s - look.at_s > MEMORY_S) {
            self.looks.pop_front();
        }
        let first = self.looks.front().expect("a look was just added");
        let watched_s = at_s - first.at_s;
        let completed = job.blocks.saturating_sub(first.blocks) as f64;
        JobView {
            name: job.name.clone(),
            id: job.id,
            state: job.state.clone(),
            protocol: job.protocol.clone(),
            world: job.world,
            missing: job.missing.clone(),
            waiting_for: job.waiting_for.clone(),
            blocks: job.blocks,
            blocks_per_s: if watched_s > 0.0 { completed / watched_s } else { 0.0 },
            goodput_gbps: job.goodput_gbps,
            still_s: (at_s > self.moved_at_s).then_some(at_s - self.moved_at_s),
            stragglers: self.stragglers(),
            watched_s,
        }
    }

    fn stragglers(&self) -> Vec<Straggler> {
        let mut times: BTreeMap<u16, usize> = BTreeMap::new();
        for &rank in self.looks.iter().flat_map(|look| &look.waiting_for) {
            *times.entry(rank).or_default() += 1;
        }
        let share = |times: usize| times as f64 / self.looks.len() as f64;
        let mut all: Vec<Straggler> =
            times.into_iter().map(|(rank, times)| Straggler { rank, share: share(times) }).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(blocks: u64, waiting_for: &[u16]) -> JobStatus {
        let json = serde_json::json!({
            "name": "a", "id": 1, "state": "running", "protocol": "pigeon", "age_s": 1.0, "world": 3, "members": [],
            "switches": [], "above": null, "missing": [], "slots": 8, "slots_waiting": 0, "waiting_for": waiting_for,
            "elements_per_packet": 64, "memory_bytes": 0, "packets": 0, "packets_per_s": 0.0, "blocks": blocks,
            "contributions": 0, "goodput_bytes": 0, "goodput_gbps": 0.5, "ate_per_s": 0.0, "drops": {},
        });
        serde_json::from_value(json).expect("a job")
    }

    /// The last of several looks, a second apart from each other.
    fn last(looks: &[(u64, &[u16])]) -> JobView {
        let mut watch = Watch::default();
        let mut views =
            looks.iter().zip(0_u32..).map(|(&(blocks, waiting), at)| watch.look(at.into(), &[job(blocks, waiting)]));
        views.by_ref().last().and_then(|mut jobs| jobs.pop()).expect("a view")
    }

    #[test]
    fn a_job_stands_still_from_the_last_sum_that_was_completed() {
        assert_eq!(last(&[(5, &[2]), (9, &[2]), (9, &[2]), (9, &[2])]).still_s, Some(2.0));
    }

    #[test]
    fn a_job_that_waits_for_nobody_does_not_stand_still() {
        assert_eq!(last(&[(9, &[]), (9, &[]), (9, &[])]).still_s, None);
        // The first look at which somebody is waited for begins nothing that was not seen.
        assert_eq!(last(&[(9, &[]), (9, &[1])]).still_s, Some(1.0));
        assert_eq!(last(&[(9, &[1])]).still_s, None);
    }

    #[test]
    fn the_rank_most_waited_for_comes_first_and_ranks_that_all_lack_alike_count_for_nothing() {
        let view = last(&[(1, &[2]), (2, &[1, 2]), (3, &[0, 1, 2]), (4, &[])]);
        let [first, second] = view.stragglers.as_slice() else { panic!("{view:?}") };
        assert_eq!((first.rank, first.share), (2, 0.5));
        assert_eq!((second.rank, second.share), (1, 0.25));
        assert_eq!(view.blocks_per_s, 1.0);
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let mut watch = Watch::default();
        watch.look(0.0, &[job(0, &[2])]);
        watch.look(40.0, &[job(40, &[])]);
        let views = watch.look(61.0, &[job(61, &[])]);
        assert_eq!(views[0].stragglers, []);
        assert_eq!(views[0].watched_s, 21.0);
        assert_eq!(views[0].blocks_per_s, 1.0);
    }

    #[test]
    fn a_job_of_the_same_name_that_came_later_is_another() {
        let mut watch = Watch::default();
        watch.look(0.0, &[job(100, &[2])]);
        watch.look(1.0, &[]);
        let views = watch.look(2.0, &[job(3, &[])]);
        assert_eq!((views[0].watched_s, views[0].stragglers.len()), (0.0, 0));
    }
}
