//! ATP's window: results open it, marks and losses halve it, and all workers move together.

use std::hash::{Hash, Hasher};

use crate::contract::time::{Span, Time};
use crate::parts::best_effort::windows::{Ack, Windows};

/// A worker never stops altogether.
const FEWEST: f64 = 1.0;

/// How many gradients may be without a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    packets: f64,
    most: f64,
    slow_start: bool,
    /// A round ends with the result of a transmission from here on.
    round_end: u64,
    marked: bool,
    /// Losses of transmissions before this one were answered.
    answered_before: u64,
}

impl Hash for Window {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Window { packets, most, slow_start, round_end, marked, answered_before } = self;
        (packets.to_bits(), most.to_bits(), slow_start, round_end, marked, answered_before).hash(state);
    }
}

impl Window {
    /// A window of so many packets at first, and never more than `most`.
    pub fn new(initial: u64, most: u16) -> Window {
        let most = f64::from(most.max(1));
        Window {
            packets: (initial as f64).min(most),
            most,
            slow_start: true,
            round_end: 0,
            marked: false,
            answered_before: 0,
        }
    }

    fn halve(&mut self) {
        self.packets = (self.packets / 2.0).max(FEWEST);
        self.slow_start = false;
    }
}

impl Windows for Window {
    fn packets(&self) -> u64 {
        self.packets as u64
    }

    /// The same window, from the last result without a gap on.
    fn ahead(&self) -> u64 {
        self.packets as u64
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.marked |= ack.marked;
        if self.slow_start && !self.marked {
            self.packets = (self.packets + 1.0).min(self.most);
        }
        if ack.transmission < self.round_end {
            return;
        }
        if std::mem::take(&mut self.marked) {
            self.halve();
        } else if !self.slow_start {
            self.packets = (self.packets + 1.0).min(self.most);
        }
        self.round_end = ack.next;
    }

    fn on_mark(&mut self) {
        self.marked = true;
    }

    fn on_result(&mut self, _now: Time, _short: bool, _round_trip: Span) {}

    fn on_loss(&mut self, transmission: u64, next: u64) {
        if transmission >= self.answered_before {
            self.answered_before = next;
            self.halve();
        }
    }

    fn on_silence(&mut self) {
        self.packets = FEWEST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::best_effort::windows::Progress;

    fn round(window: &mut Window, sent: &mut u64, marked: u64) {
        let packets = window.packets();
        *sent += packets;
        for number in 0..packets {
            let transmission = *sent - packets + number;
            let (marked, progress) = (number < marked, Progress::default());
            window.on_ack(&Ack { transmission, next: *sent, marked, progress });
        }
    }

    #[test]
    fn doubles_until_a_mark_then_adds_one_a_window_and_halves_once_for_all_marks_of_one() {
        let (mut window, mut sent) = (Window::new(10, 1000), 0);
        for expected in [20, 40, 80] {
            round(&mut window, &mut sent, 0);
            assert_eq!(window.packets(), expected);
        }
        // A round ends with the first result of what was sent in it, which says whether the one before was marked.
        round(&mut window, &mut sent, 80);
        round(&mut window, &mut sent, 0);
        let cut = window.packets();
        assert!(cut < 80 / 2 + 5, "{cut}");
        for more in 1..=3 {
            round(&mut window, &mut sent, 0);
            assert_eq!(window.packets(), cut + more);
        }
    }

    #[test]
    fn halves_once_for_all_losses_of_a_window_and_keeps_one_packet() {
        let mut window = Window::new(64, 1000);
        (0..5).for_each(|number| window.on_loss(number, 64));
        assert_eq!(window.packets(), 32);
        (1..20).for_each(|round| window.on_loss(64 * round, 64 * (round + 1)));
        assert_eq!(window.packets(), 1);
        window.on_silence();
        assert_eq!((window.packets(), window.ahead()), (1, 1));
    }
}
