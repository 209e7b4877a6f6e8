//! PANAMA's figure 5 to the letter, with the defects that `ResultClocked` mends (`docs/protocols/panama.md`, *Windows*), so
//! that the two can be compared.
//!
//! After the first mark a window is seldom a whole number, and as many results as it has packets never come: it stays as it
//! is (D1). Where it is a whole number, every later round counts the old marks again (D3).

use super::{LEAST, RankSynchronous, RankSynchronousAlgorithm, ResultAck};
use crate::congestion::bookkeeping::Real;
use crate::congestion::dctcp::MARK_GAIN;
use crate::contract::options::TO_THE_LETTER;

/// The algorithm as a value.
pub const ALGORITHM: RankSynchronousAlgorithm = RankSynchronousAlgorithm {
    name: TO_THE_LETTER,
    follows_marks: true,
    make: |capacity| Box::new(FigureFive::new(capacity)),
};

/// `ssthresh` at first, which the figure leaves open, as here elsewhere.
const THRESHOLD: f64 = 64.0;

/// The window of one tree.
#[derive(Clone, Debug, Hash)]
struct FigureFive {
    /// `cwnd`.
    window: Real,
    /// `ssthresh`.
    threshold: Real,
    /// `alpha`.
    share: Real,
    /// `rcvd_agg_packets`.
    received: u32,
    /// `ecn_count`.
    marked: u32,
    capacity: u16,
}

impl FigureFive {
    fn new(capacity: u16) -> FigureFive {
        let capacity = capacity.max(1);
        FigureFive {
            window: Real(LEAST.min(capacity.into())),
            threshold: Real(THRESHOLD),
            share: Real(1.0),
            received: 0,
            marked: 0,
            capacity,
        }
    }
}

impl RankSynchronous for FigureFive {
    fn size(&self) -> f64 {
        self.window.0
    }

    fn on_result(&mut self, result: ResultAck) {
        self.capacity = result.capacity.max(1);
        self.received += 1;
        self.marked += u32::from(result.is_marked);
        if f64::from(self.received) == self.window.0 {
            let share = f64::from(self.marked) / f64::from(self.received);
            self.share.0 += MARK_GAIN * (share - self.share.0);
            if self.marked > 0 {
                self.window.0 *= 1.0 - self.share.0 / 2.0;
                self.threshold = self.window;
            } else if self.window < self.threshold {
                self.window.0 *= 2.0;
            } else {
                self.window.0 += 1.0;
            }
            self.received = 0;
        }
        // The contract of all windows here is a packet at least; the figure's may be less, and then the tree stops (D2).
        self.window.0 = self.window.0.min(self.capacity.into()).max(1.0);
    }

    fn begin(&mut self) {
        *self = FigureFive::new(self.capacity);
    }

    /// The figure knows no losses.
    fn on_rewind(&mut self) {
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(results: u32, is_marked: impl Fn(u32) -> bool, capacity: u16) -> FigureFive {
        let mut window = FigureFive::new(u16::MAX);
        (0..results).for_each(|at| {
            window.on_result(ResultAck { vid: at.into(), is_marked: is_marked(at), capacity });
        });
        window
    }

    #[test]
    fn it_doubles_to_the_threshold_and_then_grows_by_one_as_long_as_nothing_is_marked() {
        let sizes = [(2, 4.0), (2 + 4, 8.0), (2 + 4 + 8 + 16 + 32, 64.0), (2 + 4 + 8 + 16 + 32 + 64, 65.0)];
        for (results, size) in sizes {
            assert_eq!(after(results, |_| false, u16::MAX).size(), size, "after {results}");
        }
    }

    /// D7: the mark waits for the end of its window. D1: then the window has a fraction, and never ends.
    #[test]
    fn the_first_mark_cuts_at_the_end_of_its_window_and_nothing_moves_the_window_after_it() {
        let marked = |at| at == 6;
        assert_eq!(after(13, marked, u16::MAX).size(), 8.0, "its window is not over");
        let cut = after(14, marked, u16::MAX).size();
        assert!(cut < 8.0 && cut.fract() > 0.0, "{cut}");
        assert_eq!(after(100_000, marked, u16::MAX).size(), cut);
    }

    /// D1: a cap below what has been received.
    #[test]
    fn a_capacity_that_cuts_below_what_was_received_ends_no_window_either() {
        let mut window = after(2 + 4 + 8 + 10, |_| false, u16::MAX);
        for vid in 0..1000 {
            window.on_result(ResultAck { vid, is_marked: false, capacity: 5 });
        }
        window.on_result(ResultAck { vid: 1000, is_marked: false, capacity: u16::MAX });
        assert_eq!(window.size(), 5.0, "it stays at the least capacity that it was told");
    }
}
