//! Packets that leave together. A [`Run`] is what one call sends to a receiver with UDP_SEGMENT. [`Batches`] gathers runs
//! for several receivers at the same time, so that packets for one leave in one call even if they alternate with packets
//! for another: the data and the acknowledgements of a ring, or the results for all members and the repetitions for one.

use std::io::IoSlice;
use std::ops::Range;

use tributary_proto::contract::packet::Ecn;

use super::Destination;
use super::port::{MAX_RUN, MAX_RUN_BYTES, UdpPort};

/// Packets for one receiver, anywhere in one memory, all of one length except the last, which may be shorter.
pub struct Run {
    ecn: Ecn,
    /// Bytes of each packet but the last.
    segment: usize,
    packets: usize,
    bytes: usize,
    /// Where in the memory the packets lie. Neighbouring packets are one range.
    ranges: Vec<Range<usize>>,
}

impl Run {
    /// No packets.
    pub fn new() -> Run {
        Run { ecn: Ecn::NotCapable, segment: 0, packets: 0, bytes: 0, ranges: Vec::with_capacity(MAX_RUN) }
    }

    /// Packets so far.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Where in the memory the packets are, in the order in which they leave; neighbours are joined.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// True if a packet can leave together with those of the run, which must have some.
    pub fn continues(&self, range: &Range<usize>, ecn: Ecn) -> bool {
        let all_equal = self.bytes == self.packets * self.segment;
        all_equal
            && self.ecn == ecn
            && !range.is_empty()
            && range.len() <= self.segment
            && self.packets < MAX_RUN
            && self.bytes + range.len() <= MAX_RUN_BYTES
    }

    /// True if no packet can follow.
    pub fn is_full(&self) -> bool {
        self.packets == MAX_RUN || self.bytes + self.segment > MAX_RUN_BYTES
    }

    /// Takes one packet: the first of the run, or one that [`Run::continues`].
    pub fn push(&mut self, range: Range<usize>, ecn: Ecn) {
        if self.packets == 0 {
            (self.segment, self.ecn) = (range.len(), ecn);
        }
        self.packets += 1;
        self.bytes += range.len();
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.ranges.push(range),
        }
    }

    /// Sends the packets to each of the receivers.
    pub fn send<'a>(&self, to: impl Iterator<Item = &'a Destination>, memory: &[u8], udp: &mut UdpPort) {
        let mut slices = [IoSlice::new(&[]); MAX_RUN];
        for (slice, range) in slices.iter_mut().zip(&self.ranges) {
            *slice = IoSlice::new(&memory[range.clone()]);
        }
        to.for_each(|to| udp.send(to, &slices[..self.ranges.len()], self.segment, self.ecn));
    }

    /// Drops the packets.
    pub fn clear(&mut self) {
        (self.packets, self.bytes) = (0, 0);
        self.ranges.clear();
    }
}

impl Default for Run {
    fn default() -> Self {
        Run::new()
    }
}

/// Runs by the key of their receivers, `N` at the same time. All packets lie in one memory, which the caller keeps
/// until they are sent.
pub struct Batches<K, const N: usize> {
    batches: [Batch<K>; N],
    /// The batch that is sent next when all are taken.
    next: usize,
}

struct Batch<K> {
    to: K,
    run: Run,
}

impl<K: Copy + PartialEq, const N: usize> Batches<K, N> {
    /// No packets; `idle` is any key.
    pub fn new(idle: K) -> Batches<K, N> {
        Batches { batches: std::array::from_fn(|_| Batch { to: idle, run: Run::new() }), next: 0 }
    }

    /// Takes one packet. A run goes to `send` if this packet fills it, or if its batch is needed for another receiver.
    pub fn push(&mut self, to: K, range: Range<usize>, ecn: Ecn, mut send: impl FnMut(K, &Run)) {
        let batch = self.batch(to);
        let batch = &mut self.batches[batch];
        if batch.to != to || !batch.run.continues(&range, ecn) {
            batch.drain(&mut send);
            batch.to = to;
        }
        batch.run.push(range, ecn);
        if batch.run.is_full() {
            batch.drain(&mut send);
        }
    }

    /// True if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.batches.iter().all(|batch| batch.run.packets() == 0)
    }

    /// Hands over all packets that were gathered. Their memory is free after that.
    pub fn flush(&mut self, mut send: impl FnMut(K, &Run)) {
        for batch in &mut self.batches {
            batch.drain(&mut send);
        }
    }

    /// The batch of the receiver, else a free one, else the one that is due to be sent.
    fn batch(&mut self, to: K) -> usize {
        let gathers = |batch: &Batch<K>| batch.run.packets() > 0;
        let own = self.batches.iter().position(|batch| batch.to == to && gathers(batch));
        own.or_else(|| self.batches.iter().position(|batch| !gathers(batch))).unwrap_or_else(|| {
            self.next = (self.next + 1) % N;
            self.next
        })
    }
}

impl<K: Copy> Batch<K> {
    fn drain(&mut self, send: &mut impl FnMut(K, &Run)) {
        if self.run.packets() > 0 {
            send(self.to, &self.run);
            self.run.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(lens: &[usize]) -> Run {
        let (mut run, mut at) = (Run::new(), 0);
        for &len in lens {
            run.push(at..at + len, Ecn::NotCapable);
            at += len;
        }
        run
    }

    #[test]
    fn equal_packets_and_one_shorter_make_a_run() {
        let equal = run(&[100, 100]);
        assert!(equal.continues(&(200..300), Ecn::NotCapable));
        assert!(equal.continues(&(200..250), Ecn::NotCapable), "the last may be shorter");
        assert!(!equal.continues(&(200..301), Ecn::NotCapable));
        assert!(!equal.continues(&(200..300), Ecn::Capable));
        assert!(!equal.continues(&(200..200), Ecn::NotCapable), "an empty segment cannot be recognised by its length");
        assert!(!run(&[100, 50]).continues(&(150..200), Ecn::NotCapable), "nothing follows the shorter one");
    }

    #[test]
    fn a_run_ends_at_its_limits() {
        assert!(!run(&[10; MAX_RUN]).continues(&(440..450), Ecn::NotCapable));
        assert!(!run(&[8960; 7]).continues(&(62_720..71_680), Ecn::NotCapable));
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut run = run(&[100, 100]);
        run.push(500..600, Ecn::NotCapable);
        assert_eq!(run.ranges, [0..200, 500..600]);
    }

    /// Gathers packets of 100 bytes for these receivers. Returns the receiver of each run that leaves, and the number
    /// of its packets.
    fn runs(receivers: &[char]) -> Vec<(char, usize)> {
        let (mut batches, mut sent) = (Batches::<_, 4>::new('-'), Vec::new());
        for (number, &to) in receivers.iter().enumerate() {
            let range = 100 * number..100 * (number + 1);
            batches.push(to, range, Ecn::NotCapable, |to, run| sent.push((to, run.packets())));
        }
        batches.flush(|to, run| sent.push((to, run.packets())));
        sent
    }

    #[test]
    fn receivers_that_alternate_get_one_run_each() {
        assert_eq!(runs(&['a', 'b', 'a', 'a', 'b']), [('a', 3), ('b', 2)]);
    }

    #[test]
    fn a_full_run_leaves_at_once() {
        let mut batches = Batches::<_, 4>::new('-');
        let mut sent = Vec::new();
        for number in 0..MAX_RUN {
            assert!(sent.is_empty());
            let range = 100 * number..100 * (number + 1);
            batches.push('a', range, Ecn::NotCapable, |to, run| sent.push((to, run.packets())));
        }
        assert_eq!(sent, [('a', MAX_RUN)]);
        assert!(batches.is_empty());
    }

    #[test]
    fn with_more_receivers_than_batches_every_packet_leaves_once() {
        let mut sent = runs(&['a', 'b', 'c', 'd', 'e', 'f', 'a', 'b']);
        sent.sort_unstable();
        let total: usize = sent.iter().map(|(_, packets)| packets).sum();
        assert_eq!(total, 8);
        for receiver in ['a', 'b', 'c', 'd', 'e', 'f'] {
            assert!(sent.iter().any(|&(to, _)| to == receiver), "{receiver} of {sent:?}");
        }
    }
}
