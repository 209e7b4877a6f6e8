//! Contests for a name, and the end of jobs: which of two processes is alive, which members are lost, which jobs are
//! over.

use tributary_proto::contract::ids::{ChildId, JobId};
use tributary_proto::contract::time::{Span, Time};

use crate::control::Control;
use crate::forming::Party;
use crate::name::JobName;
use crate::refusal::Refusal;
use crate::running::{Member, Running};
use crate::timers::Timers;

/// A join for a name whose running job is complete: one of two processes must be gone, or there is one too many.
pub(crate) struct Contender {
    pub name: JobName,
    pub party: Party,
}

impl Contender {
    /// A sign of life counts against the newcomer only if it is so much younger than the join: packets that a dead
    /// process sent may still wait in queues.
    fn margin(timers: &Timers) -> Span {
        Span(timers.keepalive.0 / 2)
    }

    /// The refusal for a newcomer if the job's members have proven that they are alive.
    fn refuted_by(&self, job: &Running, timers: &Timers) -> Option<Refusal> {
        let proven = self.party.seats.iter().map(|seat| seat.since).max()? + Contender::margin(timers);
        let lives = |member: &Member| member.heard.is_some_and(|heard| heard > proven);
        let rivals = || self.rivals(job);
        if let Some((rank, _)) = rivals().find(|&(_, wid)| lives(&job.members[wid.index()])) {
            return Some(self.rank_taken(job, rank));
        }
        (rivals().next().is_none() && job.members.iter().all(lives)).then(|| self.busy(job))
    }

    /// The ranks that the job has too, each with the child that it is, or is below.
    fn rivals<'a>(&'a self, job: &'a Running) -> impl Iterator<Item = (u16, ChildId)> + 'a {
        let ranks = self.party.seats.iter().map(|seat| seat.request.rank);
        ranks.filter_map(|rank| job.plan.child_of(rank).map(|wid| (rank, wid)))
    }

    fn rank_taken(&self, job: &Running, rank: u16) -> Refusal {
        match job.plan.workers.get(usize::from(rank)) {
            Some(&holder) => Refusal::RankTaken { job: self.name.clone(), rank, holder },
            None => self.busy(job),
        }
    }

    fn busy(&self, job: &Running) -> Refusal {
        let (world, rank) = (job.plan.config.world_size, self.party.first_rank());
        Refusal::JobBusy { job: self.name.clone(), world, rank }
    }
}

impl Control {
    pub(crate) fn expire_leases(&mut self, now: Time) {
        for job in self.running.values_mut() {
            job.lose_silent(now, self.limits.timers.lease);
            job.lose_bereft(now, &self.limits.timers);
            self.suspects.extend(job.suspects(now, &self.limits.timers));
        }
        self.reap(now);
    }

    /// Removes the jobs that are over.
    pub(crate) fn reap(&mut self, now: Time) {
        let timers = self.limits.timers;
        let over = self.running.iter().filter(|(_, job)| job.is_over(now, &timers)).map(|(&id, _)| id);
        for id in over.collect::<Vec<JobId>>() {
            self.remove(id);
        }
    }

    pub(crate) fn predecessors(&self, name: &JobName) -> impl Iterator<Item = &Running> {
        self.running.values().filter(move |job| job.superseded && job.plan.name == *name)
    }

    /// All ranks of a name have come anew, so silent members of its former jobs are gone.
    pub(crate) fn retire_predecessors(&mut self, now: Time, name: &JobName) {
        let succession = self.limits.timers.succession();
        for job in self.running.values_mut().filter(|job| job.superseded && job.plan.name == *name) {
            job.lose_silent(now, succession);
        }
        self.reap(now);
    }

    /// Decides every contest that can be decided: the newcomer is refused, or founds the name's next job.
    pub(crate) fn settle_contests(&mut self, now: Time) {
        for contender in std::mem::take(&mut self.contenders) {
            let ticket = contender.party.ticket();
            match self.verdict(now, &contender) {
                None => self.contenders.push(contender),
                Some(Err(refusal)) => self.answer(ticket, Err(refusal)),
                Some(Ok(())) => {
                    let Contender { name, party } = contender;
                    // No second contest follows: the name's job is no longer complete, or gone.
                    if let Err(refusal) = self.seat(now, &name, party) {
                        self.answer(ticket, Err(refusal));
                    }
                }
            }
        }
    }

    fn verdict(&mut self, now: Time, contender: &Contender) -> Option<Result<(), Refusal>> {
        let timers = self.limits.timers;
        if self.forming.contains_key(&contender.name) {
            return Some(Ok(()));
        }
        let Some(job) = self.owners.get(&contender.name).and_then(|id| self.running.get_mut(id)) else {
            return Some(Ok(()));
        };
        if !job.is_whole() || job.lose_silent(now, timers.succession()) {
            return Some(Ok(()));
        }
        if let Some(refusal) = contender.refuted_by(job, &timers) {
            return Some(Err(refusal));
        }
        let out_of_time = contender.party.deadline(timers.max_wait) <= now;
        out_of_time.then(|| {
            let rank = contender.rivals(job).next().map(|(rank, _)| rank);
            Err(rank.map_or_else(|| contender.busy(job), |rank| contender.rank_taken(job, rank)))
        })
    }

    pub(crate) fn contest_due(&self, contender: &Contender) -> Time {
        let timers = &self.limits.timers;
        let job = self.owners.get(&contender.name).and_then(|id| self.running.get(id));
        let silent = job.and_then(|job| job.next_silent(timers.succession()));
        let deadline = contender.party.deadline(timers.max_wait);
        silent.map_or(deadline, |silent| silent.min(deadline))
    }
}
