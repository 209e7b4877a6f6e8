//! The collectives of a group that are under way, with the callers that wait for them, and the counts of collectives.
//! [`Completion`] is where a caller meets the thread that drives the machine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tributary_proto::contract::host::{CollectiveError, HostEvent};
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;

use crate::progress::Progress;

/// How a collective ended.
pub type Outcome = Result<(), CollectiveError>;

/// Tells a caller that the thread that drives the machine has completed its collective.
#[derive(Default)]
pub struct Completion {
    done: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    sleepers: usize,
}

impl Completion {
    /// Notes that the collective has ended. Its memory belongs to the caller again.
    pub fn complete(&self, outcome: Outcome) {
        let mut state = self.lock();
        state.outcome = Some(outcome);
        self.done.store(true, Ordering::Release);
        if state.sleepers > 0 {
            self.changed.notify_all();
        }
    }

    /// True when the collective has ended.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// How the collective ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        if self.is_done() { self.lock().outcome.clone() } else { None }
    }

    /// Sleeps until the collective has ended, or for about `timeout`.
    pub fn sleep(&self, timeout: Duration) {
        let mut state = self.lock();
        state.sleepers += 1;
        if state.outcome.is_none() {
            state = self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleepers -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All collectives for which a caller waits.
#[derive(Default)]
pub struct InFlight {
    pending: BTreeMap<OpId, Call>,
    /// The number of collectives that were submitted.
    submitted: u64,
    /// The number of elements of completed collectives.
    elements_reduced: u64,
}

/// One collective.
struct Call {
    spec: Spec,
    begun_at: Time,
    completion: Arc<Completion>,
}

impl InFlight {
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
        self.submitted += 1;
        self.pending.insert(op, Call { spec, begun_at: now, completion });
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
                (op, Err(error))
            }
        };
        if let Some(call) = self.pending.remove(&op) {
            call.completion.complete(outcome);
        }
    }

    /// The progress of this rank.
    pub fn progress(&self, now: Time, rank: Rank) -> Progress {
        Progress {
            rank,
            submitted: self.submitted,
            completed: self.submitted - self.pending.len() as u64,
            oldest: self.pending.values().next().map(|call| (call.spec, now.since(call.begun_at))),
        }
    }
}
