//! The congestion window: how many packets may be on their way. Slow start, then additive increase; halved on loss, and
//! cut in proportion to the share of marked packets where the network marks (DCTCP, RFC 8257).
//!
//! It counts packets, not bytes, since every protocol here sends packets of one size. The caller numbers transmissions
//! in the order of sending; a *round* ends when a transmission that was sent after the round's start is acknowledged.

use std::hash::{Hash, Hasher};

use crate::contract::time::Span;

/// Bounds of a window, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowLimits {
    /// The window at the start.
    pub initial: u32,
    /// The smallest window, also the window after a timeout.
    pub min: u32,
    /// The largest window.
    pub max: u32,
}

/// What one acknowledgement says.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Acked {
    /// Packets that it acknowledges for the first time.
    pub packets: u32,
    /// Packets that it reports as marked for the first time.
    pub marked: u32,
    /// The newest transmission that is known to have arrived.
    pub newest: u64,
    /// The number of the next transmission.
    pub next: u64,
    /// A round trip that the acknowledgement measures.
    pub rtt: Option<Span>,
    /// The window, and not a lack of data, held the sender back. A window that is not used does not grow (RFC 7661).
    pub limited: bool,
}

/// The gain `g` with which the estimate of the marked share moves (RFC 8257 §3.3).
pub const MARK_GAIN: f64 = 1.0 / 16.0;

/// A congestion window.
#[derive(Clone, Debug)]
pub struct CongestionWindow {
    limits: WindowLimits,
    packets: f64,
    /// The window at which slow start ends.
    threshold: f64,
    /// The share of packets that the network marks.
    marked_share: f64,
    round_end: u64,
    round_acked: u32,
    round_marked: u32,
    round_rtt: Option<Span>,
    base_rtt: Option<Span>,
    /// Losses and marks of transmissions before this one have cut the window already.
    answered_before: u64,
    /// The window and its threshold before a silence of which nobody knows yet whether anything was lost.
    before_silence: Option<(f64, f64)>,
}

impl Hash for CongestionWindow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let CongestionWindow {
            limits,
            packets,
            threshold,
            marked_share,
            round_end,
            round_acked,
            round_marked,
            round_rtt,
            base_rtt,
            answered_before,
            before_silence,
        } = self;
        (
            limits,
            packets.to_bits(),
            threshold.to_bits(),
            marked_share.to_bits(),
            round_end,
            round_acked,
            round_marked,
            round_rtt,
            base_rtt,
            answered_before,
            before_silence.map(|(packets, threshold)| (packets.to_bits(), threshold.to_bits())),
        )
            .hash(state);
    }
}

impl CongestionWindow {
    /// A window that knows nothing of the path.
    pub fn new(limits: WindowLimits) -> CongestionWindow {
        CongestionWindow {
            limits,
            packets: f64::from(limits.initial),
            threshold: f64::INFINITY,
            marked_share: 1.0,
            round_end: 0,
            round_acked: 0,
            round_marked: 0,
            round_rtt: None,
            base_rtt: None,
            answered_before: 0,
            before_silence: None,
        }
    }

    /// Packets that may be on their way.
    pub fn packets(&self) -> usize {
        self.packets as usize
    }

    /// True until the first loss, mark or long queue.
    pub fn in_slow_start(&self) -> bool {
        self.packets < self.threshold
    }

    /// The estimated share of packets that the network marks: `alpha` of DCTCP.
    pub fn marked_share(&self) -> f64 {
        self.marked_share
    }

    /// Takes in an acknowledgement.
    pub fn on_ack(&mut self, acked: Acked) {
        self.round_acked += acked.packets;
        self.round_marked += acked.marked;
        if let Some(rtt) = acked.rtt {
            self.round_rtt = Some(self.round_rtt.map_or(rtt, |least| least.min(rtt)));
            self.base_rtt = Some(self.base_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if acked.marked > 0 && acked.newest >= self.answered_before {
            self.answered_before = acked.next;
            self.shrink_to(self.packets * (1.0 - self.marked_share / 2.0));
        } else if acked.limited && acked.newest >= self.answered_before {
            self.grow(acked.packets);
        }
        if acked.newest >= self.round_end {
            self.end_round(acked.next);
        }
    }

    /// A packet was lost; its last transmission had the number `transmission`, and `next` is the number of the next
    /// transmission. True if the window is cut for this loss; false if it was cut for another loss in the same round.
    pub fn on_loss(&mut self, transmission: u64, next: u64) -> bool {
        if transmission < self.answered_before {
            return false;
        }
        self.answered_before = next;
        self.shrink_to(self.packets / 2.0);
        true
    }

    /// Nothing was heard for several timeouts. The window doubles again up to half of what it was before the first of
    /// them (RFC 5681, section 3.1).
    pub fn on_silence(&mut self) {
        let (before, _) = *self.before_silence.get_or_insert((self.packets, self.threshold));
        self.threshold = (before / 2.0).max(f64::from(self.limits.min));
        self.packets = f64::from(self.limits.min);
    }

    /// A packet that was sent again was acknowledged: its last transmission has arrived (`was_lost`), or an earlier one,
    /// which was merely late. A timeout that was too short must not cost a window (the Eifel response, RFC 4015).
    pub fn on_verdict(&mut self, was_lost: bool) {
        if let Some((packets, threshold)) = self.before_silence.take().filter(|_| !was_lost) {
            self.packets = self.packets.max(packets);
            self.threshold = threshold;
        }
    }

    fn grow(&mut self, acked: u32) {
        let acked = f64::from(acked);
        let grown = if self.in_slow_start() { self.packets + acked } else { self.packets + acked / self.packets };
        self.packets = grown.min(f64::from(self.limits.max));
    }

    fn shrink_to(&mut self, packets: f64) {
        self.packets = packets.max(f64::from(self.limits.min));
        self.threshold = self.packets;
        self.before_silence = None;
    }

    fn end_round(&mut self, next: u64) {
        let share = f64::from(self.round_marked.min(self.round_acked)) / f64::from(self.round_acked.max(1));
        self.marked_share += MARK_GAIN * (share - self.marked_share);
        // The queue is as long as the path itself: slow start has filled the path, even if the network marks no packet.
        let queued = matches!((self.round_rtt, self.base_rtt), (Some(round), Some(base)) if round >= base.times(2));
        if queued && self.in_slow_start() {
            self.threshold = self.packets;
        }
        self.round_end = next;
        self.round_acked = 0;
        self.round_marked = 0;
        self.round_rtt = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WindowLimits = WindowLimits { initial: 10, min: 2, max: 200 };

    /// A path that is acknowledged a whole window at a time.
    struct Path {
        window: CongestionWindow,
        sent: u64,
    }

    impl Path {
        fn new() -> Path {
            Path { window: CongestionWindow::new(LIMITS), sent: 0 }
        }

        fn round(&mut self, marked: u32, rtt: Span) {
            let packets = self.window.packets() as u32;
            self.sent += u64::from(packets);
            let acked =
                Acked { packets, marked, newest: self.sent - 1, next: self.sent, rtt: Some(rtt), limited: true };
            self.window.on_ack(acked);
        }
    }

    #[test]
    fn doubles_each_round_in_slow_start_up_to_the_limit() {
        let mut path = Path::new();
        for expected in [20, 40, 80, 160, 200, 200] {
            path.round(0, Span::from_micros(50));
            assert_eq!(path.window.packets(), expected);
        }
    }

    #[test]
    fn halves_once_for_all_losses_of_a_round_then_adds_one_a_round() {
        let mut path = Path::new();
        (0..3).for_each(|_| path.round(0, Span::from_micros(50)));
        let next = path.sent + 80;
        let cuts: Vec<bool> = (0..5).map(|packet| path.window.on_loss(path.sent + packet, next)).collect();
        assert_eq!(cuts, [true, false, false, false, false]);
        assert_eq!(path.window.packets(), 40);
        path.sent = next;
        for expected in [41, 42, 43] {
            path.round(0, Span::from_micros(50));
            assert_eq!(path.window.packets(), expected);
        }
    }

    #[test]
    fn few_marks_cost_little_once_the_share_is_known() {
        let mut path = Path::new();
        (0..3).for_each(|_| path.round(0, Span::from_micros(50)));
        (0..100).for_each(|_| path.round(0, Span::from_micros(50)));
        let before = path.window.packets();
        path.round(1, Span::from_micros(50));
        assert!(path.window.packets() >= before * 9 / 10, "{} of {before}", path.window.packets());
        (0..200).for_each(|_| path.round(path.window.packets() as u32, Span::from_micros(50)));
        assert!(path.window.marked_share() > 0.99);
        assert_eq!(path.window.packets(), LIMITS.min as usize);
    }

    #[test]
    fn a_queue_as_long_as_the_path_ends_slow_start() {
        let mut path = Path::new();
        path.round(0, Span::from_micros(50));
        path.round(0, Span::from_micros(110));
        assert!(!path.window.in_slow_start());
    }

    #[test]
    fn a_silence_in_which_nothing_was_lost_is_taken_back_unless_a_mark_or_a_loss_came_meanwhile() {
        let silent = || {
            let mut path = Path::new();
            (0..3).for_each(|_| path.round(0, Span::from_micros(50)));
            (0..3).for_each(|_| path.window.on_silence());
            path
        };
        for (was_lost, after, later) in [(false, 80, 160), (true, 2, 4)] {
            let mut path = silent();
            path.window.on_verdict(was_lost);
            assert_eq!(path.window.packets(), after);
            path.window.on_verdict(false);
            assert_eq!(path.window.packets(), after, "the first word counts");
            path.sent += 100;
            path.round(0, Span::from_micros(50));
            assert_eq!(path.window.packets(), later);
        }
        let mut path = silent();
        path.window.on_loss(path.sent, path.sent + 10);
        path.window.on_verdict(false);
        assert_eq!(path.window.packets(), 2);
    }

    #[test]
    fn does_not_grow_while_it_is_not_used_and_falls_to_the_minimum_in_silence() {
        let mut path = Path::new();
        let idle = Acked { packets: 5, marked: 0, newest: 4, next: 5, rtt: None, limited: false };
        path.window.on_ack(idle);
        assert_eq!(path.window.packets(), 10);
        path.window.on_silence();
        assert_eq!(path.window.packets(), 2);
        path.round(0, Span::from_micros(50));
        assert_eq!(path.window.packets(), 4);
    }
}
