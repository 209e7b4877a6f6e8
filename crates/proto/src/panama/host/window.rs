//! The congestion window of one tree: figure 5, with its seven defects mended (`docs/protocols/panama.md`, *Windows*).

use std::hash::{Hash, Hasher};

use crate::congestion::dctcp::MARK_GAIN;

/// The packets of a new window, and the least that marks leave of a window: a smaller window would never grow again.
const FEWEST: f64 = 2.0;
/// The first threshold at which slow start ends.
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
    /// Results without a mark for which the window has not grown yet. Only packets sent after the last cut count.
    clean: u32,
    /// VIDs below this one were sent before the last cut.
    cut_before: u64,
    /// The room of the accelerators, according to the last result.
    cap: u16,
    follows_marks: bool,
}

impl Hash for Window {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Window { packets, threshold, marked_share, received, marked, clean, cut_before, cap, follows_marks } = self;
        (
            packets.to_bits(),
            threshold.to_bits(),
            marked_share.to_bits(),
            received,
            marked,
            clean,
            cut_before,
            cap,
            follows_marks,
        )
            .hash(state);
    }
}

impl Window {
    /// The window of a tree that has sent nothing; accelerators have room for `cap`.
    pub fn new(cap: u16, follows_marks: bool) -> Window {
        let cap = cap.max(1);
        let mut window = Window {
            // Also without congestion control, since no result has told yet how much room accelerators have.
            packets: FEWEST,
            threshold: THRESHOLD,
            marked_share: 1.0,
            received: 0,
            marked: 0,
            clean: 0,
            cut_before: 0,
            cap,
            follows_marks,
        };
        window.bound();
        window
    }

    /// The window in whole packets, at least 1.
    pub fn packets(&self) -> u64 {
        self.packets as u64
    }

    /// The moving average of the share of marked results.
    pub fn marked_share(&self) -> f64 {
        self.marked_share
    }

    /// The window, unrounded.
    pub fn size(&self) -> f64 {
        self.packets
    }

    /// The result of a VID has come: an implicit acknowledgement (§4.2.2).
    pub fn on_result(&mut self, vid: u64, is_marked: bool, cap: u16) {
        self.cap = cap.max(1);
        if !self.follows_marks {
            self.packets = self.cap.into();
            return;
        }
        let is_fresh = vid >= self.cut_before;
        self.received += 1;
        self.marked += u32::from(is_marked);
        self.clean += u32::from(is_fresh && !is_marked);
        // The figure has `==`: then a round would never end if the window is fractional or a cap has cut it.
        if u64::from(self.received) >= self.packets() {
            self.end_round();
        }
        if is_marked && is_fresh {
            self.cut(vid);
        } else if is_fresh && self.packets >= self.threshold && u64::from(self.clean) >= self.packets() {
            self.packets += 1.0;
            self.clean = 0;
        }
        self.bound();
    }

    /// Ends a round: as many results as the window holds have come.
    fn end_round(&mut self) {
        let share = f64::from(self.marked) / f64::from(self.received);
        self.marked_share = self.marked_share * (1.0 - MARK_GAIN) + MARK_GAIN * share;
        if self.marked == 0 && self.packets < self.threshold {
            self.packets *= 2.0;
            self.clean = 0;
        }
        // The figure keeps `ecn_count`: then one mark would shrink every later window.
        (self.received, self.marked) = (0, 0);
    }

    /// Cuts at the first mark of a queue. The figure waits for the end of the round, and does not grow in a round with
    /// a mark. Beside DCTCP, which cuts at once and grows for all results before the mark, it gets half its share where
    /// marks come often.
    fn cut(&mut self, vid: u64) {
        // A window's worth of packets is under way, and its marks belong to the queue that this cut answers. All ranks
        // see the same marks.
        self.cut_before = vid + 1 + self.packets();
        self.packets = (self.packets * (1.0 - self.marked_share / 2.0)).max(FEWEST);
        self.threshold = self.packets;
    }

    /// The tree begins again at its first VID, so no network was filled: the window is as new, on all ranks.
    pub fn begin(&mut self) {
        *self = Window::new(self.cap, self.follows_marks);
    }

    /// The tree goes back: the window does what DCTCP's does after a timeout. Accelerators may have less room than
    /// before.
    pub fn on_rewind(&mut self) {
        self.threshold = (self.packets / 2.0).max(FEWEST);
        (self.packets, self.received, self.marked, self.clean, self.cut_before) = (FEWEST, 0, 0, 0, 0);
        self.bound();
    }

    /// The cap may lie below `FEWEST`, but a tree never stops.
    fn bound(&mut self) {
        self.packets = self.packets.min(self.cap.into()).max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::dctcp::{Acked, CongestionWindow, WindowLimits};
    use crate::splitmix::splitmix64;

    /// A window, and the VID whose result is next.
    struct Bench {
        window: Window,
        vid: u64,
    }

    impl Bench {
        fn new(cap: u16) -> Bench {
            Bench { window: Window::new(cap, true), vid: 0 }
        }

        fn result(&mut self, is_marked: bool, cap: u16) {
            self.window.on_result(self.vid, is_marked, cap);
            self.vid += 1;
        }

        fn clear(&mut self, results: u32) {
            (0..results).for_each(|_| self.result(false, u16::MAX));
        }
    }

    #[test]
    fn doubles_once_a_window_until_the_threshold_and_a_mark_cuts_by_half_the_marked_share() {
        let mut bench = Bench::new(u16::MAX);
        let mut results = 0;
        for (at, packets, share) in
            [(2, 4, 0.9375), (6, 8, 0.878906), (14, 16, 0.823975), (30, 32, 0.772476), (62, 64, 0.724196)]
        {
            bench.clear(at - results - 1);
            assert!(bench.window.packets() < packets, "before result {at}");
            bench.clear(1);
            results = at;
            assert_eq!(bench.window.packets(), packets, "after result {at}");
            assert!((bench.window.marked_share() - share).abs() < 1e-6, "{}", bench.window.marked_share());
        }
        bench.clear(63);
        bench.result(true, u16::MAX);
        assert!((bench.window.marked_share() - 0.679911).abs() < 1e-6, "{}", bench.window.marked_share());
        assert!((bench.window.size() - 42.242857).abs() < 1e-6, "{}", bench.window.size());
        bench.clear(64);
        assert!((bench.window.size() - 42.242857).abs() < 1e-6, "D6: what was under way: {}", bench.window.size());
        // D3: the mark is forgotten. D7: 63 results before it had no mark, and were nearly enough to grow by one.
        bench.clear(1);
        assert!((bench.window.size() - 43.242857).abs() < 1e-6, "{}", bench.window.size());
        // D1: a window of 43.24 packets is complete after 43 results.
        bench.clear(42);
        assert!((bench.window.size() - 43.242857).abs() < 1e-6, "{}", bench.window.size());
        bench.clear(1);
        assert!((bench.window.size() - 44.242857).abs() < 1e-6, "{}", bench.window.size());
    }

    #[test]
    fn marks_leave_two_packets_and_no_fewer() {
        let mut bench = Bench::new(u16::MAX);
        for _ in 0..1000 {
            bench.result(true, u16::MAX);
            assert!((2..=4).contains(&bench.window.packets()), "D2: {}", bench.window.size());
        }
        bench.clear(100);
        assert!(bench.window.packets() > 2);
    }

    /// D6: packets that were under way at the cut were marked by the queue that the cut answers. D7: the cut comes at
    /// once.
    #[test]
    fn the_marks_of_one_queue_cut_the_window_once_and_at_once() {
        let mut bench = Bench::new(u16::MAX);
        bench.clear(62);
        bench.result(true, u16::MAX);
        let cut = bench.window.size();
        assert!(cut < 64.0, "D7: the queue is there now, and not only when a window is full");
        (0..64).for_each(|_| bench.result(true, u16::MAX));
        assert_eq!(
            bench.window.size(),
            cut,
            "the queue is still there: a window that grows now takes more than its share"
        );
        bench.result(true, u16::MAX);
        assert!(bench.window.size() < cut, "the queue is there a round trip later, too");
    }

    /// D7: §4.2.2 wants the window to match DCTCP's, so that both get the same share of a link. Here both see the same
    /// marks.
    #[test]
    fn is_as_large_as_the_window_of_a_flow_under_dctcp_that_hears_the_same_marks() {
        let limits = WindowLimits { initial: 2, min: 2, max: u32::MAX };
        for (seed, one_in) in [(1u64, 500), (2, 200), (3, 100), (4, 50), (5, 20), (6, 10)] {
            let (mut bench, mut flow) = (Bench::new(u16::MAX), CongestionWindow::new(limits));
            let (mut job, mut peer) = (0.0, 0.0);
            for packet in 0..40_000u64 {
                // Both stay in slow start until the first mark. In slow start they differ: the figure's window doubles
                // once a window.
                let is_marked = packet == 100 || packet > 100 && splitmix64(seed << 32 | packet).is_multiple_of(one_in);
                bench.result(is_marked, u16::MAX);
                let next = packet + 1 + flow.packets() as u64;
                let marked = is_marked.into();
                flow.on_ack(Acked { packets: 1, marked, newest: packet, next, rtt: None, limited: true });
                if packet > 10_000 {
                    (job, peer) = (job + bench.window.size(), peer + flow.packets() as f64);
                }
            }
            let share = job / peer;
            assert!((0.9..1.1).contains(&share), "one mark in {one_in}: {share}, of {:.1} packets", peer / 3e4);
        }
    }

    #[test]
    fn a_cap_cuts_at_once_also_below_what_was_received_and_the_window_goes_on() {
        let mut bench = Bench::new(u16::MAX);
        bench.clear(62 + 20);
        bench.result(false, 5);
        assert_eq!(bench.window.packets(), 5, "D1: 21 were received, of a window that has 5 now");
        for _ in 0..100 {
            bench.result(false, 5);
            assert!(bench.window.packets() <= 5);
        }
        bench.result(false, u16::MAX);
        bench.clear(10);
        assert!(bench.window.packets() > 5, "a cap that is lifted");
    }

    #[test]
    fn a_cap_below_two_and_a_forged_one_of_nothing_leave_one_packet() {
        for cap in [0, 1] {
            let mut bench = Bench::new(cap);
            assert_eq!(bench.window.packets(), 1);
            bench.result(true, cap);
            assert_eq!(bench.window.packets(), 1);
        }
    }

    #[test]
    fn a_rewind_halves_the_threshold_and_starts_slowly() {
        let mut bench = Bench::new(u16::MAX);
        bench.clear(62);
        bench.window.on_rewind();
        assert_eq!(bench.window.packets(), 2);
        bench.clear(2 + 4 + 8 + 16 + 32);
        assert_eq!(bench.window.packets(), 33, "from 32 on by one");
    }

    #[test]
    fn without_congestion_control_the_window_is_the_cap() {
        let mut window = Window::new(40, false);
        assert_eq!(window.packets(), 2, "nobody has told yet what there is room for");
        window.on_result(0, true, 30);
        assert_eq!(window.packets(), 30);
        window.on_rewind();
        assert_eq!(window.packets(), 2, "there may be less room in the new epoch");
        window.on_result(1, true, 20);
        assert_eq!(window.packets(), 20);
    }
}
