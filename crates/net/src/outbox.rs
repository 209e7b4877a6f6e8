//! The packets that a machine has written, until there are enough of them for one call.
//!
//! Packets lie in one memory in the order in which the machine wrote them, and leave in runs.

use std::collections::{BTreeSet, HashMap};

use tributary_proto::contract::ids::TreeId;
use tributary_proto::contract::packet::{Addr, Transmit};

use crate::udp::{Destination, Lanes, Run, UdpPort};

/// Bytes of all runs. Some of the longest runs fit, and a core's own cache still holds all of them.
const MEMORY: usize = 2 << 16;

/// Runs that are being gathered, for `LANES` receivers at the same time.
pub struct Outbox<const LANES: usize> {
    memory: Box<[u8]>,
    end: usize,
    lanes: Lanes<Addr, LANES>,
    told_switch: bool,
    /// The peer that was sent a packet last, all peers that were sent one, and those of them that nobody has asked for
    /// yet.
    last_peer: Option<Addr>,
    peers: BTreeSet<Addr>,
    new_peers: Vec<Addr>,
}

/// The destination of each address.
pub type Addresses = HashMap<Addr, Destination>;

impl<const LANES: usize> Outbox<LANES> {
    /// An empty outbox with all its memory.
    pub fn new() -> Outbox<LANES> {
        let lanes = Lanes::new(Addr::Switch(Default::default()));
        Outbox {
            memory: vec![0; MEMORY].into_boxed_slice(),
            end: 0,
            lanes,
            told_switch: false,
            last_peer: None,
            peers: BTreeSet::new(),
            new_peers: Vec::new(),
        }
    }

    /// Memory for the machine's next packet, of at least `longest` bytes. If too little is free, all packets that were
    /// gathered leave first.
    pub fn room(&mut self, longest: usize, addresses: &Addresses, udp: &mut UdpPort) -> &mut [u8] {
        if self.memory.len() - self.end < longest {
            self.flush(addresses, udp);
        }
        &mut self.memory[self.end..]
    }

    /// Sends all that was gathered.
    pub fn flush(&mut self, addresses: &Addresses, udp: &mut UdpPort) {
        self.lanes.flush(|to, run| send(to, run, &self.memory, addresses, udp));
        self.end = 0;
    }

    /// True if a packet was sent to the switch since the last call.
    pub fn take_told_switch(&mut self) -> bool {
        std::mem::take(&mut self.told_switch)
    }

    /// The peers to which a packet was sent for the first time since the last call.
    pub fn take_new_peers(&mut self) -> Vec<Addr> {
        std::mem::take(&mut self.new_peers)
    }

    /// The packet that the machine has written into this memory. It is for packets that leave another way.
    pub fn written(&self, len: usize) -> &[u8] {
        &self.memory[self.end..self.end + len]
    }

    /// Takes the packet that the machine has written into this memory. Full runs leave at once.
    pub fn push(&mut self, transmit: &Transmit, addresses: &Addresses, udp: &mut UdpPort) {
        self.told_switch |= matches!(transmit.to, Addr::Switch(_) | Addr::Node(_));
        if matches!(transmit.to, Addr::Worker(_)) && self.last_peer != Some(transmit.to) {
            self.last_peer = Some(transmit.to);
            if self.peers.insert(transmit.to) {
                self.new_peers.push(transmit.to);
            }
        }
        let place = self.end..self.end + transmit.len;
        self.end = place.end;
        self.lanes.push(transmit.to, place, transmit.ecn, |to, run| send(to, run, &self.memory, addresses, udp));
        if self.lanes.is_empty() {
            // The next run is written to the same memory, which is still in the core's own cache.
            self.end = 0;
        }
    }
}

/// Sends a run to its receiver.
pub fn send(to: Addr, run: &Run, memory: &[u8], addresses: &Addresses, udp: &mut UdpPort) {
    // A packet that any switch on the way may handle goes to the first switch.
    let to = if let Addr::Node(_) = to { Addr::Switch(TreeId(0)) } else { to };
    let to = addresses.get(&to).expect("machines send to the shards, workers and servers of their job");
    run.send(std::iter::once(to), memory, udp);
}
