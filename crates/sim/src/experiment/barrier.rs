//! Where the threads of one run wait for each other, twice a window.
//!
//! A window is short, so a waiting thread spins first. If another thread has no processor, because the machine does
//! other work too, spinning takes the time that the other thread needs. So a waiting thread soon sleeps.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Checks before a thread yields.
const SPINS: u32 = 1000;

/// Yields before a thread sleeps.
const YIELDS: u32 = 20;

/// A reusable barrier for a fixed number of threads.
pub struct Barrier {
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
pub struct Guard<'a>(&'a Barrier);

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
