//! TIMELY (Mittal et al., SIGCOMM 2015): the rate follows how the round trip changes. While it falls the rate grows by a
//! step, while it rises the rate is cut in proportion; outside of two thresholds the round trip itself decides.
//!
//! It has no single equilibrium: once the queue stands still, any division of the link stays as it is (Zhu et al., "ECN or
//! Delay", CoNEXT 2016, section 4). Flows that begin apart can stay apart.
//!
//! Where we deviate:
//! - The thresholds are [`Settings::target_delay`] and ten times that: the paper's 50 and 500 us by default.
//! - The shortest round trip, by which the gradient is divided, is measured and not a constant of the network.
//! - A flow begins at the rate of its link, as the only one of its host does in the paper (§4.2).
//! - The step is a share of the link's rate: the paper's 10 Mbit/s at its 10 Gbit/s.

use super::bookkeeping::Real;
use super::{Ack, Algorithm, Controller, Feedback, Loss, Settings};
use crate::contract::time::{Span, Time};

/// TIMELY as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "timely", feedback: Feedback::EndToEnd, make: |settings| Box::new(Timely::new(settings)) };

/// The weight of a new difference of round trips: `alpha` of Algorithm 1.
const WEIGHT: f64 = 0.875;
/// How strongly a rise cuts: `beta`.
const CUT: f64 = 0.8;
/// The additive step, as a share of the link's rate: `delta`.
const STEP: f64 = 1e-3;
/// The upper threshold, in lower ones.
const HIGH: u64 = 10;
/// After this many falls in a row, five steps are taken at once: hyperactive increase (§4.3.2).
const HYPER_AFTER: u32 = 5;
/// The rate is decided once for this many bytes: a segment (§5).
const SEGMENT_BYTES: u64 = 16_000;

/// The controller of one sender.
#[derive(Clone, Debug, Hash)]
pub struct Timely {
    settings: Settings,
    rate: Real,
    shortest: Option<Span>,
    previous: Option<Span>,
    /// The average difference of two round trips, in seconds.
    difference: Real,
    falls: u32,
    /// Bytes that were acknowledged since the last decision.
    bytes: u64,
}

impl Timely {
    /// The controller of a sender that has sent nothing.
    pub fn new(settings: &Settings) -> Timely {
        Timely {
            settings: *settings,
            rate: Real(settings.line_rate as f64),
            shortest: None,
            previous: None,
            difference: Real(0.0),
            falls: 0,
            bytes: 0,
        }
    }

    /// Algorithm 1.
    fn decide(&mut self, rtt: Span) {
        let Some(previous) = self.previous.replace(rtt) else { return };
        let (low, high) = (self.settings.target_delay, self.settings.target_delay.times(HIGH));
        let (line_rate, seconds) = (self.settings.line_rate as f64, rtt.as_secs_f64());
        self.difference.0 = (1.0 - WEIGHT) * self.difference.0 + WEIGHT * (seconds - previous.as_secs_f64());
        let gradient = self.difference.0 / self.shortest.unwrap_or(rtt).as_secs_f64();
        self.falls = if rtt >= low && gradient <= 0.0 { self.falls + 1 } else { 0 };
        let rate = if rtt < low {
            self.rate.0 + STEP * line_rate
        } else if rtt > high {
            self.rate.0 * (1.0 - CUT * (1.0 - high.as_secs_f64() / seconds))
        } else if gradient <= 0.0 {
            let steps = if self.falls >= HYPER_AFTER { 5.0 } else { 1.0 };
            self.rate.0 + steps * STEP * line_rate
        } else {
            self.rate.0 * (1.0 - CUT * gradient)
        };
        self.rate.0 = rate.clamp(STEP * line_rate, line_rate);
    }
}

impl Controller for Timely {
    /// TIMELY has no window.
    fn window(&self) -> u64 {
        self.settings.limits.max.into()
    }

    fn rate(&self) -> Option<f64> {
        Some(self.rate.0)
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.bytes += u64::from(ack.packets) * self.settings.packet_bytes as u64;
        let Some(rtt) = ack.rtt.filter(|rtt| *rtt > Span::ZERO) else { return };
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        if self.bytes >= SEGMENT_BYTES {
            self.bytes = 0;
            self.decide(rtt);
        }
    }

    /// Losses are for the recovery alone; a full queue is a long round trip.
    fn on_loss(&mut self, _: Loss) -> bool {
        false
    }

    fn on_timeout(&mut self, _: Time) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Limits;

    const LINE: f64 = 10e9;

    /// A sender at half the rate, after these round trips in microseconds, one a segment.
    fn after(rtts: &[u64]) -> Timely {
        let limits = Limits { initial: 10, min: 1, max: 1000 };
        let mut sender = Timely::new(&Settings { line_rate: LINE as u64, ..Settings::new(limits) });
        sender.rate.0 = LINE / 2.0;
        for &rtt in rtts {
            sender.on_ack(&Ack { packets: 11, rtt: Some(Span::from_micros(rtt)), ..Ack::default() });
        }
        sender
    }

    #[test]
    fn below_the_lower_threshold_the_rate_rises_whatever_the_gradient() {
        assert_eq!(after(&[20, 49]).rate(), Some(LINE / 2.0 + STEP * LINE));
    }

    #[test]
    fn beyond_the_upper_threshold_the_excess_cuts() {
        assert_eq!(after(&[1000, 1000]).rate(), Some(LINE / 2.0 * (1.0 - CUT * 0.5)));
    }

    #[test]
    fn between_them_a_rise_cuts_by_the_gradient() {
        let gradient = WEIGHT * 20.0 / 100.0;
        let rate = after(&[100, 120]).rate.0;
        assert!((rate / (LINE / 2.0 * (1.0 - CUT * gradient)) - 1.0).abs() < 1e-12, "{rate}");
    }

    #[test]
    fn a_queue_that_stands_still_is_left_as_it_is_while_steps_become_larger() {
        // Four steps, and five at once from the fifth decision on.
        assert_eq!(after(&[100; 5]).rate(), Some(LINE / 2.0 + 4.0 * STEP * LINE));
        assert_eq!(after(&[100; 7]).rate(), Some(LINE / 2.0 + 14.0 * STEP * LINE));
    }

    #[test]
    fn one_decision_is_made_a_segment() {
        let mut sender = after(&[20]);
        for _ in 0..10 {
            sender.on_ack(&Ack { packets: 1, rtt: Some(Span::from_micros(20)), ..Ack::default() });
        }
        assert_eq!(sender.rate(), Some(LINE / 2.0), "15,000 bytes are less than a segment");
        sender.on_ack(&Ack { packets: 1, rtt: Some(Span::from_micros(20)), ..Ack::default() });
        assert_eq!(sender.rate(), Some(LINE / 2.0 + STEP * LINE));
    }
}
