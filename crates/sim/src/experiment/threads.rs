//! One run on several threads: each runs its partition for one window, then all meet at a barrier and exchange the
//! packets that cross.
//!
//! A window is as long as the least delay of links between switches, so that a packet that is sent during a window
//! arrives in a later one. Windows without events are skipped. The grid of windows follows from the network alone, and
//! so does the end of the run: the end of the window in which the last job or flow finished.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tributary_proto::contract::time::{Span, Time};

use super::barrier::Barrier;
use super::sampling::Sampler;
use super::{Progress, RunError, build};
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
                    shared.run(simulation, sampler, partition, &mut |_| ControlFlow::Continue(()))
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
                return Ended { simulation, sampler, stop };
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
