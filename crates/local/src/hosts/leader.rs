//! The leader of a host: two threads move each fragment from the host's memory to the network, and its result back.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use tributary_numeric::{DType, ReduceOp, native};

use super::plan::{Fragment, Hosts, Operators};
use super::{GRACE, HostsError, Network, OnFailure, spread};
use crate::collective::{Description, Kind};
use crate::error::{LocalError, named};
use crate::group::{Group, Pending as LocalPending};
use crate::memory::{Lent, Scratch};

/// How long an operation that failed waits for earlier ones, which all ranks may have started.
const LAST_RESULTS: Duration = Duration::from_secs(1);
/// How long a thread waits before it asks again.
const NAP: Duration = Duration::from_secs(1);
/// Bytes that are divided at once.
const BLOCK: usize = 4096;

/// Where the leader has a fragment's data, between the levels.
pub struct Staged {
    pub(super) memory: Lent,
    /// Where what is lost between hosts goes, if the caller wants it.
    pub(super) loss: Lent,
    /// Keeps it alive, if it is not the caller's.
    pub(super) _scratch: Option<Scratch>,
}

/// A fragment on its way to the leader.
pub type Gathered = (Option<LocalPending>, Staged);

/// The end of an operation on the leader.
pub struct Ended<E> {
    outcome: Mutex<Option<Result<(), HostsError<E>>>>,
    changed: Condvar,
}

impl<E: Clone> Ended<E> {
    pub(super) fn is_done(&self) -> bool {
        lock(&self.outcome).is_some()
    }

    pub(super) fn wait(&self, timeout: Duration) -> Option<Result<(), HostsError<E>>> {
        let begun = Instant::now();
        let mut outcome = lock(&self.outcome);
        while outcome.is_none() {
            let left = timeout.checked_sub(begun.elapsed())?;
            outcome = self.changed.wait_timeout(outcome, left).unwrap_or_else(|error| error.into_inner()).0;
        }
        outcome.clone()
    }

    fn set(&self, result: Result<(), HostsError<E>>) {
        *lock(&self.outcome) = Some(result);
        self.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An operation, with the way of each of its fragments.
struct Task<E> {
    operation: Description,
    fragments: Vec<(Fragment, Gathered)>,
    deadline: Instant,
    ended: Arc<Ended<E>>,
}

/// What the second thread waits for.
enum InNetwork<P, E> {
    /// The words by which hosts agree on the operation, and the transfer of them.
    Words { operation: Description, words: Scratch, pending: P },
    /// A fragment.
    Fragment { operation: Description, fragment: Fragment, staged: Staged, pending: P, deadline: Instant },
    /// There is nothing more of this operation.
    End { operation: Description, has_spread: bool, deadline: Instant, ended: Arc<Ended<E>> },
}

type Way<N> = InNetwork<<N as Network>::Pending, <N as Network>::Error>;

struct Shared<N: Network> {
    network: N,
    on_failure: OnFailure<N::Error>,
    hosts: Hosts,
    up: Arc<Group>,
    down: Arc<Group>,
    /// Why nothing goes on.
    failure: Mutex<Option<HostsError<N::Error>>>,
    /// How much the second thread has not done yet.
    behind: Mutex<usize>,
    caught_up: Condvar,
}

/// The leader's threads.
pub(super) struct Leader<N: Network> {
    shared: Arc<Shared<N>>,
    tasks: Mutex<Option<Sender<Task<N::Error>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<N: Network> Leader<N> {
    pub(super) fn start(
        network: N,
        on_failure: OnFailure<N::Error>,
        hosts: &Hosts,
        up: &Arc<Group>,
        down: &Arc<Group>,
    ) -> io::Result<Leader<N>> {
        let (up, down, hosts) = (Arc::clone(up), Arc::clone(down), hosts.clone());
        let (failure, behind, caught_up) = (Mutex::default(), Mutex::default(), Condvar::new());
        let own = hosts.own();
        let shared = Arc::new(Shared { network, on_failure, hosts, up, down, failure, behind, caught_up });
        let (tasks, received) = channel();
        let (sent, results) = channel();
        let (first, second) = (Arc::clone(&shared), Arc::clone(&shared));
        let name = |way: &str| Builder::new().name(format!("host-{own}-{way}"));
        let threads = vec![
            name("up").spawn(move || first.bring(&received, &sent))?,
            name("down").spawn(move || second.take(&results))?,
        ];
        Ok(Leader { shared, tasks: Mutex::new(Some(tasks)), threads: Mutex::new(threads) })
    }

    pub(super) fn submit(
        &self,
        operation: Description,
        fragments: Vec<Fragment>,
        gathered: Vec<Gathered>,
        deadline: Instant,
    ) -> Arc<Ended<N::Error>> {
        let ended = Arc::new(Ended { outcome: Mutex::new(None), changed: Condvar::new() });
        let fragments = fragments.into_iter().zip(gathered).collect();
        let task = Task { operation, fragments, deadline, ended: Arc::clone(&ended) };
        let sent = lock(&self.tasks).as_ref().is_some_and(|tasks| tasks.send(task).is_ok());
        if !sent {
            ended.set(Err(HostsError::Memory(LocalError::Closed)));
        }
        ended
    }

    /// Leaves the network.
    pub(super) fn abandon(&self) {
        lock(&self.shared.failure).get_or_insert(HostsError::Memory(LocalError::Aborted));
        self.shared.network.abandon(false);
    }

    /// Waits for the threads; both memories and the network are closed.
    pub(super) fn join(&self) {
        drop(lock(&self.tasks).take());
        for thread in mem::take(&mut *lock(&self.threads)) {
            thread.join().unwrap_or_default();
        }
    }
}

impl<N: Network> Shared<N> {
    fn failure(&self) -> Option<HostsError<N::Error>> {
        lock(&self.failure).clone()
    }

    /// Ends everything; the first error counts.
    fn fail(&self, error: HostsError<N::Error>) {
        let mut failure = lock(&self.failure);
        if failure.is_some() {
            return;
        }
        *failure = Some(error.clone());
        drop(failure);
        // Other hosts must find the reason when they lose this one.
        let message = (self.on_failure)(&error);
        self.up.report(&message);
        self.down.report(&message);
        self.network.abandon(matches!(error, HostsError::Memory(LocalError::Lost { .. })));
    }

    /// Ends everything when earlier operations have ended: all ranks may have started them.
    fn fail_in_turn(&self, error: HostsError<N::Error>) {
        let begun = Instant::now();
        let mut behind = lock(&self.behind);
        while *behind > 0 {
            let Some(left) = LAST_RESULTS.checked_sub(begun.elapsed()) else { break };
            behind = self.caught_up.wait_timeout(behind, left).unwrap_or_else(|error| error.into_inner()).0;
        }
        drop(behind);
        self.fail(error);
    }

    /// The first thread: brings what the host has combined to the network.
    fn bring(&self, tasks: &Receiver<Task<N::Error>>, sent: &Sender<Way<N>>) {
        let send = |way| {
            *lock(&self.behind) += 1;
            sent.send(way).unwrap_or_default();
        };
        for Task { operation, fragments, deadline, ended } in tasks {
            let has_spread = fragments.iter().any(|(fragment, _)| fragment.spreads);
            for (index, (fragment, (gathered, staged))) in fragments.into_iter().enumerate() {
                if let Some(Err(error)) = gathered.map(|pending| ended_of(&pending)) {
                    self.fail_in_turn(HostsError::Memory(error));
                }
                if index == 0
                    && let Some(way) = self.agree(operation, deadline)
                {
                    send(way);
                }
                let description = self.between(&operation, &fragment);
                if let Some(pending) = self.start(&description, staged.memory, staged.loss, deadline) {
                    send(InNetwork::Fragment { operation, fragment, staged, pending, deadline });
                }
            }
            send(InNetwork::End { operation, has_spread, deadline, ended });
        }
    }

    /// Starts a collective between hosts, unless something has failed.
    fn start(&self, description: &Description, memory: Lent, loss: Lent, deadline: Instant) -> Option<N::Pending> {
        if self.failure().is_some() {
            return None;
        }
        let timeout = deadline.saturating_duration_since(Instant::now()) + GRACE;
        let started = self.network.start(description, memory, loss, timeout);
        started.map_err(|error| self.fail(HostsError::Network(error))).ok()
    }

    /// Starts the sum by which hosts agree on an operation: each has a word in it.
    fn agree(&self, operation: Description, deadline: Instant) -> Option<Way<N>> {
        let count = usize::from(self.hosts.count());
        let words = Scratch::new(4 * count);
        words.lent().write(4 * usize::from(self.hosts.own()), &checksum(&operation));
        let description = Description { kind: Kind::AllReduce, dtype: DType::I32, op: ReduceOp::Sum, elements: count };
        let pending = self.start(&description, words.lent(), Lent::NONE, deadline)?;
        Some(InNetwork::Words { operation, words, pending })
    }

    fn between(&self, operation: &Description, fragment: &Fragment) -> Description {
        let (kind, bytes) = (fragment.between, fragment.input.len());
        if let Kind::Broadcast { .. } = kind {
            return Description { kind, dtype: DType::U8, op: ReduceOp::Sum, elements: bytes };
        }
        let (dtype, op) = (operation.dtype, Operators::of(operation, &self.hosts).between);
        Description { kind, dtype, op, elements: bytes / dtype.size() }
    }

    /// The second thread: takes results from the network to the host's ranks.
    fn take(&self, results: &Receiver<Way<N>>) {
        // Results on their way to the other ranks, with the memory from which they are read.
        let mut spreading: Vec<(LocalPending, Option<Staged>)> = Vec::new();
        for way in results {
            let taken = match way {
                InNetwork::Words { operation, words, pending } => self
                    .network
                    .wait(pending)
                    .map_err(HostsError::Network)
                    .and_then(|()| self.check(&operation, &words.lent()).map_err(HostsError::Memory)),
                InNetwork::Fragment { operation, fragment, staged, pending, deadline } => {
                    let arrived = self.network.wait(pending).map_err(HostsError::Network);
                    arrived.and_then(|()| {
                        let spread = self.spread(operation, &fragment, staged, deadline);
                        spreading.extend(spread.map_err(HostsError::Memory)?);
                        Ok(())
                    })
                }
                InNetwork::End { operation, has_spread, deadline, ended } => {
                    if !has_spread && self.failure().is_none() {
                        let spread = spread(&self.down, operation, 0, Lent::NONE, left(deadline));
                        spreading.extend(spread.ok().map(|pending| (pending, None)));
                    }
                    for (pending, staged) in mem::take(&mut spreading) {
                        if let Err(error) = ended_of(&pending) {
                            self.fail(HostsError::Memory(error));
                        }
                        drop(staged);
                    }
                    ended.set(self.failure().map_or(Ok(()), Err));
                    Ok(())
                }
            };
            if let Err(error) = taken {
                self.fail(error);
            }
            *lock(&self.behind) -= 1;
            self.caught_up.notify_all();
        }
    }

    /// Fails if another host has brought another operation.
    fn check(&self, operation: &Description, words: &Lent) -> Result<(), LocalError> {
        let own = checksum(operation);
        let differs = |host: &u16| words.bytes(4 * usize::from(*host), 4) != own;
        let others: Vec<u16> =
            (0..self.hosts.count()).filter(differs).flat_map(|host| self.hosts.ranks_of(host)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let (here, there) = (named(&self.hosts.ranks_of(self.hosts.own())), named(&others));
        let sentence =
            format!("ranks disagree: {here} bring {operation}, {there} bring another operation, type or size");
        Err(LocalError::Mismatch { sentence, brought: Vec::new() })
    }

    /// Hands a result to the other ranks of the host.
    fn spread(
        &self,
        operation: Description,
        fragment: &Fragment,
        staged: Staged,
        deadline: Instant,
    ) -> Result<Option<(LocalPending, Option<Staged>)>, LocalError> {
        if self.failure().is_some() {
            return Ok(None);
        }
        if operation.kind.reduces() && Operators::of(&operation, &self.hosts).divides {
            self.divide(operation.dtype, &staged.memory);
        }
        if !fragment.spreads {
            return Ok(None);
        }
        let pending = spread(&self.down, operation, fragment.input.len(), staged.memory, left(deadline))?;
        self.down.go_on().map_err(|_| LocalError::Fault)?;
        Ok(Some((pending, Some(staged))))
    }

    /// Divides sums of integers by the number of all ranks.
    fn divide(&self, dtype: DType, memory: &Lent) {
        let average = native(dtype, ReduceOp::Avg).expect("submissions are checked");
        let mut block = [0; BLOCK];
        for start in (0..memory.len()).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(memory.len() - start)];
            memory.read(start, block);
            (average.finish)(block, self.hosts.ranks());
            memory.write(start, block);
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) + 2 * GRACE
}

/// Waits until it has ended.
fn ended_of(pending: &LocalPending) -> Result<(), LocalError> {
    loop {
        if let Some(outcome) = pending.wait(NAP) {
            return outcome;
        }
    }
}

/// A checksum of an operation: FNV-1a of its words.
fn checksum(operation: &Description) -> [u8; 4] {
    let bytes = operation.words().into_iter().flat_map(u32::to_le_bytes);
    bytes.fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)).to_ne_bytes()
}
