//! The way of a host's packets to its socket. [`Outbox`] holds what a machine has written until there is enough for one
//! call. In a lossless fabric, [`PacedQueue`] releases packets at the cable's rate.

use std::collections::{BTreeSet, HashMap};

use tributary_proto::congestion::Marking;
use tributary_proto::contract::ids::TreeId;
use tributary_proto::contract::packet::{Addr, Transmit};
use tributary_proto::contract::time::{Span, Time};

use crate::fabric::egress::Egress;
use crate::fabric::ingress_buffers::Charge;
use crate::udp::{Batches, Destination, Run, UdpPort};

/// Bytes of all runs: several of the longest fit, and all of it stays in a core's own cache.
const MEMORY: usize = 2 << 16;

/// The most bytes that wait for a cable: many windows of a job, each of which is half of a switch's queue.
const PACED_LIMIT: u64 = 64 << 20;

/// Runs that are being gathered, for `RECEIVERS` receivers at the same time.
pub struct Outbox<const RECEIVERS: usize> {
    memory: Box<[u8]>,
    end: usize,
    batches: Batches<Addr, RECEIVERS>,
    sent_to_switch: bool,
    /// The peer that was sent a packet last, all peers that were sent one, and those that [`Outbox::take_new_peers`] has
    /// not returned yet.
    last_peer: Option<Addr>,
    peers: BTreeSet<Addr>,
    new_peers: Vec<Addr>,
}

/// The destination of each address.
pub type Addresses = HashMap<Addr, Destination>;

impl<const RECEIVERS: usize> Outbox<RECEIVERS> {
    /// An empty outbox with all its memory.
    pub fn new() -> Outbox<RECEIVERS> {
        let batches = Batches::new(Addr::Switch(Default::default()));
        Outbox {
            memory: vec![0; MEMORY].into_boxed_slice(),
            end: 0,
            batches,
            sent_to_switch: false,
            last_peer: None,
            peers: BTreeSet::new(),
            new_peers: Vec::new(),
        }
    }

    /// Memory for the machine's next packet, of at least `longest` bytes. If too little is free, all packets that were
    /// gathered leave first.
    pub fn buffer(&mut self, longest: usize, addresses: &Addresses, udp: &mut UdpPort) -> &mut [u8] {
        if self.memory.len() - self.end < longest {
            self.flush(addresses, udp);
        }
        &mut self.memory[self.end..]
    }

    /// Sends all that was gathered.
    pub fn flush(&mut self, addresses: &Addresses, udp: &mut UdpPort) {
        self.batches.flush(|to, run| send(to, run, &self.memory, addresses, udp));
        self.end = 0;
    }

    /// True if a packet was sent to the switch since the last call.
    pub fn take_sent_to_switch(&mut self) -> bool {
        std::mem::take(&mut self.sent_to_switch)
    }

    /// The peers to which a packet was sent for the first time since the last call.
    pub fn take_new_peers(&mut self) -> Vec<Addr> {
        std::mem::take(&mut self.new_peers)
    }

    /// The packet that the machine has written into this memory, for a caller that sends it itself.
    pub fn written(&self, len: usize) -> &[u8] {
        &self.memory[self.end..self.end + len]
    }

    /// Takes the packet that the machine has written into this memory. Full runs leave at once.
    pub fn push(&mut self, transmit: &Transmit, addresses: &Addresses, udp: &mut UdpPort) {
        self.sent_to_switch |= matches!(transmit.to, Addr::Switch(_) | Addr::Node(_));
        if matches!(transmit.to, Addr::Worker(_)) && self.last_peer != Some(transmit.to) {
            self.last_peer = Some(transmit.to);
            if self.peers.insert(transmit.to) {
                self.new_peers.push(transmit.to);
            }
        }
        let range = self.end..self.end + transmit.len;
        self.end = range.end;
        self.batches.push(transmit.to, range, transmit.ecn, |to, run| send(to, run, &self.memory, addresses, udp));
        if self.batches.is_empty() {
            // The next run is written to the same memory, which is still in the core's own cache.
            self.end = 0;
        }
    }
}

/// Sends a run to its receiver.
fn send(to: Addr, run: &Run, memory: &[u8], addresses: &Addresses, udp: &mut UdpPort) {
    // A packet that any switch on the way may handle goes to the first switch.
    let to = if let Addr::Node(_) = to { Addr::Switch(TreeId(0)) } else { to };
    let to = addresses.get(&to).expect("machines send to the shards, workers and servers of their job");
    run.send(std::iter::once(to), memory, udp);
}

/// A host's queue in front of its cable in a lossless fabric. It sends at the cable's rate and stops when the switch says
/// PAUSE. The kernel cannot take back a packet, so it gets packets no faster than the cable takes them.
pub struct PacedQueue {
    queue: Egress<Addr>,
}

impl PacedQueue {
    /// An empty queue, at the cable's rate.
    pub fn new(bits_per_s: u64) -> PacedQueue {
        PacedQueue {
            queue: Egress::new(PACED_LIMIT, Marking::never(), Some(bits_per_s), Addr::Switch(Default::default())),
        }
    }

    /// Takes a packet.
    pub fn offer(&mut self, packet: &[u8], transmit: &Transmit) {
        self.queue.offer(packet, transmit.ecn, transmit.to, Charge::None);
    }

    /// Sends the packets that may leave by now.
    pub fn drain(&mut self, now: Time, addresses: &Addresses, udp: &mut UdpPort) {
        self.queue.drain(now, |_, _| {}, |to, run, memory| send(to, run, memory, addresses, udp));
    }

    /// Pauses for this time, as the switch asks.
    pub fn pause(&mut self, now: Time, span: Span) {
        self.queue.pause(now, span);
    }

    /// When the next packet may leave; `None` if none waits.
    pub fn due(&self) -> Option<Time> {
        self.queue.due()
    }
}
