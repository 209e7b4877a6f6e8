//! Which packets a queue marks (ECN): none while it is short, all while it is long, and between these lengths a share
//! that rises with its length, as RED does (Floyd and Jacobson, 1993) and as switches do for DCQCN.
//!
//! With one length for both, a queue that acknowledgements keep at the threshold marks the last packets of a train: the
//! same number in each round trip, whatever the window is, so that windows of different sizes stay different. Marking a
//! share of all packets cuts windows in proportion to their size.

use tributary_numeric::splitmix64;

/// The rule of one queue, with the draws that it has made. Lengths are in any unit, bytes or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    min_threshold: u64,
    max_threshold: u64,
    draw: u64,
}

impl Marking {
    /// Packets that find at most `min_threshold` waiting are not marked; those that find more than `max_threshold` are.
    /// Queues with different seeds mark different packets.
    pub fn new(min_threshold: u64, max_threshold: u64, seed: u64) -> Marking {
        Marking { min_threshold, max_threshold: max_threshold.max(min_threshold), draw: splitmix64(seed) }
    }

    /// Nothing is marked.
    pub fn never() -> Marking {
        Marking::new(u64::MAX, u64::MAX, 0)
    }

    /// Changes the thresholds.
    pub fn rescale(&mut self, min_threshold: u64, max_threshold: u64) {
        (self.min_threshold, self.max_threshold) = (min_threshold, max_threshold.max(min_threshold));
    }

    /// True if a packet that finds this much waiting is to be marked.
    #[inline]
    pub fn should_mark(&mut self, waiting: u64) -> bool {
        waiting > self.min_threshold && (waiting > self.max_threshold || self.draw(waiting))
    }

    fn draw(&mut self, waiting: u64) -> bool {
        self.draw = self.draw.wrapping_add(1);
        let band = u128::from(self.max_threshold - self.min_threshold);
        // A length between the two thresholds, uniformly.
        let drawn = (u128::from(splitmix64(self.draw)) * band) >> 64;
        drawn < u128::from(waiting - self.min_threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(marking: &mut Marking, waiting: u64) -> f64 {
        (0..10_000).filter(|_| marking.should_mark(waiting)).count() as f64 / 1e4
    }

    #[test]
    fn a_short_queue_marks_nothing_a_long_one_everything_and_the_share_rises_between() {
        let mut marking = Marking::new(100, 300, 7);
        assert_eq!(
            [0, 99, 100, 300, 301, u64::MAX].map(|waiting| share(&mut marking, waiting)),
            [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
        );
        for waiting in [101, 110, 150, 200, 290, 299] {
            let (is, expected) = (share(&mut marking, waiting), (waiting - 100) as f64 / 200.0);
            assert!((is - expected).abs() < 0.02, "{waiting}: {is} is not {expected}");
        }
    }

    #[test]
    fn one_length_for_both_is_a_threshold() {
        for max_threshold in [0, 100] {
            let mut marking = Marking::new(100, max_threshold, 7);
            assert_eq!([99, 100, 101].map(|waiting| share(&mut marking, waiting)), [0.0, 0.0, 1.0]);
        }
        assert_eq!(share(&mut Marking::never(), u64::MAX), 0.0);
    }

    #[test]
    fn the_same_seed_draws_the_same_packets_and_another_one_others() {
        let drawn = |seed| {
            let mut marking = Marking::new(0, 100, seed);
            (0..64).map(|_| marking.should_mark(50)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
