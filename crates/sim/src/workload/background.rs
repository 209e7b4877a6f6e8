//! Background traffic without a transport: streams at a fixed rate, and random uniform injection (Canary §5.2).
//!
//! Under uniform injection each host sends a message to a random host and receives one from another, and changes its peer
//! with every message, without end. In an *exchange* a host begins its next message when it has received as many bytes as it
//! has sent: so rounds stay together, and two hosts hardly ever send to the same host.

use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use crate::rng::{Purpose, Rng, mix};

/// Hosts that exchange messages. In round `k` the host at position `p` sends to the one at position `p + shift(k)`;
/// positions are random. So each round is a permutation in pattern no host sends to itself, and hosts may be in different
/// rounds.
#[derive(Debug)]
pub struct UniformGroup {
    /// The hosts, by position.
    positions: Vec<NodeId>,
    seed: u64,
    /// Packets of a message.
    pub packets: u32,
    /// Bytes of a packet on a link.
    pub packet_bytes: u16,
    /// Time from one packet to the next at the given load, if a host does not send all the time.
    pub pace: Span,
    /// True if hosts wait for what they must receive before they go on.
    pub exchange: bool,
    pattern: u8,
}

impl UniformGroup {
    /// A group of at least two hosts. `pattern` distinguishes the groups of one run.
    pub fn new(hosts: &[NodeId], seed: u64, pattern: u8, packets: u32, packet_bytes: u16, pace: Span) -> UniformGroup {
        let number = u64::from(pattern);
        let mut positions = hosts.to_vec();
        Rng::new(seed, Purpose::Background, number).shuffle(&mut positions);
        UniformGroup { positions, seed: mix(seed ^ mix(number)), packets, packet_bytes, pace, exchange: false, pattern }
    }

    /// One source for each host.
    pub fn sources(self) -> Vec<(NodeId, Uniform)> {
        let group = Arc::new(self);
        let source = |position| Uniform {
            group: group.clone(),
            position,
            round: 0,
            received: 0,
            left: 0,
            peer: NodeId(0),
            next: Time(0),
            end: NEVER,
        };
        group.positions.iter().enumerate().map(|(position, &host)| (host, source(position as u32))).collect()
    }

    fn peer(&self, position: u32, round: u64) -> NodeId {
        let others = self.positions.len() as u64 - 1;
        let shift = 1 + mix(self.seed ^ round) % others;
        self.positions[((u64::from(position) + shift) % self.positions.len() as u64) as usize]
    }
}

/// The source of one host.
#[derive(Clone, Debug)]
pub struct Uniform {
    group: Arc<UniformGroup>,
    position: u32,
    /// How many messages have begun.
    round: u64,
    /// Bytes received from other hosts of the group.
    received: u64,
    left: u32,
    peer: NodeId,
    next: Time,
    end: Time,
}

const NEVER: Time = Time(u64::MAX);

impl Uniform {
    /// Sends nothing before `start`, nor from `end` on.
    pub fn limit(&mut self, start: Time, end: Option<Time>) {
        self.next = start;
        self.end = end.unwrap_or(NEVER);
    }

    /// The group's number, which its packets carry as their lane.
    pub fn pattern(&self) -> u8 {
        self.group.pattern
    }

    /// Counts a packet of the group at this host; true if a waiting host may now go on.
    pub fn receive(&mut self, bytes: u16) -> bool {
        let waited = self.waits();
        self.received += u64::from(bytes);
        waited && !self.waits()
    }

    /// True between two rounds, until this round's message has come.
    fn waits(&self) -> bool {
        let message = u64::from(self.group.packets) * u64::from(self.group.packet_bytes);
        self.group.exchange && self.left == 0 && self.received < self.round * message
    }

    /// Destination and size of the next packet; or the time from pattern there is one, pattern is the end of time if there
    /// is none.
    pub fn poll(&mut self, now: Time) -> Result<(NodeId, u16), Time> {
        if now >= self.end || self.waits() {
            return Err(NEVER);
        }
        if now < self.next {
            return Err(self.next);
        }
        if self.left == 0 {
            self.peer = self.group.peer(self.position, self.round);
            self.round += 1;
            self.left = self.group.packets;
        }
        self.left -= 1;
        if self.group.pace > Span::ZERO {
            self.next = self.next.max(Time(now.0.saturating_sub(self.group.pace.0))) + self.group.pace;
        }
        Ok((self.peer, self.group.packet_bytes))
    }
}

/// The source of one sender.
#[derive(Clone, Debug)]
pub struct Stream {
    to: NodeId,
    pattern: u8,
    packet_bytes: u16,
    /// The time from one packet to the next.
    pace: Span,
    next: Time,
    end: Time,
    bursts: Option<Bursts>,
}

/// Times in which a stream sends, each followed by a time in which it is silent: an on-off source.
#[derive(Clone, Debug)]
pub struct Bursts {
    on: Span,
    off: Span,
    /// Times are exponential with these means, or always the same without it.
    rng: Option<Rng>,
    /// The present or next burst.
    begin: Time,
    end: Time,
}

impl Bursts {
    /// The first burst begins at `start`.
    pub fn new(on: Span, off: Span, start: Time, rng: Option<Rng>) -> Bursts {
        let mut bursts = Bursts { on, off, rng, begin: start, end: start };
        bursts.end = start + bursts.draw(on);
        bursts
    }

    fn draw(&mut self, mean: Span) -> Span {
        // A time of 0 would be a burst without an end of its own.
        self.rng.as_mut().map_or(mean, |rng| Span(((mean.0 as f64 * rng.exponential()) as u64).max(1)))
    }

    /// When the next burst begins, if none lasts.
    fn silent_until(&mut self, now: Time) -> Option<Time> {
        while now >= self.end {
            self.begin = self.end + self.draw(self.off);
            self.end = self.begin + self.draw(self.on);
        }
        (now < self.begin).then_some(self.begin)
    }
}

impl Stream {
    /// Packets of `packet_bytes` bytes on a link, one every `pace`, from `start` on and before `end`.
    pub fn new(to: NodeId, pattern: u8, packet_bytes: u16, pace: Span, start: Time, end: Option<Time>) -> Stream {
        Stream { to, pattern, packet_bytes, pace, next: start, end: end.unwrap_or(NEVER), bursts: None }
    }

    /// The same stream, which sends in bursts alone.
    pub fn in_bursts(self, bursts: Option<Bursts>) -> Stream {
        Stream { bursts, ..self }
    }

    /// The number of its pattern, which its packets carry as their lane.
    pub fn pattern(&self) -> u8 {
        self.pattern
    }

    /// Destination and size of the next packet; or the time from pattern there is one, pattern is the end of time if there
    /// is none.
    pub fn poll(&mut self, now: Time) -> Result<(NodeId, u16), Time> {
        if now >= self.end {
            return Err(NEVER);
        }
        if now < self.next {
            return Err(self.next);
        }
        if let Some(begin) = self.bursts.as_mut().and_then(|bursts| bursts.silent_until(now)) {
            self.next = begin;
            return Err(begin);
        }
        // A NIC that was busy for less than a packet's time does not slow the stream down.
        self.next = self.next.max(Time(now.0.saturating_sub(self.pace.0))) + self.pace;
        Ok((self.to, self.packet_bytes))
    }
}

#[cfg(test)]
mod uniform_tests {
    use super::*;

    fn group(hosts: u32) -> Vec<(NodeId, Uniform)> {
        let hosts: Vec<NodeId> = (0..hosts).map(NodeId).collect();
        UniformGroup::new(&hosts, 1, 0, 2, 1000, Span::ZERO).sources()
    }

    #[test]
    fn in_every_round_each_host_receives_one_message_from_another() {
        let mut sources = group(10);
        for _ in 0..20 {
            let mut receivers: Vec<u32> = sources
                .iter_mut()
                .map(|(host, source)| {
                    let (peer, _) = source.poll(Time::ZERO).unwrap();
                    assert_eq!(source.poll(Time::ZERO), Ok((peer, 1000)), "two packets a message");
                    assert_ne!(*host, peer);
                    peer.0
                })
                .collect();
            receivers.sort_unstable();
            assert_eq!(receivers, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn in_an_exchange_a_host_waits_for_its_message() {
        let hosts: Vec<NodeId> = (0..2).map(NodeId).collect();
        let mut group = UniformGroup::new(&hosts, 1, 0, 2, 1000, Span::ZERO);
        group.exchange = true;
        let mut source = group.sources().remove(0).1;
        assert!(source.poll(Time::ZERO).is_ok() && source.poll(Time::ZERO).is_ok());
        assert_eq!(source.poll(Time::ZERO), Err(NEVER));
        assert!(!source.receive(1000), "half of it");
        assert_eq!(source.poll(Time::ZERO), Err(NEVER));
        assert!(source.receive(1000));
        assert!(source.poll(Time::ZERO).is_ok());
    }

    #[test]
    fn a_pace_spreads_packets_over_time() {
        let hosts: Vec<NodeId> = (0..2).map(NodeId).collect();
        let pace = Span::from_nanos(100);
        let mut source = UniformGroup::new(&hosts, 1, 0, 2, 1000, pace).sources().remove(0).1;
        let mut now = Time::ZERO;
        let mut sent = 0;
        while now < Time::ZERO + Span::from_micros(10) {
            match source.poll(now) {
                Ok(_) => sent += 1,
                Err(next) => now = next,
            }
        }
        assert_eq!(sent, 100);
    }
}

#[cfg(test)]
mod stream_tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_rate_from_its_start_to_its_end() {
        let at = |ns: u64| Time::ZERO + Span::from_nanos(ns);
        let mut stream = Stream::new(NodeId(3), 0, 1000, Span::from_nanos(200), at(1_000), Some(at(21_000)));
        assert_eq!(stream.poll(Time::ZERO), Err(at(1_000)));
        let (mut now, mut packets) = (at(1_000), 0);
        loop {
            match stream.poll(now) {
                Ok((to, bytes)) => {
                    assert_eq!((to, bytes), (NodeId(3), 1000));
                    packets += 1;
                }
                Err(Time(u64::MAX)) => break,
                // Now and then the NIC is late by less than a packet's time.
                Err(next) => now = next + Span::from_nanos(packets % 3 * 50),
            }
        }
        assert_eq!(packets, 100, "20 us of one packet in 200 ns");
    }

    fn packets_of(bursts: Bursts, until: Time) -> u64 {
        let stream = Stream::new(NodeId(3), 0, 1000, Span::from_nanos(10), Time::ZERO, Some(until));
        let (mut stream, mut now, mut packets) = (stream.in_bursts(Some(bursts)), Time::ZERO, 0);
        loop {
            match stream.poll(now) {
                Ok(_) => packets += 1,
                Err(NEVER) => return packets,
                Err(next) => now = next,
            }
        }
    }

    /// On-off sources send the share on / (on + off) of the time; times that are drawn do so in the mean.
    #[test]
    fn bursts_fill_their_share_of_the_time() {
        let [on, off] = [1, 3].map(Span::from_micros);
        let until = Time::ZERO + Span::from_micros(40_000);
        let always = packets_of(Bursts::new(Span::from_micros(40_000), off, Time::ZERO, None), until);
        assert_eq!(always, 4_000_000);
        assert_eq!(packets_of(Bursts::new(on, off, Time::ZERO, None), until), always / 4);
        let drawn =
            |seed| packets_of(Bursts::new(on, off, Time::ZERO, Some(Rng::new(seed, Purpose::Bursts, 0))), until);
        let share = drawn(1) as f64 / always as f64;
        // 10,000 cycles, whose standard deviation is about their mean: 1 % of the share.
        assert!((0.24..0.26).contains(&share), "{share}");
        assert_ne!(drawn(1), drawn(2));
    }
}
