//! A collective that is under way, as its caller holds it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tributary_proto::contract::host::CollectiveError;

use super::error::GroupError;
use super::shared::Shared;

/// How a collective ended.
pub type Outcome = Result<(), CollectiveError>;

/// The meeting point of a caller and the thread that drives the machine.
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

    /// Sleeps until the collective has ended, or for about `patience`.
    pub fn sleep(&self, patience: Duration) {
        let mut state = self.lock();
        state.sleepers += 1;
        if state.outcome.is_none() {
            state = self.changed.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.sleepers -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A collective that was submitted. Dropping this value does not end the collective, nor free its memory.
pub struct Pending {
    pub(super) shared: Arc<Shared>,
    pub(super) completion: Arc<Completion>,
}

impl Pending {
    /// True once the collective has ended, well or not: its memory belongs to the caller again. It is also true in a
    /// fork, for the fork's copy.
    pub fn is_done(&self) -> bool {
        self.completion.is_done() || self.shared.is_dead() || !self.shared.is_at_home()
    }

    /// Waits until the collective has ended, or `timeout` has passed. In the second case the error is
    /// [`GroupError::StillRunning`], and the caller must leave the memory alone until a later wait, or
    /// [`Pending::is_done`], says that the collective has ended. `None` waits for the end, which the collective's own
    /// timeout bounds.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), GroupError> {
        self.shared.refuse_fork()?;
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.shared.drive(&self.completion, until) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.shared.explain(error)),
            None if self.shared.is_dead() => Err(self.shared.driver_fault()),
            None => Err(self.shared.still_running()),
        }
    }
}
