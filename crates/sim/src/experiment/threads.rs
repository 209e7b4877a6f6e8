//! One run on several threads: each runs its part for one window, then they meet and exchange the packets that cross.
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
use crate::driver::{Failure, JobIndex, Simulation, deal_out, window_end};
use crate::net::{Outbox, Share};
use crate::report::Stop;

/// The common state of the threads of a run.
struct Meeting {
    barrier: Barrier,
    look_ahead: Span,
    end: Time,
    /// How many jobs and flows were open before anything happened.
    total: u64,
    /// For each part, when its next event comes.
    next: Vec<AtomicU64>,
    /// For each part, how many are open of all at the beginning.
    open: Vec<AtomicU64>,
    /// For each part, how many events it had so far.
    events: Vec<AtomicU64>,
    /// The boxes, by sender and receiver.
    boxes: Vec<Vec<Mutex<Outbox>>>,
    /// For each part, the ranks of jobs that come and go that have ended since the last meeting.
    ended: Vec<Mutex<Vec<JobIndex>>>,
    /// For each part, the jobs whose own operators have failed since then.
    failed: Vec<Mutex<Vec<(JobIndex, Failure)>>>,
    stopped: AtomicBool,
}

/// The end of a part's run, or of the whole run.
pub struct Ended {
    pub simulation: Simulation,
    pub sampler: Sampler,
    pub stop: Stop,
}

/// Runs the simulation whose first part is `first`, and returns the whole.
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
            // All parts carry out a plan at the same instant, and no packet crosses that instant unseen.
            let plan = simulation.next_plan_after(earliest).unwrap_or(Time(u64::MAX));
            let stop = Time(last_window.min(plan).0 - 1).min(self.end);
            sampler.run_to(&mut simulation, stop);
            sampler.take(&simulation, stop);
            self.post(me, &mut simulation);
            self.barrier.wait();
            // Before the next meeting, so that all parts see the same there.
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

    /// Hears which ranks have ended in any part during the last window; returns when jobs get their turn for that.
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
