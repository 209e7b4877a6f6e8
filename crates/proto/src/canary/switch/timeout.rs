//! How long a partial sum waits for more contributions (§4.3), and the paper's future work (§5.2.5): a wait that
//! follows what the switch measures.
//!
//! When a block's sum comes back, its descriptor tells how many contributions came, and how far apart the first and the
//! last were. From that the switch learns two things about blocks of one job and one root, which take the same ways:
//! - *how many to expect*: the most of recent blocks. A partial sum with this many contributions leaves at once, so
//!   that
//!   regular traffic does not wait;
//! - *how long to wait* where some are missing: mean and deviation of the spread, which TCP's retransmission timer
//!   computes of round trips (RFC 6298).
//!
//! Waits are rounded up to one of a few steps, each half of the next. Partial sums that wait equally long are sent in
//! the order of arrival, so that each step has a queue and nothing is searched (§4.3).
//!
//! All of this is soft state in a fixed table. A wrong entry makes no sum wrong: a contribution that comes later is a
//! straggler.

use crate::canary::protocol::FlushTimeout;
use crate::contract::ids::{JobId, NodeId};
use crate::contract::time::Span;

/// Entries of the table: a job has one for each of its roots.
const CLASSES: usize = 1024;
/// Blocks in a generation. The next block is expected to have the most contributions of any block in the last two
/// generations.
const GENERATION: u8 = 8;

/// Steps of the wait that an adaptive timeout chooses among.
const STEPS: u8 = 8;

/// A step of the wait: 0 is the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeoutStep(u8);

impl TimeoutStep {
    /// The step as an index.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What is expected of a partial sum that begins now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Expectation {
    /// With this many contributions none is missing here.
    pub full: u16,
    /// How long the partial sum waits for them.
    pub wait: TimeoutStep,
}

/// What was measured of one job's blocks that end in one root.
#[derive(Clone, Copy, Debug, Hash)]
struct Class {
    job: JobId,
    root: NodeId,
    /// The most contributions of a block, in this generation of blocks and in the last one.
    most: u16,
    most_before: u16,
    /// Blocks that are still to come in this generation.
    to_come: u8,
    /// Mean and deviation of the spreads.
    mean: Span,
    deviation: Span,
}

impl Class {
    fn new(job: JobId, root: NodeId, contributions: u16, spread: Span) -> Class {
        let deviation = Span(spread.0 / 2);
        Class { job, root, most: contributions, most_before: 0, to_come: GENERATION - 1, mean: spread, deviation }
    }

    fn wait(&self) -> Span {
        self.mean + self.deviation.times(4)
    }

    fn sample(&mut self, contributions: u16, spread: Span) {
        let error = Span(self.mean.0.abs_diff(spread.0));
        self.deviation = Span((3 * self.deviation.0 + error.0) / 4);
        self.mean = Span((7 * self.mean.0 + spread.0) / 8);
        if self.to_come == 0 {
            (self.most_before, self.most, self.to_come) = (self.most, 0, GENERATION);
        }
        self.most = self.most.max(contributions);
        self.to_come -= 1;
    }
}

/// The timeout of one switch.
#[derive(Clone, Debug, Hash)]
pub struct Timeout {
    config: FlushTimeout,
    /// Empty if the timeout is fixed.
    classes: Box<[Option<Class>]>,
}

impl Timeout {
    /// A timeout before anything was measured.
    pub fn new(config: FlushTimeout) -> Timeout {
        let len = match config {
            FlushTimeout::Fixed(_) => 0,
            FlushTimeout::Adaptive { .. } => CLASSES,
        };
        Timeout { config, classes: vec![None; len].into() }
    }

    /// The number of steps.
    pub fn steps(&self) -> usize {
        match self.config {
            FlushTimeout::Fixed(_) => 1,
            FlushTimeout::Adaptive { .. } => STEPS.into(),
        }
    }

    /// The length of a step.
    #[inline]
    pub fn span(&self, step: TimeoutStep) -> Span {
        match self.config {
            FlushTimeout::Fixed(wait) => wait,
            FlushTimeout::Adaptive { least, most } => Span(most.0 >> step.0).max(least),
        }
    }

    /// The shortest step that is at least this long, if one is.
    fn step(&self, wait: Span) -> TimeoutStep {
        let fits = |&step: &u8| self.span(TimeoutStep(step)) >= wait;
        TimeoutStep((1..STEPS).take_while(fits).last().unwrap_or(0))
    }

    /// What is expected of a block of `hosts`.
    #[inline]
    pub fn expectation(&self, job: JobId, root: NodeId, hosts: u16) -> Expectation {
        let all = hosts - 1;
        if self.classes.is_empty() {
            return Expectation { full: all, wait: TimeoutStep(0) };
        }
        match &self.classes[class_index(job, root)] {
            Some(class) if (class.job, class.root) == (job, root) => {
                Expectation { full: class.most.max(class.most_before).min(all), wait: self.step(class.wait()) }
            }
            _ => Expectation { full: all, wait: TimeoutStep(STEPS - 1) },
        }
    }

    /// A block had this many contributions here, within this span.
    pub fn sample(&mut self, job: JobId, root: NodeId, contributions: u16, spread: Span) {
        let FlushTimeout::Adaptive { most, .. } = self.config else { return };
        // A contribution that came later than the longest wait says nothing about how long to wait.
        let spread = spread.min(most);
        match &mut self.classes[class_index(job, root)] {
            Some(class) if (class.job, class.root) == (job, root) => class.sample(contributions, spread),
            other => *other = Some(Class::new(job, root, contributions, spread)),
        }
    }

    /// Forgets a job.
    pub fn forget(&mut self, job: JobId) {
        self.classes.iter_mut().filter(|class| class.is_some_and(|class| class.job == job)).for_each(|c| *c = None);
    }

    /// The longest wait of any partial sum that begins now.
    pub fn longest(&self) -> Span {
        let shortest = TimeoutStep(self.steps() as u8 - 1);
        let known = self.classes.iter().flatten().map(|class| self.step(class.wait()));
        self.span(known.min().unwrap_or(shortest))
    }

    /// Bytes of the table.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.classes)
    }
}

/// Index of each class; a newer class overwrites an older one.
fn class_index(job: JobId, root: NodeId) -> usize {
    let hash = u32::from(job.0).wrapping_mul(0x9e37_79b1) ^ root.0.wrapping_mul(0x85eb_ca6b);
    (hash >> 16 ^ hash) as usize % CLASSES
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(1);
    const ROOT: NodeId = NodeId(100);
    const LEAST: Span = Span::from_nanos(100);
    const MOST: Span = Span::from_micros(10);

    fn adaptive() -> Timeout {
        Timeout::new(FlushTimeout::Adaptive { least: LEAST, most: MOST })
    }

    fn wait(timeout: &Timeout) -> Span {
        timeout.span(timeout.expectation(JOB, ROOT, 100).wait)
    }

    fn full(timeout: &Timeout) -> u16 {
        timeout.expectation(JOB, ROOT, 100).full
    }

    #[test]
    fn a_fixed_timeout_stays_and_expects_everybody() {
        let mut timeout = Timeout::new(FlushTimeout::Fixed(Span::from_micros(1)));
        (0..1000).for_each(|_| timeout.sample(JOB, ROOT, 7, Span::from_millis(1)));
        assert_eq!((wait(&timeout), full(&timeout)), (Span::from_micros(1), 99));
    }

    #[test]
    fn before_anything_was_seen_it_is_short_and_expects_everybody() {
        assert_eq!((wait(&adaptive()), full(&adaptive())), (LEAST, 99));
    }

    #[test]
    fn the_first_block_shows_how_many_come() {
        let mut timeout = adaptive();
        timeout.sample(JOB, ROOT, 7, Span::ZERO);
        assert_eq!(full(&timeout), 7);
        assert_eq!(timeout.expectation(JOB, ROOT, 5).full, 4, "of a smaller job never more than there are");
    }

    #[test]
    fn the_most_of_recent_blocks_is_expected() {
        let mut timeout = adaptive();
        for block in 0..100 {
            timeout.sample(JOB, ROOT, if block % 8 == 5 { 12 } else { 9 }, Span::ZERO);
            assert_eq!(full(&timeout), if block < 5 { 9 } else { 12 });
        }
    }

    #[test]
    fn where_fewer_come_from_now_on_that_is_soon_all_that_is_expected() {
        let mut timeout = adaptive();
        (0..20).for_each(|_| timeout.sample(JOB, ROOT, 30, Span::ZERO));
        (0..2 * GENERATION).for_each(|_| timeout.sample(JOB, ROOT, 20, Span::ZERO));
        assert_eq!(full(&timeout), 20);
    }

    #[test]
    fn it_waits_as_long_as_the_distance_of_contributions_and_no_shorter() {
        for spread in [300, 900, 2_000, 6_000].map(Span::from_nanos) {
            let mut timeout = adaptive();
            (0..1000).for_each(|_| timeout.sample(JOB, ROOT, 7, spread));
            let wait = wait(&timeout);
            assert!(wait >= spread && wait <= spread.times(2), "{wait} for {spread}");
        }
    }

    #[test]
    fn what_is_late_now_and_then_is_waited_for_and_what_is_late_once_in_a_while_is_not() {
        let (mut often, mut rarely) = (adaptive(), adaptive());
        for block in 0..1000u32 {
            let late = |every: u32| if block % every == every / 2 { Span::from_micros(1) } else { Span::ZERO };
            often.sample(JOB, ROOT, 7, late(4));
            rarely.sample(JOB, ROOT, 7, late(400));
        }
        assert!(wait(&often) > Span::from_micros(1), "{}", wait(&often));
        assert_eq!(wait(&rarely), Span(MOST.0 >> (STEPS - 1)).max(LEAST));
    }

    #[test]
    fn it_keeps_to_its_bounds_and_forgets_what_was_late_beyond_them() {
        let mut timeout = adaptive();
        timeout.sample(JOB, ROOT, 7, Span::from_millis(100));
        assert_eq!(wait(&timeout), MOST);
        (0..100).for_each(|_| timeout.sample(JOB, ROOT, 7, Span::ZERO));
        assert_eq!(wait(&timeout), LEAST);
    }

    #[test]
    fn roots_and_jobs_are_distinguished_and_a_job_takes_its_own_with_it() {
        let mut timeout = adaptive();
        timeout.sample(JOB, ROOT, 7, MOST);
        timeout.sample(JOB, NodeId(101), 8, LEAST);
        timeout.sample(JobId(2), ROOT, 9, LEAST);
        assert_eq!(timeout.longest(), MOST);
        let full = |timeout: &Timeout, job, root| timeout.expectation(job, root, 100).full;
        assert_eq!((full(&timeout, JOB, NodeId(101)), full(&timeout, JobId(2), ROOT)), (8, 9));
        timeout.forget(JOB);
        assert_eq!((full(&timeout, JOB, ROOT), full(&timeout, JobId(2), ROOT)), (99, 9));
    }
}
