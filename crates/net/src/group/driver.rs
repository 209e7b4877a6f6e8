//! What all threads of a group share: its cores, its identity, and its control plane.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tributary_control::levels::SwitchRanks;
use tributary_proto::contract::host::{CollectiveError, SubmitError};
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::metric::{self, Metric};
use tributary_proto::contract::tensor::Tensor;

use super::completion::{Completion, Outcome};
use super::core::Core;
use super::error::GroupError;
use super::failure_detector::JobFailure;
use super::options::GroupStats;
use crate::os::{self, OwnerProcess};
use crate::rendezvous::Rendezvous;

/// The identity of this worker, for messages and for the control API.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The switch as the caller named it.
    pub switch: String,
    /// The job's name.
    pub job: String,
    /// The job's id in packets.
    pub job_id: JobId,
    /// The members' secret.
    pub key: JobKey,
    /// Our rank.
    pub rank: u16,
    /// Number of ranks.
    pub world_size: u16,
    pub switches: Vec<SwitchRanks>,
    /// The addresses of the job's servers, by number.
    pub servers: Vec<SocketAddr>,
    /// True if the job runs on a fabric of switches, one of which may be started again meanwhile.
    pub in_fabric: bool,
}

/// How a group leaves its job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// Peers get a last chance to ask again.
    InOrder,
    /// At once.
    AtOnce,
    /// At once, as a member that the others have lost: they do not wait for what it owes them.
    Lost,
}

/// The tensors of one operation's collectives.
pub type Tensors = Vec<Box<dyn Tensor>>;

/// What a group, its I/O threads and its pending collectives share.
pub struct Driver {
    /// The process in which the group was made. In a fork of it no thread drives the machine.
    owner: OwnerProcess,
    pub(super) identity: Identity,
    pub(super) rendezvous: Arc<dyn Rendezvous>,
    /// One, or several that divide the slots among them.
    pub(super) cores: Vec<Arc<Core>>,
    /// Held by a thread that submits to several cores, which must all get collectives in the same order.
    submitting: Mutex<()>,
    /// The explanation of the first failure.
    pub(super) explanation: OnceLock<String>,
    /// The rank by which sentences name each member, where members are hosts with several ranks.
    pub(super) hosts: OnceLock<Vec<u16>>,
}

impl Driver {
    /// Shares the cores of a worker, at least one.
    pub fn new(identity: Identity, rendezvous: Arc<dyn Rendezvous>, cores: Vec<Arc<Core>>) -> Driver {
        Driver {
            owner: OwnerProcess::current(),
            identity,
            rendezvous,
            cores,
            submitting: Mutex::new(()),
            explanation: OnceLock::new(),
            hosts: OnceLock::new(),
        }
    }

    /// Starts the collectives of one operation, whose tensors each core has. With `hand_over` another thread drives them,
    /// otherwise the caller does.
    pub fn submit(
        &self,
        tensors: Vec<Tensors>,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Vec<Arc<Completion>>, GroupError> {
        self.refuse_fork()?;
        let several = self.cores.len() > 1;
        // Nothing is behind this lock, so it does not matter that a thread has panicked while it held it.
        let _order = several.then(|| self.submitting.lock().unwrap_or_else(PoisonError::into_inner));
        let collectives = tensors.first().map_or(0, Vec::len);
        let completions: Vec<_> = (0..collectives).map(|_| Arc::new(Completion::new(self.cores.len()))).collect();
        for (number, (core, tensors)) in self.cores.iter().zip(tensors).enumerate() {
            if let Err(cause) = self.submit_to(core, tensors, timeout, &completions, hand_over || several) {
                // Their memory is the caller's again.
                let earlier = self.cores[..number].iter().filter_map(|core| core.lock());
                earlier.for_each(|mut state| state.engine.abort());
                return Err(cause.map_or_else(|| self.driver_fault(), |cause| self.broken(cause)));
            }
        }
        Ok(completions)
    }

    /// Starts the share of one core. The error has no cause if a panic has stopped it.
    fn submit_to(
        &self,
        core: &Core,
        tensors: Tensors,
        timeout: Duration,
        completions: &[Arc<Completion>],
        hand_over: bool,
    ) -> Result<(), Option<CollectiveError>> {
        let mut state = core.lock().ok_or(None)?;
        let submitted = state.engine.submit(tensors, os::to_span(timeout), completions);
        submitted.map_err(|SubmitError::Broken(cause)| Some(cause))?;
        if hand_over {
            core.wake_leader(&mut state);
        }
        Ok(())
    }

    fn broken(&self, cause: CollectiveError) -> GroupError {
        let lost = self.peer_lost_error(&cause);
        lost.unwrap_or_else(|| GroupError::Broken { context: self.context(), cause: self.named(&cause) })
    }

    /// Waits for a collective, and drives a core in the meantime if no other thread does. `None` if the collective has not
    /// ended at `until`.
    pub fn drive(&self, completion: &Completion, until: Option<Instant>) -> Option<Outcome> {
        if let Some(outcome) = completion.outcome() {
            return Some(outcome);
        }
        let core = &self.cores[completion.first_core()];
        let until =
            until.map(|until| core.clock().now() + os::to_span(until.saturating_duration_since(Instant::now())));
        core.drive(completion, until)?;
        // The I/O threads of the other cores drive what is left.
        loop {
            let (outcome, now) = (completion.outcome(), core.clock().now());
            if outcome.is_some() || self.is_dead() || until.is_some_and(|until| until <= now) {
                return outcome;
            }
            completion.sleep(until.map_or(Duration::from_secs(1), |until| os::to_duration(until.since(now))));
        }
    }

    /// Sets the failure that the control plane reports; `None` withdraws it.
    pub fn set_failure(&self, failure: Option<JobFailure>) {
        self.cores.iter().for_each(|core| core.set_failure(failure.clone()));
    }

    /// True once the group is being closed.
    pub fn is_closing(&self) -> bool {
        self.cores[0].is_closing()
    }

    /// True if collectives were given up because of a failure.
    pub fn peer_lost(&self) -> bool {
        self.cores.iter().filter_map(|core| core.lock()).any(|state| state.engine.has_given_up())
    }

    /// The control plane.
    pub fn rendezvous(&self) -> Arc<dyn Rendezvous> {
        Arc::clone(&self.rendezvous)
    }

    /// This worker's identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Leaves the job: collectives under way fail.
    pub fn close(&self, leave: Leave) {
        let closed: Vec<bool> = self.cores.iter().map(|core| core.close(leave == Leave::InOrder)).collect();
        if closed.contains(&false) {
            return;
        }
        let &Identity { job_id, key, rank, .. } = &self.identity;
        let of = |core: &Arc<Core>| core.lock().map_or(0, |state| state.engine.completed_in_order());
        let completed = self.cores.iter().map(of).min().filter(|_| leave != Leave::Lost);
        self.rendezvous.leave(job_id, key, rank, completed);
    }

    /// True if this process is the group's own, and not a fork of it: in a fork the lock may be held by a thread that
    /// does not exist any more.
    pub fn is_in_owner_process(&self) -> bool {
        self.owner.is_current()
    }

    /// An error if this process is a fork.
    pub fn refuse_fork(&self) -> Result<(), GroupError> {
        if self.is_in_owner_process() { Ok(()) } else { Err(GroupError::Forked { context: self.context() }) }
    }

    /// The counters so far, of all cores together.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.refuse_fork()?;
        let mut all: Option<GroupStats> = None;
        for core in &self.cores {
            let state = core.lock().ok_or_else(|| self.driver_fault())?;
            let own = GroupStats {
                host: state.engine.host.stats().clone(),
                socket: *state.engine.link.counters(),
                rejected_packets: state.engine.link.rejected_packets(),
                elements_reduced: state.engine.elements_reduced(),
                core_packets: vec![state.engine.host.stats().packets_sent],
            };
            match &mut all {
                None => all = Some(own),
                Some(all) => all.add(&own),
            }
        }
        all.ok_or_else(|| self.driver_fault())
    }

    /// The protocol's own gauges at this worker now.
    pub fn metrics(&self) -> Result<Vec<Metric>, GroupError> {
        self.refuse_fork()?;
        let mut all = Vec::new();
        for core in &self.cores {
            let state = core.lock().ok_or_else(|| self.driver_fault())?;
            metric::combine(&mut all, &state.engine.host.metrics());
        }
        Ok(all)
    }

    /// True if a panic has stopped a machine. The machine and its tensors are not touched after that.
    pub fn is_dead(&self) -> bool {
        self.cores.iter().any(|core| core.is_dead())
    }

    /// The error for a machine that a panic has stopped.
    pub fn driver_fault(&self) -> GroupError {
        GroupError::DriverFault { context: self.context() }
    }

    /// The error for a wait that was too short.
    pub fn still_running(&self) -> GroupError {
        GroupError::StillRunning { context: self.context() }
    }

    /// Job, switch and rank, for messages.
    pub(super) fn context(&self) -> String {
        let Identity { switch, job, rank, world_size, .. } = &self.identity;
        let member = if self.hosts.get().is_some() { "host" } else { "rank" };
        format!("job \"{job}\" at switch {switch}, {member} {rank} of {world_size}")
    }
}
