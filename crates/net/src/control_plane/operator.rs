//! Requests of an operator to a running switch: to take over new quotas, and to end after the collectives under way.

use std::time::Duration;

use tokio::time::Instant;
use tributary_control::Limits;

use super::ControlPlane;
use crate::os::to_duration;

/// The work of the shards must not change for this time. A result may be lost on its way, and the ranks then ask again.
const REST: Duration = Duration::from_millis(200);

/// What the shards have done, and what waits in them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Work {
    jobs: usize,
    waiting: u32,
    contributions: u64,
}

impl ControlPlane {
    /// Takes over limits that operators have changed.
    pub fn renew(&self, limits: Limits) {
        self.state().control.renew(limits);
    }

    /// Refuses joins from now on. Returns true once nothing is being summed any more, and false when the time for that
    /// is over or `hurry` returns true.
    pub async fn finish(&self, mut hurry: impl FnMut() -> bool) -> bool {
        self.state().control.stop_joining();
        self.changed.notify_one();
        let end = Instant::now() + to_duration(self.with_control(|control| control.limits().timers.finish));
        let mut before = self.work().await;
        while before.jobs > 0 {
            if hurry() || Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(REST.min(end.saturating_duration_since(Instant::now()))).await;
            let now = self.work().await;
            if now.waiting == 0 && now == before {
                break;
            }
            before = now;
        }
        true
    }

    /// Refuses pending joins, and removes every job except those that outlive this process. The task then ends by
    /// itself.
    pub async fn stop(&self) {
        match self.shards.iter().any(|shard| shard.outlives()) {
            true => self.state().control.stop_joining(),
            false => self.state().control.stop(),
        }
        self.carry_out().await;
        if let Some(ascender) = &self.ascender {
            ascender.settle().await;
        }
    }

    async fn work(&self) -> Work {
        let sightings = self.look(Duration::ZERO).await;
        let jobs = sightings.shards.iter().filter_map(|shard| shard.report.as_ref()).flat_map(|report| &report.jobs);
        // A job without a machine here sums elsewhere.
        jobs.filter_map(|job| job.report.machine.as_ref()).fold(Work::default(), |work, machine| Work {
            jobs: work.jobs + 1,
            waiting: work.waiting + machine.slots_waiting,
            contributions: work.contributions + machine.contributions,
        })
    }
}
