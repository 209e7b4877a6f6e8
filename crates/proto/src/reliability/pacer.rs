//! Spreads a window over its round trip, a few packets at a time.
//!
//! Without pacing, a window travels as one burst wherever acknowledgements share queues with data of the other
//! direction, as they do in a ring of hosts. All acknowledgements of the window then wait behind a burst and set the
//! next burst free at once ("ACK compression"), and links idle in between.

use crate::contract::time::{Span, Time};

/// Decides when the next packet may go (the generic cell rate algorithm).
#[derive(Clone, Debug, Default, Hash)]
pub struct Pacer {
    /// When the next packet would go if packets went one at a time.
    due: Time,
    /// How far a burst may run ahead of `due`.
    burst: Span,
}

impl Pacer {
    /// True if a packet may go now.
    pub fn is_open(&self, now: Time) -> bool {
        self.due.since(now) <= self.burst
    }

    /// When a whole burst may go again.
    pub fn due(&self) -> Time {
        self.due
    }

    /// A packet goes. On average the next packet goes `interval` later, in bursts of `burst` packets.
    pub fn on_sent(&mut self, now: Time, interval: Span, burst: u32) {
        self.burst = interval.times(u64::from(burst));
        // Timers fire late: missed packets are made up for, up to one more burst.
        let earliest = Time(now.0.saturating_sub(self.burst.0));
        self.due = self.due.max(earliest) + interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Span = Span::from_micros(10);

    fn send_all(pacer: &mut Pacer, now: Time) -> usize {
        let mut sent = 0;
        while pacer.is_open(now) {
            pacer.on_sent(now, INTERVAL, 4);
            sent += 1;
        }
        sent
    }

    #[test]
    fn keeps_the_rate_in_bursts() {
        let mut pacer = Pacer::default();
        let mut now = Time::ZERO + Span::from_millis(1);
        send_all(&mut pacer, now);
        let mut sent = 0;
        for _ in 0..100 {
            now = pacer.due();
            let burst = send_all(&mut pacer, now);
            assert!((4..=5).contains(&burst));
            sent += burst;
        }
        let spent = now.since(Time::ZERO + Span::from_millis(1));
        assert!((sent as u64 - 10..=sent as u64 + 10).contains(&(spent.0 / INTERVAL.0)), "{sent} packets in {spent}");
    }

    #[test]
    fn makes_up_for_a_late_timer_but_not_for_a_pause() {
        let mut pacer = Pacer::default();
        let start = Time::ZERO + Span::from_millis(1);
        send_all(&mut pacer, start);
        let late = pacer.due() + INTERVAL.times(3);
        assert_eq!(send_all(&mut pacer, late), 8);
        let after_a_pause = late + Span::from_millis(50);
        assert_eq!(send_all(&mut pacer, after_a_pause), 9);
    }
}
