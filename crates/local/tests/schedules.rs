//! Accesses to the counters of the hand-over in permuted orders: the same code as between processes, on threads of which
//! one runs at a time, and which may change before every access.
//!
//! An order is a list of choices, and each run follows one; the next run differs in the last choice that has another. A
//! sleep lasts until somebody wakes the sleeper, as no time passes here: so a wake that is lost shows as a run in which
//! every thread waits. How often a thread must make way that could go on is bounded where there are too many orders.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tributary_local::handover::{ChunkKind, Counters, Doorbell, Handover, Next, Stage, Word, has_reached};

/// Nobody sleeps so long: a test would not end.
const LONG: Duration = Duration::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    /// At the word with this address.
    Asleep(usize),
    Ended,
}

#[derive(Clone, Copy)]
struct Choice {
    taken: usize,
    of: usize,
}

struct State {
    turn: usize,
    threads: Vec<Status>,
    choices: Vec<Choice>,
    next: usize,
    changes: usize,
    is_stuck: bool,
}

/// The threads of one run.
struct Scheduler {
    state: Mutex<State>,
    changed: Condvar,
    /// The most changes from a thread that could go on.
    most: usize,
}

thread_local! {
    static ME: Cell<usize> = const { Cell::new(0) };
}

/// What ends the threads of a run in which all wait.
struct Stuck;

impl Scheduler {
    /// Gives the turn to a thread that is ready; this one becomes what `status` says.
    fn pass(&self, status: Status) {
        let me = ME.get();
        let mut state = self.state.lock().unwrap();
        state.threads[me] = status;
        // This thread first, so that the first run changes threads only where it must.
        let mut ready: Vec<usize> =
            (0..state.threads.len()).filter(|&one| state.threads[one] == Status::Ready).collect();
        ready.sort_by_key(|&one| one != me);
        if status == Status::Ready && state.changes == self.most {
            ready.truncate(1);
        }
        state.is_stuck |= ready.is_empty() && state.threads.iter().any(|&one| one != Status::Ended);
        if !ready.is_empty() {
            let position = state.next;
            state.next += 1;
            if position == state.choices.len() {
                state.choices.push(Choice { taken: 0, of: ready.len() });
            }
            let taken = state.choices[position].taken;
            state.changes += usize::from(taken > 0 && status == Status::Ready);
            state.turn = ready[taken];
        }
        self.changed.notify_all();
        if status == Status::Ended {
            return;
        }
        while state.turn != me && !state.is_stuck {
            state = self.changed.wait(state).unwrap();
        }
        let is_stuck = state.is_stuck;
        drop(state);
        if is_stuck {
            resume_unwind(Box::new(Stuck));
        }
    }

    fn wake(&self, address: usize) {
        let sleeps = |status: &&mut Status| **status == Status::Asleep(address);
        self.state.lock().unwrap().threads.iter_mut().filter(sleeps).for_each(|status| *status = Status::Ready);
    }
}

/// A word of the model.
struct ModelWord<'a> {
    value: Mutex<u32>,
    scheduler: &'a Scheduler,
}

impl ModelWord<'_> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn access<T>(&self, access: impl FnOnce(&mut u32) -> T) -> T {
        self.scheduler.pass(Status::Ready);
        access(&mut self.value.lock().unwrap())
    }
}

impl Word for ModelWord<'_> {
    fn get(&self) -> u32 {
        self.access(|value| *value)
    }

    fn set(&self, new: u32) {
        self.access(|value| *value = new);
    }

    fn add(&self, change: u32) {
        self.access(|value| *value = value.wrapping_add(change));
    }

    fn sleep(&self, value: u32, _: Duration) {
        if self.access(|now| *now == value) {
            self.scheduler.pass(Status::Asleep(self.address()));
        }
    }

    fn wake(&self) {
        self.scheduler.pass(Status::Ready);
        self.scheduler.wake(self.address());
    }
}

/// Runs threads in every order; the number of orders, or the number of the first in which every thread waits.
fn explore(
    threads: usize,
    words: usize,
    most: usize,
    run: impl Fn(usize, &[ModelWord<'_>]) + Sync,
) -> Result<u32, u32> {
    let mut choices: Vec<Choice> = Vec::new();
    for number in 1.. {
        let begin =
            State { turn: 0, threads: vec![Status::Ready; threads], choices, next: 0, changes: 0, is_stuck: false };
        let scheduler = Scheduler { state: Mutex::new(begin), changed: Condvar::new(), most };
        let word = || ModelWord { value: Mutex::new(0), scheduler: &scheduler };
        let words: Vec<ModelWord<'_>> = (0..words).map(|_| word()).collect();
        thread::scope(|scope| {
            let (scheduler, words, run) = (&scheduler, &words, &run);
            let start = |me: usize| {
                scope.spawn(move || {
                    ME.set(me);
                    let mut state = scheduler.state.lock().unwrap();
                    while state.turn != me && !state.is_stuck {
                        state = scheduler.changed.wait(state).unwrap();
                    }
                    drop(state);
                    let end = End(scheduler);
                    run(me, words);
                    drop(end);
                })
            };
            let all: Vec<_> = (0..threads).map(start).collect();
            for thread in all {
                if let Err(cause) = thread.join()
                    && !cause.is::<Stuck>()
                {
                    resume_unwind(cause);
                }
            }
        });
        let state = scheduler.state.into_inner().unwrap();
        if state.is_stuck {
            return Err(number);
        }
        choices = state.choices;
        while choices.pop_if(|last| last.taken + 1 == last.of).is_some() {}
        let Some(last) = choices.last_mut() else { return Ok(number) };
        last.taken += 1;
    }
    unreachable!("orders are finite")
}

/// The end of a thread; one that panics ends the run for all.
struct End<'a>(&'a Scheduler);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state.lock().unwrap().is_stuck = true;
            self.0.changed.notify_all();
        } else {
            self.0.pass(Status::Ended);
        }
    }
}

/// Waits as a rank waits.
fn wait(bell: &Doorbell<'_, ModelWord<'_>>, count: u32) {
    loop {
        let seen = bell.word.get();
        if has_reached(seen, count) {
            return;
        }
        bell.sleep(seen, LONG);
    }
}

/// A rank that publishes twice, and others that wait for both.
fn publishing(sleepers: usize, publish: impl Fn(&Doorbell<'_, ModelWord<'_>>, u32) + Sync) -> Result<u32, u32> {
    explore(1 + sleepers, 2, usize::MAX, |me, words| {
        let bell = Doorbell { word: &words[0], sleepers: &words[1] };
        match me {
            0 => (1..=2).for_each(|count| publish(&bell, count)),
            _ => wait(&bell, 2),
        }
    })
}

#[test]
fn no_order_of_accesses_loses_a_wake() {
    let orders = publishing(1, |bell, count| bell.publish(count)).unwrap();
    assert!(orders > 100, "{orders} orders are not all");
}

#[test]
fn the_exploration_finds_a_wake_that_is_lost() {
    let publish_wrongly = |bell: &Doorbell<'_, ModelWord<'_>>, count| {
        let has_sleepers = bell.sleepers.get() != 0;
        bell.word.set(count);
        if has_sleepers {
            bell.word.wake();
        }
    };
    publishing(1, publish_wrongly).unwrap_err();
}

/// Ranks' counters in words of the model.
struct Bells<'a>(&'a [ModelWord<'a>], usize);

impl<'a> Bells<'a> {
    fn bell(&self, rank: usize, stage: Stage) -> Doorbell<'a, ModelWord<'a>> {
        let at = 2 * (3 * rank + stage as usize);
        Doorbell { word: &self.0[at], sleepers: &self.0[at + 1] }
    }
}

impl Counters for Bells<'_> {
    fn load(&self, rank: usize, stage: Stage) -> u32 {
        self.bell(rank, stage).word.get()
    }

    fn publish(&self, stage: Stage, count: u32) {
        self.bell(self.1, stage).publish(count);
    }
}

#[test]
fn ranks_hand_over_every_chunk_in_every_order_of_accesses_to_their_counters() {
    let (ranks, chunks, slots) = (2, 3, 1);
    let kind = |chunk| ChunkKind { shares: chunk != 1, opens: chunk == 0 };
    let orders = explore(ranks, 2 * 3 * ranks, 2, |me, words| {
        let bells = Bells(words, me);
        let mut handover = Handover::new(ranks, slots);
        loop {
            match handover.next(&bells, chunks, kind) {
                Next::Idle => return,
                Next::Work(stage, _) => handover.finish(&bells, stage),
                Next::Wait { stage, count, ranks } => {
                    let bell = bells.bell(ranks.trailing_zeros() as usize, stage);
                    let seen = bell.word.get();
                    if !has_reached(seen, count) {
                        bell.sleep(seen, LONG);
                    }
                }
            }
        }
    });
    assert!(orders.is_ok_and(|orders| orders > 1000), "{orders:?}");
}
