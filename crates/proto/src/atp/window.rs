//! ATP's window: results open it, marks and losses halve it, and all workers move together.

use std::hash::{Hash, Hasher};

use crate::aggregation::best_effort::windows::{Ack, Answers, Windows};
use crate::contract::time::{Span, Time};

/// The smallest window: a worker never stops altogether.
const FEWEST: f64 = 1.0;

/// What a job's members have chosen about windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choices {
    /// The window at first, in packets.
    pub initial: u64,
    /// How many packets each round trip without a cut adds.
    pub increase: u64,
    /// Which marks halve the window.
    pub marks: Marks,
}

/// Which marks halve the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marks {
    /// The mark of one result in each round trip, as in the public program, which looks at the last result of a window.
    One,
    /// The mark of any result.
    Any,
}

/// How many gradients may be without a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    choices: Choices,
    packets: f64,
    most: f64,
    slow_start: bool,
    /// The round ends with the result of a transmission whose number is at least this.
    round_end: u64,
    /// The answers to marks and losses.
    answers: Answers,
}

impl Hash for Window {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Window { choices, packets, most, slow_start, round_end, answers } = self;
        (choices, packets.to_bits(), most.to_bits(), slow_start, round_end, answers).hash(state);
    }
}

impl Window {
    /// A window that never exceeds `most` packets.
    pub fn new(choices: Choices, most: u16) -> Window {
        let most = f64::from(most.max(1));
        Window {
            choices,
            packets: (choices.initial as f64).min(most),
            most,
            slow_start: true,
            round_end: 0,
            answers: Answers::default(),
        }
    }

    fn open(&mut self, packets: f64) {
        self.packets = (self.packets + packets).min(self.most);
    }

    fn halve(&mut self, next: u64) {
        self.packets = (self.packets / 2.0).max(FEWEST);
        self.slow_start = false;
        self.round_end = next;
        self.answers.answer(next);
    }
}

impl Windows for Window {
    fn packets(&self) -> u64 {
        self.packets as u64
    }

    /// The same window bounds how far a rank is ahead of the last result before a gap.
    fn ahead(&self) -> u64 {
        self.packets as u64
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.slow_start &= !ack.marked;
        let ends_round = ack.transmission >= self.round_end;
        let asks = self.answers.asks(ack);
        if asks && (ends_round || self.choices.marks == Marks::Any) {
            return self.halve(ack.next);
        }
        if self.slow_start {
            self.open(1.0);
        }
        if ends_round {
            self.round_end = ack.next;
            if !self.slow_start {
                self.open(self.choices.increase as f64);
            }
        }
    }

    fn on_mark(&mut self) {
        self.slow_start = false;
        self.answers.on_mark();
    }

    fn on_result(&mut self, _now: Time, _short: bool, _round_trip: Span) {}

    fn on_loss(&mut self, transmission: u64, next: u64) {
        if self.answers.covers(transmission) {
            self.halve(next);
        }
    }

    fn on_silence(&mut self) {
        self.packets = FEWEST;
    }

    /// Results do not tell which transmission has arrived.
    fn on_verdict(&mut self, _was_lost: bool) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregation::best_effort::windows::Progress;

    fn window(initial: u64, increase: u64, marks: Marks) -> Window {
        Window::new(Choices { initial, increase, marks }, 1000)
    }

    fn ack(window: &mut Window, transmission: u64, next: u64, marked: bool) {
        window.on_ack(&Ack { transmission, next, marked, progress: Progress::default() });
    }

    /// Brings the results of as many packets as the window holds, some of them marked; each result lets one more packet
    /// go.
    fn round(window: &mut Window, sent: &mut u64, marked: impl Fn(u64) -> bool) {
        let packets = window.packets();
        for number in 0..packets {
            let (transmission, next) = (*sent + number, *sent + packets + number);
            ack(window, transmission, next, marked(number));
        }
        *sent += packets;
    }

    #[test]
    fn doubles_until_a_mark_then_adds_its_increase_each_round_trip() {
        for increase in [1, 4] {
            let (mut window, mut sent) = (window(10, increase, Marks::One), 0);
            for expected in [20, 40, 80] {
                round(&mut window, &mut sent, |_| false);
                assert_eq!(window.packets(), expected);
            }
            round(&mut window, &mut sent, |number| number == 0);
            let cut = window.packets();
            assert!(cut <= 40, "{cut}");
            // The window does not open for results of what was sent before the cut.
            for more in [0, 1, 2, 3] {
                assert_eq!(window.packets(), cut + more * increase, "{more} rounds after the cut");
                let next = sent + 200;
                ack(&mut window, next, next + 1, false);
                sent = next;
            }
        }
    }

    /// A queue stays long until senders that filled it have made way.
    #[test]
    fn marks_of_what_was_sent_before_a_cut_are_not_answered_again() {
        for marks in [Marks::One, Marks::Any] {
            let mut window = window(64, 1, marks);
            ack(&mut window, 0, 64, true);
            assert_eq!(window.packets(), 32, "{marks:?}");
            for transmission in 1..64 {
                ack(&mut window, transmission, 64, true);
            }
            assert_eq!(window.packets(), 32, "{marks:?}: neither cut nor grown: all was sent before the cut");
            ack(&mut window, 64, 96, true);
            assert_eq!(window.packets(), 16, "{marks:?}: the first that was sent after it");
        }
    }

    #[test]
    fn one_result_in_a_round_trip_decides_unless_any_does() {
        let after = |marks| {
            let mut window = window(64, 1, marks);
            (0..64).for_each(|transmission| ack(&mut window, transmission, 64 + transmission, transmission == 30));
            window.packets()
        };
        // Doubling ends at the mark, and the round goes on because its first result had no mark.
        assert_eq!(after(Marks::One), 64 + 30);
        assert_eq!(after(Marks::Any), (64 + 30) / 2);
    }

    #[test]
    fn halves_once_for_all_losses_of_a_window_and_keeps_one_packet() {
        let mut window = window(64, 1, Marks::One);
        (0..5).for_each(|number| window.on_loss(number, 64));
        assert_eq!(window.packets(), 32);
        (1..20).for_each(|round| window.on_loss(64 * round, 64 * (round + 1)));
        assert_eq!(window.packets(), 1);
        window.on_silence();
        assert_eq!((window.packets(), window.ahead()), (1, 1));
    }
}
