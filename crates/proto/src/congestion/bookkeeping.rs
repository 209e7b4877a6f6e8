//! What controllers that follow marks have in common.

use std::hash::{Hash, Hasher};

/// A float in a machine's state, hashed by its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Real(pub f64);

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// The share of packets that the network marks: a moving average over rounds, which DCTCP calls `alpha`.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct MarkedShare {
    average: Real,
    packets: u32,
    marked: u32,
}

impl MarkedShare {
    /// The average before the first round.
    pub fn new(average: f64) -> MarkedShare {
        MarkedShare { average: Real(average), packets: 0, marked: 0 }
    }

    /// Counts packets of this round, and how many of them were marked.
    pub fn count(&mut self, packets: u32, marked: u32) {
        self.packets += packets;
        self.marked += marked;
    }

    /// How many packets this round has.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// The average.
    pub fn average(&self) -> f64 {
        self.average.0
    }

    /// Ends a round, which counts with this weight; returns the round's share. Late marks may be more than the packets.
    pub fn end_round(&mut self, weight: f64) -> f64 {
        let share = self.take_round();
        self.average.0 = (1.0 - weight) * self.average.0 + weight * share;
        share
    }

    /// The same as RFC 8257 writes it. The two round differently, and traces are compared bit by bit.
    pub fn end_round_by_gain(&mut self, gain: f64) {
        let share = self.take_round();
        self.average.0 += gain * (share - self.average.0);
    }

    fn take_round(&mut self) -> f64 {
        let share = f64::from(self.marked.min(self.packets)) / f64::from(self.packets.max(1));
        self.forget_round();
        share
    }

    /// Begins a round without ending the one before.
    pub fn forget_round(&mut self) {
        (self.packets, self.marked) = (0, 0);
    }
}

/// Answers each queue once. Packets that were sent before a cut say nothing about the window after it: a queue stays
/// long until the senders that filled it have made way, and its marks ask for no second cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CutGuard {
    /// The first transmission after the last cut.
    after: u64,
    /// A transmission after the last cut was acknowledged, so late marks are about the present window.
    has_news: bool,
    /// There was a late mark since then; the next acknowledgement answers it.
    has_late_mark: bool,
}

impl CutGuard {
    /// True if this transmission was sent after the last cut.
    pub fn covers(&self, transmission: u64) -> bool {
        transmission >= self.after
    }

    /// Whether an acknowledgement of this transmission asks for a cut: by its own mark, or by a late mark before it.
    pub fn should_cut(&mut self, transmission: u64, is_marked: bool) -> bool {
        let covers = self.covers(transmission);
        self.has_news |= covers;
        covers && is_marked || self.has_late_mark
    }

    /// A packet that was acknowledged before was marked.
    pub fn on_late_mark(&mut self) {
        self.has_late_mark |= self.has_news;
    }

    /// The window was cut; `next` is the number of the next transmission.
    pub fn on_cut(&mut self, next: u64) {
        *self = CutGuard { after: next, has_news: false, has_late_mark: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_moves_by_a_weight_towards_each_rounds_own_share() {
        let mut marks = MarkedShare::new(1.0);
        marks.count(3, 3);
        marks.count(1, 0);
        assert_eq!((marks.packets(), marks.end_round(0.5), marks.average()), (4, 0.75, 0.875));
        marks.count(4, 0);
        assert_eq!(
            (marks.end_round(0.5), marks.average()),
            (0.0, 0.4375),
            "marks of one round do not count in the next"
        );
        marks.count(1, 0);
        marks.count(0, 7);
        assert_eq!(marks.end_round(1.0), 1.0, "late marks may be more than the packets");
        marks.count(2, 2);
        marks.forget_round();
        assert_eq!((marks.packets(), marks.end_round(0.0), marks.average()), (0, 0.0, 1.0));
    }

    #[test]
    fn a_queue_is_answered_once_and_a_late_mark_by_the_next_acknowledgement() {
        let mut guard = CutGuard::default();
        assert!(guard.should_cut(5, true) && !guard.should_cut(5, false));
        guard.on_cut(10);
        guard.on_late_mark();
        assert!(!guard.should_cut(9, true), "sent before the cut, as what the late mark is about");
        assert!(!guard.should_cut(10, false));
        guard.on_late_mark();
        assert!(guard.should_cut(9, false));
    }
}
