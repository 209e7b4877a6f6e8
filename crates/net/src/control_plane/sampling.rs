//! Samples the shards: their reports on their jobs go to the state machine, to operators, and into the totals.

use std::sync::MutexGuard;
use std::time::Duration;

use tributary_control::{Client, JobEvent};
use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::Time;

use super::ControlPlane;
use super::job_totals::{JobTotals, Totals};
use super::shards::ShardSamples;
use crate::os::to_duration;
use crate::shard::ShardReport;
use crate::status::{ClientStatus, JobStatus};

/// An operator's view is at most this old, so that many requests do not become as many calls to the shards.
const FRESH: Duration = Duration::from_millis(200);

impl ControlPlane {
    pub(super) fn note_job_events(&self) {
        loop {
            // The two locks are never held at the same time.
            let event: Option<JobEvent> = self.state().control.poll_event();
            let Some(event) = event else { return };
            self.job_totals().note(self.now(), &event);
        }
    }

    /// What has happened since the start, for monitoring.
    pub fn totals(&self, samples: &ShardSamples) -> Totals {
        Totals { operators: self.library.in_use(), ..self.job_totals().totals(samples) }
    }

    /// A request was answered with an error.
    pub fn count_error(&self, code: &str) {
        self.job_totals().count_error(code);
    }

    /// Counts a client's refused join.
    pub fn count_refusal(&self, client: &Client, code: &str) {
        self.job_totals().count_refusal(self.now(), client, code);
    }

    /// The clients of these jobs, and those that were refused.
    pub fn clients(&self, jobs: &[JobStatus]) -> Vec<ClientStatus> {
        self.job_totals().clients(self.now(), jobs)
    }

    pub(super) fn job_totals(&self) -> MutexGuard<'_, JobTotals> {
        self.job_totals.lock().expect("no call panics while it holds the totals")
    }

    /// The shards' reports. They are at most [`FRESH`] old, and newer than the installation of each job.
    pub async fn samples(&self) -> ShardSamples {
        self.sample_shards(FRESH).await
    }

    /// Asks every shard, unless this was done within `fresh`. Passes the members' keepalives on to the state machine.
    pub(super) async fn sample_shards(&self, fresh: Duration) -> ShardSamples {
        let mut samples = self.samples.lock().await;
        let before = self.now();
        if samples.at.is_some_and(|at| to_duration(before.since(at)) < fresh) {
            return samples.clone();
        }
        let calls: Vec<_> = self.shards.iter().map(|shard| shard.report()).collect();
        for (sample, answer) in samples.shards.iter_mut().zip(calls) {
            match answer.receive().await {
                Ok(report) => {
                    self.pass_on_keepalives(self.now(), &report);
                    self.note_faults_of(&report);
                    sample.update(report);
                }
                Err(_) => sample.alive = false,
            }
        }
        samples.at = Some(self.now());
        self.job_totals().sample(self.now(), &samples);
        samples.clone()
    }

    /// Passes the keepalives in a report on to the state machine. A shard has a clock of its own, so only the time since a
    /// keepalive counts.
    fn pass_on_keepalives(&self, now: Time, report: &ShardReport) {
        let mut state = self.state();
        for job in &report.jobs {
            state.control.unreachable(now, job.id, &job.absent);
            for (wid, seen) in job.report.last_seen.iter().enumerate() {
                if let Some(seen) = seen {
                    let ago = report.now.since(*seen);
                    state.control.member_seen(job.id, ChildId(wid as u16), Time(now.0.saturating_sub(ago.0)));
                }
            }
            if let Some(seen) = job.report.others_last_seen {
                let ago = report.now.since(seen);
                state.control.parent_seen(job.id, Time(now.0.saturating_sub(ago.0)));
            }
        }
    }
}
