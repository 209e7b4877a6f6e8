//! Several runs that are gathered at the same time, each for its own receivers.
//!
//! Packets for one receiver leave in one call even if they alternate with packets for another: the data and the
//! acknowledgements of a ring, or the results for all members and the repetitions for one.

use std::ops::Range;

use tributary_proto::contract::packet::Ecn;

use super::run::Run;

/// Runs by the key of their receivers, `N` at the same time. All packets lie in one memory, which the caller keeps
/// until they are sent.
pub struct Lanes<K, const N: usize> {
    lanes: [Lane<K>; N],
    /// The lane whose run is sent next when all lanes are taken.
    next: usize,
}

struct Lane<K> {
    to: K,
    run: Run,
}

impl<K: Copy + PartialEq, const N: usize> Lanes<K, N> {
    /// No runs; `idle` is any key.
    pub fn new(idle: K) -> Lanes<K, N> {
        Lanes { lanes: std::array::from_fn(|_| Lane { to: idle, run: Run::new() }), next: 0 }
    }

    /// Takes one packet. A run goes to `send` if this packet fills it, or if the packet needs its lane.
    pub fn push(&mut self, to: K, place: Range<usize>, ecn: Ecn, mut send: impl FnMut(K, &Run)) {
        let lane = self.lane(to);
        let lane = &mut self.lanes[lane];
        if lane.to != to || !lane.run.continues(&place, ecn) {
            lane.leave(&mut send);
            lane.to = to;
        }
        lane.run.push(place, ecn);
        if lane.run.is_full() {
            lane.leave(&mut send);
        }
    }

    /// True if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.run.packets() == 0)
    }

    /// Hands over all packets that were gathered. Their memory is free after that.
    pub fn flush(&mut self, mut send: impl FnMut(K, &Run)) {
        for lane in &mut self.lanes {
            lane.leave(&mut send);
        }
    }

    /// The lane of the receiver, else a free lane, else the lane whose turn it is to be sent.
    fn lane(&mut self, to: K) -> usize {
        let gathers = |lane: &Lane<K>| lane.run.packets() > 0;
        let own = self.lanes.iter().position(|lane| lane.to == to && gathers(lane));
        own.or_else(|| self.lanes.iter().position(|lane| !gathers(lane))).unwrap_or_else(|| {
            self.next = (self.next + 1) % N;
            self.next
        })
    }
}

impl<K: Copy> Lane<K> {
    fn leave(&mut self, send: &mut impl FnMut(K, &Run)) {
        if self.run.packets() > 0 {
            send(self.to, &self.run);
            self.run.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::MAX_RUN;

    /// Gathers packets of 100 bytes for these receivers. Returns the receiver of each run that leaves, and the number
    /// of its packets.
    fn runs(receivers: &[char]) -> Vec<(char, usize)> {
        let (mut lanes, mut sent) = (Lanes::<_, 4>::new('-'), Vec::new());
        for (number, &to) in receivers.iter().enumerate() {
            let place = 100 * number..100 * (number + 1);
            lanes.push(to, place, Ecn::NotCapable, |to, run| sent.push((to, run.packets())));
        }
        lanes.flush(|to, run| sent.push((to, run.packets())));
        sent
    }

    #[test]
    fn receivers_that_alternate_get_one_run_each() {
        assert_eq!(runs(&['a', 'b', 'a', 'a', 'b']), [('a', 3), ('b', 2)]);
    }

    #[test]
    fn a_full_run_leaves_at_once() {
        let mut lanes = Lanes::<_, 4>::new('-');
        let mut sent = Vec::new();
        for number in 0..MAX_RUN {
            assert!(sent.is_empty());
            let place = 100 * number..100 * (number + 1);
            lanes.push('a', place, Ecn::NotCapable, |to, run| sent.push((to, run.packets())));
        }
        assert_eq!(sent, [('a', MAX_RUN)]);
        assert!(lanes.is_empty());
    }

    #[test]
    fn with_more_receivers_than_lanes_every_packet_leaves_once() {
        let mut sent = runs(&['a', 'b', 'c', 'd', 'e', 'f', 'a', 'b']);
        sent.sort_unstable();
        let total: usize = sent.iter().map(|(_, packets)| packets).sum();
        assert_eq!(total, 8);
        for receiver in ['a', 'b', 'c', 'd', 'e', 'f'] {
            assert!(sent.iter().any(|&(to, _)| to == receiver), "{receiver} of {sent:?}");
        }
    }
}
