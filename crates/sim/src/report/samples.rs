//! Samples of links, switches and jobs at equal steps of time.

use serde::Serialize;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::{Span, Time};

use crate::cores::steps::Kind;
use crate::engine::{Gauge, Handled, JobIndex, Occupancy, SLOTS_IN_USE};
use crate::topology::LinkId;

/// The state at each step, before any event of that instant. The first step is one step after the beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// The time from one step to the next.
    pub every: Span,
    /// The links that were sampled.
    pub links: Vec<LinkId>,
    /// Bytes in the queue: step after step, one for each link.
    pub queued: Vec<u64>,
    /// Time that the link had spent sending, in the same order.
    pub busy: Vec<Span>,
    /// The occupancy of switches: step after step, one for each switch.
    pub switches: Vec<Occupancy>,
    /// The work of their cores, in the same order; empty if switches have no cores.
    pub handled: Vec<Handled>,
    /// How many switches there are.
    pub switch_count: usize,
    /// The gauges of jobs that were sampled.
    pub gauges: Vec<Gauge>,
    /// The values of these gauges: step after step, one for each gauge.
    pub measures: Vec<f64>,
    /// How many steps there were so far.
    pub steps: usize,
}

/// A report's summary of its samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SamplesReport {
    /// Seconds from one step to the next; longer than the file asks if there were too many steps.
    pub every_seconds: f64,
    /// How many steps there are.
    pub steps: usize,
    /// How many links were sampled.
    pub links: usize,
}

/// One link at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSample {
    /// When.
    pub time: Time,
    /// The link.
    pub link: LinkId,
    /// Bytes in the queue.
    pub queued: u64,
    /// The share of the time since the step before that the link spent sending.
    pub utilisation: f64,
}

/// The work of one switch's cores between the step before and this one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoresSample {
    /// Gigabits a second of packets whose handlers ended.
    pub handled_gbps: f64,
    /// Cores that waited for locks, on average.
    pub waiting_for_locks: f64,
    /// Cores in each kind of step, on average. A step counts when it has ended.
    pub in_step: [f64; Kind::ALL.len()],
}

impl CoresSample {
    fn between(before: &Handled, after: &Handled, every: Span) -> CoresSample {
        let share = |before: u64, after: u64| (after - before) as f64 / every.0 as f64;
        CoresSample {
            // Bits in a picosecond are terabits in a second.
            handled_gbps: 8e3 * share(before.bytes, after.bytes),
            waiting_for_locks: share(before.lock_waiting, after.lock_waiting),
            in_step: Kind::ALL.map(|kind| share(before.spent[kind], after.spent[kind])),
        }
    }
}

impl Samples {
    /// Samples before the first step.
    pub fn new(every: Span, links: Vec<LinkId>, switch_count: usize, gauges: Vec<Gauge>) -> Samples {
        let (queued, busy, switches, handled, measures) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Samples { every, links, queued, busy, switches, handled, switch_count, gauges, measures, steps: 0 }
    }

    /// The time of the next step.
    pub fn next(&self) -> Time {
        self.time(self.steps)
    }

    fn time(&self, step: usize) -> Time {
        Time(self.every.0.saturating_mul(step as u64 + 1))
    }

    /// Drops every other step.
    pub fn thin(&mut self) {
        keep_every_other(&mut self.queued, self.links.len());
        keep_every_other(&mut self.busy, self.links.len());
        keep_every_other(&mut self.switches, self.switch_count);
        keep_every_other(&mut self.handled, self.switch_count);
        keep_every_other(&mut self.measures, self.gauges.len());
        self.steps /= 2;
        self.every = self.every.times(2);
    }

    /// Takes over the samples of another partition's links, switches and ranks. What all switches hold for a job is the
    /// sum over partitions, because a partition's copies of other partitions' switches hold nothing.
    pub fn absorb(
        &mut self,
        other: &Samples,
        owns_link: impl Fn(LinkId) -> bool,
        owns_switch: impl Fn(usize) -> bool,
        owns_rank: impl Fn(JobIndex, Rank) -> bool,
    ) {
        debug_assert_eq!((self.every, self.steps), (other.every, other.steps), "threads take the same steps");
        for index in 0..self.queued.len() {
            if owns_link(self.links[index % self.links.len()]) {
                (self.queued[index], self.busy[index]) = (other.queued[index], other.busy[index]);
            }
        }
        for index in 0..self.switches.len() {
            if owns_switch(index % self.switch_count) {
                self.switches[index] = other.switches[index];
                if let (Some(ours), Some(theirs)) = (self.handled.get_mut(index), other.handled.get(index)) {
                    *ours = *theirs;
                }
            }
        }
        for (index, measure) in self.measures.iter_mut().enumerate() {
            let gauge = self.gauges[index % self.gauges.len()];
            match gauge.rank {
                None => *measure += other.measures[index],
                Some(rank) if owns_rank(gauge.job, rank) => *measure = other.measures[index],
                Some(_) => {}
            }
        }
    }

    /// All gauges of jobs at every step, in the order of time.
    pub fn job_samples(&self) -> impl Iterator<Item = (Time, Gauge, f64)> + '_ {
        let at = |index: usize| (self.time(index / self.gauges.len()), self.gauges[index % self.gauges.len()]);
        self.measures.iter().enumerate().map(move |(index, &measure)| (at(index).0, at(index).1, measure))
    }

    /// How many slots all switches hold for a job, step by step.
    pub fn slots_in_use_by(&self, job: JobIndex) -> impl Iterator<Item = (Time, f64)> + '_ {
        let of_job = move |gauge: &Gauge| gauge.job == job && gauge.rank.is_none() && gauge.name == SLOTS_IN_USE;
        self.job_samples().filter(move |(_, gauge, _)| of_job(gauge)).map(|(time, _, slots)| (time, slots))
    }

    /// All links at every step, in the order of time.
    pub fn link_samples(&self) -> impl Iterator<Item = LinkSample> + '_ {
        let mut counted = vec![Span::ZERO; self.links.len()];
        (0..self.queued.len()).map(move |index| {
            let (step, column) = (index / self.links.len(), index % self.links.len());
            // A NIC that paused counts its pause as sending at once, which is corrected here over the following steps.
            let before = counted[column];
            counted[column] = self.busy[index].clamp(before, before + self.every);
            LinkSample {
                time: self.time(step),
                link: self.links[column],
                queued: self.queued[index],
                utilisation: (counted[column] - before).0 as f64 / self.every.0 as f64,
            }
        })
    }

    /// All switches at every step: the time, the switch's number, and its occupancy.
    pub fn switch_samples(&self) -> impl Iterator<Item = (Time, usize, Occupancy)> + '_ {
        let position = |index: usize| (self.time(index / self.switch_count), index % self.switch_count);
        self.switches.iter().enumerate().map(move |(at, &occupancy)| (position(at).0, position(at).1, occupancy))
    }

    /// The cores of all switches at every step, in the order of [`Samples::switch_samples`]; empty if switches have no
    /// cores.
    pub fn cores_samples(&self) -> impl Iterator<Item = CoresSample> + '_ {
        let before =
            |index: usize| index.checked_sub(self.switch_count).map_or_else(Handled::default, |at| self.handled[at]);
        let indexed = self.handled.iter().enumerate();
        indexed.map(move |(index, after)| CoresSample::between(&before(index), after, self.every))
    }

    /// The summary for the report.
    pub fn summary(&self) -> SamplesReport {
        SamplesReport { every_seconds: self.every.as_secs_f64(), steps: self.steps, links: self.links.len() }
    }
}

/// Keeps the second, the fourth, and so on, of rows of equal length.
fn keep_every_other<T: Copy>(values: &mut Vec<T>, row: usize) {
    if row > 0 {
        let kept: Vec<T> = values.chunks_exact(row).skip(1).step_by(2).flatten().copied().collect();
        *values = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(busy: &[u64]) -> Samples {
        Samples {
            queued: (1..=busy.len() as u64).collect(),
            busy: busy.iter().copied().map(Span).collect(),
            steps: busy.len(),
            ..Samples::new(Span(100), vec![LinkId(4)], 0, Vec::new())
        }
    }

    #[test]
    fn utilisation_is_that_of_the_step() {
        let seen: Vec<(u64, f64)> =
            samples(&[100, 150, 150]).link_samples().map(|sample| (sample.time.0, sample.utilisation)).collect();
        assert_eq!(seen, [(100, 1.0), (200, 0.5), (300, 0.0)]);
    }

    #[test]
    fn utilisation_never_exceeds_all_of_the_time_and_nothing_is_counted_twice() {
        let seen: Vec<f64> = samples(&[50, 20, 210, 250]).link_samples().map(|sample| sample.utilisation).collect();
        assert_eq!(seen, [0.5, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn every_other_step_is_a_step_of_twice_the_time() {
        let mut samples = samples(&[10, 20, 30, 40]);
        samples.thin();
        let seen: Vec<(u64, u64)> = samples.link_samples().map(|sample| (sample.time.0, sample.queued)).collect();
        assert_eq!(seen, [(200, 2), (400, 4)]);
        assert_eq!(samples.next(), Time(600));
    }
}
