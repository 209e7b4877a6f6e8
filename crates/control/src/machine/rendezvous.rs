//! A pending job as ranks come and go, and its end: all have come, some rank disagrees, or time is over.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::time::{Span, Time};

use super::Control;
use crate::admission::grant::{Division, Grant};
use crate::admission::ledger::{Applicant, Ledger};
use crate::admission::{JobShape, Refusal};
use crate::effect::{Plan, Ticket};
use crate::levels::{Child, SwitchRanks, Uplink};
use crate::membership::pending_job::{PendingJob, PendingJoin, RecentRefusal, WaitingRank};
use crate::membership::running_job::{DividedSlots, RunningJob};
use crate::names::{Client, JobName};
use crate::servers::Servers;
use crate::trees::DEFAULT_TREES;

impl Control {
    /// Takes the first ranks of a new job. They are refused at once if the job could not be admitted anyway.
    pub(super) fn create_job(&mut self, now: Time, name: &JobName, join: PendingJoin) -> Result<(), Refusal> {
        if let Some(recent) = self.recent_refusals.get_mut(name).filter(|recent| now < recent.until) {
            let before = recent.refused.len();
            recent.refused.extend(join.ranks.iter().map(|rank| rank.request.rank));
            if recent.refused.len() > before {
                return Err(recent.refusal.clone());
            }
            // A rank that was refused and comes again begins a new attempt.
            self.recent_refusals.remove(name);
        }
        let client = join.client().clone();
        let pending: Vec<&Client> = self.pending.values().map(|job| &job.client).collect();
        self.ledger().check_count(Applicant { name, client: &client }, &pending)?;
        let mut job = PendingJob::new(now, client.clone(), self.has_parent);
        job.add(join);
        match job.contradiction(name) {
            Some(refusal) if !self.has_parent => return Err(refusal),
            // Jobs of this name should have given their memory back by the time that all ranks have come.
            _ => self.grant(name, &client, self.wish(&job), true)?,
        };
        if let Some(old) = self.owners.remove(name).and_then(|id| self.running.get_mut(&id)) {
            old.superseded = true;
        }
        self.pending.insert(name.clone(), job);
        self.try_complete(now, name);
        Ok(())
    }

    /// Takes more ranks of a pending job.
    pub(super) fn join_pending(&mut self, now: Time, name: &JobName, join: PendingJoin) -> Result<(), Refusal> {
        let job = self.pending.get_mut(name).expect("the caller has found the job");
        if let Some(refusal) = job.objection(name, &join) {
            return Err(refusal);
        }
        let rank = join.first_rank();
        let replaced = job.add(join);
        let contradiction = job.contradiction(name).filter(|_| !self.has_parent);
        for ticket in replaced {
            self.answer(ticket, Err(Refusal::NewerRequest { job: name.clone(), rank }));
        }
        match contradiction {
            Some(refusal) => self.fail_disagreement(now, name, refusal),
            None => self.try_complete(now, name),
        }
        Ok(())
    }

    fn fail_disagreement(&mut self, now: Time, name: &JobName, refusal: Refusal) {
        let refused = self.fail_pending(name, &refusal);
        // The number is bounded: there are at most as many as pending jobs.
        if self.recent_refusals.len() < usize::from(self.limits.max_jobs) {
            let recent = RecentRefusal { refusal, refused, until: now + RecentRefusal::MEMORY };
            self.recent_refusals.insert(name.clone(), recent);
        }
    }

    /// Ends a rendezvous with the same refusal for all its ranks; returns these ranks.
    pub(super) fn fail_pending(&mut self, name: &JobName, refusal: &Refusal) -> BTreeSet<u16> {
        let Some(job) = self.pending.remove(name) else { return BTreeSet::new() };
        self.withdraw_from_parent(name, &job);
        let tickets: BTreeSet<Ticket> = job.ranks.values().map(|rank| rank.ticket).collect();
        for ticket in tickets {
            self.answer(ticket, Err(refusal.clone()));
        }
        job.ranks.into_keys().collect()
    }

    /// A rank has come whose packets cannot reach it. The ranks that wait for it are told at once.
    pub fn rank_refused(&mut self, name: &JobName, request: &crate::admission::JoinRequest, refusal: &Refusal) {
        let (rank, world_size, client) = (request.rank, request.world_size, &request.client);
        let waits = |job: &PendingJob| {
            !job.client.excludes(client) && job.world_size() == world_size && !job.ranks.contains_key(&rank)
        };
        if self.pending.get(name).is_some_and(waits) {
            self.fail_pending(name, &Refusal::RankRefused { job: name.clone(), rank, why: refusal.to_string() });
        }
    }

    /// Admits the job if all ranks are there and it has no predecessors: whether these are alive is only decided when the
    /// driver has reported the newest packets.
    fn try_complete(&mut self, now: Time, name: &JobName) {
        let Some(job) = self.pending.get_mut(name) else { return };
        // A rank may have asked again, for a larger world size.
        job.complete_since = None;
        if self.has_parent {
            return self.join_parent(now, name);
        }
        if !job.is_complete() {
            return;
        }
        if self.predecessors(name).next().is_some() {
            self.urgent = true;
            return;
        }
        self.complete(now, name);
    }

    /// Admits a job with all its ranks if its memory is free, or will not become free by waiting for predecessors.
    pub(super) fn complete(&mut self, now: Time, name: &JobName) {
        self.retire_predecessors(now, name);
        if self.has_parent {
            return self.complete_in_levels(now, name);
        }
        let Some(job) = self.pending.get_mut(name) else { return };
        let complete_since = *job.complete_since.get_or_insert(now);
        let client = job.client.clone();
        let wish = self.wish(&self.pending[name]);
        let ideal = self.grant(name, &client, wish.clone(), true).map(|grant| grant.shape);
        let granted = self.grant(name, &client, wish.clone(), false);
        // Where trees are charged later, predecessors may be in the way of everything that one switch could grant.
        let who = Applicant { name, client: &client };
        let may_crowd = self.ledger().is_charged_later(wish.protocol)
            && self.ledger().grant_at_one_switch(who, wish.clone())
                != self.ledger_without(name).grant_at_one_switch(who, wish);
        let is_less = granted.as_ref().map(|grant| &grant.shape) != ideal.as_ref();
        if (is_less || may_crowd) && now < complete_since + self.limits.timers.takeover_silence() {
            return;
        }
        match granted {
            Ok(grant) => self.admit(now, name, grant),
            Err(refusal) => {
                self.fail_pending(name, &refusal);
            }
        }
    }

    fn admit(&mut self, now: Time, name: &JobName, grant: Grant) {
        let Some(job) = self.pending.remove(name) else { return };
        let key = job.ranks.values().next().expect("a rank").fresh_key;
        let config = grant.most().config(self.next_id(), key);
        let workers = job.ranks.values().map(|rank| rank.request.addr).collect();
        let (servers, _) = self.servers_for(grant.shape.protocol, &job.client);
        self.install_pending(now, name, job, grant, config, workers, servers, None);
    }

    /// The shape that the ranks so far request, with the servers that are there now.
    pub(super) fn wish(&self, job: &PendingJob) -> JobShape {
        let wish = job.wish(self.limits.shards);
        let servers = match self.servers_for(wish.protocol, &job.client).0 {
            Servers::None => 0,
            Servers::Colocated => wish.world_size,
            // If jobs share a machine, slots are blocks of a window, and servers do not divide them.
            Servers::Dedicated(_) if wish.protocol.shared.is_some() => 0,
            Servers::Dedicated(servers) => servers.len() as u16,
        };
        JobShape { servers, trees: self.planned_trees(wish.protocol, job.trees()), ..wish }
    }

    /// The most trees that will divide the slots of a job that requests `requested` trees.
    fn planned_trees(&self, protocol: &Protocol, requested: Option<u16>) -> u16 {
        match self.limits.planned_trees.filter(|_| protocol.placement == Placement::Trees) {
            Some(most) => requested.unwrap_or(DEFAULT_TREES).clamp(1, most.max(1)),
            None => 1,
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn install_pending(
        &mut self,
        now: Time,
        name: &JobName,
        job: PendingJob,
        Grant { mut shape, division }: Grant,
        config: JobConfig,
        workers: Vec<SocketAddr>,
        servers: Servers,
        parent: Option<(Uplink, Vec<SwitchRanks>)>,
    ) {
        let children = job.children();
        let ticket = |child: &Child| job.ranks[&child.below.ranks()[0].0].ticket;
        let tickets = children.iter().map(ticket).collect();
        let (uplink, switches) = parent.map_or((None, job.switches_below()), |(uplink, all)| (Some(uplink), all));
        let (others, slots) = match &division {
            Some(division) => (&division.others[..], division.slots),
            None => (&[][..], shape.slots),
        };
        shape.slots = slots;
        self.evict_shared(others, Some((shape.protocol, shape.bytes())));
        // The memory that other jobs lose is freed before the newcomer takes it.
        let divided = division.map(|Division { most, slots, others }| {
            self.resize(&others);
            DividedSlots { most, now: slots }
        });
        let (protocol, memory_bytes) = (shape.protocol, shape.bytes());
        let trees = job.trees();
        let name = name.clone();
        let plan =
            Plan { name, protocol, config, children, trees, workers, servers, switches, uplink, slots, memory_bytes };
        self.install(RunningJob { divided, ..RunningJob::new(now, Arc::new(plan), job.client, tickets) });
    }

    /// What a job of this name and client gets. `succeeding`: as if the job's predecessors were gone already.
    pub(super) fn grant(
        &self,
        name: &JobName,
        client: &Client,
        wish: JobShape,
        succeeding: bool,
    ) -> Result<Grant, Refusal> {
        let ledger = if succeeding { self.ledger_without(name) } else { self.ledger() };
        ledger.grant(Applicant { name, client }, wish)
    }

    /// The jobs that use memory now, as admission sees them.
    pub(super) fn ledger(&self) -> Ledger<'_> {
        self.ledger_of(|_| true)
    }

    /// The same without jobs of this name.
    fn ledger_without(&self, name: &JobName) -> Ledger<'_> {
        self.ledger_of(|other| other != name)
    }

    /// Fails jobs that have waited too long, and admits jobs that waited for their predecessor's end.
    pub(super) fn expire_rendezvous(&mut self, now: Time) {
        let names: Vec<JobName> = self.pending.keys().cloned().collect();
        for name in names {
            if self.succeeds_in_levels(&name) {
                self.retire_predecessors(now, &name);
            }
            let job = &self.pending[&name];
            if job.is_complete() {
                self.complete(now, &name);
            } else if let Some(waited) = self.most_impatient(job, now) {
                let (missing, world_size) = (job.missing(), job.world_size());
                let job = name.clone();
                let refusal = match self.has_parent {
                    false => Refusal::NotComing { job, missing, world_size, waited },
                    true => Refusal::ParentSilent { job, waited },
                };
                self.fail_pending(&name, &refusal);
            }
        }
    }

    fn most_impatient(&self, job: &PendingJob, now: Time) -> Option<Span> {
        let (max_wait, patience) = (self.limits.timers.max_wait, self.patience());
        let over = job.ranks.values().filter(|rank| rank.deadline(max_wait) + patience <= now);
        over.map(|rank| rank.request.timeout.min(max_wait)).min()
    }

    pub(super) fn pending_due(&self, name: &JobName, job: &PendingJob) -> Time {
        let timers = &self.limits.timers;
        let silent = || self.predecessors(name).filter_map(|job| job.next_silent(timers.takeover_silence()));
        match job.complete_since {
            None => {
                let silent = silent().filter(|_| self.succeeds_in_levels(name));
                let deadlines = job.ranks.values().map(|rank| rank.deadline(timers.max_wait) + self.patience());
                silent.chain(deadlines).min().expect("a rank")
            }
            Some(since) => silent().chain([since + timers.takeover_silence()]).min().expect("at least one"),
        }
    }

    pub(super) fn withdraw_pending(&mut self, now: Time, ticket: Ticket) {
        let has_ticket = |(name, job): (&JobName, &PendingJob)| job.has_ticket(ticket).then(|| name.clone());
        let names: Vec<JobName> = self.pending.iter().filter_map(has_ticket).collect();
        for name in names {
            self.remove_ranks(now, &name, |rank| rank.ticket == ticket);
        }
    }

    /// A child switch withdraws its join.
    pub(super) fn withdraw_switch(&mut self, now: Time, name: &JobName, incarnation: u64, sequence: u64) {
        let Some(job) = self.pending.get(name) else { return };
        if job.switches.get(&incarnation).is_some_and(|known| known.sequence > sequence) {
            return;
        }
        let of_it = job.ranks.values().find(|rank| rank.via == Some(incarnation));
        if let Some(ticket) = of_it.map(|rank| rank.ticket) {
            self.answer(ticket, Err(Refusal::NewerRequest { job: name.clone(), rank: 0 }));
            self.remove_ranks(now, name, |rank| rank.ticket == ticket);
        }
    }

    fn remove_ranks(&mut self, now: Time, name: &JobName, goes: impl Fn(&WaitingRank) -> bool) {
        let Some(job) = self.pending.get_mut(name) else { return };
        job.complete_since = None;
        job.ranks.retain(|_, rank| !goes(rank));
        let ranks = &job.ranks;
        job.switches.retain(|incarnation, _| ranks.values().any(|rank| rank.via == Some(*incarnation)));
        if !job.ranks.is_empty() {
            if self.has_parent {
                self.join_parent(now, name);
            }
        } else if let Some(job) = self.pending.remove(name) {
            self.withdraw_from_parent(name, &job);
        }
    }
}
