//! The jobs of one switch as a state machine: joins, leaves and signs of life in, effects out.
//!
//! After every input the driver carries out all of [`Control::poll_effect`], in order, then reads
//! [`Control::poll_timeout`]. Before [`Control::handle_timeout`] it tells the newest signs of life. Nobody's silence is
//! judged but there, so that nobody is called lost on old news. Same inputs, same outputs, always.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tributary_proto::config::JobConfig;
use tributary_proto::ids::{JobId, JobKey};
use tributary_proto::registry::Protocol;
use tributary_proto::time::Time;

use crate::admission::Limits;
use crate::forming::{Forming, Quarrel, Seat};
use crate::memory::JobShape;
use crate::name::JobName;
use crate::refusal::Refusal;
use crate::request::JoinRequest;
use crate::running::{Contender, Running};

/// One pending join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A job as it is to be installed, and what its members are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The job's name.
    pub name: JobName,
    /// What the switch runs for it.
    pub protocol: Protocol,
    /// Id, key, world, slots, elements per packet, shards.
    pub config: JobConfig,
    /// Where each member's packets come from, by rank.
    pub members: Vec<SocketAddr>,
    /// The switch's address that each member knows, by rank.
    pub asked_at: Vec<IpAddr>,
    /// What it is charged, in bytes over all shards.
    pub memory_bytes: u64,
}

impl Plan {
    /// A job of these members, by rank.
    pub(crate) fn new<'a>(
        name: JobName,
        job: JobId,
        key: JobKey,
        shape: JobShape,
        members: impl Iterator<Item = &'a JoinRequest>,
    ) -> Plan {
        let JobShape { protocol, slots, elements_per_packet, world, shards } = shape;
        let config = JobConfig { job, key, world, slots, elements_per_packet, shards };
        let (members, asked_at) = members.map(|request| (request.addr, request.asked_at)).unzip();
        Plan { name, protocol, config, members, asked_at, memory_bytes: shape.bytes() }
    }
}

/// The answer to a join.
pub type Admitted = Result<Arc<Plan>, Refusal>;

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Install the job in every shard, then call [`Control::installed`].
    Install(Arc<Plan>),
    /// Take the job out of every shard.
    Remove(JobId),
    /// Answer a join. Nothing is answered twice.
    Answer {
        /// Which join.
        ticket: Ticket,
        /// The answer.
        admitted: Admitted,
    },
}

/// All jobs of one switch.
pub struct Control {
    pub(crate) limits: Limits,
    /// Jobs whose ranks still come, by name.
    pub(crate) forming: BTreeMap<JobName, Forming>,
    /// Jobs that hold memory, superseded ones included.
    pub(crate) running: BTreeMap<JobId, Running>,
    /// The running job that a name stands for.
    pub(crate) owners: BTreeMap<JobName, JobId>,
    /// Joins for ranks that a running job already has, until it is known which process lives.
    pub(crate) contenders: Vec<Contender>,
    /// Recent disagreements, for the ranks that come late to them.
    pub(crate) quarrels: BTreeMap<JobName, Quarrel>,
    last_id: JobId,
    last_ticket: Ticket,
    effects: VecDeque<Effect>,
    /// Something may be decided as soon as the newest signs of life are known.
    pub(crate) urgent: bool,
    stopping: bool,
}

impl Control {
    /// A switch without jobs.
    pub fn new(limits: Limits) -> Control {
        Control {
            limits,
            forming: BTreeMap::new(),
            running: BTreeMap::new(),
            owners: BTreeMap::new(),
            contenders: Vec::new(),
            quarrels: BTreeMap::new(),
            last_id: JobId(0),
            last_ticket: Ticket(0),
            effects: VecDeque::new(),
            urgent: false,
            stopping: false,
        }
    }

    /// A rank wants to be a member. The answer comes as an [`Effect::Answer`], now or later. `fresh_key` is from the
    /// operating system's random source; it becomes the job's key if this join founds the job.
    pub fn join(&mut self, now: Time, name: &JobName, request: JoinRequest, fresh_key: JobKey) -> Ticket {
        self.last_ticket.0 += 1;
        let ticket = self.last_ticket;
        let outcome = match self.stopping {
            true => Err(Refusal::Stopping),
            false => request
                .check(&self.limits)
                .and_then(|()| self.seat(now, name, Seat { ticket, request, fresh_key, since: now })),
        };
        if let Err(refusal) = outcome {
            self.answer(ticket, Err(refusal));
        }
        ticket
    }

    /// Finds the place of a checked join: in the job that forms, in a new one, or in contest with a running one.
    pub(crate) fn seat(&mut self, now: Time, name: &JobName, seat: Seat) -> Result<(), Refusal> {
        if self.forming.contains_key(name) {
            return self.enter(now, name, seat);
        }
        let whole = self.owners.get(name).is_some_and(|id| self.running[id].is_whole());
        if whole {
            self.contenders.push(Contender { name: name.clone(), seat });
            self.urgent = true;
            return Ok(());
        }
        self.found(now, name, seat)
    }

    /// The process behind a pending join has gone away; no answer follows. Harmless after the answer.
    pub fn withdraw(&mut self, now: Time, ticket: Ticket) {
        self.contenders.retain(|contender| contender.seat.ticket != ticket);
        self.withdraw_forming(ticket);
        for job in self.running.values_mut() {
            job.withdraw(now, ticket);
        }
        self.reap(now);
    }

    /// The driver's report on an [`Effect::Install`].
    pub fn installed(&mut self, now: Time, id: JobId, outcome: Result<(), String>) {
        let Some(job) = self.running.get_mut(&id) else { return };
        let tickets = job.start(now);
        let admitted = match outcome {
            Ok(()) => Ok(job.plan.clone()),
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

    /// A member has ended its part of the job.
    pub fn leave(&mut self, now: Time, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let world = job.plan.config.world;
        if !job.leave(now, rank) {
            return Err(Refusal::BadRank { rank, world });
        }
        self.urgent |= self.awaits_signs();
        self.reap(now);
        Ok(())
    }

    /// True if the job is installed; only its members may ask.
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

    /// A shard heard a member at a time that may be past.
    pub fn heard(&mut self, id: JobId, rank: u16, at: Time) {
        if let Some(job) = self.running.get_mut(&id) {
            job.heard(rank, at);
        }
    }

    /// The time of [`Control::poll_timeout`] has come. Harmless when called early.
    pub fn handle_timeout(&mut self, now: Time) {
        self.quarrels.retain(|_, quarrel| now < quarrel.until);
        self.urgent = true;
        // What one decision sets free may decide the next. Ends, because each removes a job or answers a join.
        while std::mem::take(&mut self.urgent) {
            self.expire_leases(now);
            self.settle_contests(now);
            self.expire_rendezvous(now);
        }
    }

    /// When to call [`Control::handle_timeout`], if nothing else happens before. A time that is past means now.
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.urgent {
            return Some(Time::ZERO);
        }
        let forming = self.forming.iter().map(|(name, forming)| self.forming_due(name, forming));
        let running = self.running.values().filter_map(|job| job.due(&self.limits.timers));
        let contests = self.contenders.iter().map(|contender| self.contest_due(contender));
        let quarrels = self.quarrels.values().map(|quarrel| quarrel.until);
        forming.chain(running).chain(contests).chain(quarrels).min()
    }

    /// True while a decision hangs on members' signs of life, so that the driver should bring them often.
    pub fn awaits_signs(&self) -> bool {
        !self.contenders.is_empty() || self.forming.values().any(Forming::is_full)
    }

    /// What to do next.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Refuses every pending join and every later one, and removes every job.
    pub fn stop(&mut self) {
        self.stopping = true;
        let forming = std::mem::take(&mut self.forming).into_values().flat_map(|forming| forming.seats.into_values());
        let contenders = std::mem::take(&mut self.contenders).into_iter().map(|contender| contender.seat);
        let mut tickets: Vec<Ticket> = forming.chain(contenders).map(|seat| seat.ticket).collect();
        let ids: Vec<JobId> = self.running.keys().copied().collect();
        for id in ids {
            tickets.extend(self.remove(id));
        }
        for ticket in tickets {
            self.answer(ticket, Err(Refusal::Stopping));
        }
    }

    /// The switch's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes that jobs hold.
    pub fn memory_used(&self) -> u64 {
        self.running.values().map(|job| job.plan.memory_bytes).sum()
    }

    pub(crate) fn answer(&mut self, ticket: Ticket, admitted: Admitted) {
        self.effects.push_back(Effect::Answer { ticket, admitted });
    }

    pub(crate) fn install(&mut self, job: Running) {
        let id = job.plan.config.job;
        self.owners.insert(job.plan.name.clone(), id);
        self.effects.push_back(Effect::Install(job.plan.clone()));
        self.running.insert(id, job);
    }

    /// Takes a job out; returns the joins that still waited for its installation.
    pub(crate) fn remove(&mut self, id: JobId) -> Vec<Ticket> {
        let Some(job) = self.running.remove(&id) else { return Vec::new() };
        // Its name and its memory may be what others wait for.
        self.urgent |= self.awaits_signs();
        if self.owners.get(&job.plan.name) == Some(&id) {
            self.owners.remove(&job.plan.name);
        }
        self.effects.push_back(Effect::Remove(id));
        job.into_waiting()
    }

    /// The next id that no job has: one that was given back comes again after 65,535 others, so that packets that are
    /// still under way for an old job do not reach a new one.
    pub(crate) fn next_id(&mut self) -> JobId {
        loop {
            self.last_id = JobId(self.last_id.0.checked_add(1).unwrap_or(1));
            if !self.running.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }
}
