//! One run on several threads: each runs its partition for one window, then all meet at a barrier and exchange the packets
//! that cross.
//!
//! A window is as long as the least delay of links between switches, so that a packet that is sent during a window arrives
//! in a later one. Windows without events are skipped. The grid of windows follows from the network alone, and so does the
//! end of the run: the end of the window in which the last job or flow finished.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tributary_proto::contract::time::{Span, Time};

use super::sampling::Sampler;
use super::{Progress, RunError, build, processor_time};
use crate::config::Config;
use crate::engine::{Failure, JobIndex, Simulation, assign_partitions};
use crate::net::{Outbox, Partition};
use crate::report::Stop;
use crate::topology::window_end;

/// The common state of the threads of a run.
struct Shared {
    barrier: Barrier,
    lookahead: Span,
    end: Time,
    /// How many jobs and flows were open before anything happened.
    total: u64,
    /// For each partition, when its next event comes.
    next: Vec<AtomicU64>,
    /// For each partition, the change in the number of open jobs and flows since the beginning.
    open: Vec<AtomicU64>,
    /// For each partition, how many events it had so far.
    events: Vec<AtomicU64>,
    /// Packets that cross, by sender and receiver.
    outboxes: Vec<Vec<Mutex<Outbox>>>,
    /// For each partition, the ranks of jobs that come and go that have ended since the last barrier.
    ended: Vec<Mutex<Vec<JobIndex>>>,
    /// For each partition, the jobs whose custom operators have failed since then.
    failed: Vec<Mutex<Vec<(JobIndex, Failure)>>>,
    stopped: AtomicBool,
}

/// The end of a partition's run, or of the whole run.
pub struct Ended {
    pub simulation: Simulation,
    pub sampler: Sampler,
    pub stop: Stop,
    /// What the threads but the caller's own have taken of processors.
    pub processor_of_others: Duration,
}

/// Runs the simulation whose first partition is `first`, and returns the whole.
pub fn advance(
    config: &Config,
    first: Simulation,
    sampler: Sampler,
    lookahead: Span,
    threads: u16,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Ended, RunError> {
    let partitions = usize::from(threads);
    let zeros = || (0..partitions).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared {
        barrier: Barrier::new(partitions),
        lookahead,
        end: Time::ZERO + config.end.0,
        total: first.open(),
        next: zeros(),
        open: zeros(),
        events: zeros(),
        outboxes: (0..partitions).map(|_| (0..partitions).map(|_| Mutex::default()).collect()).collect(),
        ended: (0..partitions).map(|_| Mutex::default()).collect(),
        failed: (0..partitions).map(|_| Mutex::default()).collect(),
        stopped: AtomicBool::new(false),
    };
    let of_node = assign_partitions(first.graph(), threads);
    let partition = |index| Partition { of_node: Arc::clone(&of_node), index };
    let ended = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|index| {
                let (shared, partition) = (&shared, partition(index));
                scope.spawn(move || {
                    let _guard = shared.barrier.guard();
                    let simulation = build(config).expect("it was built before");
                    let sampler = Sampler::new(config, &simulation).expect("it was made before");
                    let since = processor_time();
                    let ended = shared.run(simulation, sampler, partition, &mut |_| ControlFlow::Continue(()));
                    Ended { processor_of_others: processor_time().saturating_sub(since), ..ended }
                })
            })
            .collect();
        let _guard = shared.barrier.guard();
        let mut ended = vec![shared.run(first, sampler, partition(0), watch)];
        ended.extend(others.into_iter().map(|other| other.join().expect("the other partition's panic was reported")));
        ended
    });
    let mut partitions = ended.into_iter();
    let mut whole = partitions.next().expect("at least one partition");
    for other in partitions {
        whole.processor_of_others += other.processor_of_others;
        whole.sampler.absorb(&other.sampler, &other.simulation);
        whole.simulation.absorb(other.simulation, shared.total);
    }
    match shared.stopped.load(Ordering::Relaxed) {
        true => Err(RunError::Stopped(whole.simulation.fabric.now.since(Time::ZERO))),
        false => Ok(whole),
    }
}

impl Shared {
    fn run(
        &self,
        mut simulation: Simulation,
        mut sampler: Sampler,
        partition: Partition,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Ended {
        let me = usize::from(partition.index);
        simulation.become_partition(partition);
        let mut last_window = Time::ZERO;
        let mut until = None;
        let mut reported_at = 0;
        loop {
            self.accept(me, &mut simulation);
            self.next[me].store(simulation.next_time().0, Ordering::Relaxed);
            self.open[me].store(simulation.open().wrapping_sub(self.total), Ordering::Relaxed);
            self.events[me].store(simulation.events(), Ordering::Relaxed);
            self.publish_ended(me, &mut simulation);
            *lock(&self.failed[me]) = simulation.take_failures();
            self.barrier.wait();
            let round = self.collect_ended(last_window, &mut simulation);
            let failed = self.failed.iter().flat_map(|failed| lock(failed).clone()).collect();
            let failures = simulation.note_failures(failed, last_window);
            let planned = round.into_iter().chain(failures).map(|time| time.0);
            let earliest = self.next.iter().map(|next| next.load(Ordering::Relaxed)).chain(planned).min();
            let earliest = Time(earliest.unwrap_or(u64::MAX));
            let open = self.open.iter().fold(self.total, |sum, open| sum.wrapping_add(open.load(Ordering::Relaxed)));
            let finished = open == 0;
            if finished {
                until.get_or_insert(last_window);
            }
            let over = until.is_some_and(|until| earliest >= until) || earliest > self.end || earliest.0 == u64::MAX;
            if over || self.stopped.load(Ordering::Relaxed) {
                let stop = match earliest.0 {
                    _ if finished => Stop::Finished,
                    u64::MAX => Stop::Idle,
                    _ => Stop::End,
                };
                return Ended { simulation, sampler, stop, processor_of_others: Duration::ZERO };
            }
            last_window = window_end(earliest, self.lookahead);
            // All partitions carry out a plan at the same instant, and no packet crosses that instant unseen.
            let plan = simulation.next_action_after(earliest).unwrap_or(Time(u64::MAX));
            let stop = Time(last_window.min(plan).0 - 1).min(self.end);
            sampler.run_to(&mut simulation, stop);
            sampler.take(&simulation, stop);
            self.post(me, &mut simulation);
            self.barrier.wait();
            // Before the next barrier, so that all partitions see the same value after it.
            if me == 0 {
                let events = self.events.iter().map(|events| events.load(Ordering::Relaxed)).sum();
                if events >= reported_at + super::EVENTS_PER_REPORT {
                    reported_at = events;
                    let progress = Progress { now: simulation.fabric.now, events, open, total: self.total };
                    self.stopped.store(watch(&progress).is_break(), Ordering::Relaxed);
                }
            }
        }
    }

    fn publish_ended(&self, me: usize, simulation: &mut Simulation) {
        if simulation.cluster().is_some() {
            *lock(&self.ended[me]) = simulation.take_ended();
        }
    }

    /// Notes which ranks have ended in any partition during the last window; returns when jobs are scheduled for that.
    fn collect_ended(&self, window_end: Time, simulation: &mut Simulation) -> Option<Time> {
        simulation.cluster()?;
        let mut all = Vec::new();
        self.ended.iter().for_each(|ended| all.extend_from_slice(&lock(ended)));
        simulation.note_ended(&all, window_end)
    }

    fn post(&self, me: usize, simulation: &mut Simulation) {
        for (partition, mailbox) in self.outboxes[me].iter().enumerate().filter(|&(partition, _)| partition != me) {
            if let Some(outbox) = simulation.fabric.outbox(partition) {
                std::mem::swap(outbox, &mut lock(mailbox));
            }
        }
    }

    fn accept(&self, me: usize, simulation: &mut Simulation) {
        for from in self.outboxes.iter().map(|outboxes| &outboxes[me]) {
            simulation.fabric.accept(&mut lock(from));
        }
    }
}

/// Another thread's panic is reported where it is joined.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks before a thread yields.
const SPINS: u32 = 1000;

/// Yields before a thread sleeps.
const YIELDS: u32 = 20;

/// A reusable barrier for a fixed number of threads, which meet at it twice a window.
///
/// A window is short, so a waiting thread spins first. If another thread has no processor, because the machine does other
/// work too, spinning takes the time that the other thread needs. So a waiting thread soon sleeps.
struct Barrier {
    threads: usize,
    waiting: AtomicUsize,
    round: AtomicUsize,
    /// A thread has panicked that others may wait for.
    broken: AtomicBool,
    /// How many threads sleep, or are about to. The lock is held from the last check until the sleep begins.
    sleeping: AtomicUsize,
    lock: Mutex<()>,
    awake: Condvar,
}

impl Barrier {
    pub fn new(threads: usize) -> Barrier {
        Barrier {
            threads,
            waiting: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            sleeping: AtomicUsize::new(0),
            lock: Mutex::new(()),
            awake: Condvar::new(),
        }
    }

    /// Waits until all threads are here.
    pub fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.waiting.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::SeqCst);
            self.wake();
            return;
        }
        for attempt in 0..SPINS + YIELDS {
            if self.is_over(round) {
                return;
            }
            if attempt < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        self.sleep(round);
    }

    fn is_over(&self, round: usize) -> bool {
        assert!(!self.broken.load(Ordering::SeqCst), "another thread of this run panicked");
        self.round.load(Ordering::SeqCst) != round
    }

    /// Either the thread that ends the round sees that this one sleeps, or this one sees that the round is over: each
    /// writes before it reads, and all four accesses have one order (`SeqCst`).
    fn sleep(&self, round: usize) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_over(round) {
            guard = self.awake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&self) {
        if self.sleeping.load(Ordering::SeqCst) > 0 {
            // While this thread has the lock, no thread is between its last check and its sleep.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.awake.notify_all();
        }
    }

    /// Wakes the other threads if this one panics.
    pub fn guard(&self) -> Guard<'_> {
        Guard(self)
    }
}

/// Held by a thread while others may wait for it.
struct Guard<'a>(&'a Barrier);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::SeqCst);
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Barrier;

    #[test]
    fn no_thread_passes_before_all_have_arrived_even_if_some_are_late() {
        const THREADS: usize = 9;
        let (barrier, arrived) = (Barrier::new(THREADS), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (barrier, arrived) = (&barrier, &arrived);
                scope.spawn(move || {
                    for round in 1..=200 {
                        if (round + thread) % 50 == 0 {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                        arrived.fetch_add(1, Ordering::SeqCst);
                        barrier.wait();
                        assert_eq!(arrived.load(Ordering::SeqCst), round * THREADS);
                        barrier.wait();
                    }
                });
            }
        });
    }

    #[test]
    fn a_thread_that_panics_wakes_those_that_sleep() {
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| catch_unwind(AssertUnwindSafe(|| barrier.wait())).is_err());
            while barrier.sleeping.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let _guard = barrier.guard();
                panic!("as a checker does");
            }));
            assert!(panicked.is_err() && other.join().unwrap(), "the sleeping thread panics too");
        });
    }
}
