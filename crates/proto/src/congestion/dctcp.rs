//! DCTCP (Alizadeh et al., SIGCOMM 2010; RFC 8257): slow start, then one packet more in a round trip; cut in proportion
//! to the share of marked packets, and halved on loss.
//!
//! A *round* ends when a transmission that was sent after the round's start is acknowledged.

use super::bookkeeping::{CutGuard, MarkedShare, Real};
use super::{Ack, Algorithm, Controller, Feedback, Limits, Loss};
use crate::contract::time::{Span, Time};

/// DCTCP as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "dctcp", feedback: Feedback::Marks, make: |settings| Box::new(Dctcp::new(settings.limits)) };

/// The gain `g` with which the estimate of the marked share moves (RFC 8257 §3.3).
pub const MARK_GAIN: f64 = 1.0 / 16.0;
/// While the window may double, it leaves twice as fast as acknowledgements come.
const SLOW_START_PACE: u64 = 200;
const PACE: u64 = 125;

/// The controller of one sender.
#[derive(Clone, Debug, Hash)]
pub struct Dctcp {
    limits: Limits,
    window: Real,
    /// The window at which slow start ends.
    threshold: Real,
    marks: MarkedShare,
    round_end: u64,
    round_rtt: Option<Span>,
    base_rtt: Option<Span>,
    guard: CutGuard,
    /// Window and threshold, saved at a timeout and restored if the timeout proves spurious.
    before_timeout: Option<(Real, Real)>,
}

impl Dctcp {
    /// The controller of a sender that has sent nothing.
    pub fn new(limits: Limits) -> Dctcp {
        Dctcp {
            limits,
            window: Real(limits.initial.into()),
            threshold: Real(f64::INFINITY),
            marks: MarkedShare::new(1.0),
            round_end: 0,
            round_rtt: None,
            base_rtt: None,
            guard: CutGuard::default(),
            before_timeout: None,
        }
    }

    /// True until the first loss, mark or long queue.
    pub fn in_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// The estimated share of packets that the network marks: `alpha`.
    pub fn marked_share(&self) -> f64 {
        self.marks.average()
    }

    fn grow(&mut self, acked: u32) {
        let (acked, window) = (f64::from(acked), self.window.0);
        let grown = if self.in_slow_start() { window + acked } else { window + acked / window };
        self.window.0 = grown.min(self.limits.max.into());
    }

    fn shrink_to(&mut self, packets: f64) {
        self.window.0 = packets.max(self.limits.min.into());
        self.threshold = self.window;
        self.before_timeout = None;
    }

    fn end_round(&mut self, next: u64) {
        self.marks.end_round_by_gain(MARK_GAIN);
        // The queue is as long as the path itself: slow start has filled the path, even if the network marks no packet.
        let queued = matches!((self.round_rtt, self.base_rtt), (Some(round), Some(base)) if round >= base.times(2));
        if queued && self.in_slow_start() {
            self.threshold = self.window;
        }
        (self.round_end, self.round_rtt) = (next, None);
    }
}

impl Controller for Dctcp {
    fn window(&self) -> u64 {
        self.window.0 as u64
    }

    fn pace_percent(&self) -> u64 {
        if self.in_slow_start() { SLOW_START_PACE } else { PACE }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.marks.count(ack.packets, ack.marked);
        if let Some(rtt) = ack.rtt {
            self.round_rtt = Some(self.round_rtt.map_or(rtt, |least| least.min(rtt)));
            self.base_rtt = Some(self.base_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if self.guard.should_cut(ack.newest, ack.marked > 0) {
            self.guard.on_cut(ack.next);
            self.shrink_to(self.window.0 * (1.0 - self.marks.average() / 2.0));
        } else if ack.limited && self.guard.covers(ack.newest) {
            self.grow(ack.packets);
        }
        if ack.newest >= self.round_end {
            self.end_round(ack.next);
        }
    }

    fn on_late_mark(&mut self) {
        self.marks.count(0, 1);
        self.guard.on_late_mark();
    }

    fn on_loss(&mut self, loss: Loss) -> bool {
        let is_fresh = self.guard.covers(loss.transmission);
        if is_fresh {
            self.guard.on_cut(loss.next);
            self.shrink_to(self.window.0 / 2.0);
        }
        is_fresh
    }

    /// The window doubles again up to half of what it was before the first of several timeouts (RFC 5681, section 3.1).
    fn on_timeout(&mut self, _now: Time) {
        let (before, _) = *self.before_timeout.get_or_insert((self.window, self.threshold));
        let min = f64::from(self.limits.min);
        (self.threshold.0, self.window.0) = ((before.0 / 2.0).max(min), min);
    }

    fn on_spurious(&mut self) {
        if let Some((window, threshold)) = self.before_timeout.take() {
            (self.window.0, self.threshold) = (self.window.0.max(window.0), threshold);
        }
    }

    fn on_loss_confirmed(&mut self) {
        self.before_timeout = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { initial: 10, min: 2, max: 200 };

    /// A path that is acknowledged a whole window at a time.
    struct Path {
        controller: Dctcp,
        sent: u64,
    }

    impl Path {
        fn new() -> Path {
            Path { controller: Dctcp::new(LIMITS), sent: 0 }
        }

        fn round(&mut self, marked: u32, rtt: Span) {
            let packets = self.controller.window() as u32;
            self.sent += u64::from(packets);
            let (newest, next) = (self.sent - 1, self.sent);
            let ack = Ack { packets, marked, newest, next, rtt: Some(rtt), limited: true, ..Ack::default() };
            self.controller.on_ack(&ack);
        }
    }

    fn loss(transmission: u64, next: u64) -> Loss {
        Loss { now: Time::ZERO, transmission, next }
    }

    fn verdict(controller: &mut Dctcp, was_lost: bool) {
        match was_lost {
            true => controller.on_loss_confirmed(),
            false => controller.on_spurious(),
        }
    }

    #[test]
    fn doubles_each_round_in_slow_start_up_to_the_limit() {
        let mut path = Path::new();
        for expected in [20, 40, 80, 160, 200, 200] {
            path.round(0, Span::from_micros(50));
            assert_eq!(path.controller.window(), expected);
        }
    }

    #[test]
    fn losses_of_one_round_halve_it_once_then_each_round_adds_one() {
        let mut path = Path::new();
        (0..3).for_each(|_| path.round(0, Span::from_micros(50)));
        let next = path.sent + 80;
        let cuts: Vec<bool> = (0..5).map(|packet| path.controller.on_loss(loss(path.sent + packet, next))).collect();
        assert_eq!(cuts, [true, false, false, false, false]);
        assert_eq!(path.controller.window(), 40);
        path.sent = next;
        for expected in [41, 42, 43] {
            path.round(0, Span::from_micros(50));
            assert_eq!(path.controller.window(), expected);
        }
    }

    #[test]
    fn rare_marks_cost_little_once_the_share_is_known() {
        let mut path = Path::new();
        (0..3).for_each(|_| path.round(0, Span::from_micros(50)));
        (0..100).for_each(|_| path.round(0, Span::from_micros(50)));
        let before = path.controller.window();
        path.round(1, Span::from_micros(50));
        assert!(path.controller.window() >= before * 9 / 10, "{} of {before}", path.controller.window());
        (0..200).for_each(|_| path.round(path.controller.window() as u32, Span::from_micros(50)));
        assert!(path.controller.marked_share() > 0.99);
        assert_eq!(path.controller.window(), u64::from(LIMITS.min));
    }

    #[test]
    fn a_queue_as_long_as_the_path_ends_slow_start() {
        let mut path = Path::new();
        path.round(0, Span::from_micros(50));
        path.round(0, Span::from_micros(110));
        assert!(!path.controller.in_slow_start());
    }

    #[test]
    fn a_spurious_timeout_is_taken_back_unless_a_mark_or_a_loss_came_meanwhile() {
        let timed_out = || {
            let mut path = Path::new();
            (0..3).for_each(|_| path.round(0, Span::from_micros(50)));
            (0..3).for_each(|_| path.controller.on_timeout(Time::ZERO));
            path
        };
        for (was_lost, after, later) in [(false, 80, 160), (true, 2, 4)] {
            let mut path = timed_out();
            verdict(&mut path.controller, was_lost);
            assert_eq!(path.controller.window(), after);
            path.controller.on_spurious();
            assert_eq!(path.controller.window(), after, "only the first verdict counts");
            path.sent += 100;
            path.round(0, Span::from_micros(50));
            assert_eq!(path.controller.window(), later);
        }
        let mut path = timed_out();
        path.controller.on_loss(loss(path.sent, path.sent + 10));
        path.controller.on_spurious();
        assert_eq!(path.controller.window(), 2);
    }

    #[test]
    fn does_not_grow_while_it_is_not_used_and_falls_to_the_minimum_at_a_timeout() {
        let mut path = Path::new();
        let idle = Ack { packets: 5, newest: 4, next: 5, ..Ack::default() };
        path.controller.on_ack(&idle);
        assert_eq!(path.controller.window(), 10);
        path.controller.on_timeout(Time::ZERO);
        assert_eq!(path.controller.window(), 2);
        path.round(0, Span::from_micros(50));
        assert_eq!(path.controller.window(), 4);
    }
}
