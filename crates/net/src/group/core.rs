//! One core of a worker: an engine with its socket, and the decision which thread drives it. There is one *leader* at a time.
//!
//! A thread that waits for a collective leads itself: it sleeps on the socket and gives the engine its turns, so that a
//! small tensor costs no hand-over between threads. When no thread waits, the core's own I/O thread leads; it is there while
//! there is something to do, and a thread that all groups share leads the others (`io_threads`). The leader sleeps outside
//! of the engine's lock. Other threads may submit meanwhile, and wake the leader if it would sleep too long for them.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::Socket;
use tributary_proto::contract::time::Time;

use super::completion::Completion;
use super::engine::Engine;
use super::failure_detector::JobFailure;
use crate::os::{self, Clock, Waker};

/// How long the I/O thread leaves an idle machine alone after a caller has led. The next call is probably near, and two
/// threads that sleep on one socket would both wake up.
pub(super) const IDLE_AFTER_CALLER: Duration = Duration::from_millis(20);
/// How long a closed group goes on for peers that may need a packet again.
const LINGER: Duration = Duration::from_millis(500);
/// How long it goes on for peers that need data that only this worker holds.
const LINGER_FOR_DATA: Duration = Duration::from_secs(5);

/// What the threads of one core share.
pub struct Core {
    pub(super) clock: Clock,
    pub(super) socket: Arc<Socket>,
    waker: Arc<Waker>,
    /// The name of its I/O thread.
    pub(super) name: String,
    /// This value, for the threads that it starts.
    pub(super) me: Weak<Core>,
    state: Mutex<State>,
    /// The I/O thread sleeps here while a caller leads, or while there is nothing to do.
    pub(super) io_thread: Condvar,
    /// The last I/O thread.
    pub(super) io_thread_handle: Mutex<Option<JoinHandle<()>>>,
}

pub struct State {
    pub engine: Engine,
    pub(super) leader: Leader,
    /// Until when a leading caller sleeps on the socket.
    caller_sleeps_until: Option<Time>,
    pub(super) io_thread: IoThread,
    /// By which the thread of idle groups knows this core, if it does.
    pub(super) idle_key: Option<u64>,
    /// When a caller last led.
    pub(super) last_led: Time,
    pub(super) closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    Nobody,
    IoThread,
    Caller,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IoThread {
    /// There is none: the thread of all idle groups drives this core.
    Ended,
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

impl Core {
    /// Shares an engine, with its socket to sleep on. Nobody drives it before it [begins](Core::begin).
    pub fn new(engine: Engine, socket: Arc<Socket>, waker: Arc<Waker>, name: String) -> Arc<Core> {
        Arc::new_cyclic(|me| Core {
            clock: engine.clock,
            socket,
            waker,
            name,
            me: me.clone(),
            state: Mutex::new(State {
                engine,
                leader: Leader::Nobody,
                caller_sleeps_until: None,
                io_thread: IoThread::Ended,
                idle_key: None,
                last_led: Time::ZERO,
                closing: false,
            }),
            io_thread: Condvar::new(),
            io_thread_handle: Mutex::default(),
        })
    }

    /// Drives the engine, if no other caller does, until its share of a collective is over or this time has come. `None` if a
    /// panic has stopped the engine.
    pub fn drive(&self, completion: &Completion, until: Option<Time>) -> Option<()> {
        let mut state = self.lock()?;
        let mut leading = false;
        loop {
            let now = self.clock.now();
            if completion.is_over_on(state.engine.core()) || until.is_some_and(|until| until <= now) {
                if leading {
                    (state.leader, state.last_led) = (Leader::Nobody, now);
                    if state.engine.is_busy() {
                        self.wake_leader(&mut state);
                    }
                }
                return Some(());
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

    /// One sleep of a leader, and one turn unless another thread has taken the lead in the meantime.
    pub(super) fn lead<'a>(
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
    pub fn wake_leader(&self, state: &mut State) {
        let asleep_until = match (state.leader, state.io_thread) {
            (Leader::Caller, _) => state.caller_sleeps_until,
            (_, IoThread::Ended) if state.engine.is_busy() => return self.start_io_thread(state),
            (_, IoThread::Ended) => None,
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
        self.wake_leader(&mut state);
    }

    /// True once the group is being closed.
    pub fn is_closing(&self) -> bool {
        self.lock().is_none_or(|state| state.closing)
    }

    /// Gives up the collectives under way, and ends the I/O thread; if `in_order`, when no peer needs this worker any more.
    /// False if a panic has stopped the engine.
    pub fn close(&self, in_order: bool) -> bool {
        let Some(mut state) = self.lock() else { return false };
        state.closing = true;
        if !state.engine.is_idle() {
            state.engine.abort();
        }
        state.engine.finish();
        if in_order {
            let Some(next) = self.await_peers(state) else { return false };
            state = next;
        }
        self.io_thread.notify_one();
        self.waker.wake();
        self.take_from_idle_thread(&mut state);
        drop(state);
        true
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

    /// The core's clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// True if a panic has stopped the engine. Its machine and its tensors are not touched after that.
    pub fn is_dead(&self) -> bool {
        self.state.is_poisoned()
    }

    /// The state that the core's threads share; `None` if one of them has panicked.
    pub fn lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.lock().ok()
    }
}
