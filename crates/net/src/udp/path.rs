//! What is known of the path to a peer: the kernel's knowledge ([`Path`]), and how long a packet really passes
//! ([`MtuProbe`], after RFC 8899). Messages of routers do not count, because they can be forged; only pings that the peer
//! returns do.
//!
//! A ping as long as the job's longest packet goes with each keepalive. If short pings return and two long ones in a row do
//! not, a search begins: pings of many lengths are sent at once, three times, and the longest that returns is the limit.
//! While there is a limit, long pings go on, so that a path that becomes wider again is noticed.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use tributary_control::Timers;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::wire::{self, COMMON_LEN, Common, IPV4_AND_UDP_LEN, kind};

use super::sys;

/// Bytes of the headers of IPv6, without extensions, and of UDP.
const IPV6_AND_UDP_LEN: usize = 40 + 8;

/// The path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The source address of our packets.
    pub local: IpAddr,
    /// Bytes of the longest IP packet that the first link holds. Pings test whether the rest of the path holds it too.
    /// The kernel has a number for the whole path, but that number comes from messages that can be forged, and stays for
    /// ten minutes.
    pub mtu: u32,
    /// Speed of the first link in bits per second, if its driver reports it.
    pub link_bits_per_s: Option<u64>,
}

impl Path {
    /// Looks the path up; sends no packet.
    pub fn to(peer: SocketAddr) -> io::Result<Path> {
        let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let probe = UdpSocket::bind(any)?;
        probe.connect(peer)?;
        let local = probe.local_addr()?.ip();
        let interface = sys::interface_with(local.to_canonical());
        let link_bits_per_s = interface.as_deref().and_then(speed_of);
        let mtu = match &interface {
            Some(name) => sys::interface_mtu(probe.as_raw_fd(), name)?,
            // No interface lists 127.0.0.2, for example.
            None => kernels_mtu(&probe, peer)?,
        };
        Ok(Path { local, mtu, link_bits_per_s })
    }

    /// Bytes of the longest UDP payload that needs no fragments.
    pub fn max_payload(&self) -> usize {
        let headers = if self.local.is_ipv4() { IPV4_AND_UDP_LEN } else { IPV6_AND_UDP_LEN };
        (self.mtu as usize).saturating_sub(headers)
    }
}

/// Speed of the link with this address, as [`Path::link_bits_per_s`].
pub fn link_bits_per_s(local: IpAddr) -> Option<u64> {
    sys::interface_with(local.to_canonical()).as_deref().and_then(speed_of)
}

fn kernels_mtu(connected: &UdpSocket, peer: SocketAddr) -> io::Result<u32> {
    let (level, option) = match peer {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    sys::get_option(connected.as_raw_fd(), level, option).map(|mtu| mtu.max(0) as u32)
}

fn speed_of(interface: &str) -> Option<u64> {
    // The file has Mbit/s. It has -1, or reading fails, if there is no link or no speed, as on the loopback interface.
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/speed")).ok()?;
    let mbit: i64 = text.trim().parse().ok()?;
    u64::try_from(mbit).ok().filter(|&mbit| mbit > 0).map(|mbit| mbit * 1_000_000)
}

/// Bytes of the shortest ping: the common header and the sender's limit.
pub const SHORTEST_PING: usize = COMMON_LEN + 2;
/// The payloads to try. They are what usual MTUs (9000, 4470, 1500, 1492, 1428, 1280, 1006, 576, 552) leave with IPv4
/// and IPv6.
const LADDER: [usize; 13] = [8952, 4422, 1472, 1452, 1444, 1400, 1352, 1252, 1232, 958, 724, 548, 504];
/// The number of long pings that are missed in a row before a search begins.
const MISSED: u32 = 2;
/// The number of times that a search tries all lengths.
const ROUNDS: u32 = 3;
/// The time between two rounds of a search.
const ROUND: Span = Span::from_millis(100);
/// The number of keepalives between two searches for a higher limit.
const WIDEN: u32 = 20;

/// Finds the longest packet that the path to one peer holds.
#[derive(Clone, Debug)]
pub struct MtuProbe {
    /// Bytes of the longest packet that may have to pass.
    full: usize,
    limit: usize,
    due: Time,
    /// The longest of the last pings that returned; 0 if none did.
    longest_returned: usize,
    missed: u32,
    /// The number of rounds of a search that were sent.
    searching: Option<u32>,
    /// Signs of life since the last search.
    since_search: u32,
    /// Bytes of the shortest packet that a search has missed, if only the shortest ping passes.
    blocked: Option<usize>,
}

/// A ping of `len` bytes. It carries the limit of the path back, if that is known.
pub fn ping(common: Common, len: usize, limit: Option<usize>) -> Vec<u8> {
    let mut packet = vec![0; len.max(SHORTEST_PING)];
    Common { kind: kind::PING, ..common }.emit(&mut packet);
    packet[COMMON_LEN..SHORTEST_PING].copy_from_slice(&(limit.unwrap_or(0) as u16).to_be_bytes());
    packet
}

/// The longest packet that reaches the sender, as its ping or the echo says; `None` if the packet is too short to say.
pub fn advertised_limit(ping: &[u8]) -> Option<Option<usize>> {
    let limit = usize::from(wire::u16(ping.get(..SHORTEST_PING)?, COMMON_LEN));
    Some((limit > 0).then_some(limit))
}

/// The lengths below `full` that a search tries, the longest first.
pub fn ladder(full: usize) -> impl Iterator<Item = usize> {
    LADDER.into_iter().filter(move |&len| len < full)
}

impl MtuProbe {
    /// A path that is known to hold packets of `limit` bytes. Packets may have up to `full` bytes.
    pub fn new(full: usize, limit: usize) -> MtuProbe {
        MtuProbe {
            full,
            limit,
            due: Time::ZERO,
            longest_returned: usize::MAX,
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

    /// The longest packet that passes, if the path does not hold all packets.
    pub fn limit(&self) -> Option<usize> {
        (self.limit < self.full).then_some(self.limit)
    }

    /// When to call [`MtuProbe::poll`].
    pub fn due(&self) -> Time {
        self.due
    }

    /// Notes that a ping of this many bytes has returned.
    pub fn on_pong(&mut self, len: usize) {
        self.longest_returned =
            if self.longest_returned == usize::MAX { self.longest_returned } else { self.longest_returned.max(len) };
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
            None => self.evaluate(),
            Some(ROUNDS) => self.conclude(),
            Some(_) => {}
        }
        if let Some(rounds) = &mut self.searching {
            *rounds += 1;
            self.due = now + ROUND;
            return std::iter::once(self.full).chain(ladder(self.full)).chain([SHORTEST_PING]).collect();
        }
        (self.longest_returned, self.due) = (0, now + Timers::KEEPALIVE);
        let mut lengths = vec![SHORTEST_PING, self.full];
        lengths.extend(self.limit());
        lengths
    }

    /// Evaluates the path by the pings that returned since the last keepalive.
    fn evaluate(&mut self) {
        self.since_search += 1;
        if self.longest_returned >= self.limit {
            self.missed = 0;
        } else if self.longest_returned > 0 {
            // Short pings returned. A peer that is silent altogether would say nothing about lengths.
            self.missed += 1;
        }
        if self.missed >= MISSED || self.limit < self.full && self.since_search >= WIDEN {
            (self.searching, self.longest_returned, self.missed, self.since_search) = (Some(0), 0, 0, 0);
        }
    }

    fn conclude(&mut self) {
        match self.longest_returned {
            0 => {}
            1..=SHORTEST_PING => self.blocked = Some(ladder(self.full).last().unwrap_or(self.full)),
            _ => self.limit = self.longest_returned.min(self.full),
        }
        // A late echo of the search must not count for the next keepalive.
        (self.searching, self.longest_returned) = (None, usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_to_ourselves_is_the_loopback_interface() {
        let path = Path::to("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(path.local, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(path.max_payload(), path.mtu as usize - 28);
        assert!(path.mtu >= 1500, "{path:?}");
    }

    /// Lets some seconds pass on a path that holds `mtu` bytes.
    fn pass(probe: &mut MtuProbe, now: &mut Time, seconds: u64, mtu: usize) {
        let end = *now + Span::from_millis(1_000 * seconds);
        while probe.due() < end {
            *now = probe.due().max(*now);
            let sent = probe.poll(*now);
            assert!(!sent.is_empty() && probe.due() > *now);
            sent.into_iter().filter(|&len| len <= mtu).for_each(|len| probe.on_pong(len));
        }
    }

    #[test]
    fn a_path_that_becomes_narrower_and_wider_again_is_known_by_what_comes_back() {
        let (mut probe, mut now) = (MtuProbe::new(1472, 1472), Time::ZERO);
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
    fn a_peer_that_is_silent_or_lossy_has_no_narrow_path() {
        let (mut probe, mut now) = (MtuProbe::new(1472, 1472), Time::ZERO);
        pass(&mut probe, &mut now, 10, 0);
        assert_eq!(probe.limit(), None);
        let mut sent = 0;
        for _ in 0..1_000 {
            now = probe.due();
            for len in probe.poll(now) {
                sent += 1;
                // Every seventh ping is lost, whatever its length.
                if sent % 7 != 0 {
                    probe.on_pong(len);
                }
            }
            assert_eq!(probe.limit(), None);
        }
    }

    #[test]
    fn a_path_that_holds_signs_of_life_alone_is_blocked_until_more_passes() {
        let (mut probe, mut now) = (MtuProbe::new(1472, 1472), Time::ZERO);
        pass(&mut probe, &mut now, 10, 1472);
        pass(&mut probe, &mut now, 3, 300);
        assert_eq!((probe.blocked(), probe.limit()), (Some(504), None));
        pass(&mut probe, &mut now, 3, 0);
        assert_eq!(probe.blocked(), Some(504), "silence says nothing new");
        pass(&mut probe, &mut now, 3, 1000);
        assert_eq!((probe.blocked(), probe.limit()), (None, Some(958)));
        let mut short = MtuProbe::new(400, 400);
        pass(&mut short, &mut now, 3, 300);
        assert_eq!(short.blocked(), Some(400));
    }

    #[test]
    fn a_path_that_was_found_narrow_at_the_start_stays_so_until_more_passes() {
        let (mut probe, mut now) = (MtuProbe::new(1472, 548), Time::ZERO);
        pass(&mut probe, &mut now, 30, 552);
        assert_eq!(probe.limit(), Some(548));
    }
}
