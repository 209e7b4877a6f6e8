//! The threads that drive a group for which no caller waits: its own while there is something to do, and otherwise one that
//! all groups of the process share. That one keeps groups alive at their switches and answers peers that ask again; it ends
//! with the last of them.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};
use std::{io, mem};

use super::core::{Core, IDLE_AFTER_CALLER, IoThread, Leader, State};
use crate::os::{self, OwnerProcess, Poller, Waker};

/// How long the I/O thread stays when there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);
/// So long that no clock overflows.
const LONGEST: Duration = Duration::from_secs(3600);

/// What the thread of idle groups does next about one.
enum IdleTurn {
    /// A caller leads or has just led: it comes back after this time.
    Led(Duration),
    /// It waits for packets, for this long at most.
    Idle(Duration),
    /// The group is closed, or its own thread drives it.
    Over,
}

impl Core {
    /// Starts the I/O thread. If the system gives none, the thread of idle groups goes on, which takes longer.
    pub(super) fn start_io_thread(&self, state: &mut State) {
        let Some(me) = self.me.upgrade() else { return };
        let thread = Builder::new().name(self.name.clone()).spawn(move || me.run_io_thread());
        match thread {
            Ok(thread) => {
                state.io_thread = IoThread::Awake;
                // The one before has ended, or is about to.
                *lock(&self.io_thread_handle) = Some(thread);
            }
            Err(error) => {
                tracing::warn!(thread = self.name, %error, "cannot start the I/O thread of a worker");
                if let Some(idle) = &*lock(&OF_PROCESS) {
                    lock(&idle.given).groups.extend(state.idle_key.map(|key| (key, self.me.clone())));
                    idle.waker.wake();
                }
            }
        }
    }

    /// Runs the I/O thread, which leads while no other thread does, and ends when there was nothing to do for a while.
    fn run_io_thread(&self) {
        let Some(mut state) = self.lock() else { return };
        let mut last_busy = self.clock.now();
        while !state.closing {
            let now = self.clock.now();
            if state.engine.is_busy() {
                last_busy = now;
            } else if state.leader != Leader::Caller && os::to_duration(now.since(last_busy)) >= IDLE {
                break;
            }
            let idle_long_enough = os::to_duration(now.since(state.last_led)) >= IDLE_AFTER_CALLER;
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
        if state.leader == Leader::IoThread {
            state.leader = Leader::Nobody;
        }
        state.io_thread = IoThread::Ended;
        self.leave_to_idle_thread(&mut state);
    }

    /// Has the thread of idle groups drive this core, until somebody submits.
    pub fn begin(&self) {
        if let Some(mut state) = self.lock() {
            self.leave_to_idle_thread(&mut state);
        }
    }

    /// The same with the lock.
    fn leave_to_idle_thread(&self, state: &mut State) {
        /// Keys are of one group each, for as long as the process lives.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if state.closing || state.idle_key.is_some() {
            return;
        }
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        match give(key, self.me.clone()) {
            Ok(()) => state.idle_key = Some(key),
            Err(error) => tracing::error!(
                thread = self.name, %error,
                "an idle worker sends no keepalives: it counts as lost once nobody calls it for long"
            ),
        }
    }

    /// Takes a group that is being closed from the thread of idle groups.
    pub(super) fn take_from_idle_thread(&self, state: &mut State) {
        if let (Some(key), Some(idle)) = (state.idle_key.take(), &*lock(&OF_PROCESS)) {
            lock(&idle.given).closed.push(key);
            idle.waker.wake();
        }
    }

    /// A turn of the thread of idle groups, after a packet has come or when it is due.
    fn idle_turn(&self, packets: bool) -> IdleTurn {
        let Some(mut state) = self.lock() else { return IdleTurn::Over };
        if state.closing || state.io_thread != IoThread::Ended {
            state.idle_key = None;
            return IdleTurn::Over;
        }
        let led = os::to_duration(self.clock.now().since(state.last_led));
        if state.leader == Leader::Caller || (led < IDLE_AFTER_CALLER && !state.engine.is_busy()) {
            return IdleTurn::Led(IDLE_AFTER_CALLER);
        }
        let was_busy = state.engine.is_busy();
        state.engine.turn(packets);
        if state.engine.is_busy() && !was_busy {
            self.start_io_thread(&mut state);
        }
        if state.io_thread != IoThread::Ended {
            state.idle_key = None;
            return IdleTurn::Over;
        }
        IdleTurn::Idle(os::to_duration(state.engine.next_turn().since(self.clock.now())))
    }

    /// Waits for the end of the I/O thread of a closed group.
    pub fn join_io_thread(&self) {
        let thread = lock(&self.io_thread_handle).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(thread = self.name, "the worker's I/O thread panicked");
        }
    }
}

/// The thread of idle groups, as those know it who give it groups.
struct Idle {
    /// A fork has this value and no such thread.
    owner: OwnerProcess,
    poller: Poller,
    waker: Waker,
    given: Mutex<Given>,
}

/// What others leave for the thread.
#[derive(Default)]
struct Given {
    groups: Vec<(u64, Weak<Core>)>,
    /// The keys of groups that are closed.
    closed: Vec<u64>,
    /// The thread ends and takes no more groups.
    has_ended: bool,
}

/// A group that the thread drives.
struct Kept {
    group: Weak<Core>,
    /// When its next turn is due, if no packet comes before.
    due: Instant,
}

/// The thread of this process, if there is one.
static OF_PROCESS: Mutex<Option<Arc<Idle>>> = Mutex::new(None);

/// Gives a group to the thread, which is started if there is none.
fn give(key: u64, group: Weak<Core>) -> io::Result<()> {
    let mut of_process = lock(&OF_PROCESS);
    if let Some(idle) = of_process.as_ref().filter(|idle| idle.owner.is_current()) {
        let mut given = lock(&idle.given);
        if !given.has_ended {
            given.groups.push((key, group));
            idle.waker.wake();
            return Ok(());
        }
    }
    let given = Mutex::new(Given { groups: vec![(key, group)], ..Given::default() });
    let idle = Arc::new(Idle { owner: OwnerProcess::current(), poller: Poller::new()?, waker: Waker::new()?, given });
    let thread = Arc::clone(&idle);
    Builder::new().name("idle-groups".into()).spawn(move || thread.run())?;
    *of_process = Some(idle);
    Ok(())
}

impl Idle {
    fn run(self: Arc<Self>) {
        let mut kept: BTreeMap<u64, Kept> = BTreeMap::new();
        while self.take_given(&mut kept) {
            let due = kept.values().map(|kept| kept.due).min();
            let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
            let (ready, woken) = self.poller.wait(&self.waker, timeout);
            if woken {
                self.waker.clear();
            }
            let now = Instant::now();
            let is_due = |(key, one): &(&u64, &Kept)| one.due <= now && !ready.contains(key);
            let due: Vec<u64> = kept.iter().filter(is_due).map(|(&key, _)| key).collect();
            for (key, packets) in ready.iter().map(|&key| (key, true)).chain(due.iter().map(|&key| (key, false))) {
                let Some(one) = kept.get_mut(&key) else { continue };
                match one.group.upgrade().and_then(|group| self.turn(key, &group, packets)) {
                    Some(due) => one.due = due,
                    None => drop(kept.remove(&key)),
                }
            }
        }
        lock(&OF_PROCESS).take_if(|idle| Arc::ptr_eq(idle, &self));
    }

    /// Takes what was given; false if no group is left, and then the thread must end.
    fn take_given(&self, kept: &mut BTreeMap<u64, Kept>) -> bool {
        let mut given = lock(&self.given);
        let groups = mem::take(&mut given.groups);
        kept.extend(groups.into_iter().map(|(key, group)| (key, Kept { group, due: Instant::now() })));
        for key in mem::take(&mut given.closed) {
            kept.remove(&key);
        }
        given.has_ended = kept.is_empty();
        !given.has_ended
    }

    /// Gives a group its turn. Returns the time of the next one; `None` if another thread drives it or it is closed.
    fn turn(&self, key: u64, group: &Core, packets: bool) -> Option<Instant> {
        // A fault of one group's machine, which then counts as dead, must not end the others.
        let after = match catch_unwind(AssertUnwindSafe(|| group.idle_turn(packets))).unwrap_or(IdleTurn::Over) {
            // Its packets wake whoever leads.
            IdleTurn::Led(after) => after,
            IdleTurn::Idle(after) => {
                if let Err(error) = self.poller.arm(group.socket.as_fd(), key) {
                    tracing::warn!(%error, "an idle worker's peers wait for answers: its socket cannot be watched");
                }
                after
            }
            IdleTurn::Over => return None,
        };
        Some(Instant::now() + after.min(LONGEST))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
