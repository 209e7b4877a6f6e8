//! A switch's program is replaced while jobs run. The earlier program serves its jobs until they end and takes no new ones;
//! the next one begins all others. Ids and memory of the jobs that stay behind are still in use.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;

use super::Control;
use crate::admission::Refusal;
use crate::admission::ledger::{Account, Charge, Ledger};
use crate::membership::running_job::RunningJob;
use crate::names::{Client, JobName};

/// A job that the earlier program of this switch serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierJob {
    /// The job's id. Packets with it belong to the earlier program.
    pub id: JobId,
    /// The job's name. Requests about it belong to the earlier program.
    pub name: JobName,
    /// The client that is charged for the job.
    pub client: Client,
    /// The protocol that the job runs.
    pub protocol: &'static Protocol,
    /// Bytes that the job is charged.
    pub memory_bytes: u64,
    /// True if processes of their own serve the job.
    pub has_servers: bool,
}

impl EarlierJob {
    fn account(&self) -> Account<'_> {
        let EarlierJob { id, name, client, protocol, memory_bytes, .. } = self;
        Account { id: *id, name, client, protocol, charge: Charge::Fixed(*memory_bytes) }
    }
}

/// What the earlier program tells the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Succession {
    /// The jobs that stay behind.
    pub jobs: Vec<EarlierJob>,
    /// The id that was given to a job last.
    pub last_id: JobId,
    /// True if an operator lets no new job begin.
    pub cordoned: bool,
    /// The clients whose joins an operator has forbidden.
    pub banned: Vec<Client>,
}

/// The jobs of the earlier program that still run.
pub(super) type EarlierJobs = BTreeMap<JobId, EarlierJob>;

impl Control {
    /// A next program takes over: from now on no rank joins here, and those that wait are told to join again. Returns what
    /// the next program must know.
    pub fn hand_over(&mut self) -> Succession {
        self.handed_over = true;
        self.refuse_pending(&Refusal::HandedOver);
        Succession {
            jobs: self.running.values().map(earlier_job).collect(),
            last_id: self.last_id,
            cordoned: self.cordoned,
            banned: self.banned.iter().cloned().collect(),
        }
    }

    /// True if a next program has taken over.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// The next program has gone: this one takes joins again.
    pub fn take_back(&mut self) {
        self.handed_over = false;
    }

    /// Takes over from an earlier program, before anybody joins.
    pub fn succeed(&mut self, Succession { jobs, last_id, cordoned, banned }: Succession) {
        self.earlier = jobs.into_iter().map(|job| (job.id, job)).collect();
        (self.last_id, self.cordoned) = (last_id, cordoned);
        self.banned.extend(banned);
    }

    /// A job of the earlier program has ended: its id and its memory are free.
    pub fn earlier_job_ended(&mut self, id: JobId) {
        if self.earlier.remove(&id).is_some() {
            self.urgent |= self.awaits_reports();
            self.grow_others();
        }
    }

    /// The jobs that the earlier program still serves.
    pub fn earlier_jobs(&self) -> impl Iterator<Item = &EarlierJob> {
        self.earlier.values()
    }

    /// Jobs that use memory and whose names `counts` takes, as admission sees them.
    pub(super) fn ledger_of(&self, counts: impl Fn(&JobName) -> bool) -> Ledger<'_> {
        let running = self.running.values().map(RunningJob::account);
        let all = running.chain(self.earlier.values().map(EarlierJob::account));
        Ledger::new(&self.limits, all.filter(|account| counts(account.name)))
    }

    /// An error if nobody may join this switch now.
    pub(super) fn check_open(&self) -> Result<(), Refusal> {
        // A program that has handed over stops as well, and its next one goes on.
        match (self.handed_over, self.stopping) {
            (true, _) => Err(Refusal::HandedOver),
            (false, true) => Err(Refusal::Stopping),
            (false, false) => Ok(()),
        }
    }

    /// Refuses all ranks that wait.
    pub(super) fn refuse_pending(&mut self, refusal: &Refusal) {
        let names: Vec<JobName> = self.pending.keys().cloned().collect();
        names.iter().for_each(|name| drop(self.fail_pending(name, refusal)));
        for conflict in std::mem::take(&mut self.conflicts) {
            self.answer(conflict.join.ticket(), Err(refusal.clone()));
        }
    }
}

fn earlier_job(job: &RunningJob) -> EarlierJob {
    let Account { id, name, client, protocol, charge } = job.account();
    EarlierJob {
        id,
        name: name.clone(),
        client: client.clone(),
        protocol,
        memory_bytes: charge.bytes(),
        has_servers: !job.plan.servers.dedicated().is_empty(),
    }
}
