//! The collectives of a group that are under way, with the callers that wait for them, and the counts of collectives.
//! [`Completion`] is where a caller meets the threads that drive the machines.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tributary_proto::contract::host::{CollectiveError, HostEvent};
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;

use crate::progress::Progress;

/// How a collective ended.
pub type Outcome = Result<(), CollectiveError>;

/// Tells a caller that the threads that drive the machines have completed its collective.
pub struct Completion {
    /// A bit for each core whose share of the collective is not over.
    cores: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    sleepers: usize,
}

impl Completion {
    /// A collective that this many cores share.
    pub fn new(cores: usize) -> Completion {
        let all = if cores < 32 { (1 << cores) - 1 } else { u32::MAX };
        Completion { cores: AtomicU32::new(all), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Notes that a core's share of the collective has ended. The first error counts. After the last share, the memory
    /// belongs to the caller again.
    pub fn complete(&self, core: usize, outcome: Outcome) {
        let mut state = self.lock();
        if state.outcome.as_ref().is_none_or(|outcome| outcome.is_ok()) {
            state.outcome = Some(outcome);
        }
        let is_last = self.cores.fetch_and(!(1 << core), Ordering::AcqRel) == 1 << core;
        if is_last && state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// True when the collective has ended.
    pub fn is_done(&self) -> bool {
        self.cores.load(Ordering::Acquire) == 0
    }

    /// True when a core's share has ended.
    pub fn is_over_on(&self, core: usize) -> bool {
        self.cores.load(Ordering::Acquire) & 1 << core == 0
    }

    /// The first core whose share has not ended; core 0 if all have.
    pub fn first_core(&self) -> usize {
        self.cores.load(Ordering::Acquire).trailing_zeros() as usize % 32
    }

    /// How the collective ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        if self.is_done() { self.lock().outcome.clone() } else { None }
    }

    /// Sleeps until the collective has ended, or for about `timeout`.
    pub fn sleep(&self, timeout: Duration) {
        let mut state = self.lock();
        state.sleepers += 1;
        if !self.is_done() {
            state = self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleepers -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All collectives for which a caller waits, on one core.
#[derive(Default)]
pub struct InFlight {
    core: usize,
    pending: BTreeMap<OpId, Call>,
    /// Collectives whose share here is over, and that other cores may still sum.
    elsewhere: VecDeque<Call>,
    /// The first error, and the collective in which others were waited for, if that was under way here.
    failed: Option<(CollectiveError, Option<Spec>)>,
    /// The number of collectives that were submitted.
    submitted: u64,
    /// The number of the first that has failed.
    first_failed: Option<u64>,
    /// The number of elements of completed collectives.
    elements_reduced: u64,
}

/// One collective.
struct Call {
    /// How many were submitted before it.
    number: u64,
    spec: Spec,
    begun_at: Time,
    completion: Arc<Completion>,
}

impl InFlight {
    /// The same for another core.
    pub fn on_core(self, core: usize) -> InFlight {
        InFlight { core, ..self }
    }

    /// The core.
    pub fn core(&self) -> usize {
        self.core
    }

    /// Why collectives have failed here, if any has.
    pub fn failed(&self) -> Option<&CollectiveError> {
        self.failed.as_ref().map(|(error, _)| error)
    }

    /// The collective in which others were waited for, if collectives have failed here for this reason.
    pub fn awaited(&self, error: &CollectiveError) -> Option<Spec> {
        self.failed.as_ref().filter(|(failed, _)| failed == error)?.1
    }

    /// No collective is under way.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Elements of completed collectives.
    pub fn elements_reduced(&self) -> u64 {
        self.elements_reduced
    }

    /// Adds a collective for which a caller waits.
    pub fn add(&mut self, now: Time, op: OpId, spec: Spec, completion: Arc<Completion>) {
        self.pending.insert(op, Call { number: self.submitted, spec, begun_at: now, completion });
        self.submitted += 1;
    }

    /// How many collectives have completed before the first that has not.
    pub fn completed_in_order(&self) -> u64 {
        let pending = self.pending.values().next().map_or(self.submitted, |call| call.number);
        self.first_failed.map_or(pending, |failed| failed.min(pending))
    }

    /// Takes the machine's report that a collective is over. The tensor is dropped before the caller is notified, so that
    /// nothing refers to its memory any more.
    pub fn on_event(&mut self, event: HostEvent) {
        let (op, outcome) = match event {
            HostEvent::Done { op, tensor } => {
                self.elements_reduced += u64::from(tensor.spec().elements);
                drop(tensor);
                (op, Ok(()))
            }
            HostEvent::Failed { op, tensor, error } => {
                drop(tensor);
                let awaited = || error.awaited_in().and_then(|op| self.pending.get(&op)).map(|call| call.spec);
                self.failed.get_or_insert_with(|| (error.clone(), awaited()));
                (op, Err(error))
            }
        };
        if let Some(call) = self.pending.remove(&op) {
            if outcome.is_err() {
                let first = self.first_failed.get_or_insert(call.number);
                *first = call.number.min(*first);
            }
            call.completion.complete(self.core, outcome);
            self.forget_done();
            if !call.completion.is_done() {
                self.elsewhere.push_back(call);
            }
        }
    }

    fn forget_done(&mut self) {
        while self.elsewhere.front().is_some_and(|call| call.completion.is_done()) {
            self.elsewhere.pop_front();
        }
    }

    /// The progress of this rank, over all its cores.
    pub fn progress(&mut self, now: Time, rank: Rank) -> Progress {
        self.forget_done();
        let mut open = self.elsewhere.iter().chain(self.pending.values());
        Progress {
            rank,
            submitted: self.submitted,
            completed: self.submitted - (self.elsewhere.len() + self.pending.len()) as u64,
            oldest: open.next().map(|call| (call.spec, now.since(call.begun_at))),
        }
    }
}
