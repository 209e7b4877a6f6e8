//! One shard of a switch: it finds a packet's job, checks key and membership, and hands the packet to the job's
//! machine.
//!
//! This is what all protocols have in common: packets that belong to no job are rejected and counted, pings are
//! answered, and the control plane learns when each member last sent something.

use crate::contract::config::{JobConfig, SharedJob};
use crate::contract::drop_reason::{DropCounters, DropReason};
use crate::contract::ids::{JobId, JobKey, PortId, Rank};
use crate::contract::packet::PacketMut;
use crate::contract::rate_limit::{InstructionBudget, InstructionLimit, QueryLimit};
use crate::contract::seal;
use crate::contract::small_map::SmallMap;
use crate::contract::switch::{Emission, PortView, SharedReport, SharedSwitch, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::wire::{Common, kind};
use crate::contract::work::{Claim, Work};

/// A job as it is installed in one shard.
pub struct InstalledJob {
    /// The protocol's code, as packets carry it.
    pub protocol: u8,
    /// The members' secret.
    pub key: JobKey,
    /// The port of each member: for workers by rank, below a switch of several levels by `wid`.
    pub members: Vec<PortId>,
    /// Further ports that belong to the job, such as the one to a parent switch.
    pub others: Vec<PortId>,
    /// The job's own machine; `None` if the switch only forwards for the job. [`Pipeline::install_shared`] is for jobs
    /// that use the machine that their protocol's jobs share.
    pub machine: Option<Box<dyn Switch>>,
}

struct Entry {
    job: InstalledJob,
    /// The rank of the member behind each port. Ports beyond the end have no member.
    rank_by_port: Vec<Option<Rank>>,
    last_seen: Vec<Option<Time>>,
    others_last_seen: Option<Time>,
    /// The kinds of packets that are queries, a bit for each.
    query_kinds: u64,
    /// The limit of each member's queries.
    query_limits: Vec<QueryLimit>,
    packets: u64,
    drops: DropCounters,
    /// The limit of its custom operators, if it has any and the pipeline limits them.
    instruction_limit: Option<InstructionLimit>,
    /// The job's packets go to the machine that its protocol's jobs share.
    uses_shared: bool,
    /// The job's packets have a checksum.
    is_sealed: bool,
}

/// All jobs of one shard.
#[derive(Default)]
pub struct Pipeline {
    jobs: SmallMap<JobId, Entry>,
    /// Machines that all jobs of a protocol share, by the protocol's code.
    shared: SmallMap<u8, Box<dyn SharedSwitch>>,
    /// Packets that belong to no job, by reason.
    rejected: DropCounters,
    /// What limits custom operators, where they take time that other jobs' packets wait for.
    instruction_budget: Option<InstructionBudget>,
}

/// What an operator sees of one job in one shard.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// The machine's own report; `None` if the protocol needs no machine.
    pub machine: Option<SwitchReport>,
    /// Why the job can never go on here.
    pub fault: Option<String>,
    /// Bytes that the job's own machine holds.
    pub memory_bytes: usize,
    /// Packets of members.
    pub packets: u64,
    /// Packets with the job's id that were dropped, by reason.
    pub drops: DropCounters,
    /// When each member's last packet came, by the member's index.
    pub last_seen: Vec<Option<Time>>,
    /// When a packet last came in by one of the further ports.
    pub others_last_seen: Option<Time>,
}

impl Pipeline {
    /// A pipeline whose jobs share one thread, and whose custom operators are limited to their share of it.
    pub fn with_instruction_limit() -> Pipeline {
        Pipeline { instruction_budget: Some(InstructionBudget::default()), ..Pipeline::default() }
    }

    /// Installs a machine that all jobs of a protocol share, before any of these jobs.
    pub fn share(&mut self, protocol: u8, machine: Box<dyn SharedSwitch>) {
        debug_assert!(self.jobs.values().all(|entry| entry.job.protocol != protocol), "a job was there before");
        self.shared.insert(protocol, machine);
    }

    /// Removes the machine that a protocol's jobs share, after all of these jobs; false if there was none.
    pub fn unshare(&mut self, protocol: u8) -> bool {
        debug_assert!(self.jobs.values().all(|entry| entry.job.protocol != protocol), "a job is still there");
        self.shared.remove(protocol).is_some()
    }

    /// Installs a job in place of any job with the same id.
    pub fn install(&mut self, id: JobId, job: InstalledJob) {
        self.remove(id);
        self.insert(id, job, false);
    }

    /// Installs a job that uses its protocol's shared machine, in place of any job with the same id, and adds it to the
    /// machine. `members` are the ports of the job's members by rank, if all of them are connected to this
    /// switch: packets of others are then dropped. In a fabric `members` is empty, and the job's packets may come in by
    /// every known port.
    pub fn install_shared(&mut self, plan: &SharedJob, members: Vec<PortId>) {
        let JobConfig { job: id, key, protocol, .. } = plan.job;
        self.remove(id);
        let machine = self.shared.get_mut(protocol);
        debug_assert!(machine.is_some(), "the shared machine comes first");
        let uses_shared = machine.map(|machine| machine.add_job(plan)).is_some();
        // Dedicated servers, which follow the ranks in the plan.
        let behind = plan.ports.iter().skip(plan.job.world_size.into()).flatten().copied();
        let others = if members.is_empty() { Vec::new() } else { behind.collect() };
        let members = members.into_iter().take(plan.job.world_size.into()).collect();
        self.insert(id, InstalledJob { protocol, key, members, others, machine: None }, uses_shared);
    }

    fn insert(&mut self, id: JobId, job: InstalledJob, uses_shared: bool) {
        let ports = job.members.iter().map(|port| port.index() + 1).max().unwrap_or(0);
        let mut rank_by_port = vec![None; ports];
        for (rank, port) in job.members.iter().enumerate() {
            rank_by_port[port.index()] = Some(Rank(rank as u16));
        }
        let machine = job.machine.as_deref();
        let instruction_limit =
            self.instruction_budget.as_mut().zip(machine).and_then(|(budget, machine)| budget.add_job(machine));
        let entry = Entry {
            rank_by_port,
            last_seen: vec![None; job.members.len()],
            others_last_seen: None,
            query_kinds: 1 << kind::PING | job.machine.as_ref().map_or(0, |machine| machine.query_kinds()),
            query_limits: vec![QueryLimit::default(); job.members.len()],
            packets: 0,
            drops: DropCounters::default(),
            instruction_limit,
            uses_shared,
            is_sealed: job.machine.as_ref().is_some_and(|machine| machine.is_sealed()),
            job,
        };
        self.jobs.insert(id, entry);
    }

    /// Removes a job and frees its memory; false if there was no such job.
    pub fn remove(&mut self, id: JobId) -> bool {
        let Some(entry) = self.jobs.remove(id) else { return false };
        if entry.uses_shared
            && let Some(machine) = self.shared.get_mut(entry.job.protocol)
        {
            machine.remove_job(id);
        }
        if let Some(budget) = self.instruction_budget.as_mut().filter(|_| entry.instruction_limit.is_some()) {
            budget.remove_job();
        }
        true
    }

    /// Gives a job's own machine another number of slots; false if the job has no machine. See [`Switch::resize`].
    pub fn resize(&mut self, id: JobId, slots: u16) -> bool {
        let machine = self.jobs.get_mut(id).and_then(|entry| entry.job.machine.as_mut());
        machine.map(|machine| machine.resize(slots)).is_some()
    }

    /// Takes one packet through the pipeline.
    pub fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, ports: &dyn PortView) -> Verdict {
        let common = match Common::parse(&packet.bytes[..packet.len]) {
            Ok(common) => common,
            Err(reason) => return self.reject(reason),
        };
        let Some(entry) = self.jobs.get_mut(common.job) else {
            return self.reject(DropReason::UnknownJob);
        };
        let accepted = entry.accept(now, ingress, &common, &packet.bytes[..packet.len]);
        let verdict = accepted.and_then(|()| {
            if common.kind == kind::PING {
                packet.bytes[kind::AT] = kind::PONG;
                return Ok(Verdict::Port(ingress));
            }
            if common.kind == kind::PONG && entry.job.others.contains(&ingress) {
                return Ok(Verdict::Consume);
            }
            if let Some(budget) = &mut self.instruction_budget {
                budget.on_packet(now, common.job);
            }
            if entry.uses_shared {
                let machine = self.shared.get_mut(common.protocol).ok_or(DropReason::BadKind)?;
                return Ok(machine.process(now, ingress, packet, ports));
            }
            let machine = entry.job.machine.as_mut().ok_or(DropReason::BadKind)?;
            let mut call = |machine: &mut dyn Switch| machine.process(now, ingress, packet, ports);
            match (&mut entry.instruction_limit, &self.instruction_budget) {
                (Some(limit), Some(budget)) => limit.call(now, budget, &mut **machine, call),
                _ => Ok(call(&mut **machine)),
            }
        });
        let verdict = verdict.unwrap_or_else(Verdict::Drop);
        match verdict {
            Verdict::Drop(reason) => entry.drops.count(reason),
            Verdict::Consume => {}
            _ => entry.seal(&mut packet.bytes[..packet.len]),
        }
        verdict
    }

    /// True if a packet belongs to an installed job and comes from one of its members; for drivers that handle some
    /// packets themselves. Counts the packet as [`Pipeline::process`] does.
    pub fn accepts(&mut self, now: Time, ingress: PortId, bytes: &[u8]) -> bool {
        let common = match Common::parse(bytes) {
            Ok(common) => common,
            Err(reason) => {
                self.reject(reason);
                return false;
            }
        };
        let Some(entry) = self.jobs.get_mut(common.job) else {
            self.reject(DropReason::UnknownJob);
            return false;
        };
        let accepted = entry.accept(now, ingress, &common, bytes);
        if let Err(reason) = accepted {
            entry.drops.count(reason);
        }
        accepted.is_ok()
    }

    fn reject(&mut self, reason: DropReason) -> Verdict {
        self.rejected.count(reason);
        Verdict::Drop(reason)
    }

    /// What a packet's handler claims, and the job whose machine handles it (job 0: the machine that jobs share). See
    /// [`Instrumented::claim`](crate::contract::work::Instrumented::claim).
    pub fn claim(&mut self, ingress: PortId, packet: &[u8]) -> (JobId, Claim) {
        let Ok(common) = Common::parse(packet) else { return (JobId(0), Claim::nothing(0)) };
        let nothing = (common.job, Claim::nothing(0));
        if matches!(common.kind, kind::PING | kind::PONG) {
            return nothing;
        }
        match self.jobs.get_mut(common.job) {
            Some(Entry { uses_shared: true, .. }) => {
                // A shared machine has one number for all jobs.
                let machine = self.shared.get_mut(common.protocol);
                machine.map_or(nothing, |machine| (JobId(0), claim_of(&mut **machine, ingress, packet)))
            }
            Some(Entry { job: InstalledJob { machine: Some(machine), .. }, .. }) => {
                (common.job, claim_of(&mut **machine, ingress, packet))
            }
            _ => nothing,
        }
    }

    /// What the machine of a job has done since the last call; `None` if the machine does not count its work, or there
    /// is none.
    pub fn take_work(&mut self, id: JobId) -> Option<Work> {
        let entry = self.jobs.get_mut(id)?;
        match &mut entry.job.machine {
            Some(machine) => Some(machine.instrumented()?.take_work()),
            None if entry.uses_shared => Some(self.shared.get_mut(entry.job.protocol)?.instrumented()?.take_work()),
            None => None,
        }
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        let run = |machine: &mut dyn Switch| {
            if machine.poll_timeout().is_some_and(|due| due <= now) {
                machine.handle_timeout(now);
            }
        };
        self.shared.values_mut().for_each(|machine| run(machine.as_mut()));
        self.jobs.values_mut().filter_map(|entry| entry.job.machine.as_mut()).for_each(|machine| run(machine.as_mut()));
    }

    /// The next packet that some machine makes itself.
    pub fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Emission> {
        if let Some(emission) = self.shared.values_mut().find_map(|machine| machine.poll_transmit(now, buf)) {
            return Some(emission);
        }
        self.jobs.values_mut().find_map(|entry| {
            let emission = entry.job.machine.as_mut()?.poll_transmit(now, buf)?;
            entry.seal(&mut buf[..emission.len]);
            Some(emission)
        })
    }

    /// The earliest timer of any machine.
    pub fn poll_timeout(&self) -> Option<Time> {
        let own = self.jobs.values().filter_map(|entry| entry.job.machine.as_ref()?.poll_timeout());
        own.chain(self.shared.values().filter_map(|machine| machine.poll_timeout())).min()
    }

    /// The earliest timer of any machine, if it comes before `limit`.
    #[inline]
    pub fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        let own = self.jobs.values().filter_map(|entry| entry.job.machine.as_ref()?.poll_timeout_before(limit));
        own.chain(self.shared.values().filter_map(|machine| machine.poll_timeout_before(limit))).min()
    }

    /// Why a job can never go on here.
    pub fn fault(&self, id: JobId) -> Option<String> {
        self.jobs.get(id)?.job.machine.as_ref()?.operator_status()?.fault
    }

    /// The state of one job.
    pub fn report(&self, id: JobId) -> Option<JobReport> {
        self.jobs.get(id).map(|entry| JobReport {
            fault: self.fault(id),
            machine: match &entry.job.machine {
                Some(machine) => Some(machine.report()),
                None if entry.uses_shared => self.shared.get(entry.job.protocol).map(|machine| machine.report_job(id)),
                None => None,
            },
            memory_bytes: entry.job.machine.as_ref().map_or(0, |machine| machine.memory_bytes()),
            packets: entry.packets,
            drops: entry.drops.clone(),
            last_seen: entry.last_seen.clone(),
            others_last_seen: entry.others_last_seen,
        })
    }

    /// True if there is a machine that a protocol's jobs share.
    pub fn has_shared(&self, protocol: u8) -> bool {
        self.shared.get(protocol).is_some()
    }

    /// The state of the memory that a protocol's jobs share, if they share one.
    pub fn shared(&self, protocol: u8) -> Option<SharedReport> {
        self.shared.get(protocol).map(|machine| machine.report_shared())
    }

    /// For all protocols whose jobs share a machine: code, state, and bytes that the machine holds.
    pub fn all_shared(&self) -> impl Iterator<Item = (u8, SharedReport, usize)> + '_ {
        self.shared.iter().map(|(code, machine)| (code, machine.report_shared(), machine.memory_bytes()))
    }

    /// Packets that belonged to no job, by reason.
    pub fn rejected(&self) -> &DropCounters {
        &self.rejected
    }
}

fn claim_of<S: Switch + ?Sized>(machine: &mut S, ingress: PortId, packet: &[u8]) -> Claim {
    machine.instrumented().map_or(Claim::ALL, |machine| machine.claim(ingress, packet))
}

impl Entry {
    /// Completes a packet of the job that leaves.
    #[inline]
    fn seal(&self, packet: &mut [u8]) {
        if self.is_sealed && packet[kind::AT] >= kind::FIRST_OF_PROTOCOL {
            seal::seal(packet, self.job.key);
        }
    }

    #[inline]
    fn accept(&mut self, now: Time, ingress: PortId, common: &Common, packet: &[u8]) -> Result<(), DropReason> {
        if self.is_sealed && common.kind >= kind::FIRST_OF_PROTOCOL {
            seal::check(packet, self.job.key)?;
        } else if common.key != self.job.key {
            return Err(DropReason::WrongKey);
        }
        if let Some(&Some(worker)) = self.rank_by_port.get(ingress.index()) {
            self.last_seen[worker.index()] = Some(now);
        } else if self.job.others.contains(&ingress) {
            self.others_last_seen = Some(now);
        } else if !(self.uses_shared && self.job.members.is_empty() && ingress != PortId::UNKNOWN) {
            return Err(DropReason::NotAMember);
        }
        if common.protocol != self.job.protocol {
            return Err(DropReason::WrongProtocol);
        }
        self.packets += 1;
        if common.kind < 64 && self.query_kinds >> common.kind & 1 == 1 {
            self.limit_queries(now, ingress)?;
        }
        Ok(())
    }

    #[cold]
    fn limit_queries(&mut self, now: Time, ingress: PortId) -> Result<(), DropReason> {
        // Other ports of the job carry the queries of many members.
        let Some(&Some(member)) = self.rank_by_port.get(ingress.index()) else { return Ok(()) };
        match self.query_limits[member.index()].try_query(now) {
            true => Ok(()),
            false => Err(DropReason::TooOften),
        }
    }
}

#[cfg(test)]
mod tests;
