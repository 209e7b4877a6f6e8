//! What a machine wants sent, until there is enough of it for one call.
//!
//! Packets lie in one memory in the order in which the machine wrote them, and leave in runs.

use std::collections::HashMap;

use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::ShardId;
use tributary_proto::contract::packet::{Addr, Transmit};
use tributary_proto::contract::time::Time;

use crate::udp::{Destination, Lanes, Run, UdpPort};

/// Bytes of all runs: some of the longest, and few enough to stay in a core's own cache.
const MEMORY: usize = 2 << 16;

/// Runs that are being gathered.
pub struct Outbox {
    memory: Box<[u8]>,
    end: usize,
    lanes: Lanes<Addr>,
    told_switch: bool,
}

/// Who hears to which address.
pub type Addresses = HashMap<Addr, Destination>;

impl Outbox {
    /// An empty outbox with all its memory.
    pub fn new() -> Outbox {
        let lanes = Lanes::new(Addr::Switch(Default::default()));
        Outbox { memory: vec![0; MEMORY].into_boxed_slice(), end: 0, lanes, told_switch: false }
    }

    /// Takes all that the machine wants sent; full runs leave at once.
    pub fn gather(&mut self, host: &mut dyn Host, now: Time, addresses: &Addresses, udp: &mut UdpPort) {
        let longest = host.max_packet_len();
        loop {
            if self.memory.len() - self.end < longest {
                self.flush(addresses, udp);
            }
            let Some(transmit) = host.poll_transmit(now, &mut self.memory[self.end..]) else { return };
            self.push(&transmit, addresses, udp);
        }
    }

    /// Sends all that was gathered.
    pub fn flush(&mut self, addresses: &Addresses, udp: &mut UdpPort) {
        self.lanes.flush(|to, run| send(to, run, &self.memory, addresses, udp));
        self.end = 0;
    }

    /// True if something was sent to the switch since the last call.
    pub fn take_told_switch(&mut self) -> bool {
        std::mem::take(&mut self.told_switch)
    }

    fn push(&mut self, transmit: &Transmit, addresses: &Addresses, udp: &mut UdpPort) {
        self.told_switch |= matches!(transmit.to, Addr::Switch(_) | Addr::Node(_));
        let place = self.end..self.end + transmit.len;
        self.end = place.end;
        self.lanes.push(transmit.to, place, transmit.ecn, |to, run| send(to, run, &self.memory, addresses, udp));
        if self.lanes.is_empty() {
            // The next run is written to the same memory, which is still in the core's own cache.
            self.end = 0;
        }
    }
}

fn send(to: Addr, run: &Run, memory: &[u8], addresses: &Addresses, udp: &mut UdpPort) {
    // What every switch on the way handles goes to the first one.
    let to = if let Addr::Node(_) = to { Addr::Switch(ShardId(0)) } else { to };
    let to = addresses.get(&to).expect("machines send to the shards and workers of their job");
    run.send(std::iter::once(to), memory, udp);
}
