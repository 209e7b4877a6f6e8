//! The congestion window of one tree: figure 5, with its five defects mended (`docs/protocols/panama.md`, *Windows*).

use crate::parts::window::MARK_GAIN;

/// A tree's window starts with so many packets, and marks leave as many: below that it would never grow again.
const FEWEST: f64 = 2.0;
/// Slow start ends here at first.
const THRESHOLD: f64 = 64.0;

/// How many packets of one tree may be without a result.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// `cwnd`.
    packets: f64,
    /// `ssthresh`.
    threshold: f64,
    /// `alpha`: the moving average of the share of marked results.
    marked_share: f64,
    /// `rcvd_agg_packets`.
    received: u32,
    /// `ecn_count`.
    marked: u32,
    /// What accelerators have room for, as far as results have told.
    cap: u16,
    follows_marks: bool,
}

impl Window {
    /// The window of a tree that has sent nothing, whose accelerators have room for `cap`.
    pub fn new(cap: u16, follows_marks: bool) -> Window {
        let cap = cap.max(1);
        let packets = if follows_marks { FEWEST } else { cap.into() };
        let mut window =
            Window { packets, threshold: THRESHOLD, marked_share: 1.0, received: 0, marked: 0, cap, follows_marks };
        window.bound();
        window
    }

    /// Whole packets, at least 1.
    pub fn packets(&self) -> u64 {
        self.packets as u64
    }

    /// The moving average of the share of marked results.
    pub fn marked_share(&self) -> f64 {
        self.marked_share
    }

    /// The window as it is counted.
    pub fn size(&self) -> f64 {
        self.packets
    }

    /// A result has come: an implicit acknowledgement (§4.2.2).
    pub fn on_result(&mut self, is_marked: bool, cap: u16) {
        self.cap = cap.max(1);
        if !self.follows_marks {
            self.packets = self.cap.into();
            return;
        }
        self.received += 1;
        self.marked += u32::from(is_marked);
        // Not `==` as in the figure: a window that is fractional, or that a cap has cut, would never be complete.
        if u64::from(self.received) >= self.packets() {
            self.end_round();
        }
        self.bound();
    }

    fn end_round(&mut self) {
        let share = f64::from(self.marked) / f64::from(self.received);
        self.marked_share = self.marked_share * (1.0 - MARK_GAIN) + MARK_GAIN * share;
        if self.marked == 0 {
            self.packets = if self.packets < self.threshold { 2.0 * self.packets } else { self.packets + 1.0 };
        } else {
            self.packets = (self.packets * (1.0 - self.marked_share / 2.0)).max(FEWEST);
            self.threshold = self.packets;
        }
        // The figure keeps `ecn_count`: one mark would shrink every later window.
        (self.received, self.marked) = (0, 0);
    }

    /// The tree goes back: as after a timeout of DCTCP.
    pub fn on_rewind(&mut self) {
        if self.follows_marks {
            self.threshold = (self.packets / 2.0).max(FEWEST);
            (self.packets, self.received, self.marked) = (FEWEST, 0, 0);
            self.bound();
        }
    }

    /// The floor yields to the cap, but a tree never stops.
    fn bound(&mut self) {
        self.packets = self.packets.min(self.cap.into()).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(window: &mut Window, results: u32) {
        (0..results).for_each(|_| window.on_result(false, u16::MAX));
    }

    #[test]
    fn doubles_once_a_window_until_the_threshold_and_a_mark_cuts_by_half_the_marked_share() {
        let mut window = Window::new(u16::MAX, true);
        let mut results = 0;
        for (at, packets, share) in
            [(2, 4, 0.9375), (6, 8, 0.878906), (14, 16, 0.823975), (30, 32, 0.772476), (62, 64, 0.724196)]
        {
            clear(&mut window, at - results - 1);
            assert!(window.packets() < packets, "before result {at}");
            clear(&mut window, 1);
            results = at;
            assert_eq!(window.packets(), packets, "after result {at}");
            assert!((window.marked_share() - share).abs() < 1e-6, "{}", window.marked_share());
        }
        clear(&mut window, 63);
        window.on_result(true, u16::MAX);
        assert!((window.marked_share() - 0.679911).abs() < 1e-6, "{}", window.marked_share());
        assert!((window.size() - 42.242857).abs() < 1e-6, "{}", window.size());
        // D1: 42 results are a window of 42.24 packets. D3: the mark is forgotten, and the window grows again, by one.
        clear(&mut window, 42);
        assert!((window.size() - 43.242857).abs() < 1e-6, "{}", window.size());
    }

    #[test]
    fn marks_leave_two_packets_and_no_fewer() {
        let mut window = Window::new(u16::MAX, true);
        (0..1000).for_each(|_| window.on_result(true, u16::MAX));
        assert_eq!(window.packets(), 2, "D2");
        clear(&mut window, 100);
        assert!(window.packets() > 2);
    }

    #[test]
    fn a_cap_cuts_at_once_also_below_what_was_received_and_the_window_goes_on() {
        let mut window = Window::new(u16::MAX, true);
        clear(&mut window, 62 + 20);
        window.on_result(false, 5);
        assert_eq!(window.packets(), 5, "D1: 21 were received, of a window that has 5 now");
        for _ in 0..100 {
            window.on_result(false, 5);
            assert!(window.packets() <= 5);
        }
        window.on_result(false, u16::MAX);
        clear(&mut window, 10);
        assert!(window.packets() > 5, "a cap that is lifted");
    }

    #[test]
    fn a_cap_below_two_and_a_forged_one_of_nothing_leave_one_packet() {
        for cap in [0, 1] {
            let mut window = Window::new(cap, true);
            assert_eq!(window.packets(), 1);
            window.on_result(true, cap);
            assert_eq!(window.packets(), 1);
        }
    }

    #[test]
    fn a_rewind_halves_the_threshold_and_starts_slowly() {
        let mut window = Window::new(u16::MAX, true);
        clear(&mut window, 62);
        window.on_rewind();
        assert_eq!(window.packets(), 2);
        clear(&mut window, 2 + 4 + 8 + 16 + 32);
        assert_eq!(window.packets(), 33, "from 32 on by one");
    }

    #[test]
    fn without_congestion_control_the_window_is_the_cap() {
        let mut window = Window::new(40, false);
        assert_eq!(window.packets(), 40);
        window.on_result(true, 30);
        assert_eq!(window.packets(), 30);
        window.on_rewind();
        assert_eq!(window.packets(), 30);
    }
}
