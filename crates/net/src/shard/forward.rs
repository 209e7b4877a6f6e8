//! Verdicts become sends: maximal runs of equal packets with the same verdict leave in one call for each receiver,
//! straight from the memory that they were received to.

use std::ops::Range;

use tributary_proto::packet::Ecn;
use tributary_proto::switch::Verdict;

use super::ports::Ports;
use crate::udp::{Run, UdpPort};

/// The run that is being gathered, and its verdict.
pub struct Forwarder {
    verdict: Verdict,
    run: Run,
    /// Packets that could go nowhere.
    unroutable: u64,
}

impl Forwarder {
    /// Nothing gathered.
    pub fn new() -> Forwarder {
        Forwarder { verdict: Verdict::Consume, run: Run::new(), unroutable: 0 }
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
        if verdict != self.verdict || !self.run.continues(&place, ecn) {
            self.flush(memory, ports, udp);
            self.verdict = verdict;
        }
        self.run.push(place, ecn);
    }

    /// Sends what was gathered. The memory of the packets is free after that.
    pub fn flush(&mut self, memory: &[u8], ports: &Ports, udp: &mut UdpPort) {
        if self.run.packets() == 0 {
            return;
        }
        let (run, mut reached) = (&self.run, 0);
        let mut send = |port| run.send(ports.destination(port).inspect(|_| reached += 1).into_iter(), memory, udp);
        match self.verdict {
            Verdict::Port(port) => send(port),
            Verdict::Multicast(set) => set.iter().for_each(send),
            Verdict::Group(group) => ports.group(group).iter().for_each(|&port| send(port)),
            // A software switch is a star: it knows addresses, and no way to other nodes.
            Verdict::Route(_) | Verdict::Consume | Verdict::Drop(_) => {}
        }
        if reached == 0 {
            self.unroutable += self.run.packets() as u64;
        }
        self.run.clear();
    }
}
