//! Jobs and the switch itself begin and end: jobs are installed, adopted and removed, an operator changes the limits, and the
//! switch ends after the collectives under way.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tributary_control::{Client, EarlierJob, JobName, Limits, Plan, Refusal, Succession};
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::time::Time;

use super::{ControlPlane, shards};
use crate::os::to_duration;
use crate::shard::Shard;
use crate::status::EndedJob;

/// The work of the shards must not change for this time, because ranks ask again for results that were lost.
const QUIET: Duration = Duration::from_millis(200);

/// The time in which members' open watches are answered.
const ANNOUNCEMENT: Duration = Duration::from_millis(100);

/// What the shards have done, and what waits in them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Work {
    jobs: usize,
    waiting: u32,
    contributions: u64,
}

impl ControlPlane {
    pub(super) async fn install(&self, plan: Arc<Plan>) {
        let id = plan.config.job;
        let outcome = shards::install(&self.shards, &plan).await.map_err(|error| error.to_string());
        if let Err(why) = &outcome {
            tracing::error!(job = %plan.name, id = id.0, %why, "job not installed");
        }
        // The last samples were taken before this job was installed. From now on, requests get figures that include it.
        self.samples.lock().await.at = None;
        self.charge(id).await;
        self.state().control.installed(self.now(), id, outcome);
    }

    /// Takes over the jobs that outlived an earlier control plane. No request may be answered before this is done.
    pub async fn begin(&self) {
        let mut adopted = 0;
        for shard in &self.shards {
            for job in shard.installed_jobs().receive().await.unwrap_or_default() {
                let id = job.config.job;
                self.state().control.adopt(self.now(), shards::adopted(job));
                self.charge(id).await;
                adopted += 1;
            }
        }
        if adopted > 0 || self.shards.iter().any(|shard| shard.outlives()) {
            self.sample_shards(Duration::ZERO).await;
        }
    }

    /// Charges a job what it holds of a fabric's switches, if it has trees of its own there.
    pub(super) async fn charge(&self, id: JobId) {
        for shard in &self.shards {
            if let Ok(Some(charge)) = shard.tree_charge(id).receive().await {
                self.state().control.trees_planned(id, charge);
            }
        }
    }

    pub(super) async fn remove(&self, id: JobId) {
        let last = self.sample_shards(Duration::ZERO).await;
        let why = self.faults().get(&id).cloned();
        self.job_totals().close(self.now(), id, &last, why);
        shards::remove(&self.shards, id).await;
        self.faults().remove(&id);
    }

    /// The jobs that ended in the last hour, the last one first.
    pub fn ended_jobs(&self) -> Vec<EndedJob> {
        self.job_totals().ended(self.now())
    }

    /// Takes over limits that operators have changed.
    pub fn reload(&self, limits: Limits) {
        self.state().control.reload(limits);
        self.job_totals().count_reload(true);
        self.changed.notify_one();
    }

    /// Notes that limits could not be read again.
    pub fn note_failed_reload(&self) {
        self.job_totals().count_reload(false);
    }

    /// How long ago the task last had nothing left to do.
    pub fn last_turn(&self) -> Duration {
        to_duration(self.now().since(Time(self.turned_at.load(Ordering::Relaxed))))
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
            tokio::time::sleep(QUIET.min(end.saturating_duration_since(Instant::now()))).await;
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
        if let Some(parent) = &self.parent_client {
            parent.drain().await;
        }
    }

    /// Tells the members of all jobs that the switch stops, so that none has to find out by silence.
    pub async fn announce_stop(&self) {
        let jobs: Vec<JobId> = self.with_control(|control| control.jobs().iter().filter_map(|job| job.id).collect());
        if jobs.is_empty() {
            return;
        }
        let addr = self.shards.first().map_or_else(String::new, |shard| format!(" {}", shard.udp_addr()));
        let sentence =
            format!("the switch{addr} is stopping, as its operator has asked it to: connect again when it is back");
        for id in jobs {
            self.note_fault(id, sentence.clone());
        }
        // The watches of members, and those at the parent switch, take it from here before the jobs are gone.
        self.changed.notify_one();
        tokio::time::sleep(ANNOUNCEMENT).await;
    }

    async fn work(&self) -> Work {
        let samples = self.sample_shards(Duration::ZERO).await;
        let jobs = samples.shards.iter().filter_map(|shard| shard.report.as_ref()).flat_map(|report| &report.jobs);
        // A job without a machine here sums elsewhere.
        jobs.filter_map(|job| job.report.machine.as_ref()).fold(Work::default(), |work, machine| Work {
            jobs: work.jobs + 1,
            waiting: work.waiting + machine.slots_waiting,
            contributions: work.contributions + machine.contributions,
        })
    }
}

/// What operators do while the switch runs. Who may do it is decided before.
impl ControlPlane {
    /// Ends all jobs of a name, whose ids these are. Members are told the sentence before the jobs are gone.
    pub async fn end_jobs(&self, name: &JobName, ids: &[JobId], operator: &str, sentence: String) {
        if !ids.is_empty() {
            ids.iter().for_each(|&id| self.note_fault(id, sentence.clone()));
            tokio::time::sleep(ANNOUNCEMENT).await;
        }
        self.state().control.end_jobs(name, operator);
        self.changed.notify_one();
    }

    /// Counts a member as lost from now on.
    pub fn evict(&self, name: &JobName, rank: u16) -> Result<(), Refusal> {
        let evicted = self.state().control.evict(self.now(), name, rank);
        self.changed.notify_one();
        evicted
    }

    /// Refuses joins of a client, or takes them again.
    pub fn set_banned(&self, client: Client, banned: bool) {
        self.state().control.set_banned(client, banned);
    }

    /// Lets no new job begin, or lets jobs begin again.
    pub fn set_cordoned(&self, cordoned: bool) {
        self.state().control.set_cordoned(cordoned);
    }
}

/// The program of this switch is replaced while jobs run ([`crate::handover`]).
impl ControlPlane {
    /// A next program takes joins from now on, and is told this.
    pub fn hand_over(&self) -> Succession {
        let succession = self.state().control.hand_over();
        self.changed.notify_one();
        succession
    }

    /// The next program has gone.
    pub fn take_back(&self) {
        self.state().control.take_back();
    }

    /// Takes over from an earlier program.
    pub fn succeed(&self, succession: Succession) {
        self.state().control.succeed(succession);
    }

    /// The jobs that the earlier program still serves.
    pub fn earlier_jobs(&self) -> Vec<EarlierJob> {
        self.with_control(|control| control.earlier_jobs().cloned().collect())
    }

    /// A job of the earlier program has ended.
    pub fn earlier_job_ended(&self, id: JobId) {
        self.state().control.earlier_job_ended(id);
        self.changed.notify_one();
    }

    /// The jobs that use memory here.
    pub fn running_ids(&self) -> BTreeSet<JobId> {
        self.with_control(|control| control.jobs().iter().filter_map(|job| job.id).collect())
    }

    /// Notifies its owner whenever jobs may have ended.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.departures.subscribe()
    }

    /// The shard at the switch's address.
    pub fn first_shard(&self) -> &dyn Shard {
        &*self.shards[0]
    }
}
