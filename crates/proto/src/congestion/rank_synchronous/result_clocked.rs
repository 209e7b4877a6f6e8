//! A DCTCP that results alone clock, so that every rank has the same window: PANAMA's figure 5, with its seven defects
//! mended (`docs/protocols/panama.md`, *Windows*).

use super::{LEAST, RankSynchronous, RankSynchronousAlgorithm, ResultAck};
use crate::congestion::bookkeeping::{CutGuard, MarkedShare, Real};
use crate::congestion::dctcp::MARK_GAIN;

/// The algorithm as a value.
pub const ALGORITHM: RankSynchronousAlgorithm = RankSynchronousAlgorithm {
    name: "on",
    follows_marks: true,
    make: |capacity| Box::new(ResultClocked::new(capacity)),
};

/// The first threshold at which slow start ends.
const THRESHOLD: f64 = 64.0;

/// How many packets of one tree may be without a result.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct ResultClocked {
    /// `cwnd`.
    window: Real,
    /// `ssthresh`.
    threshold: Real,
    /// `alpha`, `rcvd_agg_packets` and `ecn_count`.
    marks: MarkedShare,
    /// Results without a mark for which the window has not grown yet. Only packets sent after the last cut count.
    clean: u32,
    guard: CutGuard,
    /// The capacity of the accelerators, according to the last result.
    capacity: u16,
}

impl ResultClocked {
    /// The window of a tree that has sent nothing.
    pub fn new(capacity: u16) -> ResultClocked {
        let mut window = ResultClocked {
            window: Real(LEAST),
            threshold: Real(THRESHOLD),
            marks: MarkedShare::new(1.0),
            clean: 0,
            guard: CutGuard::default(),
            capacity: capacity.max(1),
        };
        window.bound();
        window
    }

    /// The moving average of the share of marked results.
    pub fn marked_share(&self) -> f64 {
        self.marks.average()
    }

    /// Ends a round: as many results as the window holds have come.
    fn end_round(&mut self) {
        // The figure keeps `ecn_count`: then one mark would shrink every later window.
        let was_marked = self.marks.end_round(MARK_GAIN) > 0.0;
        if !was_marked && self.window < self.threshold {
            self.window.0 *= 2.0;
            self.clean = 0;
        }
    }

    /// Cuts at the first mark of a queue. The figure waits for the end of the round, and does not grow in a round with
    /// a mark. Beside DCTCP, which cuts at once and grows for all results before the mark, it gets half its share where
    /// marks come often.
    fn cut(&mut self, vid: u64) {
        // A window's worth of packets is under way, and its marks belong to the queue that this cut answers. All ranks
        // see the same marks.
        self.guard.on_cut(vid + 1 + self.packets());
        self.window.0 = (self.window.0 * (1.0 - self.marks.average() / 2.0)).max(LEAST);
        self.threshold = self.window;
    }

    /// The capacity may be smaller than `LEAST`, but a tree never stops.
    fn bound(&mut self) {
        self.window.0 = self.window.0.min(self.capacity.into()).max(1.0);
    }
}

impl RankSynchronous for ResultClocked {
    fn size(&self) -> f64 {
        self.window.0
    }

    fn on_result(&mut self, result: ResultAck) {
        let ResultAck { vid, is_marked, capacity } = result;
        self.capacity = capacity.max(1);
        let is_fresh = self.guard.covers(vid);
        self.marks.count(1, is_marked.into());
        self.clean += u32::from(is_fresh && !is_marked);
        // The figure has `==`: then a round would never end if the window is fractional or the capacity has cut it.
        if u64::from(self.marks.packets()) >= self.packets() {
            self.end_round();
        }
        if is_marked && is_fresh {
            self.cut(vid);
        } else if is_fresh && self.window >= self.threshold && u64::from(self.clean) >= self.packets() {
            self.window.0 += 1.0;
            self.clean = 0;
        }
        self.bound();
    }

    fn begin(&mut self) {
        *self = ResultClocked::new(self.capacity);
    }

    /// The window does what DCTCP's does after a timeout. Accelerators may have less capacity than before.
    fn on_rewind(&mut self) {
        self.threshold.0 = (self.window.0 / 2.0).max(LEAST);
        (self.window, self.clean, self.guard) = (Real(LEAST), 0, CutGuard::default());
        self.marks.forget_round();
        self.bound();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::dctcp::Dctcp;
    use crate::congestion::{Ack, Controller, Limits};
    use tributary_numeric::splitmix64;

    /// A window, and the VID whose result is next.
    struct Bench {
        window: ResultClocked,
        vid: u64,
    }

    impl Bench {
        fn new(capacity: u16) -> Bench {
            Bench { window: ResultClocked::new(capacity), vid: 0 }
        }

        fn result(&mut self, is_marked: bool, capacity: u16) {
            self.window.on_result(ResultAck { vid: self.vid, is_marked, capacity });
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
    fn is_as_large_as_the_window_of_a_flow_under_dctcp_that_gets_the_same_marks() {
        let limits = Limits { initial: 2, min: 2, max: u32::MAX };
        for (seed, one_in) in [(1u64, 500), (2, 200), (3, 100), (4, 50), (5, 20), (6, 10)] {
            let (mut bench, mut flow) = (Bench::new(u16::MAX), Dctcp::new(limits));
            let (mut job, mut peer) = (0.0, 0.0);
            for packet in 0..40_000u64 {
                // Both stay in slow start until the first mark. In slow start they differ: the figure's window doubles
                // once a window.
                let is_marked = packet == 100 || packet > 100 && splitmix64(seed << 32 | packet).is_multiple_of(one_in);
                bench.result(is_marked, u16::MAX);
                let next = packet + 1 + flow.window();
                let marked = is_marked.into();
                flow.on_ack(&Ack { packets: 1, marked, newest: packet, next, limited: true, ..Ack::default() });
                if packet > 10_000 {
                    (job, peer) = (job + bench.window.size(), peer + flow.window() as f64);
                }
            }
            let share = job / peer;
            assert!((0.9..1.1).contains(&share), "one mark in {one_in}: {share}, of {:.1} packets", peer / 3e4);
        }
    }

    #[test]
    fn a_smaller_capacity_cuts_at_once_also_below_what_was_received_and_the_window_goes_on() {
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
        assert!(bench.window.packets() > 5, "a capacity that is lifted");
    }

    #[test]
    fn a_capacity_below_two_and_a_forged_one_of_nothing_leave_one_packet() {
        for capacity in [0, 1] {
            let mut bench = Bench::new(capacity);
            assert_eq!(bench.window.packets(), 1);
            bench.result(true, capacity);
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
}
