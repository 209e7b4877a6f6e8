//! DCQCN (Zhu et al., SIGCOMM 2015), the rate control of RoCE: a mark at most every 50 us cuts the rate, and timers and a
//! byte counter bring it back, first half way to the rate before the cut, then beyond it.
//!
//! Where we deviate:
//! - CNPs are not packets of their own: each packet is acknowledged with its mark, and the sender takes at most one in
//!   [`NOTIFY_INTERVAL`] for a notification, as the paper's receiver would send it.
//! - Timers are read when an acknowledgement comes, and the byte counter counts what is acknowledged.
//! - Steps are shares of the link's rate: the paper's 40 Mbit/s at its 40 Gbit/s. It names no step for hyper increase,
//!   nor a least rate: ten steps, and one.

use super::bookkeeping::Real;
use super::{Ack, Algorithm, Controller, Feedback, Loss, Settings};
use crate::contract::time::{Span, Time};

/// DCQCN as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "dcqcn", feedback: Feedback::Marks, make: |settings| Box::new(Dcqcn::new(settings)) };

/// The least time between two notifications: `N` (§5.2).
pub const NOTIFY_INTERVAL: Span = Span::from_micros(50);
/// The gain of the estimate of congestion: `g`.
const GAIN: f64 = 1.0 / 256.0;
/// Without a notification for this long, the estimate falls: `K`.
const ALPHA_TIMER: Span = Span::from_micros(55);
/// The rate rises whenever this time or this many bytes have passed: `T` and `B`.
const INCREASE_TIMER: Span = Span::from_micros(55);
const INCREASE_BYTES: u64 = 10_000_000;
/// The first increases only bring the rate back: `F`.
const RECOVERY_STEPS: u32 = 5;
/// The additive step, as a share of the link's rate: `R_AI`.
const STEP: f64 = 1e-3;
/// The step of hyper increase, in additive steps.
const HYPER: f64 = 10.0;

/// The controller of one sender: the paper's reaction point.
#[derive(Clone, Debug, Hash)]
pub struct Dcqcn {
    settings: Settings,
    line_rate: Real,
    rate: Real,
    target: Real,
    alpha: Real,
    last_cut: Option<Time>,
    /// When the two timers began.
    alpha_since: Time,
    increase_since: Time,
    /// Bytes since the byte counter's last increase.
    bytes: u64,
    /// Increases since the last cut.
    by_time: u32,
    by_bytes: u32,
}

impl Dcqcn {
    /// The controller of a sender that has sent nothing: it begins at the link's rate (§5.1).
    pub fn new(settings: &Settings) -> Dcqcn {
        let line_rate = Real(settings.line_rate as f64);
        Dcqcn {
            settings: *settings,
            line_rate,
            rate: line_rate,
            target: line_rate,
            alpha: Real(1.0),
            last_cut: None,
            alpha_since: Time::ZERO,
            increase_since: Time::ZERO,
            bytes: 0,
            by_time: 0,
            by_bytes: 0,
        }
    }

    /// Equation 1.
    fn cut(&mut self, now: Time) {
        self.target = self.rate;
        self.rate.0 = (self.rate.0 * (1.0 - self.alpha.0 / 2.0)).max(self.line_rate.0 * STEP);
        self.alpha.0 = (1.0 - GAIN) * self.alpha.0 + GAIN;
        (self.last_cut, self.alpha_since, self.increase_since) = (Some(now), now, now);
        (self.bytes, self.by_time, self.by_bytes) = (0, 0, 0);
    }

    /// The timers that have run out since the last acknowledgement, and the byte counter: equations 2 to 4.
    fn advance(&mut self, now: Time, bytes: u64) {
        while now.since(self.alpha_since) >= ALPHA_TIMER {
            self.alpha_since += ALPHA_TIMER;
            self.alpha.0 *= 1.0 - GAIN;
        }
        while now.since(self.increase_since) >= INCREASE_TIMER {
            self.increase_since += INCREASE_TIMER;
            self.by_time += 1;
            self.increase();
        }
        self.bytes += bytes;
        while self.bytes >= INCREASE_BYTES {
            self.bytes -= INCREASE_BYTES;
            self.by_bytes += 1;
            self.increase();
        }
    }

    fn increase(&mut self) {
        let (least, most) = (self.by_time.min(self.by_bytes), self.by_time.max(self.by_bytes));
        let step = self.line_rate.0 * STEP;
        if least > RECOVERY_STEPS {
            self.target.0 += HYPER * step * f64::from(least - RECOVERY_STEPS);
        } else if most >= RECOVERY_STEPS {
            self.target.0 += step;
        }
        self.target.0 = self.target.0.min(self.line_rate.0);
        self.rate.0 = f64::midpoint(self.target.0, self.rate.0);
    }
}

impl Controller for Dcqcn {
    /// RoCE has no window.
    fn window(&self) -> u64 {
        self.settings.limits.max.into()
    }

    fn rate(&self) -> Option<f64> {
        Some(self.rate.0)
    }

    fn on_ack(&mut self, ack: &Ack) {
        let Some(last) = self.last_cut else {
            if ack.marked > 0 {
                self.cut(ack.now);
            }
            return;
        };
        if ack.marked > 0 && ack.now.since(last) >= NOTIFY_INTERVAL {
            self.cut(ack.now);
        } else {
            self.advance(ack.now, u64::from(ack.packets) * self.settings.packet_bytes as u64);
        }
    }

    /// Losses are for the recovery alone; the rate follows marks.
    fn on_loss(&mut self, _: Loss) -> bool {
        false
    }

    fn on_timeout(&mut self, _: Time) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Limits;

    const LINE: f64 = 40e9;

    fn dcqcn() -> Dcqcn {
        let limits = Limits { initial: 10, min: 1, max: 1000 };
        Dcqcn::new(&Settings { line_rate: LINE as u64, ..Settings::new(limits) })
    }

    fn ack(micros: u64, marked: u32) -> Ack {
        Ack { now: Time::ZERO + Span::from_micros(micros), packets: 1, marked, ..Ack::default() }
    }

    #[test]
    fn the_first_mark_halves_the_rate_and_others_wait_for_their_interval() {
        let mut sender = dcqcn();
        sender.on_ack(&ack(0, 0));
        assert_eq!(sender.rate(), Some(LINE));
        for micros in [10, 20, 59] {
            sender.on_ack(&ack(micros, 1));
            assert_eq!(sender.rate(), Some(LINE / 2.0), "alpha is 1 at first");
        }
        sender.on_ack(&ack(60, 1));
        assert_eq!(sender.rate(), Some(LINE / 4.0), "alpha rises towards 1 with each, so it is still 1");
    }

    #[test]
    fn fast_recovery_halves_the_gap_and_additive_increase_goes_on() {
        // After n increases the gap to the rate before the cut is 1 / 2^n of what it was (equation 3).
        let mut sender = dcqcn();
        sender.on_ack(&ack(0, 1));
        for n in 1..RECOVERY_STEPS {
            sender.on_ack(&ack(55 * u64::from(n), 0));
            let gap = LINE / 2.0 / f64::from(1 << n);
            assert_eq!(sender.rate(), Some(LINE - gap), "{n}");
        }
        sender.on_ack(&ack(1, 1));
        let mut sender = dcqcn();
        sender.on_ack(&ack(0, 1));
        sender.on_ack(&ack(50, 1));
        // From a quarter of the rate back to a half, then one step of LINE / 1000 an increase.
        sender.on_ack(&ack(50 + 55 * 4, 0));
        let before = sender.target.0;
        sender.on_ack(&ack(50 + 55 * 9, 0));
        assert!((before - LINE / 2.0).abs() < 1.0, "{before}");
        assert!((sender.target.0 - before - 5.0 * STEP * LINE).abs() < 1.0, "{}", sender.target.0);
    }

    #[test]
    fn the_estimate_falls_by_its_gain_whenever_its_timer_runs_out() {
        let mut sender = dcqcn();
        sender.on_ack(&ack(0, 1));
        sender.on_ack(&ack(55 * 100, 0));
        assert!((sender.alpha.0 - (1.0 - GAIN).powi(100)).abs() < 1e-12, "{}", sender.alpha.0);
    }

    #[test]
    fn time_and_bytes_together_make_the_increase_hyper() {
        let mut sender = dcqcn();
        for at in [0, 50, 100] {
            sender.on_ack(&ack(at, 1));
        }
        let packets = (INCREASE_BYTES / 1500) as u32 + 1;
        for n in 1..=5 {
            sender.on_ack(&Ack { packets, ..ack(100 + 55 * n, 0) });
        }
        let before = sender.target.0;
        sender.on_ack(&Ack { packets, ..ack(100 + 55 * 6, 0) });
        // One additive step by the timer, as the byte counter is at 5 then, and a hyper step by the bytes.
        assert!((sender.target.0 - before - (1.0 + HYPER) * STEP * LINE).abs() < 1.0, "{}", sender.target.0);
    }
}
