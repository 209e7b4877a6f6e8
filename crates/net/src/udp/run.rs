//! A run that is being gathered: packets for one receiver, anywhere in one memory, all of one length except the last,
//! which may be shorter.

use std::io::IoSlice;
use std::ops::Range;

use tributary_proto::contract::packet::Ecn;

use super::port::{Destination, MAX_RUN, MAX_RUN_BYTES, UdpPort};

/// The packets that were gathered so far.
pub struct Run {
    ecn: Ecn,
    /// Bytes of each packet but the last.
    segment: usize,
    packets: usize,
    bytes: usize,
    /// Where in the memory the packets lie. Neighbouring packets are one piece.
    pieces: Vec<Range<usize>>,
}

impl Run {
    /// No packets.
    pub fn new() -> Run {
        Run { ecn: Ecn::NotCapable, segment: 0, packets: 0, bytes: 0, pieces: Vec::with_capacity(MAX_RUN) }
    }

    /// Packets so far.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Where in the memory the packets are, in the order in which they leave; neighbours are joined.
    pub fn pieces(&self) -> &[Range<usize>] {
        &self.pieces
    }

    /// True if a packet can leave together with those of the run, which must have some.
    pub fn continues(&self, place: &Range<usize>, ecn: Ecn) -> bool {
        let all_equal = self.bytes == self.packets * self.segment;
        all_equal
            && self.ecn == ecn
            && !place.is_empty()
            && place.len() <= self.segment
            && self.packets < MAX_RUN
            && self.bytes + place.len() <= MAX_RUN_BYTES
    }

    /// True if no packet can follow.
    pub fn is_full(&self) -> bool {
        self.packets == MAX_RUN || self.bytes + self.segment > MAX_RUN_BYTES
    }

    /// Takes one packet: the first of the run, or one that [`Run::continues`].
    pub fn push(&mut self, place: Range<usize>, ecn: Ecn) {
        if self.packets == 0 {
            (self.segment, self.ecn) = (place.len(), ecn);
        }
        self.packets += 1;
        self.bytes += place.len();
        match self.pieces.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => self.pieces.push(place),
        }
    }

    /// Sends the packets to each of the receivers.
    pub fn send<'a>(&self, to: impl Iterator<Item = &'a Destination>, memory: &[u8], udp: &mut UdpPort) {
        let mut slices = [IoSlice::new(&[]); MAX_RUN];
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(&memory[piece.clone()]);
        }
        to.for_each(|to| udp.send(to, &slices[..self.pieces.len()], self.segment, self.ecn));
    }

    /// Forgets the packets.
    pub fn clear(&mut self) {
        (self.packets, self.bytes) = (0, 0);
        self.pieces.clear();
    }
}

impl Default for Run {
    fn default() -> Self {
        Run::new()
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
        assert!(!equal.continues(&(200..200), Ecn::NotCapable), "an empty segment cannot be told by its length");
        assert!(!run(&[100, 50]).continues(&(150..200), Ecn::NotCapable), "nothing follows the shorter one");
    }

    #[test]
    fn a_run_ends_at_its_limits() {
        assert!(!run(&[10; MAX_RUN]).continues(&(440..450), Ecn::NotCapable));
        assert!(!run(&[8960; 7]).continues(&(62_720..71_680), Ecn::NotCapable));
    }

    #[test]
    fn neighbours_are_one_piece() {
        let mut run = run(&[100, 100]);
        run.push(500..600, Ecn::NotCapable);
        assert_eq!(run.pieces, [0..200, 500..600]);
    }
}
