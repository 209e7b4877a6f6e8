//! The jobs of one switch as a state machine: its inputs are joins, leaves and signs of life, its outputs are effects.
//!
//! After every input the driver carries out all effects of [`Control::poll_effect`], in order, then reads
//! [`Control::poll_timeout`]. Before [`Control::handle_timeout`] it reports the newest signs of life. Silence is judged
//! only there, so that no member is called lost on old news. The same inputs always give the same outputs.

mod absence;
pub(crate) mod adopt;
mod ascending;
mod contest;
mod holding;
mod rendezvous;
mod report;
mod servers;
mod shares;
mod sharing;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use crate::admission::Limits;
use crate::control::contest::Contender;
use crate::control::servers::Offered;
use crate::forming::{Forming, Party, Quarrel, WaitingRank};
use crate::levels::{SwitchJoin, SwitchSeat};
use crate::name::JobName;
use crate::plan::{Admitted, Effect, Plan, Ticket};
use crate::refusal::Refusal;
use crate::request::JoinRequest;
use crate::running::Running;
use crate::tidings::Tiding;
use crate::watch::Suspect;

/// All jobs of one switch.
pub struct Control {
    pub(crate) limits: Limits,
    /// Jobs whose ranks are still coming, by name.
    pub(crate) forming: BTreeMap<JobName, Forming>,
    /// Jobs that hold memory, including superseded ones.
    pub(crate) running: BTreeMap<JobId, Running>,
    /// The running job that a name stands for.
    pub(crate) owners: BTreeMap<JobName, JobId>,
    /// The last jobs with switches below that have ended: their joins may still be on the way.
    pub(crate) ended: VecDeque<Arc<Plan>>,
    /// Joins for ranks that a running job already has, until it is known which process is alive.
    pub(crate) contenders: Vec<Contender>,
    /// The protocols whose jobs share a machine that is there, by code.
    pub(crate) shared: BTreeMap<u8, &'static Protocol>,
    /// Servers that offer themselves, and servers that are gone but whose jobs are not over; by incarnation.
    pub(crate) servers: BTreeMap<u64, Offered>,
    /// The last servers that ended in good order, by incarnation.
    pub(crate) retired: VecDeque<u64>,
    /// True if there is a switch above. It decides about every job.
    pub(crate) has_parent: bool,
    /// Recent disagreements, for ranks that come late to them.
    pub(crate) quarrels: BTreeMap<JobName, Quarrel>,
    pub(crate) last_id: JobId,
    last_ticket: Ticket,
    pub(crate) last_question: u64,
    pub(crate) effects: VecDeque<Effect>,
    /// Members and neighbours whose hosts must be asked.
    pub(crate) suspects: VecDeque<Suspect>,
    /// Something may be decidable once the newest signs of life are known.
    pub(crate) urgent: bool,
    /// News that the driver has not taken yet.
    pub(crate) tidings: VecDeque<Tiding>,
    pub(crate) stopping: bool,
}

impl Control {
    /// A switch without jobs and without a switch above.
    pub fn new(limits: Limits) -> Control {
        Control {
            limits,
            has_parent: false,
            last_question: 0,
            forming: BTreeMap::new(),
            running: BTreeMap::new(),
            owners: BTreeMap::new(),
            ended: VecDeque::new(),
            contenders: Vec::new(),
            shared: BTreeMap::new(),
            servers: BTreeMap::new(),
            retired: VecDeque::new(),
            quarrels: BTreeMap::new(),
            last_id: JobId(0),
            last_ticket: Ticket(0),
            effects: VecDeque::new(),
            suspects: VecDeque::new(),
            urgent: false,
            tidings: VecDeque::new(),
            stopping: false,
        }
    }

    /// A switch without jobs and with a switch above.
    pub fn below_another(limits: Limits) -> Control {
        Control { has_parent: true, ..Control::new(limits) }
    }

    /// A rank wants to be a member. The answer comes as an [`Effect::Answer`], now or later. `fresh_key` comes from the
    /// operating system's random source; it becomes the job's key if this join founds the job.
    pub fn join(&mut self, now: Time, name: &JobName, request: JoinRequest, fresh_key: JobKey) -> Ticket {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        let outcome = match self.stopping {
            true => Err(Refusal::Stopping),
            false => self.check(&request).and_then(|()| {
                let seat = WaitingRank { ticket, request, fresh_key, since: now, via: None };
                self.seat(now, name, Party { seats: vec![seat], switch: None })
            }),
        };
        if let Err(refusal) = outcome {
            self.answer(ticket, Err(refusal));
        }
        ticket
    }

    /// Checks a join by itself, before anything else is done with it.
    pub fn check(&self, request: &JoinRequest) -> Result<(), Refusal> {
        request.check(&self.limits)
    }

    /// Checks the join of a switch below by itself.
    pub fn check_switch(&self, join: &SwitchJoin) -> Result<(), Refusal> {
        let (own, theirs) = (self.limits.shards, join.shards.len());
        if theirs != usize::from(own) {
            let below = join.switches.first().map(|place| place.addr);
            return Err(Refusal::ShardsDiffer { below, theirs: theirs as u16, ours: own });
        }
        join.ranks.iter().try_for_each(|(request, _)| self.check(request))
    }

    /// A switch below wants to be a member, with the ranks that have come to it. A later request replaces an earlier
    /// one.
    pub fn join_switch(&mut self, now: Time, name: &JobName, join: SwitchJoin, fresh_key: JobKey) -> Ticket {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        if let Err(refusal) = self.seat_switch(now, name, ticket, join, fresh_key) {
            self.answer(ticket, Err(refusal));
        }
        ticket
    }

    fn seat_switch(
        &mut self,
        now: Time,
        name: &JobName,
        ticket: Ticket,
        join: SwitchJoin,
        fresh_key: JobKey,
    ) -> Result<(), Refusal> {
        if self.stopping {
            return Err(Refusal::Stopping);
        }
        self.check_switch(&join)?;
        let SwitchJoin { incarnation, asked_at, question, shards, most_slots, ranks, switches } = join;
        if ranks.is_empty() {
            self.withdraw_switch(now, name, incarnation, question);
            return Err(Refusal::AskedAgain { job: name.clone(), rank: 0 });
        }
        // Calls overtake each other, and this one says nothing new.
        let running = self.owners.get(name).and_then(|id| self.running.get(id)).map(|job| &job.plan);
        let mut of_name = self.ended.iter().filter(|plan| plan.name == *name).chain(running);
        if of_name.any(|plan| plan.is_formed_from(incarnation, question)) {
            return Err(Refusal::AskedAgain { job: name.clone(), rank: ranks[0].0.rank });
        }
        let mut seats: BTreeMap<u16, WaitingRank> = BTreeMap::new();
        for (request, waited) in ranks {
            let since = Time(now.0.saturating_sub(waited.0));
            let rank = request.rank;
            if let Some(twice) =
                seats.insert(rank, WaitingRank { ticket, request, fresh_key, since, via: Some(incarnation) })
            {
                return Err(Refusal::RankTaken { job: name.clone(), rank, holder: twice.request.addr });
            }
        }
        let switch = Some((incarnation, SwitchSeat { asked_at, question, shards, most_slots, switches }));
        self.seat(now, name, Party { seats: seats.into_values().collect(), switch })
    }

    /// Finds the place of a checked join: in the job that forms, in a new job, or in a contest with a running job.
    pub(crate) fn seat(&mut self, now: Time, name: &JobName, party: Party) -> Result<(), Refusal> {
        let running = self.owners.get(name).and_then(|id| self.running.get(id)).map(|job| &job.client);
        let holder = self.forming.get(name).map(|forming| &forming.client).or(running);
        if holder.is_some_and(|holder| holder.excludes(party.client())) {
            return Err(Refusal::OtherTenant { job: name.clone() });
        }
        if self.forming.contains_key(name) {
            return self.enter(now, name, party);
        }
        if let Some(job) = self.owners.get(name).and_then(|id| self.running.get_mut(id)) {
            // A switch that joins anew says that its ranks have come anew. It has checked them.
            if let Some((incarnation, _)) = party.switch {
                job.renounce(incarnation);
            }
            if job.is_whole() {
                self.contenders.push(Contender { name: name.clone(), party });
                self.urgent = true;
                return Ok(());
            }
        }
        self.found(now, name, party)
    }

    /// The process of a pending join has gone away; no answer follows. After the answer this call does nothing.
    pub fn withdraw(&mut self, now: Time, ticket: Ticket) {
        self.contenders.retain(|contender| contender.party.ticket() != ticket);
        self.withdraw_forming(now, ticket);
        for job in self.running.values_mut() {
            job.withdraw(now, ticket);
        }
        self.reap(now);
    }

    /// The driver's report after an [`Effect::Install`].
    pub fn installed(&mut self, now: Time, id: JobId, outcome: Result<(), String>) {
        let Some(job) = self.running.get_mut(&id) else { return };
        let tickets = job.start(now);
        let admitted = match outcome {
            Ok(()) => {
                self.tidings.push_back(Tiding::Formed(job.plan.clone()));
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
        self.reap(now);
    }

    /// A member ends its part of the job.
    pub fn leave(&mut self, now: Time, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let world = job.plan.config.world_size;
        let Some(wid) = job.worker(rank) else { return Err(Refusal::BadRank { rank, world }) };
        job.leave(now, wid);
        self.urgent |= self.awaits_signs();
        self.reap(now);
        Ok(())
    }

    /// A switch below ends its part of the job. `lost`: it ends although not all its members had left.
    pub fn leave_switch(
        &mut self,
        now: Time,
        name: &JobName,
        id: JobId,
        key: JobKey,
        wid: ChildId,
        lost: bool,
    ) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        match lost {
            false => job.leave(now, wid),
            true => job.lose(now, wid),
        }
        self.urgent |= self.awaits_signs();
        self.reap(now);
        Ok(())
    }

    /// An error unless the job is installed and the caller has its key.
    pub fn standing(&mut self, name: &JobName, id: JobId, key: JobKey) -> Result<(), Refusal> {
        self.member_of(name, id, key).map(|_| ())
    }

    pub(crate) fn member_of(&mut self, name: &JobName, id: JobId, key: JobKey) -> Result<&mut Running, Refusal> {
        match self.running.get_mut(&id).filter(|job| job.plan.name == *name) {
            None => Err(Refusal::UnknownJob { job: name.clone() }),
            Some(job) if job.plan.config.key != key => Err(Refusal::WrongKey { job: name.clone() }),
            Some(job) => Ok(job),
        }
    }

    /// A shard heard a child, at a time that may be past.
    pub fn heard(&mut self, id: JobId, wid: ChildId, at: Time) {
        if let Some(job) = self.running.get_mut(&id) {
            job.heard(wid, at);
        }
    }

    /// A shard heard the switch above, at a time that may be past.
    pub fn heard_above(&mut self, id: JobId, at: Time) {
        if let Some(job) = self.running.get_mut(&id) {
            job.heard_above(at);
        }
    }

    /// The time of [`Control::poll_timeout`] has come. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.quarrels.retain(|_, quarrel| now < quarrel.until);
        self.urgent = true;
        // One decision may free something for the next. The loop ends, because each decision removes a job or answers a
        // join.
        while std::mem::take(&mut self.urgent) {
            self.expire_servers(now);
            self.expire_leases(now);
            self.settle_contests(now);
            self.expire_rendezvous(now);
        }
    }

    /// When to call [`Control::handle_timeout`], if nothing else happens before. A past time means now.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.urgent {
            return Some(Time::ZERO);
        }
        let forming = self.forming.iter().map(|(name, forming)| self.forming_due(name, forming));
        let running = self.running.values().filter_map(|job| job.due(&self.limits.timers));
        let contests = self.contenders.iter().map(|contender| self.contest_due(contender));
        let quarrels = self.quarrels.values().map(|quarrel| quarrel.until);
        forming.chain(running).chain(contests).chain(quarrels).chain(self.servers_due()).min()
    }

    /// True while a decision depends on members' signs of life, so that the driver should report them often.
    pub fn awaits_signs(&self) -> bool {
        let succeeds = |(name, forming): (&JobName, &Forming)| {
            forming.is_full() || self.has_parent && self.predecessors(name).next().is_some()
        };
        !self.contenders.is_empty() || self.forming.iter().any(succeeds)
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
        let names: Vec<JobName> = self.forming.keys().cloned().collect();
        names.iter().for_each(|name| drop(self.fail_forming(name, &Refusal::Stopping)));
        for contender in std::mem::take(&mut self.contenders) {
            self.answer(contender.party.ticket(), Err(Refusal::Stopping));
        }
    }

    /// The world of the largest running job of a name; `None` if no job of that name runs.
    pub fn world_of(&self, name: &JobName) -> Option<u16> {
        self.running.values().filter(|job| job.plan.name == *name).map(|job| job.plan.config.world_size).max()
    }

    /// Replaces quotas and tenants' shares. They hold for joins from now on, and when memory is divided next. Running
    /// jobs are not touched.
    pub fn renew(&mut self, limits: Limits) {
        (self.limits.quotas, self.limits.tenants) = (limits.quotas, limits.tenants);
    }

    /// The switch's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn answer(&mut self, ticket: Ticket, admitted: Admitted) {
        self.effects.push_back(Effect::Answer { ticket, admitted });
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }
}
