//! Random uniform injection (Canary §5.2): each host sends a message to a random host and receives one from another,
//! and changes its peer with every message. It never ends.

use std::sync::Arc;

use tributary_proto::ids::NodeId;
use tributary_proto::time::{Span, Time};

use crate::rng::{Purpose, Rng, mix};

/// Hosts that exchange messages. In round `k` the host at place `p` sends to the one at place `p + shift(k)`; places
/// are random. So each round is a permutation in which nobody sends to itself, whoever is ahead of whom.
#[derive(Debug)]
pub struct UniformGroup {
    /// The hosts, by place.
    places: Vec<NodeId>,
    seed: u64,
    /// Packets of a message.
    pub packets: u32,
    /// Bytes of a packet on a link.
    pub packet_bytes: u16,
    /// Time from one packet to the next at the given load, if a host does not send all the time.
    pub pace: Span,
}

impl UniformGroup {
    /// A group of at least two hosts. `which` tells groups of one run apart.
    pub fn new(hosts: &[NodeId], seed: u64, which: u64, packets: u32, packet_bytes: u16, pace: Span) -> UniformGroup {
        let mut places = hosts.to_vec();
        Rng::new(seed, Purpose::Background, which).shuffle(&mut places);
        UniformGroup { places, seed: mix(seed ^ mix(which)), packets, packet_bytes, pace }
    }

    /// One source for each host.
    pub fn sources(self) -> Vec<(NodeId, Uniform)> {
        let group = Arc::new(self);
        let source = |place| Uniform {
            group: group.clone(),
            place,
            round: 0,
            left: 0,
            peer: NodeId(0),
            next: Time(0),
            end: NEVER,
        };
        group.places.iter().enumerate().map(|(place, &host)| (host, source(place as u32))).collect()
    }

    fn peer(&self, place: u32, round: u64) -> NodeId {
        let others = self.places.len() as u64 - 1;
        let shift = 1 + mix(self.seed ^ round) % others;
        self.places[((u64::from(place) + shift) % self.places.len() as u64) as usize]
    }
}

/// One host's part.
#[derive(Clone, Debug)]
pub struct Uniform {
    group: Arc<UniformGroup>,
    place: u32,
    round: u64,
    left: u32,
    peer: NodeId,
    next: Time,
    end: Time,
}

const NEVER: Time = Time(u64::MAX);

impl Uniform {
    /// Nothing is sent before `start`, nor from `end` on.
    pub fn limit(&mut self, start: Time, end: Option<Time>) {
        self.next = start;
        self.end = end.unwrap_or(NEVER);
    }

    /// Destination and size of the next packet, or the time from which there is one; the end of time if never.
    pub fn poll(&mut self, now: Time) -> Result<(NodeId, u16), Time> {
        if now >= self.end {
            return Err(NEVER);
        }
        if now < self.next {
            return Err(self.next);
        }
        if self.left == 0 {
            self.peer = self.group.peer(self.place, self.round);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn group(hosts: u32) -> Vec<(NodeId, Uniform)> {
        let hosts: Vec<NodeId> = (0..hosts).map(NodeId).collect();
        UniformGroup::new(&hosts, 1, 0, 2, 1000, Span::ZERO).sources()
    }

    #[test]
    fn in_every_round_each_host_receives_one_message_and_nobody_its_own() {
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
