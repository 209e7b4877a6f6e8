//! Carries out verdicts. Packets of one length with the same verdict leave in one call for each receiver, straight from
//! the memory into which they were received.

use std::ops::Range;

use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::switch::Verdict;

use super::ports::Ports;
use crate::udp::{Batches, Run, UdpPort};

/// The number of verdicts whose runs are gathered at the same time: one for all members, and those for single members.
const LANES: usize = 16;

/// The runs that are being gathered, by verdict.
pub struct Forwarder {
    lanes: Batches<Verdict, LANES>,
    /// The number of packets for which there was no port.
    unroutable: u64,
}

impl Forwarder {
    /// Nothing gathered.
    pub fn new() -> Forwarder {
        Forwarder { lanes: Batches::new(Verdict::Consume), unroutable: 0 }
    }

    /// The number of packets for which there was no port.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// True if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Takes the packet at `place` in `memory`. Sends a run if the packet does not continue it, or needs its lane.
    pub fn push(
        &mut self,
        place: Range<usize>,
        ecn: Ecn,
        verdict: Verdict,
        memory: &[u8],
        ports: &Ports,
        udp: &mut UdpPort,
    ) {
        let unroutable = &mut self.unroutable;
        self.lanes.push(verdict, place, ecn, |to, run| *unroutable += send(to, run, memory, ports, udp));
    }

    /// Sends all packets that were gathered. Their memory is free after that.
    pub fn flush(&mut self, memory: &[u8], ports: &Ports, udp: &mut UdpPort) {
        let unroutable = &mut self.unroutable;
        self.lanes.flush(|to, run| *unroutable += send(to, run, memory, ports, udp));
    }
}

/// Sends a run to the receivers of its verdict. Returns the number of packets for which there was no port.
fn send(verdict: Verdict, run: &Run, memory: &[u8], ports: &Ports, udp: &mut UdpPort) -> u64 {
    let mut reached = 0;
    let mut send = |port| run.send(ports.destination(port).inspect(|_| reached += 1).into_iter(), memory, udp);
    match verdict {
        Verdict::Port(port) => send(port),
        Verdict::Multicast(set) => set.iter().for_each(send),
        Verdict::Group(group) => ports.group(group).iter().for_each(|&port| send(port)),
        // A star knows only the nodes of its own jobs.
        Verdict::Route(_) | Verdict::Consume | Verdict::Drop(_) => {}
    }
    if reached == 0 { run.packets() as u64 } else { 0 }
}
