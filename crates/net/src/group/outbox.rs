//! What a machine wants sent, until there is enough of it for one call.
//!
//! Packets lie in one memory in the order in which the machine wrote them. Those for one receiver are gathered to runs
//! even where they alternate with those for another, as the data and the acknowledgements of a ring do.

use std::collections::HashMap;

use tributary_proto::host::Host;
use tributary_proto::packet::{Addr, Transmit};
use tributary_proto::time::Time;

use crate::udp::{Destination, Run, UdpPort};

/// Bytes of all runs: some of the longest, and few enough to stay in a core's own cache.
const MEMORY: usize = 2 << 16;
/// Receivers whose runs are gathered at the same time.
const LANES: usize = 4;

/// Runs that are being gathered.
pub struct Outbox {
    memory: Box<[u8]>,
    end: usize,
    lanes: [Lane; LANES],
    /// The lane that gives way when all are taken.
    next: usize,
    told_switch: bool,
}

struct Lane {
    to: Addr,
    run: Run,
}

/// Who hears to which address.
pub type Addresses = HashMap<Addr, Destination>;

impl Outbox {
    /// An empty outbox with all its memory.
    pub fn new() -> Outbox {
        let lane = |_| Lane { to: Addr::Switch(Default::default()), run: Run::new() };
        Outbox {
            memory: vec![0; MEMORY].into_boxed_slice(),
            end: 0,
            lanes: std::array::from_fn(lane),
            next: 0,
            told_switch: false,
        }
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
        for lane in &mut self.lanes {
            lane.send(&self.memory, addresses, udp);
        }
        self.end = 0;
    }

    /// True if something was sent to the switch since the last call.
    pub fn take_told_switch(&mut self) -> bool {
        std::mem::take(&mut self.told_switch)
    }

    fn push(&mut self, transmit: &Transmit, addresses: &Addresses, udp: &mut UdpPort) {
        self.told_switch |= matches!(transmit.to, Addr::Switch(_));
        let place = self.end..self.end + transmit.len;
        self.end = place.end;
        let lane = self.lane(transmit.to);
        let lane = &mut self.lanes[lane];
        if lane.to != transmit.to || !lane.run.continues(&place, transmit.ecn) {
            lane.send(&self.memory, addresses, udp);
            lane.to = transmit.to;
        }
        lane.run.push(place, transmit.ecn);
    }

    /// The receiver's lane, or else a free one, or else the next to give way.
    fn lane(&mut self, to: Addr) -> usize {
        let gathers = |lane: &Lane| lane.run.packets() > 0;
        let own = self.lanes.iter().position(|lane| lane.to == to && gathers(lane));
        own.or_else(|| self.lanes.iter().position(|lane| !gathers(lane))).unwrap_or_else(|| {
            self.next = (self.next + 1) % LANES;
            self.next
        })
    }
}

impl Lane {
    fn send(&mut self, memory: &[u8], addresses: &Addresses, udp: &mut UdpPort) {
        if self.run.packets() > 0 {
            let to = addresses.get(&self.to).expect("machines send to the shards and workers of their job");
            self.run.send(std::iter::once(to), memory, udp);
            self.run.clear();
        }
    }
}
