//! Additive increase and multiplicative decrease: the window doubles until the first mark, then grows by a few packets
//! in a round trip, and marks and losses halve it. ATP's controller (NSDI 2021, §3.4).

use super::bookkeeping::{CutGuard, Real};
use super::{Ack, Algorithm, Controller, Feedback, Loss, Settings};
use crate::contract::time::Time;

/// AIMD as a value.
pub const ALGORITHM: Algorithm =
    Algorithm { name: "aimd", feedback: Feedback::Marks, make: |settings| Box::new(Aimd::new(settings)) };

/// Which marks halve the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalveOn {
    /// The mark of one packet in each round trip, as in ATP's public program, which looks at the last result of a
    /// window.
    OneInRound,
    /// The mark of any packet.
    Any,
}

/// The controller of one sender.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Aimd {
    settings: Settings,
    window: Real,
    in_slow_start: bool,
    /// The round ends with the acknowledgement of a transmission whose number is at least this.
    round_end: u64,
    guard: CutGuard,
}

impl Aimd {
    /// The controller of a sender that has sent nothing.
    pub fn new(settings: &Settings) -> Aimd {
        Aimd {
            settings: *settings,
            window: Real(settings.limits.initial.into()),
            in_slow_start: true,
            round_end: 0,
            guard: CutGuard::default(),
        }
    }

    fn grow(&mut self, packets: u32) {
        self.window.0 = (self.window.0 + f64::from(packets)).min(self.settings.limits.max.into());
    }

    fn halve(&mut self, next: u64) {
        self.window.0 = (self.window.0 / 2.0).max(self.settings.limits.min.into());
        (self.in_slow_start, self.round_end) = (false, next);
        self.guard.on_cut(next);
    }
}

impl Controller for Aimd {
    fn window(&self) -> u64 {
        self.window.0 as u64
    }

    fn on_ack(&mut self, ack: &Ack) {
        let is_marked = ack.marked > 0;
        self.in_slow_start &= !is_marked;
        let ends_round = ack.newest >= self.round_end;
        let should_cut = self.guard.should_cut(ack.newest, is_marked);
        if should_cut && (ends_round || self.settings.halve_on == HalveOn::Any) {
            return self.halve(ack.next);
        }
        if self.in_slow_start {
            self.grow(ack.packets);
        }
        if ends_round {
            self.round_end = ack.next;
            if !self.in_slow_start {
                self.grow(self.settings.increase);
            }
        }
    }

    fn on_late_mark(&mut self) {
        self.in_slow_start = false;
        self.guard.on_late_mark();
    }

    fn on_loss(&mut self, loss: Loss) -> bool {
        let is_fresh = self.guard.covers(loss.transmission);
        if is_fresh {
            self.halve(loss.next);
        }
        is_fresh
    }

    fn on_timeout(&mut self, _now: Time) {
        self.window.0 = self.settings.limits.min.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Limits;

    fn controller(initial: u32, increase: u32, halve_on: HalveOn) -> Aimd {
        let limits = Limits { initial, min: 1, max: 1000 };
        Aimd::new(&Settings { increase, halve_on, ..Settings::new(limits) })
    }

    fn ack(controller: &mut Aimd, newest: u64, next: u64, is_marked: bool) {
        controller.on_ack(&Ack { packets: 1, newest, next, marked: is_marked.into(), ..Ack::default() });
    }

    fn loss(transmission: u64, next: u64) -> Loss {
        Loss { now: Time::ZERO, transmission, next }
    }

    /// Brings the results of as many packets as the window holds, some of them marked; each result lets one more packet
    /// go.
    fn round(controller: &mut Aimd, sent: &mut u64, marked: impl Fn(u64) -> bool) {
        let packets = controller.window();
        for number in 0..packets {
            let (transmission, next) = (*sent + number, *sent + packets + number);
            ack(controller, transmission, next, marked(number));
        }
        *sent += packets;
    }

    #[test]
    fn doubles_until_a_mark_then_adds_its_increase_each_round_trip() {
        for increase in [1, 4] {
            let (mut controller, mut sent) = (controller(10, increase, HalveOn::OneInRound), 0);
            for expected in [20, 40, 80] {
                round(&mut controller, &mut sent, |_| false);
                assert_eq!(controller.window(), expected);
            }
            round(&mut controller, &mut sent, |number| number == 0);
            let cut = controller.window();
            assert!(cut <= 40, "{cut}");
            // The window does not open for results of what was sent before the cut.
            for more in [0, 1, 2, 3] {
                assert_eq!(controller.window(), cut + u64::from(more * increase), "{more} rounds after the cut");
                let next = sent + 200;
                ack(&mut controller, next, next + 1, false);
                sent = next;
            }
        }
    }

    /// A queue stays long until senders that filled it have made way.
    #[test]
    fn marks_of_what_was_sent_before_a_cut_are_not_answered_again() {
        for halve_on in [HalveOn::OneInRound, HalveOn::Any] {
            let mut controller = controller(64, 1, halve_on);
            ack(&mut controller, 0, 64, true);
            assert_eq!(controller.window(), 32, "{halve_on:?}");
            for transmission in 1..64 {
                ack(&mut controller, transmission, 64, true);
            }
            assert_eq!(controller.window(), 32, "{halve_on:?}: neither cut nor grown: all was sent before the cut");
            ack(&mut controller, 64, 96, true);
            assert_eq!(controller.window(), 16, "{halve_on:?}: the first that was sent after it");
        }
    }

    #[test]
    fn one_result_in_a_round_trip_decides_unless_any_does() {
        let after = |halve_on| {
            let mut controller = controller(64, 1, halve_on);
            (0..64).for_each(|transmission| ack(&mut controller, transmission, 64 + transmission, transmission == 30));
            controller.window()
        };
        // Doubling ends at the mark, and the round goes on because its first result had no mark.
        assert_eq!(after(HalveOn::OneInRound), 64 + 30);
        assert_eq!(after(HalveOn::Any), (64 + 30) / 2);
    }

    #[test]
    fn losses_of_one_window_halve_it_once_and_keep_one_packet() {
        let mut controller = controller(64, 1, HalveOn::OneInRound);
        (0..5).for_each(|number| {
            controller.on_loss(loss(number, 64));
        });
        assert_eq!(controller.window(), 32);
        (1..20).for_each(|round| {
            controller.on_loss(loss(64 * round, 64 * (round + 1)));
        });
        assert_eq!(controller.window(), 1);
        controller.on_timeout(Time::ZERO);
        assert_eq!(controller.window(), 1);
    }
}
