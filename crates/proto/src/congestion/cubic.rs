//! CUBIC (RFC 9438): a loss cuts the window to 0.7, and it comes back along a cubic of the time since then, flat about the
//! window at which the loss was. Where Reno would have a larger window, as in any data centre, it has Reno's on average.
//!
//! Where we deviate:
//! - Marks are not read, as at hosts that do not negotiate ECN: flows of this kind do not yield to DCTCP.
//! - Slow start ends at a loss alone; HyStart++ (RFC 9406) is left out.

use super::bookkeeping::{CutGuard, Real};
use super::{Ack, Algorithm, Controller, Feedback, Limits, Loss};
use crate::contract::time::{Span, Time};

/// CUBIC as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "cubic", feedback: Feedback::EndToEnd, make: |settings| Box::new(Cubic::new(settings.limits)) };

/// How steep the cubic is, in packets per cubed second: `C` (§5).
const STEEPNESS: f64 = 0.4;
/// What a loss leaves of the window: `beta_cubic` (§4.6).
const LEAVES: f64 = 0.7;
/// Reno's increase with the smaller cut, so that the average is Reno's: `alpha_cubic` (§4.3).
const RENO_INCREASE: f64 = 3.0 * (1.0 - LEAVES) / (1.0 + LEAVES);
/// The window grows at most by half in a round trip (§4.2).
const MOST_GROWTH: f64 = 1.5;

/// The controller of one sender.
#[derive(Clone, Debug, Hash)]
pub struct Cubic {
    limits: Limits,
    window: Real,
    /// The window at which slow start ends: `ssthresh`.
    threshold: Real,
    /// The window where the cubic is flat: `W_max`.
    flat: Real,
    /// The window before the last cut: `cwnd_prior`.
    prior: Real,
    /// Since the last cut, or since slow start ended.
    epoch: Option<Epoch>,
    rtt: Span,
    guard: CutGuard,
    /// Window, threshold, flat and prior window, saved at a timeout and restored if it proves spurious.
    before_timeout: Option<[Real; 4]>,
}

/// One way along the cubic.
#[derive(Clone, Debug, Hash)]
struct Epoch {
    start: Time,
    /// How many seconds it takes to the flat part: `K`.
    to_flat: Real,
    /// Reno's window: `W_est`.
    reno: Real,
}

impl Cubic {
    /// The controller of a sender that has sent nothing.
    pub fn new(limits: Limits) -> Cubic {
        Cubic {
            limits,
            window: Real(limits.initial.into()),
            threshold: Real(f64::INFINITY),
            flat: Real(0.0),
            prior: Real(0.0),
            epoch: None,
            rtt: Span::ZERO,
            guard: CutGuard::default(),
            before_timeout: None,
        }
    }

    fn grow(&mut self, now: Time, packets: f64) {
        let window = self.window.0;
        if window < self.threshold.0 {
            self.window.0 = window + packets;
            return;
        }
        // After a timeout or the first slow start the window may be beyond the flat part (§4.8).
        let flat = &mut self.flat.0;
        let epoch = self.epoch.get_or_insert_with(|| {
            *flat = flat.max(window);
            Epoch { start: now, to_flat: Real(((*flat - window) / STEEPNESS).cbrt()), reno: Real(window) }
        });
        let increase = if epoch.reno.0 < self.prior.0 { RENO_INCREASE } else { 1.0 };
        epoch.reno.0 += increase * packets / window;
        let cubic = |seconds: f64| STEEPNESS * (seconds - epoch.to_flat.0).powi(3) + self.flat.0;
        let seconds = now.since(epoch.start).as_secs_f64();
        self.window.0 = if cubic(seconds) < epoch.reno.0 {
            window.max(epoch.reno.0)
        } else {
            let target = cubic(seconds + self.rtt.as_secs_f64()).clamp(window, MOST_GROWTH * window);
            window + (target - window) * packets / window
        };
    }

    /// Fast convergence (§4.7): a flow that lost before it had its window back leaves more to others.
    fn reduce(&mut self) {
        let window = self.window.0;
        self.flat.0 = if window < self.flat.0 { window * (1.0 + LEAVES) / 2.0 } else { window };
        (self.prior.0, self.epoch) = (window, None);
        self.threshold.0 = (LEAVES * window).max(self.limits.min.into());
    }
}

impl Controller for Cubic {
    fn window(&self) -> u64 {
        self.window.0 as u64
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.rtt = ack.rtt.unwrap_or(self.rtt);
        if ack.limited && self.guard.covers(ack.newest) {
            self.grow(ack.now, ack.packets.into());
            self.window.0 = self.window.0.min(self.limits.max.into());
        }
    }

    /// Time in which nothing is sent does not count (§5.8).
    fn on_idle(&mut self) {
        self.epoch = None;
    }

    fn on_loss(&mut self, loss: Loss) -> bool {
        let is_fresh = self.guard.covers(loss.transmission);
        if is_fresh {
            self.guard.on_cut(loss.next);
            self.reduce();
            self.window = self.threshold;
            self.before_timeout = None;
        }
        is_fresh
    }

    fn on_timeout(&mut self, _now: Time) {
        if self.before_timeout.is_none() {
            self.before_timeout = Some([self.window, self.threshold, self.flat, self.prior]);
            self.reduce();
        }
        // The window at which the next epoch begins is its flat part (§4.8).
        (self.window.0, self.flat.0, self.epoch) = (self.limits.min.into(), 0.0, None);
    }

    fn on_spurious(&mut self) {
        if let Some([window, threshold, flat, prior]) = self.before_timeout.take() {
            self.window.0 = self.window.0.max(window.0);
            (self.threshold, self.flat, self.prior) = (threshold, flat, prior);
        }
    }

    fn on_loss_confirmed(&mut self) {
        self.before_timeout = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean window of a path that loses one of this many packets, over 50 losses.
    fn mean_window(rtt: Span, packets_per_loss: u64) -> f64 {
        let mut controller = Cubic::new(Limits { initial: 10, min: 2, max: 1 << 20 });
        let (mut now, mut sent, mut next_loss) = (Time::ZERO, 0, packets_per_loss);
        let (mut sum, mut count) = (0.0, 0.0);
        while sent < 60 * packets_per_loss {
            let window = controller.window();
            now += rtt;
            let lost = next_loss < sent + window;
            for packet in sent..sent + window {
                let (newest, next) = (packet, packet + window);
                if packet == next_loss {
                    assert!(controller.on_loss(Loss { now, transmission: packet, next: sent + window }));
                } else {
                    controller.on_ack(&Ack {
                        now,
                        rtt: Some(rtt),
                        packets: 1,
                        newest,
                        next,
                        limited: true,
                        ..Ack::default()
                    });
                }
            }
            sent += window;
            next_loss += if lost { packets_per_loss } else { 0 };
            if sent > 10 * packets_per_loss {
                (sum, count) = (sum + window as f64, count + 1.0);
            }
        }
        sum / count
    }

    /// RFC 9438, section 5.1: AVG_W_cubic = (C (3 + beta) / (4 (1 - beta)))^(1/4) (RTT / p)^(3/4).
    #[test]
    fn on_a_long_path_the_mean_window_is_that_of_the_rfcs_model() {
        for (ms, packets_per_loss) in [(100, 10_000u64), (100, 100_000), (200, 30_000)] {
            let rtt = Span::from_millis(ms);
            let constant = (STEEPNESS * (3.0 + LEAVES) / (4.0 * (1.0 - LEAVES))).powf(0.25);
            let model = constant * (rtt.as_secs_f64() * packets_per_loss as f64).powf(0.75);
            let mean = mean_window(rtt, packets_per_loss);
            assert!((mean / model - 1.0).abs() < 0.1, "{ms} ms, p = 1/{packets_per_loss}: {mean} and {model}");
        }
    }

    /// The same section: AVG_AIMD(alpha, beta) = sqrt(alpha (1 + beta) / (2 (1 - beta) p)), which with Reno's alpha and beta,
    /// and with these, is sqrt(3 / (2 p)).
    #[test]
    fn on_a_short_path_it_is_renos() {
        for packets_per_loss in [1_000u64, 10_000, 50_000] {
            let model = (1.5 * packets_per_loss as f64).sqrt();
            let mean = mean_window(Span::from_micros(100), packets_per_loss);
            assert!((mean / model - 1.0).abs() < 0.1, "p = 1/{packets_per_loss}: {mean} and {model}");
        }
    }

    #[test]
    fn losses_of_one_window_cut_it_once_and_marks_do_not() {
        let mut controller = Cubic::new(Limits { initial: 100, min: 2, max: 1000 });
        let ack = Ack { packets: 1, marked: 1, newest: 5, next: 100, limited: true, ..Ack::default() };
        controller.on_ack(&ack);
        assert_eq!(controller.window(), 101, "slow start goes on");
        let loss = |transmission| Loss { now: Time::ZERO, transmission, next: 101 };
        assert_eq!([6, 7, 100].map(|packet| controller.on_loss(loss(packet))), [true, false, false]);
        assert_eq!(controller.window(), 70);
        assert!(controller.on_loss(loss(101)));
        assert_eq!((controller.window(), controller.flat.0.round()), (49, 60.0), "fast convergence: 0.85 of 70.7");
    }

    #[test]
    fn a_spurious_timeout_is_taken_back_and_a_true_one_begins_again() {
        for (was_lost, after) in [(false, 100), (true, 2)] {
            let mut controller = Cubic::new(Limits { initial: 100, min: 2, max: 1000 });
            (0..2).for_each(|_| controller.on_timeout(Time::ZERO));
            assert_eq!((controller.window(), controller.threshold.0), (2, 70.0));
            if was_lost {
                controller.on_loss_confirmed();
            }
            controller.on_spurious();
            assert_eq!(controller.window(), after);
        }
    }
}
