//! Verdicts become sends: maximal runs of equal packets with the same verdict leave in one call for each receiver,
//! straight from the memory that they were received to.

use std::io::IoSlice;
use std::ops::Range;

use tributary_proto::ids::PortId;
use tributary_proto::packet::Ecn;
use tributary_proto::switch::Verdict;

use super::ports::Ports;
use crate::udp::{MAX_RUN, MAX_RUN_BYTES, UdpPort};

/// The run that is being gathered.
pub struct Forwarder {
    verdict: Verdict,
    ecn: Ecn,
    /// Bytes of each packet but the last.
    segment: usize,
    packets: usize,
    bytes: usize,
    /// Where in the memory its bytes lie; neighbours are joined.
    pieces: Vec<Range<usize>>,
    /// Packets that could go nowhere.
    unroutable: u64,
}

impl Forwarder {
    /// Nothing gathered.
    pub fn new() -> Forwarder {
        Forwarder {
            verdict: Verdict::Consume,
            ecn: Ecn::NotCapable,
            segment: 0,
            packets: 0,
            bytes: 0,
            pieces: Vec::with_capacity(MAX_RUN),
            unroutable: 0,
        }
    }

    /// Packets that could go nowhere.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Takes one packet at `place` in `memory`; sends what was gathered if this one does not continue it.
    pub fn push(
        &mut self,
        place: Range<usize>,
        ecn: Ecn,
        verdict: Verdict,
        memory: &[u8],
        ports: &Ports,
        udp: &mut UdpPort,
    ) {
        if matches!(verdict, Verdict::Consume | Verdict::Drop(_)) {
            return;
        }
        if !self.continues(&place, ecn, verdict) {
            self.flush(memory, ports, udp);
            (self.verdict, self.ecn, self.segment) = (verdict, ecn, place.len());
        }
        self.packets += 1;
        self.bytes += place.len();
        match self.pieces.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => self.pieces.push(place),
        }
    }

    fn continues(&self, place: &Range<usize>, ecn: Ecn, verdict: Verdict) -> bool {
        let all_equal = self.bytes == self.packets * self.segment;
        self.packets > 0
            && self.packets < MAX_RUN
            && all_equal
            && self.verdict == verdict
            && self.ecn == ecn
            && !place.is_empty()
            && place.len() <= self.segment
            && self.bytes + place.len() <= MAX_RUN_BYTES
    }

    /// Sends what was gathered. The memory of the packets is free after that.
    pub fn flush(&mut self, memory: &[u8], ports: &Ports, udp: &mut UdpPort) {
        if self.packets == 0 {
            return;
        }
        let mut slices = [IoSlice::new(&[]); MAX_RUN];
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(&memory[piece.clone()]);
        }
        let run = Run { pieces: &slices[..self.pieces.len()], segment: self.segment, ecn: self.ecn };
        let routed = match self.verdict {
            Verdict::Port(port) => run.send(port, ports, udp),
            Verdict::Multicast(set) => set.iter().all(|port| run.send(port, ports, udp)),
            Verdict::Group(group) => ports.group(group).iter().all(|&port| run.send(port, ports, udp)),
            // A software switch is a star: it knows addresses, and no way to other nodes.
            Verdict::Route(_) => false,
            Verdict::Consume | Verdict::Drop(_) => true,
        };
        if !routed {
            self.unroutable += self.packets as u64;
        }
        (self.packets, self.bytes) = (0, 0);
        self.pieces.clear();
    }
}

struct Run<'a> {
    pieces: &'a [IoSlice<'a>],
    segment: usize,
    ecn: Ecn,
}

impl Run<'_> {
    fn send(&self, port: PortId, ports: &Ports, udp: &mut UdpPort) -> bool {
        let destination = ports.destination(port);
        if let Some(destination) = destination {
            udp.send(destination, self.pieces, self.segment, self.ecn);
        }
        destination.is_some()
    }
}
