//! A group: its collectives in their order, and which thread works on them.
//!
//! Whoever waits for a collective works on the group's collectives meanwhile, so that a call that waits costs no change
//! of threads. What nobody waits for is done by a thread of the group, which is there while there are such collectives.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use crate::collective::{Description, Kind, Plan};
use crate::error::LocalError;
use crate::layout::{Layout, Status};
use crate::machine::{Machine, NAP, Step};
use crate::os::Process;
use crate::work::{Collective, Operands};

/// How long the group's own thread stays when there is nothing to do.
const IDLE: Duration = Duration::from_secs(1);

/// One rank of a group. All ranks start the same collectives in the same order. Dropping it leaves the group.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A collective under way.
#[derive(Clone, Debug)]
pub struct Pending {
    shared: Arc<Shared>,
    collective: Arc<Collective>,
}

struct Shared {
    rank: usize,
    /// The ranks' numbers in sentences.
    names: Vec<u16>,
    layout: Layout,
    machine: Mutex<Machine>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    /// True once the group ends: who works stops.
    ends: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("rank", &self.rank).field("names", &self.names).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Arc<Collective>>,
    /// Collectives that have not ended.
    under_way: usize,
    /// A thread works.
    is_driven: bool,
    /// The group's own thread is to work whenever no other does.
    alone: bool,
    /// The group has a thread of its own.
    has_thread: bool,
    /// Why nothing goes on.
    failure: Option<LocalError>,
}

/// A thread's turn to work. If the thread panics, everything under way has failed.
struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(None, &LocalError::Fault);
        }
        self.0.lock().is_driven = false;
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Works until `is_over`, or there is nothing to do, or the time has come.
    fn drive(&self, is_over: impl Fn() -> bool, until: Option<Instant>) {
        let turn = Turn(self);
        let mut machine = self.machine.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while !is_over() && until.is_none_or(|until| Instant::now() < until) {
            let mut inbox = self.lock();
            mem::take(&mut inbox.queue).into_iter().for_each(|collective| machine.push(collective));
            let failure = inbox.failure.clone();
            drop(inbox);
            let ends = self.ends.load(Ordering::Acquire).then_some(LocalError::Aborted);
            if let Some(error) = failure.or(ends) {
                self.fail(Some(&mut machine), &error);
                break;
            }
            let result = match machine.step(&self.layout) {
                Ok((Step::Idle, _)) => break,
                Ok((Step::Worked, ended)) => {
                    ended.into_iter().for_each(|collective| self.end(&collective, Ok(())));
                    Ok(())
                }
                Ok((Step::Waits(wait), _)) => {
                    let nap = Instant::now() + NAP;
                    machine.wait(&self.layout, wait, until.map_or(nap, |until| until.min(nap)))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.fail(Some(&mut machine), &error);
            }
        }
        drop(machine);
        drop(turn);
    }

    fn end(&self, collective: &Collective, outcome: Result<(), LocalError>) {
        if collective.outcome.set(outcome).is_ok() {
            self.lock().under_way -= 1;
            self.changed.notify_all();
        }
    }

    /// Ends everything under way with an error, and says so to the other ranks.
    fn fail(&self, machine: Option<&mut Machine>, error: &LocalError) {
        let mut inbox = self.lock();
        if inbox.failure.is_none() {
            let bits = |missing: &[u16]| {
                let all = self.names.iter().enumerate();
                all.filter(|(_, name)| missing.contains(name)).map(|(index, _)| 1 << index).sum()
            };
            if let LocalError::Reported { message, .. } = error {
                self.layout.set_message(self.rank, message);
            }
            self.layout.set_status(
                self.rank,
                match error {
                    LocalError::TimedOut { missing, .. } => Status::TimedOut(bits(missing)),
                    LocalError::Lost { missing, .. } => Status::Lost(bits(missing)),
                    LocalError::Mismatch { .. } => Status::Disagreed,
                    LocalError::Reported { .. } => Status::Reported,
                    _ => Status::Left,
                },
            );
            inbox.failure = Some(error.clone());
        }
        let queued = mem::take(&mut inbox.queue);
        drop(inbox);
        let mut outcome = error.clone();
        for collective in machine.map(Machine::take_all).unwrap_or_default().iter().chain(&queued) {
            self.end(collective, Err(outcome.clone()));
            outcome = error.of_later();
        }
    }

    /// The work of the group's own thread, which ends with the group, or when it has had nothing to do for a while.
    fn run(&self) {
        let mut inbox = self.lock();
        let mut busy = Instant::now();
        while !self.ends.load(Ordering::Acquire) {
            if inbox.alone && !inbox.is_driven && inbox.under_way > 0 {
                inbox.is_driven = true;
                drop(inbox);
                self.drive(|| false, None);
                inbox = self.lock();
                inbox.alone &= inbox.under_way > 0;
                busy = Instant::now();
            } else if busy.elapsed() >= IDLE && inbox.under_way == 0 {
                break;
            } else {
                let waited = self.changed.wait_timeout(inbox, IDLE);
                inbox = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
        }
        inbox.has_thread = false;
    }
}

impl Group {
    /// The rank of a group whose ranks have met.
    pub fn new(rank: usize, ranks: usize, layout: Layout, processes: Vec<Process>) -> Group {
        Group::named(rank, (0..ranks as u16).collect(), layout, processes)
    }

    /// The same, where ranks have other numbers in sentences: their own are the indices of these.
    pub fn named(rank: usize, names: Vec<u16>, layout: Layout, processes: Vec<Process>) -> Group {
        let machine = Mutex::new(Machine::new(rank, names.clone(), processes));
        let shared = Shared {
            rank,
            names,
            layout,
            machine,
            inbox: Mutex::default(),
            changed: Condvar::new(),
            ends: AtomicBool::new(false),
        };
        Group { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// The same, where averages are over this many ranks: the sums of other groups, which are averaged alike, follow.
    #[must_use]
    pub fn averaging_over(self, ranks: u16) -> Group {
        self.shared.machine.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).averaged = ranks;
        self
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.shared.names.len()
    }

    /// Starts a collective behind those under way. It goes on while somebody waits for it, or after [`Group::go_on`].
    ///
    /// The operands' lengths are those that the description asks for; `kept` lies within the elements.
    pub fn submit(
        &self,
        description: Description,
        operands: Operands,
        timeout: Duration,
    ) -> Result<Pending, LocalError> {
        self.submit_of(description, description, operands, timeout)
    }

    /// The same for a collective of an operation of several, on which ranks agree with it.
    pub fn submit_of(
        &self,
        operation: Description,
        description: Description,
        operands: Operands,
        timeout: Duration,
    ) -> Result<Pending, LocalError> {
        self.check(&description, &operands)?;
        let deadline = Instant::now() + timeout.min(LONGEST);
        let plan = Plan::new(description, self.ranks());
        let collective = Arc::new(Collective { plan, operation, operands, deadline, outcome: OnceLock::new() });
        let mut inbox = self.shared.lock();
        match &inbox.failure {
            // All ranks learn of the failure where they wait.
            Some(failure) => collective.outcome.set(Err(failure.of_later())).expect("it is new"),
            None => {
                inbox.queue.push_back(Arc::clone(&collective));
                inbox.under_way += 1;
            }
        }
        drop(inbox);
        Ok(Pending { shared: Arc::clone(&self.shared), collective })
    }

    fn check(&self, description: &Description, operands: &Operands) -> Result<(), LocalError> {
        let Description { kind, dtype, op, elements } = *description;
        let (ranks, size) = (self.ranks(), dtype.size());
        if kind.reduces() && !(op.takes(dtype) && tributary_numeric::native(dtype, op).is_some()) {
            return Err(LocalError::Refused(format!("{op} of {dtype}")));
        }
        if let Kind::Reduce { root } | Kind::Broadcast { root } = kind
            && usize::from(root) >= ranks
        {
            let last = ranks - 1;
            return Err(LocalError::Invalid(format!("rank {root} cannot be the root: the job has ranks 0 to {last}")));
        }
        let is_root = |root: u16| usize::from(root) == self.shared.rank;
        let bytes = elements * size;
        let (input, output) = match kind {
            Kind::AllReduce | Kind::Reduce { .. } => (bytes, operands.kept.len() * size),
            Kind::ReduceScatter => (bytes, bytes / ranks),
            Kind::AllGather => (bytes, bytes * ranks),
            Kind::Broadcast { root } if is_root(root) => (bytes, 0),
            // A rank that needs no bytes lends no memory.
            Kind::Broadcast { .. } if operands.output.is_empty() => (0, 0),
            Kind::Broadcast { .. } => (0, bytes),
        };
        let fits = operands.input.len() >= input && operands.output.len() >= output;
        if fits && (kind != Kind::ReduceScatter || elements.is_multiple_of(ranks)) {
            return Ok(());
        }
        let lent = (operands.input.len(), operands.output.len());
        Err(LocalError::Invalid(format!("{description} of {ranks} ranks needs other memory than {lent:?} bytes")))
    }

    /// Lets the group's own thread go on with what nobody waits for.
    pub fn go_on(&self) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut inbox = self.shared.lock();
        inbox.alone = true;
        self.shared.changed.notify_all();
        if !inbox.has_thread && !self.shared.ends.load(Ordering::Acquire) {
            let shared = Arc::clone(&self.shared);
            *thread = Some(Builder::new().name(format!("local-{}", self.shared.rank)).spawn(move || shared.run())?);
            inbox.has_thread = true;
        }
        Ok(())
    }

    /// Gives up: what is under way fails, here and on the other ranks, which get the message.
    pub fn report(&self, message: &[u8]) {
        let rank = self.shared.names[self.shared.rank];
        // Whoever works fails what it works on, after a nap at the latest.
        self.shared.fail(None, &LocalError::Reported { rank, message: message.to_vec() });
        self.shared.changed.notify_all();
    }

    /// Leaves the group; what is under way fails. The other ranks need nothing more from this one for what has ended.
    pub fn close(&self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        // Whoever works stops after a nap at the latest.
        let mut inbox = self.shared.lock();
        while inbox.is_driven {
            inbox = self.shared.changed.wait(inbox).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        inbox.is_driven = true;
        drop(inbox);
        let turn = Turn(&self.shared);
        let mut machine = self.shared.machine.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.shared.fail(Some(&mut machine), &LocalError::Aborted);
        drop(machine);
        drop(turn);
        let thread = self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        thread.into_iter().for_each(|thread| thread.join().unwrap_or_default());
    }
}

/// A timeout that no program outlives, and that no clock overflows with.
pub(crate) const LONGEST: Duration = Duration::from_secs(1 << 31);

impl Drop for Group {
    fn drop(&mut self) {
        self.close();
    }
}

impl Pending {
    /// True when the memory belongs to the caller again.
    pub fn is_done(&self) -> bool {
        self.collective.outcome.get().is_some()
    }

    /// Waits for the end, and works meanwhile; `None` if the time was over before.
    pub fn wait(&self, timeout: Duration) -> Option<Result<(), LocalError>> {
        let until = Instant::now() + timeout.min(LONGEST);
        let mut inbox = self.shared.lock();
        while !self.is_done() && Instant::now() < until {
            if inbox.is_driven {
                let left = until.saturating_duration_since(Instant::now());
                inbox = self.shared.changed.wait_timeout(inbox, left).unwrap_or_else(|error| error.into_inner()).0;
            } else {
                inbox.is_driven = true;
                drop(inbox);
                self.shared.drive(|| self.is_done(), Some(until));
                inbox = self.shared.lock();
            }
        }
        drop(inbox);
        self.collective.outcome.get().cloned()
    }
}
