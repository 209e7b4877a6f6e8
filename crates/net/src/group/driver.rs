//! Decides which thread drives a group's machine. There is one *leader* at a time.
//!
//! A thread that waits for a collective leads itself: it sleeps on the socket and gives the engine its turns, so that a
//! small tensor costs no hand-over between threads. When no thread waits, the group's own I/O thread leads. The leader
//! sleeps outside of the engine's lock. Other threads may submit meanwhile, and wake the leader if it would sleep too
//! long for them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tributary_control::levels::SwitchRanks;
use tributary_proto::contract::host::SubmitError;
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::metric::Metric;
use tributary_proto::contract::tensor::Tensor;
use tributary_proto::contract::time::Time;

use super::completion::{Completion, Outcome};
use super::engine::Engine;
use super::error::GroupError;
use super::failure_detector::JobFailure;
use super::options::GroupStats;
use crate::os::{self, Clock, OwnerProcess, Waker};
use crate::rendezvous::Rendezvous;

/// How long the I/O thread leaves an idle machine alone after a caller has led. The next call is probably near, and two
/// threads that sleep on one socket would both wake up.
const IDLE_AFTER_CALLER: Duration = Duration::from_millis(20);
/// How long a closed group goes on for peers that may need a packet again.
const LINGER: Duration = Duration::from_millis(500);
/// How long it goes on for peers that need data that only this worker holds.
const LINGER_FOR_DATA: Duration = Duration::from_secs(5);

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

/// What a group, its I/O thread and its pending collectives share.
pub struct Driver {
    /// The process in which the group was made. In a fork of it no thread drives the machine.
    owner: OwnerProcess,
    pub(super) identity: Identity,
    pub(super) rendezvous: Arc<dyn Rendezvous>,
    clock: Clock,
    socket: OwnedFd,
    waker: Waker,
    state: Mutex<State>,
    /// The I/O thread sleeps here while a caller leads, or while there is nothing to do.
    io_thread: Condvar,
    /// The explanation of the first failure.
    pub(super) explanation: OnceLock<String>,
    /// The rank by which sentences name each member, where members are hosts with several ranks.
    pub(super) hosts: OnceLock<Vec<u16>>,
}

pub(super) struct State {
    pub(super) engine: Engine,
    leader: Leader,
    /// Until when a leading caller sleeps on the socket.
    caller_sleeps_until: Option<Time>,
    io_thread: IoThread,
    /// When a caller last led.
    last_led: Time,
    closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leader {
    Nobody,
    IoThread,
    Caller,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum IoThread {
    Awake,
    /// The thread sleeps on its condition variable.
    Idle,
    /// The thread sleeps on the socket until this time, perhaps although a caller has taken the lead in the meantime.
    SleepsUntil(Time),
}

impl State {
    fn sleeps(&mut self, who: Leader, until: Option<Time>) {
        match who {
            Leader::Caller => self.caller_sleeps_until = until,
            _ => self.io_thread = until.map_or(IoThread::Awake, IoThread::SleepsUntil),
        }
    }
}

impl Driver {
    /// Shares an engine. `socket` is a second descriptor of its socket, to sleep on.
    pub fn new(
        identity: Identity,
        rendezvous: Arc<dyn Rendezvous>,
        engine: Engine,
        socket: OwnedFd,
        waker: Waker,
    ) -> Driver {
        Driver {
            owner: OwnerProcess::current(),
            identity,
            rendezvous,
            clock: engine.clock,
            socket,
            waker,
            state: Mutex::new(State {
                engine,
                leader: Leader::Nobody,
                caller_sleeps_until: None,
                io_thread: IoThread::Awake,
                last_led: Time::ZERO,
                closing: false,
            }),
            io_thread: Condvar::new(),
            explanation: OnceLock::new(),
            hosts: OnceLock::new(),
        }
    }

    /// Starts the collectives of one operation. With `hand_over` another thread drives them, otherwise the caller does.
    pub fn submit(
        &self,
        tensors: Vec<Box<dyn Tensor>>,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Vec<Arc<Completion>>, GroupError> {
        self.refuse_fork()?;
        let mut state = self.lock().ok_or_else(|| self.driver_fault())?;
        let submitted = state.engine.submit(tensors, os::to_span(timeout));
        let completions = submitted.map_err(|SubmitError::Broken(cause)| {
            self.peer_lost_error(&state, &cause)
                .unwrap_or_else(|| GroupError::Broken { context: self.context(), cause: self.named(&cause) })
        })?;
        if hand_over {
            self.wake_leader(&state);
        }
        Ok(completions)
    }

    /// Waits for a collective, and drives the machine in the meantime if no other thread does. `None` if the collective
    /// has not ended at `until`.
    pub fn drive(&self, completion: &Completion, until: Option<Instant>) -> Option<Outcome> {
        if let Some(outcome) = completion.outcome() {
            return Some(outcome);
        }
        let until = until.map(|until| self.clock.now() + os::to_span(until.saturating_duration_since(Instant::now())));
        let mut state = self.lock()?;
        let mut leading = false;
        loop {
            let outcome = completion.outcome();
            let now = self.clock.now();
            if outcome.is_some() || until.is_some_and(|until| until <= now) {
                if leading {
                    (state.leader, state.last_led) = (Leader::Nobody, now);
                    if state.engine.is_busy() {
                        self.wake_leader(&state);
                    }
                }
                return outcome;
            }
            if !leading && state.leader == Leader::Caller {
                drop(state);
                let timeout = until.map_or(Duration::from_secs(1), |until| os::to_duration(until.since(now)));
                completion.sleep(timeout);
                state = self.lock()?;
                continue;
            }
            (leading, state.leader) = (true, Leader::Caller);
            state = self.lead(state, Leader::Caller, until)?;
        }
    }

    /// Runs the I/O thread, which leads while no other thread does.
    pub fn run_io_thread(&self) {
        let Some(mut state) = self.lock() else { return };
        while !state.closing {
            let idle_long_enough = os::to_duration(self.clock.now().since(state.last_led)) >= IDLE_AFTER_CALLER;
            if state.leader != Leader::Caller && (idle_long_enough || state.engine.is_busy()) {
                state.leader = Leader::IoThread;
                let Some(next) = self.lead(state, Leader::IoThread, None) else { return };
                state = next;
            } else {
                state.io_thread = IoThread::Idle;
                let Ok((next, _)) = self.io_thread.wait_timeout(state, IDLE_AFTER_CALLER) else { return };
                state = next;
                state.io_thread = IoThread::Awake;
            }
        }
    }

    /// One sleep and one turn of a leader. There is no turn if another thread has taken the lead in the meantime.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        me: Leader,
        until: Option<Time>,
    ) -> Option<MutexGuard<'a, State>> {
        let due = state.engine.next_turn();
        let due = until.map_or(due, |until| due.min(until));
        state.sleeps(me, Some(due));
        drop(state);
        let sleep = os::to_duration(due.since(self.clock.now()));
        let ready = os::wait(self.socket.as_fd(), &self.waker, Some(sleep));
        let mut state = self.lock()?;
        state.sleeps(me, None);
        if state.leader == me {
            // Only the leader clears the waker. Another thread that clears it might take away a wake-up that is meant for
            // the leader.
            if ready.woken {
                self.waker.clear();
            }
            state.engine.turn(ready.packets);
        }
        Some(state)
    }

    /// Ensures that some thread leads and wakes up in time for the engine's next turn.
    fn wake_leader(&self, state: &State) {
        let asleep_until = match (state.leader, state.io_thread) {
            (Leader::Caller, _) => state.caller_sleeps_until,
            (_, IoThread::SleepsUntil(until)) => Some(until),
            (_, IoThread::Idle) => return self.io_thread.notify_one(),
            (_, IoThread::Awake) => None,
        };
        if asleep_until.is_some_and(|until| until > state.engine.next_turn()) {
            self.waker.wake();
        }
    }

    /// Sets the failure that the control plane reports; `None` withdraws it.
    pub fn set_failure(&self, failure: Option<JobFailure>) {
        let Some(mut state) = self.lock() else { return };
        state.engine.set_failure(failure);
        self.wake_leader(&state);
    }

    /// True once the group is being closed.
    pub fn is_closing(&self) -> bool {
        self.lock().is_none_or(|state| state.closing)
    }

    /// True if collectives were given up because of a failure.
    pub fn peer_lost(&self) -> bool {
        self.lock().is_some_and(|state| state.engine.has_given_up())
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
        let Some(mut state) = self.lock() else { return };
        state.closing = true;
        if !state.engine.is_idle() {
            state.engine.abort();
        }
        state.engine.finish();
        if leave == Leave::InOrder {
            let Some(next) = self.await_peers(state) else { return };
            state = next;
        }
        self.io_thread.notify_one();
        self.waker.wake();
        drop(state);
        let &Identity { job_id, key, rank, .. } = &self.identity;
        self.rendezvous.leave(job_id, key, rank, leave == Leave::Lost);
    }

    /// Answers peers that ask again until no peer needs this worker any more. Returns the lock.
    fn await_peers<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Option<MutexGuard<'a, State>> {
        let start = self.clock.now();
        loop {
            let timeout = if state.engine.may_leave() { LINGER } else { LINGER_FOR_DATA };
            let until = start + os::to_span(timeout);
            if (state.engine.may_leave() && !state.engine.is_busy()) || self.clock.now() >= until {
                return Some(state);
            }
            // The lead is free again if a caller's collective has just failed.
            state.leader = Leader::Caller;
            state = self.lead(state, Leader::Caller, Some(until))?;
        }
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

    /// The counters so far.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.refuse_fork()?;
        let state = self.lock().ok_or_else(|| self.driver_fault())?;
        Ok(GroupStats {
            host: state.engine.host.stats().clone(),
            socket: *state.engine.link.counters(),
            rejected_packets: state.engine.link.rejected_packets(),
            elements_reduced: state.engine.elements_reduced(),
        })
    }

    /// The protocol's own gauges at this worker now.
    pub fn metrics(&self) -> Result<Vec<Metric>, GroupError> {
        self.refuse_fork()?;
        let state = self.lock().ok_or_else(|| self.driver_fault())?;
        Ok(state.engine.host.metrics())
    }

    /// True if a panic has stopped the machine. The machine and its tensors are not touched after that.
    pub fn is_dead(&self) -> bool {
        self.state.is_poisoned()
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

    /// The state that the group's threads share; `None` if one of them has panicked.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.lock().ok()
    }
}
