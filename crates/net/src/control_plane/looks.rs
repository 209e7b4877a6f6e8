//! Looks at the shards: their reports on their jobs go to the state machine, to operators, and into the books.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tributary_control::{JobEvent, Plan};
use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::contract::time::Time;

use super::ControlPlane;
use super::books::{Account, Books};
use super::shards::{self, Sightings};
use crate::clock::duration;
use crate::shard::ShardReport;

/// An operator's view is at most this old, so that many requests do not cause as many questions to the shards.
const FRESH: Duration = Duration::from_millis(200);

impl ControlPlane {
    pub(super) async fn install(&self, plan: Arc<Plan>) {
        let id = plan.config.job;
        let outcome = shards::install(&self.shards, &plan).await.map_err(|error| error.to_string());
        if let Err(why) = &outcome {
            tracing::error!(job = %plan.name, id = id.0, %why, "job not installed");
        }
        // The last sightings were made before this job was installed. From now on, whoever asks gets figures that
        // include it.
        self.sightings.lock().await.at = None;
        self.place(id).await;
        self.state().control.installed(self.now(), id, outcome);
    }

    /// Takes over the jobs that outlived an earlier control plane. No request may be answered before this is done.
    pub async fn begin(&self) {
        let mut adopted = 0;
        for shard in &self.shards {
            for (name, job) in shard.found().come().await.unwrap_or_default() {
                let id = job.config.job;
                self.state().control.adopt(self.now(), shards::found(name, job));
                self.place(id).await;
                adopted += 1;
            }
        }
        if adopted > 0 || self.shards.iter().any(|shard| shard.outlives()) {
            self.look(Duration::ZERO).await;
        }
    }

    /// Charges a job what it holds of a fabric's switches, if it has trees of its own there.
    pub(super) async fn place(&self, id: JobId) {
        for shard in &self.shards {
            if let Ok(Some(charge)) = shard.tree_charge(id).come().await {
                self.state().control.trees_planned(id, charge);
            }
        }
    }

    pub(super) async fn remove(&self, id: JobId) {
        let last = self.look(Duration::ZERO).await;
        self.books().close(self.now(), id, &last);
        shards::remove(&self.shards, id).await;
        self.faults().remove(&id);
    }

    pub(super) fn note_tidings(&self) {
        loop {
            // The two locks are never held at the same time.
            let tiding: Option<JobEvent> = self.state().control.poll_event();
            let Some(tiding) = tiding else { return };
            self.books().note(self.now(), &tiding);
        }
    }

    /// What has happened since the start, for monitoring.
    pub fn account(&self, sightings: &Sightings) -> Account {
        Account { operators: self.library.in_use(), ..self.books().account(sightings) }
    }

    /// A request was answered with an error.
    pub fn count_error(&self, code: &str) {
        self.books().count_error(code);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("nobody panics while it holds the books")
    }

    /// The shards' reports. They are at most [`FRESH`] old, and newer than the installation of each job.
    pub async fn sightings(&self) -> Sightings {
        self.look(FRESH).await
    }

    /// Asks every shard, unless this was done within `fresh`. Passes the members' signs of life on to the state
    /// machine.
    pub(super) async fn look(&self, fresh: Duration) -> Sightings {
        let mut sightings = self.sightings.lock().await;
        let before = self.now();
        if sightings.at.is_some_and(|at| duration(before.since(at)) < fresh) {
            return sightings.clone();
        }
        let asked: Vec<_> = self.shards.iter().map(|shard| shard.report()).collect();
        for (sighting, answer) in sightings.shards.iter_mut().zip(asked) {
            match answer.come().await {
                Ok(report) => {
                    self.pass_on_signs(self.now(), &report);
                    self.note_faults_of(&report);
                    sighting.update(report);
                }
                Err(_) => sighting.alive = false,
            }
        }
        sightings.at = Some(self.now());
        self.books().look(self.now(), &sightings);
        sightings.clone()
    }

    /// Passes the signs of life in a report on to the state machine. Since a shard has a clock of its own, only the
    /// time that has passed since a sign counts.
    fn pass_on_signs(&self, now: Time, report: &ShardReport) {
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
