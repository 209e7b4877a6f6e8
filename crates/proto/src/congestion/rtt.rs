//! The retransmission timeout from measured round trips (RFC 6298, with finer clocks than TCP's).

use crate::contract::config::TimerConfig;
use crate::contract::time::Span;

/// Smoothed round-trip time, its variation, and the timeout computed from them.
#[derive(Clone, Debug, Hash)]
pub struct RttEstimator {
    timers: TimerConfig,
    smoothed: Option<Span>,
    variation: Span,
}

impl RttEstimator {
    /// An estimator that has measured nothing.
    pub fn new(timers: TimerConfig) -> RttEstimator {
        RttEstimator { timers, smoothed: None, variation: Span::ZERO }
    }

    /// Takes in one round trip. The caller must keep Karn's rule: no sample from a packet that was sent twice.
    pub fn sample(&mut self, rtt: Span) {
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = Span(rtt.0 / 2);
            }
            Some(smoothed) => {
                let error = Span(smoothed.0.abs_diff(rtt.0));
                self.variation = Span((3 * self.variation.0 + error.0) / 4);
                self.smoothed = Some(Span((7 * smoothed.0 + rtt.0) / 8));
            }
        }
    }

    /// The smoothed round-trip time, once there is one.
    pub fn smoothed(&self) -> Option<Span> {
        self.smoothed
    }

    /// The timeout of a packet that was sent `sends` times: doubled for each time after the first. The limit is for
    /// doubling: on a path whose round trip is as long, no timeout may be shorter than the round trip.
    pub fn rto(&self, sends: u32) -> Span {
        let base = match self.smoothed {
            // On a path that does not vary at all, a queue that grows by a packet must not look like a loss.
            Some(smoothed) => smoothed + self.variation.times(4).max(Span(smoothed.0 / 8)),
            None => self.timers.initial_rto,
        };
        let base = base.max(self.timers.min_rto);
        base.times(1 << sends.saturating_sub(1).min(16)).min(self.timers.max_rto.max(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimator() -> RttEstimator {
        RttEstimator::new(TimerConfig::default())
    }

    #[test]
    fn starts_from_the_initial_timeout_and_follows_the_samples() {
        let mut rtt = estimator();
        assert_eq!(rtt.rto(1), TimerConfig::default().initial_rto);
        for _ in 0..100 {
            rtt.sample(Span::from_millis(4));
        }
        assert!(rtt.rto(1) >= Span::from_millis(4) && rtt.rto(1) < Span::from_millis(5), "{}", rtt.rto(1));
    }

    #[test]
    fn doubles_with_each_retransmission_up_to_the_limit() {
        let rtt = estimator();
        assert_eq!(rtt.rto(2), Span::from_millis(40));
        assert_eq!(rtt.rto(3), Span::from_millis(80));
        assert_eq!(rtt.rto(60), TimerConfig::default().max_rto);
    }

    #[test]
    fn allows_for_a_round_trip_a_little_longer_than_all_before() {
        let mut rtt = estimator();
        for _ in 0..100 {
            rtt.sample(Span::from_millis(4));
        }
        assert!(rtt.rto(1) > Span::from_micros(4_400), "{}", rtt.rto(1));
    }

    #[test]
    fn is_longer_than_a_round_trip_beyond_the_limit() {
        let mut rtt = estimator();
        for _ in 0..100 {
            rtt.sample(Span::from_millis(300));
        }
        for sends in 1..20 {
            assert!((Span::from_millis(301)..Span::from_millis(400)).contains(&rtt.rto(sends)), "{}", rtt.rto(sends));
        }
    }

    #[test]
    fn never_falls_below_the_minimum() {
        let mut rtt = estimator();
        for _ in 0..100 {
            rtt.sample(Span::from_micros(10));
        }
        assert_eq!(rtt.rto(1), TimerConfig::default().min_rto);
    }
}
