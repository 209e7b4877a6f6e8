//! Tests how long a packet the way to a peer holds. The peer sends pings back (RFC 8899). Messages of routers do not
//! count, because they can be forged.
//!
//! A ping as long as the job's longest packet goes with each sign of life. If short pings come back and two long ones
//! in a row do not, a search begins: pings of many lengths are sent at once, three times, and the longest that comes
//! back is the limit. While there is a limit, long pings go on, so that a way that becomes wider again is noticed.

use tributary_control::Timers;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{self, COMMON_LEN, Common, kind};

/// Bytes of the shortest ping: the common header and the sender's limit.
pub const SHORTEST: usize = COMMON_LEN + 2;
/// The payloads to try. They are what usual MTUs (9000, 4470, 1500, 1492, 1428, 1280, 1006, 576, 552) leave with IPv4
/// and IPv6.
const LADDER: [usize; 13] = [8952, 4422, 1472, 1452, 1444, 1400, 1352, 1252, 1232, 958, 724, 548, 504];
/// The number of long pings that are missed in a row before a search begins.
const MISSED: u32 = 2;
/// The number of times that a search tries all lengths.
const ROUNDS: u32 = 3;
/// The time between two rounds of a search.
const ROUND: Span = Span::from_millis(100);
/// The number of signs of life between two searches for a higher limit.
const WIDEN: u32 = 20;

/// The knowledge about the way to one peer.
#[derive(Clone, Debug)]
pub struct PathProbe {
    /// Bytes of the longest packet that may have to pass.
    full: usize,
    limit: usize,
    due: Time,
    /// The longest of the last pings that came back; 0 if none came back.
    best: usize,
    missed: u32,
    /// The number of rounds of a search that were sent.
    searching: Option<u32>,
    /// Signs of life since the last search.
    since_search: u32,
    /// Bytes of the shortest packet that a search has missed, if only the shortest ping passes.
    blocked: Option<usize>,
}

/// A ping of `len` bytes. It carries the limit of the way back, as far as that is known.
pub fn ping(common: Common, len: usize, limit: Option<usize>) -> Vec<u8> {
    let mut packet = vec![0; len.max(SHORTEST)];
    Common { kind: kind::PING, ..common }.emit(&mut packet);
    packet[COMMON_LEN..SHORTEST].copy_from_slice(&(limit.unwrap_or(0) as u16).to_be_bytes());
    packet
}

/// The longest packet that reaches the sender, as its ping or the echo says; `None` if the packet says nothing about
/// it.
pub fn said(ping: &[u8]) -> Option<Option<usize>> {
    let limit = usize::from(wire::u16(ping.get(..SHORTEST)?, COMMON_LEN));
    Some((limit > 0).then_some(limit))
}

/// The lengths below `full` that a search tries, the longest first.
pub fn ladder(full: usize) -> impl Iterator<Item = usize> {
    LADDER.into_iter().filter(move |&len| len < full)
}

impl PathProbe {
    /// A way that is known to hold packets of `limit` bytes. Packets may have up to `full` bytes.
    pub fn new(full: usize, limit: usize) -> PathProbe {
        PathProbe {
            full,
            limit,
            due: Time::ZERO,
            best: usize::MAX,
            missed: 0,
            searching: None,
            since_search: 0,
            blocked: None,
        }
    }

    /// Bytes of the shortest packet that was missed, if short pings come back but no packet of the job would pass at
    /// any length.
    pub fn blocked(&self) -> Option<usize> {
        self.blocked
    }

    /// The longest packet that passes, if the way does not hold all packets.
    pub fn limit(&self) -> Option<usize> {
        (self.limit < self.full).then_some(self.limit)
    }

    /// When to call [`PathProbe::poll`].
    pub fn due(&self) -> Time {
        self.due
    }

    /// Notes that a ping of this many bytes has come back.
    pub fn hear(&mut self, len: usize) {
        self.best = if self.best == usize::MAX { self.best } else { self.best.max(len) };
        if len >= self.full {
            self.limit = self.full;
        }
        self.blocked = self.blocked.filter(|&missed| len < missed);
    }

    /// The lengths of the pings to send now.
    pub fn poll(&mut self, now: Time) -> Vec<usize> {
        if now < self.due {
            return Vec::new();
        }
        match self.searching {
            None => self.judge(),
            Some(ROUNDS) => self.conclude(),
            Some(_) => {}
        }
        if let Some(rounds) = &mut self.searching {
            *rounds += 1;
            self.due = now + ROUND;
            return std::iter::once(self.full).chain(ladder(self.full)).chain([SHORTEST]).collect();
        }
        (self.best, self.due) = (0, now + Timers::KEEPALIVE);
        let mut lengths = vec![SHORTEST, self.full];
        lengths.extend(self.limit());
        lengths
    }

    /// Judges the way by the pings that came back since the last sign of life.
    fn judge(&mut self) {
        self.since_search += 1;
        if self.best >= self.limit {
            self.missed = 0;
        } else if self.best > 0 {
            // Short pings came back. A peer that is silent altogether would say nothing about lengths.
            self.missed += 1;
        }
        if self.missed >= MISSED || self.limit < self.full && self.since_search >= WIDEN {
            (self.searching, self.best, self.missed, self.since_search) = (Some(0), 0, 0, 0);
        }
    }

    fn conclude(&mut self) {
        match self.best {
            0 => {}
            1..=SHORTEST => self.blocked = Some(ladder(self.full).last().unwrap_or(self.full)),
            _ => self.limit = self.best.min(self.full),
        }
        // A late echo of the search must not count for the next sign of life.
        (self.searching, self.best) = (None, usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets some seconds pass on a way that holds `mtu` bytes.
    fn pass(probe: &mut PathProbe, now: &mut Time, seconds: u64, mtu: usize) {
        let end = *now + Span::from_millis(1_000 * seconds);
        while probe.due() < end {
            *now = probe.due().max(*now);
            let sent = probe.poll(*now);
            assert!(!sent.is_empty() && probe.due() > *now);
            sent.into_iter().filter(|&len| len <= mtu).for_each(|len| probe.hear(len));
        }
    }

    #[test]
    fn a_way_that_becomes_narrower_and_wider_again_is_known_by_what_comes_back() {
        let (mut probe, mut now) = (PathProbe::new(1472, 1472), Time::ZERO);
        pass(&mut probe, &mut now, 10, 1472);
        assert_eq!(probe.limit(), None);
        pass(&mut probe, &mut now, 3, 1000);
        assert_eq!(probe.limit(), Some(958), "within a pause");
        pass(&mut probe, &mut now, 3, 600);
        assert_eq!(probe.limit(), Some(548));
        pass(&mut probe, &mut now, 15, 1300);
        assert_eq!(probe.limit(), Some(1252));
        pass(&mut probe, &mut now, 1, 1472);
        assert_eq!(probe.limit(), None);
    }

    #[test]
    fn a_peer_that_is_silent_or_lossy_has_no_narrow_way() {
        let (mut probe, mut now) = (PathProbe::new(1472, 1472), Time::ZERO);
        pass(&mut probe, &mut now, 10, 0);
        assert_eq!(probe.limit(), None);
        let mut sent = 0;
        for _ in 0..1_000 {
            now = probe.due();
            for len in probe.poll(now) {
                sent += 1;
                // Every seventh ping is lost, whatever its length.
                if sent % 7 != 0 {
                    probe.hear(len);
                }
            }
            assert_eq!(probe.limit(), None);
        }
    }

    #[test]
    fn a_way_that_holds_signs_of_life_alone_is_blocked_until_more_passes() {
        let (mut probe, mut now) = (PathProbe::new(1472, 1472), Time::ZERO);
        pass(&mut probe, &mut now, 10, 1472);
        pass(&mut probe, &mut now, 3, 300);
        assert_eq!((probe.blocked(), probe.limit()), (Some(504), None));
        pass(&mut probe, &mut now, 3, 0);
        assert_eq!(probe.blocked(), Some(504), "silence says nothing new");
        pass(&mut probe, &mut now, 3, 1000);
        assert_eq!((probe.blocked(), probe.limit()), (None, Some(958)));
        let mut short = PathProbe::new(400, 400);
        pass(&mut short, &mut now, 3, 300);
        assert_eq!(short.blocked(), Some(400));
    }

    #[test]
    fn a_way_that_was_found_narrow_at_the_start_stays_so_until_more_passes() {
        let (mut probe, mut now) = (PathProbe::new(1472, 548), Time::ZERO);
        pass(&mut probe, &mut now, 30, 552);
        assert_eq!(probe.limit(), Some(548));
    }
}
