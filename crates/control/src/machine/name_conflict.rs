//! Joins for the name of a running job: which of two processes is alive; and the end of jobs: which members are lost,
//! which jobs are over.

use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::contract::time::{Span, Time};

use super::Control;
use crate::admission::Refusal;
use crate::admission::Timers;
use crate::membership::pending_job::PendingJoin;
use crate::membership::running_job::{Member, RunningJob};
use crate::names::JobName;

/// A join for a name whose running job is complete: one of two processes must be gone, or there is one too many.
pub(crate) struct NameConflict {
    pub name: JobName,
    pub join: PendingJoin,
}

impl NameConflict {
    /// A packet counts against the newcomer only if it is younger than the join by this much: packets that a dead process
    /// sent may still wait in queues.
    fn margin(timers: &Timers) -> Span {
        Span(timers.keepalive.0 / 2)
    }

    /// The refusal for a newcomer if the job's members have proven that they are alive.
    fn refusal_by(&self, job: &RunningJob, timers: &Timers) -> Option<Refusal> {
        let proven = self.join.ranks.iter().map(|rank| rank.since).max()? + NameConflict::margin(timers);
        let lives = |member: &Member| member.last_seen.is_some_and(|last| last > proven);
        let rivals = || self.rivals(job);
        if let Some((rank, _)) = rivals().find(|&(_, wid)| lives(&job.members[wid.index()])) {
            return Some(self.rank_taken(job, rank));
        }
        (rivals().next().is_none() && job.members.iter().all(lives)).then(|| self.busy(job))
    }

    /// The ranks that the job has too, each with the child that it is, or is below.
    fn rivals<'a>(&'a self, job: &'a RunningJob) -> impl Iterator<Item = (u16, ChildId)> + 'a {
        let ranks = self.join.ranks.iter().map(|rank| rank.request.rank);
        ranks.filter_map(|rank| job.plan.child_of(rank).map(|wid| (rank, wid)))
    }

    fn rank_taken(&self, job: &RunningJob, rank: u16) -> Refusal {
        match job.plan.workers.get(usize::from(rank)) {
            Some(&holder) => Refusal::RankTaken { job: self.name.clone(), rank, holder },
            None => self.busy(job),
        }
    }

    fn busy(&self, job: &RunningJob) -> Refusal {
        let (world_size, rank) = (job.plan.config.world_size, self.join.first_rank());
        Refusal::JobBusy { job: self.name.clone(), world_size, rank }
    }
}

impl Control {
    pub(super) fn expire_leases(&mut self, now: Time) {
        for job in self.running.values_mut() {
            job.expire_leases(now, &self.limits.timers);
            job.lose_disconnected(now, &self.limits.timers);
            self.probes.extend(job.due_probes(now, &self.limits.timers));
            self.probes.extend(job.lease_probes(now, &self.limits.timers));
        }
        self.remove_finished(now);
    }

    /// Removes the jobs that are over.
    pub(super) fn remove_finished(&mut self, now: Time) {
        let timers = self.limits.timers;
        let over = self.running.iter().filter(|(_, job)| job.is_over(now, &timers)).map(|(&id, _)| id);
        for id in over.collect::<Vec<JobId>>() {
            self.remove(id);
        }
    }

    pub(super) fn predecessors(&self, name: &JobName) -> impl Iterator<Item = &RunningJob> {
        self.running.values().filter(move |job| job.superseded && job.plan.name == *name)
    }

    /// All ranks of a name have come again, so silent members of its former jobs are gone.
    pub(super) fn retire_predecessors(&mut self, now: Time, name: &JobName) {
        let succession = self.limits.timers.takeover_silence();
        for job in self.running.values_mut().filter(|job| job.superseded && job.plan.name == *name) {
            job.lose_silent(now, succession);
        }
        self.remove_finished(now);
    }

    /// Resolves every conflict that can be decided: the newcomer is refused, or creates the name's next job.
    pub(super) fn resolve_conflicts(&mut self, now: Time) {
        for conflict in std::mem::take(&mut self.conflicts) {
            let ticket = conflict.join.ticket();
            match self.verdict(now, &conflict) {
                None => self.conflicts.push(conflict),
                Some(Err(refusal)) => self.answer(ticket, Err(refusal)),
                Some(Ok(())) => {
                    let NameConflict { name, join } = conflict;
                    // No second conflict follows: the name's job is no longer complete, or gone.
                    if let Err(refusal) = self.dispatch(now, &name, join) {
                        self.answer(ticket, Err(refusal));
                    }
                }
            }
        }
    }

    fn verdict(&mut self, now: Time, conflict: &NameConflict) -> Option<Result<(), Refusal>> {
        let timers = self.limits.timers;
        if self.pending.contains_key(&conflict.name) {
            return Some(Ok(()));
        }
        let Some(job) = self.owners.get(&conflict.name).and_then(|id| self.running.get_mut(id)) else {
            return Some(Ok(()));
        };
        if !job.is_complete() || job.lose_silent(now, timers.takeover_silence()) {
            return Some(Ok(()));
        }
        if let Some(refusal) = conflict.refusal_by(job, &timers) {
            return Some(Err(refusal));
        }
        let out_of_time = conflict.join.deadline(timers.max_wait) <= now;
        out_of_time.then(|| {
            let rank = conflict.rivals(job).next().map(|(rank, _)| rank);
            Err(rank.map_or_else(|| conflict.busy(job), |rank| conflict.rank_taken(job, rank)))
        })
    }

    pub(super) fn conflict_due(&self, conflict: &NameConflict) -> Time {
        let timers = &self.limits.timers;
        let job = self.owners.get(&conflict.name).and_then(|id| self.running.get(id));
        let silent = job.and_then(|job| job.next_silent(timers.takeover_silence()));
        let deadline = conflict.join.deadline(timers.max_wait);
        silent.map_or(deadline, |silent| silent.min(deadline))
    }
}
