//! When a sender sends: how long it waits for an answer, and how a window is spread over its round trip.

use crate::contract::config::TimerConfig;
use crate::contract::time::{Span, Time};

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

// Spreads a window over its round trip, a few packets at a time.
//
// Without pacing, a window travels as one burst wherever acknowledgements share queues with data of the other
// direction, as they do in a ring of hosts. All acknowledgements of the window then wait behind a burst and set the
// next burst free at once ("ACK compression"), and links idle in between.

/// Decides when the next packet may go (the generic cell rate algorithm).
#[derive(Clone, Debug, Default, Hash)]
pub struct Pacer {
    /// When the next packet would go if packets went one at a time.
    due: Time,
    /// How far a burst may run ahead of `due`.
    burst: Span,
}

impl Pacer {
    /// True if a packet may go now.
    pub fn is_open(&self, now: Time) -> bool {
        self.due.since(now) <= self.burst
    }

    /// When a whole burst may go again.
    pub fn due(&self) -> Time {
        self.due
    }

    /// A packet goes. On average the next packet goes `interval` later, in bursts of `burst` packets.
    pub fn on_sent(&mut self, now: Time, interval: Span, burst: u32) {
        self.burst = interval.times(u64::from(burst));
        // Timers fire late: missed packets are made up for, up to one more burst.
        let earliest = Time(now.0.saturating_sub(self.burst.0));
        self.due = self.due.max(earliest) + interval;
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

    const INTERVAL: Span = Span::from_micros(10);

    fn send_all(pacer: &mut Pacer, now: Time) -> usize {
        let mut sent = 0;
        while pacer.is_open(now) {
            pacer.on_sent(now, INTERVAL, 4);
            sent += 1;
        }
        sent
    }

    #[test]
    fn keeps_the_rate_in_bursts() {
        let mut pacer = Pacer::default();
        let mut now = Time::ZERO + Span::from_millis(1);
        send_all(&mut pacer, now);
        let mut sent = 0;
        for _ in 0..100 {
            now = pacer.due();
            let burst = send_all(&mut pacer, now);
            assert!((4..=5).contains(&burst));
            sent += burst;
        }
        let spent = now.since(Time::ZERO + Span::from_millis(1));
        assert!((sent as u64 - 10..=sent as u64 + 10).contains(&(spent.0 / INTERVAL.0)), "{sent} packets in {spent}");
    }

    #[test]
    fn makes_up_for_a_late_timer_but_not_for_a_pause() {
        let mut pacer = Pacer::default();
        let start = Time::ZERO + Span::from_millis(1);
        send_all(&mut pacer, start);
        let late = pacer.due() + INTERVAL.times(3);
        assert_eq!(send_all(&mut pacer, late), 8);
        let after_a_pause = late + Span::from_millis(50);
        assert_eq!(send_all(&mut pacer, after_a_pause), 9);
    }
}
