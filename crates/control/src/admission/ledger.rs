//! The memory that jobs use, and what is free for a newcomer.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use crate::admission::charge::{TreeCharge, UsedMemory, is_charged_by_tree};
use crate::admission::job_shape::JobShape;
use crate::admission::limits::Limits;
use crate::admission::refusal::Refusal;
use crate::names::{Client, JobName};

/// The protocols whose jobs share a machine that is installed, by code.
pub(crate) type SharedMachines = BTreeMap<u8, &'static Protocol>;

/// A job that uses memory, as admission sees it.
#[derive(Clone, Copy)]
pub(crate) struct Account<'a> {
    pub id: JobId,
    pub name: &'a JobName,
    /// The client that is charged for the job.
    pub client: &'a Client,
    pub protocol: &'static Protocol,
    pub charge: Charge<'a>,
}

/// How a job's memory is counted.
#[derive(Clone, Copy)]
pub(crate) enum Charge<'a> {
    /// These bytes of each switch.
    Fixed(u64),
    /// What its trees need at each switch.
    Trees(&'a TreeCharge),
    /// A part of the memory that resizable jobs divide.
    Divided {
        /// The job's shape, with the most slots that it may ever have.
        most: &'a JobShape,
        /// The job's slots now.
        slots: u16,
    },
}

impl Charge<'_> {
    /// The bytes at the switch where these are the most.
    pub fn bytes(&self) -> u64 {
        match self {
            Charge::Fixed(bytes) => *bytes,
            Charge::Trees(charge) => charge.most_bytes(),
            Charge::Divided { most, slots } => most.with_slots(*slots).bytes(),
        }
    }
}

impl Account<'_> {
    fn add_to(&self, used: &mut UsedMemory) {
        let by_tree = if let Charge::Trees(charge) = self.charge { Some(charge) } else { None };
        used.add(self.protocol, by_tree, || self.charge.bytes());
    }
}

/// The bytes that these jobs use of the switch where they use the most.
pub(super) fn most_used<'a, 'b: 'a>(jobs: impl IntoIterator<Item = &'a Account<'b>>) -> u64 {
    let mut used = UsedMemory::default();
    jobs.into_iter().for_each(|job| job.add_to(&mut used));
    used.most()
}

/// Who wants to be admitted.
#[derive(Clone, Copy)]
pub(crate) struct Applicant<'a> {
    pub name: &'a JobName,
    /// The client that will be charged for the job.
    pub client: &'a Client,
}

/// Free memory at the time of an admission, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Free {
    /// Free in the whole switch; in a fabric, in the fullest one.
    pub switch: u64,
    /// Bytes that this switch has for jobs.
    pub total: u64,
    /// Free within the job's quota, if the quota limits memory.
    pub quota: Option<u64>,
    /// Free within the client's limits, if these limit memory.
    pub client: Option<u64>,
}

/// A switch's limits, and the jobs that use its memory.
pub(crate) struct Ledger<'a> {
    pub(super) limits: &'a Limits,
    pub(super) jobs: Vec<Account<'a>>,
}

impl<'a> Ledger<'a> {
    pub fn new(limits: &'a Limits, jobs: impl Iterator<Item = Account<'a>>) -> Ledger<'a> {
        Ledger { limits, jobs: jobs.collect() }
    }

    /// An error if the switch, or the client, has as many jobs as it may. `pending` are the clients of the jobs whose
    /// ranks are still coming.
    pub fn check_count(&self, who: Applicant<'_>, pending: &[&Client]) -> Result<(), Refusal> {
        // Jobs of this name make way, unless their members are alive: hence the second bound.
        let most = self.limits.max_jobs.min(Limits::MAX_JOBS);
        let running: Vec<&Account<'_>> = self.jobs.iter().filter(|job| job.name != who.name).collect();
        if pending.len() + running.len() >= usize::from(most) || self.jobs.len() >= 2 * usize::from(most) {
            return Err(Refusal::TooManyJobs { most });
        }
        let own = pending.iter().filter(|client| **client == who.client).count()
            + running.iter().filter(|job| job.client == who.client).count();
        match self.limits.of_client(who.client).jobs {
            Some(most) if own >= usize::from(most) => {
                let (allowed, needed) = (format!("{most} jobs at a time"), "one more".into());
                Err(Refusal::OverClientLimit { job: who.name.clone(), client: who.client.clone(), allowed, needed })
            }
            _ => Ok(()),
        }
    }

    /// The memory that is free for a job of this protocol.
    pub fn free(&self, who: Applicant<'_>, protocol: &Protocol) -> Free {
        let mut used = UsedMemory::default();
        self.jobs.iter().for_each(|job| job.add_to(&mut used));
        let shared = self.shared_bytes();
        // A machine that jobs share is at every switch. Other jobs do without the small ones.
        let counts = |(memory, _): &(u64, u64)| protocol.shared.is_some() || *memory >= self.limits.memory_bytes;
        let left = |(memory, used): (u64, u64)| (memory.saturating_sub(used.saturating_add(shared)), memory);
        let lefts = used.by_switch(self.limits.memory_bytes, &self.limits.memory_at).filter(counts).map(left);
        let (switch, total) = lefts.min().expect("most switches are like most");
        let quota = self.limits.quota(who.name).and_then(|quota| {
            let same = self.jobs.iter().filter(|job| job.name.matches(&quota.jobs));
            Some(quota.memory_bytes?.saturating_sub(most_used(same)))
        });
        let client = self.limits.of_client(who.client).memory_bytes.map(|most| {
            let own = self.jobs.iter().filter(|job| job.client == who.client);
            most.saturating_sub(most_used(own))
        });
        Free { switch, total, quota, client }
    }

    /// The free bytes that remain beside the machine that the newcomer's protocol shares, if the newcomer is the first of
    /// its jobs.
    pub(super) fn free_beside_shared(
        &self,
        who: Applicant<'_>,
        protocol: &'static Protocol,
        Free { switch: free, total, .. }: Free,
    ) -> Result<u64, Refusal> {
        if self.uses(protocol) {
            return Ok(free);
        }
        let need = self.limits.shared.bytes(protocol);
        let (job, protocol) = (who.name.clone(), protocol.name);
        free.checked_sub(need).ok_or(Refusal::SharedFull { job, protocol, free, total, need })
    }

    /// True if a fabric finds memory for a job of this protocol later, when it plans the job's trees.
    pub fn is_charged_later(&self, protocol: &Protocol) -> bool {
        self.limits.planned_trees.is_some() && is_charged_by_tree(protocol)
    }

    fn uses(&self, protocol: &Protocol) -> bool {
        self.jobs.iter().any(|job| job.protocol == protocol)
    }

    /// Bytes of the shared machines that jobs use.
    pub(super) fn shared_bytes(&self) -> u64 {
        let in_use: SharedMachines = self.jobs.iter().map(|job| (job.protocol.code, job.protocol)).collect();
        self.limits.shared.bytes_of(in_use.values())
    }

    /// Bytes that jobs use, and the shared machines that are installed, whether jobs use them or not.
    pub fn memory_used(&self, installed: &SharedMachines) -> u64 {
        // A job whose trees are not planned yet counts with the most that it may need.
        let shared = self.limits.shared.bytes_of(installed.values());
        most_used(&self.jobs).saturating_add(shared).min(self.limits.memory_bytes)
    }

    /// The shared machines to remove, because no job uses them and others need their memory: jobs will have these slots,
    /// and a newcomer of this protocol takes these bytes.
    pub fn evictions(
        &self,
        installed: &SharedMachines,
        slots: &[(JobId, u16)],
        newcomer: Option<(&'static Protocol, u64)>,
    ) -> Vec<&'static Protocol> {
        let mut later = UsedMemory::default();
        for mut job in self.jobs.iter().copied() {
            let new = slots.iter().find(|(id, _)| *id == job.id).map(|&(_, slots)| slots);
            if let (Some(new), Charge::Divided { slots, .. }) = (new, &mut job.charge) {
                *slots = new;
            }
            job.add_to(&mut later);
        }
        newcomer.iter().for_each(|(protocol, bytes)| later.add(protocol, None, || *bytes));
        let newcomer = newcomer.map(|(protocol, _)| protocol);
        let (mut stay, mut evicted) = (installed.clone(), Vec::new());
        let is_full = |stay: &SharedMachines| {
            let shared = self.limits.shared.bytes_of(stay.values());
            later
                .by_switch(self.limits.memory_bytes, &self.limits.memory_at)
                .any(|(memory, used)| used.saturating_add(shared) > memory)
        };
        while is_full(&stay) {
            let is_idle = |protocol: &&&'static Protocol| newcomer != Some(**protocol) && !self.uses(protocol);
            let Some(&idle) = stay.values().find(is_idle) else { break };
            stay.remove(&idle.code);
            evicted.push(idle);
        }
        evicted
    }
}
