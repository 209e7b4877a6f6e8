//! One run on several threads: all of them run one window by themselves, wait for each other, and exchange what crosses.
//!
//! A window is one delay of the links between switches long, so that what is sent during it arrives later. Windows in
//! which nothing happens are skipped. The grid of windows follows from the network alone, and so does the end: that of the
//! window in which the last job or flow finished.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tributary_proto::contract::time::{Span, Time};

use super::barrier::Barrier;
use super::sampling::Sampler;
use super::{Progress, RunError, build};
use crate::config::Config;
use crate::driver::{Failure, JobIndex, Simulation, deal_out, window_end};
use crate::net::{Outbox, Share};
use crate::report::Stop;

/// What the threads of one run have in common.
struct Meeting {
    barrier: Barrier,
    look_ahead: Span,
    end: Time,
    /// What was open before anything happened.
    total: u64,
    /// By part: when its next event comes ...
    next: Vec<AtomicU64>,
    /// ... what is open in it, of all that was in the beginning ...
    open: Vec<AtomicU64>,
    /// ... and its events so far.
    events: Vec<AtomicU64>,
    /// By sender and receiver.
    boxes: Vec<Vec<Mutex<Outbox>>>,
    /// By part: the ranks of jobs that come and go that have ended since the last meeting.
    ended: Vec<Mutex<Vec<JobIndex>>>,
    /// By part: the operators of jobs' own that have failed since then.
    failed: Vec<Mutex<Vec<(JobIndex, Failure)>>>,
    stopped: AtomicBool,
}

/// How a part's run, or the whole, came to its end.
pub struct Ended {
    pub simulation: Simulation,
    pub sampler: Sampler,
    pub stop: Stop,
}

/// Runs what `first` is the first part of, and gives the whole.
pub fn advance(
    config: &Config,
    first: Simulation,
    sampler: Sampler,
    look_ahead: Span,
    threads: u16,
    watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Ended, RunError> {
    let parts = usize::from(threads);
    let zeros = || (0..parts).map(|_| AtomicU64::new(0)).collect();
    let meeting = Meeting {
        barrier: Barrier::new(parts),
        look_ahead,
        end: Time::ZERO + config.end.0,
        total: first.open(),
        next: zeros(),
        open: zeros(),
        events: zeros(),
        boxes: (0..parts).map(|_| (0..parts).map(|_| Mutex::default()).collect()).collect(),
        ended: (0..parts).map(|_| Mutex::default()).collect(),
        failed: (0..parts).map(|_| Mutex::default()).collect(),
        stopped: AtomicBool::new(false),
    };
    let part_of = deal_out(first.graph(), threads);
    let share = |part| Share { part_of: Arc::clone(&part_of), part };
    let ended = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|part| {
                let (meeting, share) = (&meeting, share(part));
                scope.spawn(move || {
                    let _guard = meeting.barrier.guard();
                    let simulation = build(config).expect("it was built before");
                    let sampler = Sampler::new(config, &simulation).expect("it was made before");
                    meeting.run(simulation, sampler, share, &mut |_| ControlFlow::Continue(()))
                })
            })
            .collect();
        let _guard = meeting.barrier.guard();
        let mut ended = vec![meeting.run(first, sampler, share(0), watch)];
        ended.extend(others.into_iter().map(|other| other.join().expect("the other part's panic was reported")));
        ended
    });
    let mut parts = ended.into_iter();
    let mut whole = parts.next().expect("at least one part");
    for other in parts {
        whole.sampler.absorb(&other.sampler, &other.simulation);
        whole.simulation.absorb(other.simulation, meeting.total);
    }
    match meeting.stopped.load(Ordering::Relaxed) {
        true => Err(RunError::Stopped(whole.simulation.fabric.now.since(Time::ZERO))),
        false => Ok(whole),
    }
}

impl Meeting {
    fn run(
        &self,
        mut simulation: Simulation,
        mut sampler: Sampler,
        share: Share,
        watch: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Ended {
        let me = usize::from(share.part);
        simulation.become_part(share);
        let mut last_window = Time::ZERO;
        let mut until = None;
        let mut looked_at = 0;
        loop {
            self.accept(me, &mut simulation);
            self.next[me].store(simulation.next_time().0, Ordering::Relaxed);
            self.open[me].store(simulation.open().wrapping_sub(self.total), Ordering::Relaxed);
            self.events[me].store(simulation.events(), Ordering::Relaxed);
            self.tell_ended(me, &mut simulation);
            *lock(&self.failed[me]) = simulation.take_failures();
            self.barrier.wait();
            let turn = self.hear_ended(last_window, &mut simulation);
            let failed = self.failed.iter().flat_map(|failed| lock(failed).clone()).collect();
            let turns = turn.into_iter().chain(simulation.note_failures(failed, last_window)).map(|turn| turn.0);
            let earliest = self.next.iter().map(|next| next.load(Ordering::Relaxed)).chain(turns).min();
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
            last_window = window_end(earliest, self.look_ahead);
            // All parts carry a plan out in the same instant, and nothing crosses it unseen.
            let plan = simulation.next_plan_after(earliest).unwrap_or(Time(u64::MAX));
            let stop = Time(last_window.min(plan).0 - 1).min(self.end);
            sampler.run_to(&mut simulation, stop);
            sampler.take(&simulation, stop);
            self.post(me, &mut simulation);
            self.barrier.wait();
            // Before the next meeting, so that all see the same there.
            if me == 0 {
                let events = self.events.iter().map(|events| events.load(Ordering::Relaxed)).sum();
                if events >= looked_at + super::EVENTS_PER_LOOK {
                    looked_at = events;
                    let progress = Progress { now: simulation.fabric.now, events, open, total: self.total };
                    self.stopped.store(watch(&progress).is_break(), Ordering::Relaxed);
                }
            }
        }
    }

    fn tell_ended(&self, me: usize, simulation: &mut Simulation) {
        if simulation.cluster().is_some() {
            *lock(&self.ended[me]) = simulation.take_ended();
        }
    }

    /// Ranks that have ended in any part during the window that is over; gives when jobs have their turn for that.
    fn hear_ended(&self, window_end: Time, simulation: &mut Simulation) -> Option<Time> {
        simulation.cluster()?;
        let mut all = Vec::new();
        self.ended.iter().for_each(|ended| all.extend_from_slice(&lock(ended)));
        simulation.note_ended(&all, window_end)
    }

    fn post(&self, me: usize, simulation: &mut Simulation) {
        for (part, place) in self.boxes[me].iter().enumerate().filter(|&(part, _)| part != me) {
            if let Some(outbox) = simulation.fabric.outbox(part) {
                std::mem::swap(outbox, &mut lock(place));
            }
        }
    }

    fn accept(&self, me: usize, simulation: &mut Simulation) {
        for from in self.boxes.iter().map(|boxes| &boxes[me]) {
            simulation.fabric.accept(&mut lock(from));
        }
    }
}

/// Another thread's panic is reported where it is joined.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
