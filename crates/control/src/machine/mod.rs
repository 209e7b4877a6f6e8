//! The jobs of one switch as a state machine: its inputs are joins, leaves and signs of life, its outputs are effects.
//!
//! After every input the driver carries out all effects of [`Control::poll_effect`], in order, then reads
//! [`Control::poll_timeout`]. Before [`Control::handle_timeout`] it reports which packets have come since. Only there are
//! members judged by their silence, so that none is called lost on old news. The same inputs always give the same outputs.

mod handover;
mod lifecycle;
mod name_conflict;
mod parent_switch;
mod rendezvous;
mod server_registry;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::time::Time;

use self::handover::EarlierJobs;
pub use self::handover::{EarlierJob, Succession};
pub use self::lifecycle::AdoptedJob;
use self::name_conflict::NameConflict;
use self::server_registry::RegisteredServer;
use crate::admission::ledger::SharedMachines;
use crate::admission::{JoinRequest, Limits, OperatorAct, Refusal};
use crate::effect::{Admitted, Effect, Plan, Ticket};
use crate::large_sums::LargeSums;
use crate::levels::{ChildSwitch, SwitchJoin};
use crate::membership::job_events::JobEvent;
use crate::membership::pending_job::{PendingJob, PendingJoin, RecentRefusal, WaitingRank};
use crate::membership::running_job::RunningJob;
use crate::membership::watch::ProbeTarget;
use crate::names::{Client, JobName};
use crate::report::{self, JobServerView, JobView};

/// All jobs of one switch.
pub struct Control {
    limits: Limits,
    /// Jobs whose ranks are still coming, by name.
    pending: BTreeMap<JobName, PendingJob>,
    /// Jobs that use memory, including superseded ones.
    running: BTreeMap<JobId, RunningJob>,
    /// The running job that a name stands for.
    owners: BTreeMap<JobName, JobId>,
    /// The last jobs with child switches that have ended: their joins may still be on the way.
    ended: VecDeque<Arc<Plan>>,
    /// Joins for ranks that a running job already has, until it is known which process is alive.
    conflicts: Vec<NameConflict>,
    /// The machines that jobs share and that are installed.
    shared_machines: SharedMachines,
    /// Servers that offer themselves, and servers that are gone but whose jobs are not over; by incarnation.
    servers: BTreeMap<u64, RegisteredServer>,
    /// The last servers that ended in good order, by incarnation.
    retired: VecDeque<u64>,
    /// True if there is a parent switch. It decides about every job.
    has_parent: bool,
    /// Recent disagreements, for ranks that come late to them.
    recent_refusals: BTreeMap<JobName, RecentRefusal>,
    last_id: JobId,
    last_ticket: Ticket,
    last_sequence: u64,
    effects: VecDeque<Effect>,
    /// Members and neighbours whose hosts must be probed.
    probes: VecDeque<ProbeTarget>,
    /// Something may be decidable once the newest packets are reported.
    urgent: bool,
    /// Events that the driver has not taken yet.
    events: VecDeque<JobEvent>,
    stopping: bool,
    /// A next program takes the joins of this switch.
    handed_over: bool,
    /// The jobs that the earlier program of this switch still serves.
    earlier: EarlierJobs,
    /// An operator lets no new job begin.
    cordoned: bool,
    /// The clients whose joins an operator has forbidden.
    banned: BTreeSet<Client>,
}

impl Control {
    /// A switch without jobs and without a parent.
    pub fn new(limits: Limits) -> Control {
        Control {
            limits,
            has_parent: false,
            last_sequence: 0,
            pending: BTreeMap::new(),
            running: BTreeMap::new(),
            owners: BTreeMap::new(),
            ended: VecDeque::new(),
            conflicts: Vec::new(),
            shared_machines: BTreeMap::new(),
            servers: BTreeMap::new(),
            retired: VecDeque::new(),
            recent_refusals: BTreeMap::new(),
            last_id: JobId(0),
            last_ticket: Ticket(0),
            effects: VecDeque::new(),
            probes: VecDeque::new(),
            urgent: false,
            events: VecDeque::new(),
            stopping: false,
            handed_over: false,
            earlier: EarlierJobs::new(),
            cordoned: false,
            banned: BTreeSet::new(),
        }
    }

    /// A switch without jobs and with a parent.
    pub fn with_parent(limits: Limits) -> Control {
        Control { has_parent: true, ..Control::new(limits) }
    }

    /// A rank wants to be a member. The answer comes as an [`Effect::Answer`], now or later. `fresh_key` comes from the
    /// operating system's random source; it becomes the job's key if this join creates the job.
    pub fn join(&mut self, now: Time, name: &JobName, request: JoinRequest, fresh_key: JobKey) -> Ticket {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        let outcome = self.check(&request).and_then(|()| {
            let rank = WaitingRank { ticket, request, fresh_key, since: now, via: None };
            self.dispatch(now, name, PendingJoin { ranks: vec![rank], switch: None })
        });
        if let Err(refusal) = outcome {
            self.answer(ticket, Err(refusal));
        }
        ticket
    }

    /// Checks a join by itself, before anything else is done with it.
    pub fn check(&self, request: &JoinRequest) -> Result<(), Refusal> {
        self.check_open()?;
        request.check(&self.limits, self.has_parent)
    }

    /// Checks the join of a child switch by itself.
    pub fn check_switch(&self, join: &SwitchJoin) -> Result<(), Refusal> {
        self.check_open()?;
        let (own, theirs) = (self.limits.shards, join.shards.len());
        if theirs != usize::from(own) {
            let child = join.switches.first().map(|switch| switch.addr);
            return Err(Refusal::ShardsDiffer { child, theirs: theirs as u16, ours: own });
        }
        join.ranks.iter().try_for_each(|(request, _)| request.check(&self.limits, true))
    }

    /// A child switch wants to be a member, with the ranks that have come to it. A later request replaces an earlier
    /// one.
    pub fn join_switch(&mut self, now: Time, name: &JobName, join: SwitchJoin, fresh_key: JobKey) -> Ticket {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        if let Err(refusal) = self.dispatch_switch(now, name, ticket, join, fresh_key) {
            self.answer(ticket, Err(refusal));
        }
        ticket
    }

    fn dispatch_switch(
        &mut self,
        now: Time,
        name: &JobName,
        ticket: Ticket,
        join: SwitchJoin,
        fresh_key: JobKey,
    ) -> Result<(), Refusal> {
        self.check_switch(&join)?;
        let SwitchJoin { incarnation, joined_at, sequence, shards, most_slots, ranks, switches } = join;
        if ranks.is_empty() {
            self.withdraw_switch(now, name, incarnation, sequence);
            return Err(Refusal::NewerRequest { job: name.clone(), rank: 0 });
        }
        // Calls overtake each other, and this one says nothing new.
        let running = self.owners.get(name).and_then(|id| self.running.get(id)).map(|job| &job.plan);
        let mut of_name = self.ended.iter().filter(|plan| plan.name == *name).chain(running);
        if of_name.any(|plan| plan.is_formed_from(incarnation, sequence)) {
            return Err(Refusal::NewerRequest { job: name.clone(), rank: ranks[0].0.rank });
        }
        let mut waiting: BTreeMap<u16, WaitingRank> = BTreeMap::new();
        for (request, waited) in ranks {
            let since = Time(now.0.saturating_sub(waited.0));
            let rank = request.rank;
            if let Some(twice) =
                waiting.insert(rank, WaitingRank { ticket, request, fresh_key, since, via: Some(incarnation) })
            {
                return Err(Refusal::RankTaken { job: name.clone(), rank, holder: twice.request.addr });
            }
        }
        let switch = Some((incarnation, ChildSwitch { joined_at, sequence, shards, most_slots, switches }));
        self.dispatch(now, name, PendingJoin { ranks: waiting.into_values().collect(), switch })
    }

    /// Gives a checked join to the pending job of its name, to a new job, or to a conflict with the running job.
    fn dispatch(&mut self, now: Time, name: &JobName, join: PendingJoin) -> Result<(), Refusal> {
        self.check_banned(join.client())?;
        let running = self.owners.get(name).and_then(|id| self.running.get(id)).map(|job| &job.client);
        let holder = self.pending.get(name).map(|job| &job.client).or(running);
        if holder.is_some_and(|holder| holder.excludes(join.client())) {
            return Err(Refusal::OtherTenant { job: name.clone() });
        }
        if self.pending.contains_key(name) {
            return self.join_pending(now, name, join);
        }
        if self.cordoned {
            return Err(OperatorAct::Cordoned.into());
        }
        if let Some(job) = self.owners.get(name).and_then(|id| self.running.get_mut(id)) {
            // A switch that joins again says that its ranks have come again. It has checked them.
            if let Some((incarnation, _)) = join.switch {
                job.drop_child(incarnation);
            }
            if job.is_complete() {
                self.conflicts.push(NameConflict { name: name.clone(), join });
                self.urgent = true;
                return Ok(());
            }
        }
        self.create_job(now, name, join)
    }

    /// The process of a pending join has gone away; no answer follows. After the answer this call does nothing.
    pub fn withdraw(&mut self, now: Time, ticket: Ticket) {
        self.conflicts.retain(|conflict| conflict.join.ticket() != ticket);
        self.withdraw_pending(now, ticket);
        for job in self.running.values_mut() {
            job.withdraw(now, ticket);
        }
        self.remove_finished(now);
    }

    /// The driver's report after an [`Effect::Install`].
    pub fn installed(&mut self, now: Time, id: JobId, outcome: Result<(), String>) {
        let Some(job) = self.running.get_mut(&id) else { return };
        let tickets = job.start(now);
        let admitted = match outcome {
            Ok(()) => {
                self.events.push_back(JobEvent::Formed(job.plan.clone()));
                Ok(job.plan.clone())
            }
            Err(why) => {
                let refusal = Refusal::NotInstalled { job: job.plan.name.clone(), why };
                self.remove(id);
                Err(refusal)
            }
        };
        for ticket in tickets {
            self.answer(ticket, admitted.clone());
        }
        self.remove_finished(now);
    }

    /// An error unless the job is installed and the caller has its key.
    pub fn check_member(&mut self, name: &JobName, id: JobId, key: JobKey) -> Result<(), Refusal> {
        self.member_of(name, id, key).map(|_| ())
    }

    /// A member reports where the job's large sums are made; a later report replaces it.
    pub fn note_large_sums(&mut self, name: &JobName, id: JobId, key: JobKey, sums: LargeSums) -> Result<(), Refusal> {
        self.member_of(name, id, key)?.large_sums = Some(sums);
        Ok(())
    }

    fn member_of(&mut self, name: &JobName, id: JobId, key: JobKey) -> Result<&mut RunningJob, Refusal> {
        match self.running.get_mut(&id).filter(|job| job.plan.name == *name) {
            None => Err(Refusal::UnknownJob { job: name.clone() }),
            Some(job) if job.plan.config.key != key => Err(Refusal::WrongKey { job: name.clone() }),
            Some(job) => Ok(job),
        }
    }

    /// A packet of a child has come to a shard, at a time that may be past.
    pub fn member_seen(&mut self, id: JobId, wid: ChildId, at: Time) {
        if let Some(job) = self.running.get_mut(&id) {
            job.member_seen(wid, at);
        }
    }

    /// A packet of the parent switch has come to a shard, at a time that may be past.
    pub fn parent_seen(&mut self, id: JobId, at: Time) {
        if let Some(job) = self.running.get_mut(&id) {
            job.parent_seen(at);
        }
    }

    /// The time of [`Control::poll_timeout`] has come. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.recent_refusals.retain(|_, recent| now < recent.until);
        self.urgent = true;
        // One decision may free something for the next. The loop ends, because each decision removes a job or answers a
        // join.
        while std::mem::take(&mut self.urgent) {
            self.expire_servers(now);
            self.expire_leases(now);
            self.resolve_conflicts(now);
            self.expire_rendezvous(now);
        }
    }

    /// When to call [`Control::handle_timeout`], if nothing else happens before. A past time means now.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.urgent {
            return Some(Time::ZERO);
        }
        let pending = self.pending.iter().map(|(name, job)| self.pending_due(name, job));
        let running = self.running.values().filter_map(|job| job.due(&self.limits.timers));
        let conflicts = self.conflicts.iter().map(|conflict| self.conflict_due(conflict));
        let recent = self.recent_refusals.values().map(|recent| recent.until);
        pending.chain(running).chain(conflicts).chain(recent).chain(self.servers_due()).min()
    }

    /// True while a decision depends on which members still send packets, so that the driver should report them often.
    pub fn awaits_reports(&self) -> bool {
        let succeeds = |(name, job): (&JobName, &PendingJob)| {
            job.is_complete() || self.has_parent && self.predecessors(name).next().is_some()
        };
        !self.conflicts.is_empty() || self.pending.iter().any(succeeds)
    }

    /// The next effect for the driver to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Refuses every pending join and every later one, and removes every job.
    pub fn stop(&mut self) {
        self.stop_joining();
        let ids: Vec<JobId> = self.running.keys().copied().collect();
        for ticket in ids.into_iter().flat_map(|id| self.remove(id)).collect::<Vec<_>>() {
            self.answer(ticket, Err(Refusal::Stopping));
        }
    }

    /// Refuses every pending join and every later one. Jobs stay: they run on without this control plane.
    pub fn stop_joining(&mut self) {
        self.stopping = true;
        self.refuse_pending(&Refusal::Stopping);
    }

    /// The world size of the largest running job of a name; `None` if no job of that name runs.
    pub fn world_size_of(&self, name: &JobName) -> Option<u16> {
        self.running.values().filter(|job| job.plan.name == *name).map(|job| job.plan.config.world_size).max()
    }

    /// Replaces all limits but those that the switch's threads follow from. They hold for joins from now on, and when
    /// memory is divided next. Running jobs are not touched.
    pub fn reload(&mut self, limits: Limits) {
        let Limits { shared, shards, planned_trees, memory_at, .. } = self.limits.clone();
        self.limits = Limits { shared, shards, planned_trees, memory_at, ..limits };
    }

    /// True if nobody may join any more.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The switch's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    fn answer(&mut self, ticket: Ticket, admitted: Admitted) {
        self.effects.push_back(Effect::Answer { ticket, admitted });
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Every job: first the jobs that use memory, by ascending id, then the pending jobs, by name.
    pub fn jobs(&self) -> Vec<JobView> {
        let pending = self.pending.iter().map(|(name, job)| report::pending_view(name, job, self.limits.shards));
        self.running.values().map(report::running_view).chain(pending).collect()
    }

    /// The servers of an installed job as an operator sees them.
    pub fn job_servers(&self, id: JobId) -> Vec<JobServerView> {
        self.running.get(&id).map(report::server_views).unwrap_or_default()
    }

    /// True if a running job has a member or a server at this address.
    pub fn has_members_at(&self, address: IpAddr) -> bool {
        let client = Client::at(address);
        let is_at = |addr: IpAddr| Client::at(addr) == client;
        self.running.values().any(|job| {
            let mut members = job.plan.children.iter().flat_map(|child| &child.addrs);
            let mut servers = job.plan.servers.dedicated().iter();
            members.any(|addr| is_at(addr.ip())) || servers.any(|server| is_at(server.addr.ip()))
        })
    }
}
