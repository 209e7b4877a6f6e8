//! Jobs begin and end to use memory: they are installed, resized, left, removed, or adopted after a restart; and operators
//! end them, evict members, ban clients and let no new job begin.

use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::config::{Below, JobConfig};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use super::Control;
use crate::admission::{JobShape, OperatorAct, Refusal, TreeCharge};
use crate::effect::{Effect, Plan, Ticket};
use crate::levels::Child;
use crate::membership::job_events::{End, JobEvent};
use crate::membership::running_job::{DividedSlots, RunningJob};
use crate::names::{Client, JobName};
use crate::servers::{JobServer, Servers};

/// A job that was installed before this control plane was started, and whose ranks are all workers here.
pub struct AdoptedJob {
    /// The job's name.
    pub name: JobName,
    /// The protocol that the switch runs for the job.
    pub protocol: &'static Protocol,
    /// Id, key, ranks, slots now, elements per packet, trees.
    pub config: JobConfig,
    /// The slots on which the job's members have agreed.
    pub most_slots: u16,
    /// The source address of each worker's packets, by rank.
    pub workers: Vec<SocketAddr>,
    /// The job's servers on hosts of their own, by number.
    pub servers: Vec<JobServer>,
}

impl Control {
    /// A join is on its way for no longer than it takes this many jobs to begin and end.
    const ENDED_KEPT: usize = 64;

    /// The next event of a job, the oldest first.
    pub fn poll_event(&mut self) -> Option<JobEvent> {
        if self.events.is_empty() {
            let news: Vec<JobEvent> = self.running.values_mut().flat_map(RunningJob::events).collect();
            self.events.extend(news);
        }
        self.events.pop_front()
    }

    pub(super) fn install(&mut self, job: RunningJob) {
        let id = job.plan.config.job;
        self.owners.insert(job.plan.name.clone(), id);
        let plan = job.plan.clone();
        self.effects.push_back(Effect::Install(plan.clone()));
        self.running.insert(id, job);
        self.servers_changed(&plan);
    }

    /// Removes a job; returns the joins that still waited for its installation.
    pub(super) fn remove(&mut self, id: JobId) -> Vec<Ticket> {
        let Some(mut job) = self.running.remove(&id) else { return Vec::new() };
        let end = if self.stopping && job.is_complete() { End::Stopped } else { job.end() };
        self.events.extend(job.events());
        self.events.push_back(JobEvent::Ended { plan: job.plan.clone(), end, client: job.client.clone() });
        // Other jobs may wait for its name or its memory.
        self.urgent |= self.awaits_reports();
        if self.owners.get(&job.plan.name) == Some(&id) {
            self.owners.remove(&job.plan.name);
        }
        if job.plan.children.iter().any(|child| child.incarnation.is_some()) {
            self.ended.push_back(job.plan.clone());
            let too_many = self.ended.len().saturating_sub(Control::ENDED_KEPT);
            self.ended.drain(..too_many);
        }
        self.effects.push_back(Effect::Remove(id));
        self.grow_others();
        self.servers_changed(&job.plan);
        if let Some(uplink) = &job.plan.uplink {
            let (name, key, wid) = (job.plan.name.clone(), job.plan.config.key, uplink.wid);
            let completed = job.completed();
            self.effects.push_back(Effect::LeaveParent { name, job: id, key, wid, completed });
        }
        job.into_waiting()
    }

    /// A member leaves the job, and has completed this many of its first collectives. Without a number it can no longer
    /// contribute to what others have begun, so that they must not wait.
    pub fn leave(
        &mut self,
        now: Time,
        name: &JobName,
        id: JobId,
        rank: u16,
        key: JobKey,
        completed: Option<u64>,
    ) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let world_size = job.plan.config.world_size;
        let Some(wid) = job.worker(rank) else { return Err(Refusal::BadRank { rank, world_size }) };
        job.leave(now, wid, completed);
        self.urgent |= self.awaits_reports();
        self.remove_finished(now);
        Ok(())
    }

    /// A child switch leaves the job, and all its members have completed this many of its first collectives. It has no
    /// number if not all of them had left.
    pub fn leave_switch(
        &mut self,
        now: Time,
        name: &JobName,
        id: JobId,
        key: JobKey,
        wid: ChildId,
        completed: Option<u64>,
    ) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        job.leave(now, wid, completed);
        self.urgent |= self.awaits_reports();
        self.remove_finished(now);
        Ok(())
    }

    /// The next free id. An id that was given back comes again after 65,535 others, so that packets that are
    /// still under way for an old job do not reach a new one.
    pub(super) fn next_id(&mut self) -> JobId {
        loop {
            self.last_id = JobId(self.last_id.0.checked_add(1).unwrap_or(1));
            if !self.running.contains_key(&self.last_id) && !self.earlier.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// The trees of an installed or adopted job are planned: from now on it is charged this.
    pub fn trees_planned(&mut self, id: JobId, charge: TreeCharge) {
        if let Some(job) = self.running.get_mut(&id) {
            job.tree_charge = Some(charge);
        }
    }

    /// Gives running jobs these slots, if they have others.
    pub(super) fn resize(&mut self, slots: &[(JobId, u16)]) {
        for &(id, slots) in slots {
            let Some(divided) = self.running.get_mut(&id).and_then(|job| job.divided.as_mut()) else { continue };
            if divided.now != slots {
                divided.now = slots;
                self.effect(Effect::Resize(id, slots));
            }
        }
    }

    /// A job has gone. Other jobs take its memory if that is worth a new epoch.
    pub(super) fn grow_others(&mut self) {
        // What a job leaves after a hand-over, the next program gives to others.
        if self.stopping || self.handed_over {
            return;
        }
        let Some(growth) = self.ledger().growth() else { return };
        self.evict_shared(&growth, None);
        self.resize(&growth);
    }

    /// Bytes that jobs use, and the machines that they share.
    pub fn memory_used(&self) -> u64 {
        self.ledger().memory_used(&self.shared_machines)
    }

    /// Removes shared machines that no job uses, as far as others need their memory: jobs will have these slots, and a
    /// newcomer of this protocol takes these bytes. A machine stays until then, so that operators see what it has counted.
    pub(super) fn evict_shared(&mut self, slots: &[(JobId, u16)], newcomer: Option<(&'static Protocol, u64)>) {
        if let Some((protocol, _)) = newcomer.filter(|(protocol, _)| protocol.shared.is_some()) {
            self.shared_machines.insert(protocol.code, protocol);
        }
        for idle in self.ledger().evictions(&self.shared_machines, slots, newcomer) {
            self.shared_machines.remove(&idle.code);
            self.effect(Effect::RemoveShared(idle));
        }
    }

    /// Takes over a job that was installed before this control plane was started.
    pub fn adopt(&mut self, now: Time, job: AdoptedJob) {
        let AdoptedJob { name, protocol, config, most_slots, workers, servers } = job;
        let id = config.job;
        let world_size = workers.len() as u16;
        let child = |(rank, &addr): (usize, &SocketAddr)| Child {
            below: Below::Worker(Rank(rank as u16)),
            addrs: vec![addr],
            core_ports: Vec::new(),
            joined_at: addr.ip(),
            incarnation: None,
            sequence: 0,
            control: None,
        };
        let (shards, trees) = match self.limits.planned_trees {
            Some(_) => (self.limits.shards, config.trees),
            None => (config.trees, 1),
        };
        let shape = JobShape {
            protocol,
            slots: config.slots,
            elements_per_packet: config.elements_per_packet,
            world_size,
            children: world_size,
            neighbours: 0,
            shards,
            trees,
            servers: 0,
            options: config.options.clone(),
        };
        let plan = Plan {
            name: name.clone(),
            protocol,
            config,
            children: workers.iter().enumerate().map(child).collect(),
            trees: None,
            workers,
            servers: if servers.is_empty() { Servers::None } else { Servers::Dedicated(servers) },
            switches: Vec::new(),
            uplink: None,
            slots: shape.slots,
            memory_bytes: shape.bytes(),
        };
        // Of two jobs with one name, the job with the higher id is most likely the newer one.
        let former = self.owners.insert(name.clone(), id).and_then(|former| self.running.get_mut(&former));
        if let Some(former) = former {
            former.superseded = true;
        }
        self.last_id = self.last_id.max(id);
        let plan = Arc::new(plan);
        self.expect_servers(now, plan.servers.dedicated());
        self.events.push_back(JobEvent::Adopted(plan.clone()));
        if protocol.shared.is_some() {
            self.shared_machines.insert(protocol.code, protocol);
        }
        let divided = shape.resizes().then(|| DividedSlots { most: shape.with_slots(most_slots), now: shape.slots });
        self.running.insert(id, RunningJob { divided, ..RunningJob::adopted(now, plan) });
    }
}

/// What operators do while the switch runs.
impl Control {
    /// The jobs of a name that use memory: the one that has the name, and those that it has superseded. None if the name's
    /// job still forms.
    pub fn jobs_named(&self, name: &JobName) -> Result<Vec<JobId>, Refusal> {
        let of_name = self.running.iter().filter(|(_, job)| job.plan.name == *name);
        let ids: Vec<JobId> = of_name.map(|(&id, _)| id).collect();
        match ids.is_empty() && !self.pending.contains_key(name) {
            true => Err(Refusal::UnknownJob { job: name.clone() }),
            false => Ok(ids),
        }
    }

    /// Ends all jobs of a name, and refuses the ranks that wait for one.
    pub fn end_jobs(&mut self, name: &JobName, operator: &str) {
        let refusal = Refusal::from(OperatorAct::Ended { job: name.clone(), operator: operator.to_owned() });
        self.fail_pending(name, &refusal);
        for id in self.jobs_named(name).unwrap_or_default() {
            if let Some(job) = self.running.get_mut(&id) {
                job.ended_by_operator = true;
            }
            for ticket in self.remove(id) {
                self.answer(ticket, Err(refusal.clone()));
            }
        }
    }

    /// Counts a member as lost from now on, whatever it sends.
    pub fn evict(&mut self, now: Time, name: &JobName, rank: u16) -> Result<(), Refusal> {
        let unknown = || Refusal::UnknownJob { job: name.clone() };
        let id = *self.owners.get(name).ok_or_else(unknown)?;
        let job = self.running.get_mut(&id).ok_or_else(unknown)?;
        let no_member = || Refusal::from(OperatorAct::NoMember { job: name.clone(), rank });
        let wid = job.worker(rank).ok_or_else(no_member)?;
        job.lose_permanently(now, wid);
        self.urgent |= self.awaits_reports();
        self.remove_finished(now);
        Ok(())
    }

    /// Refuses joins of a client, or takes them again. Its running jobs go on.
    pub fn set_banned(&mut self, client: Client, banned: bool) {
        match banned {
            true => self.banned.insert(client),
            false => self.banned.remove(&client),
        };
    }

    /// The clients that may not join.
    pub fn banned(&self) -> impl Iterator<Item = &Client> {
        self.banned.iter()
    }

    /// Lets no new job begin, or lets jobs begin again. Ranks may still come to jobs that form.
    pub fn set_cordoned(&mut self, cordoned: bool) {
        self.cordoned = cordoned;
    }

    /// True if no new job may begin.
    pub fn is_cordoned(&self) -> bool {
        self.cordoned
    }

    /// An error if the client may not join.
    pub(super) fn check_banned(&self, client: &Client) -> Result<(), Refusal> {
        match self.banned.contains(client) {
            true => Err(OperatorAct::Banned { client: client.clone() }.into()),
            false => Ok(()),
        }
    }
}
