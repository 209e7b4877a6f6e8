//! A worker's way to its switch and peers: packets of its machine leave in runs, and runs that arrive are cut.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tributary_proto::contract::ids::{Rank, ShardId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::outbox::{Addresses, Outbox};
use crate::rendezvous::JoinAnswer;
use crate::udp::{Inbox, Segments, SocketCounters, UdpPort, key_of};

/// The socket, the addresses, and what waits to be sent.
pub struct Link {
    udp: UdpPort,
    header: Common,
    addresses: Addresses,
    senders: HashMap<(IpAddr, u16), Addr>,
    inbox: Inbox,
    /// Messages of the batch that have begun, and who sent the last one, with what is left of it.
    begun: usize,
    from: Addr,
    left: Segments,
    outbox: Outbox,
    switch_last_told: Time,
    /// Packets from addresses that are neither the switch's nor a peer's.
    strangers: u64,
    /// For each shard, bytes of the longest of our pings that came back, and when.
    pongs: Vec<Option<(usize, Time)>>,
}

impl Link {
    /// The way that the rendezvous has told.
    pub fn new(udp: UdpPort, header: Common, answer: &JoinAnswer) -> Link {
        let shards = answer.shards.iter().enumerate().map(|(i, &at)| (Addr::Switch(ShardId(i as u16)), at));
        let peers = answer.peers.iter().enumerate().map(|(i, &at)| (Addr::Worker(Rank(i as u16)), at));
        let known = peers.chain(shards);
        Link {
            header,
            senders: known.clone().map(|(addr, at)| (key_of(at), addr)).collect(),
            addresses: known.map(|(addr, at)| (addr, udp.destination(at))).collect(),
            inbox: Inbox::new(),
            begun: 0,
            from: Addr::Switch(ShardId(0)),
            left: Segments::default(),
            outbox: Outbox::new(),
            switch_last_told: Time::ZERO,
            strangers: 0,
            pongs: vec![None; answer.shards.len()],
            udp,
        }
    }

    /// The socket's account.
    pub fn counters(&self) -> &SocketCounters {
        self.udp.counters()
    }

    /// Packets from addresses that are neither the switch's nor a peer's.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// When the switch was last sent a packet: our sign of life. What peers are sent is none.
    pub fn switch_last_told(&self) -> Time {
        self.switch_last_told
    }

    /// Shards that have sent back a ping of at least `len` bytes.
    pub fn shards_heard(&self, len: usize) -> impl Iterator<Item = (ShardId, Time)> + '_ {
        let heard = move |(i, pong): (usize, &Option<(usize, Time)>)| {
            pong.filter(|&(bytes, _)| bytes >= len).map(|(_, at)| (ShardId(i as u16), at))
        };
        self.pongs.iter().enumerate().filter_map(heard)
    }

    /// Asks every shard for a sign of life, with a packet of `len` bytes, and gives it one.
    pub fn ping(&mut self, now: Time, len: usize) {
        let mut packet = vec![0; len.max(COMMON_LEN)];
        Common { kind: kind::PING, ..self.header }.emit(&mut packet);
        let shards = (0..self.pongs.len() as u16).filter_map(|shard| self.addresses.get(&Addr::Switch(ShardId(shard))));
        for shard in shards {
            self.udp.send(shard, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
        self.switch_last_told = now;
    }

    /// Receives a batch of packets; true if there may be more.
    pub fn receive(&mut self) -> bool {
        (self.begun, self.left) = (0, Segments::default());
        self.udp.receive(&mut self.inbox)
    }

    /// The next packet of the batch that is for the machine. Strangers' are counted, and the switch's signs of life noted.
    pub fn next(&mut self, now: Time) -> Option<(Addr, Packet<'_>)> {
        let (place, message) = loop {
            let Some(place) = self.left.next() else {
                let message = self.inbox.messages.get(self.begun)?;
                self.begun += 1;
                match self.senders.get(&key_of(message.from)) {
                    Some(&from) => (self.from, self.left) = (from, message.segments()),
                    None => self.strangers += message.segments().count() as u64,
                }
                continue;
            };
            let bytes = &self.inbox.memory[place.clone()];
            if bytes.get(4).is_some_and(|&kind| kind < kind::FIRST_OWN) {
                note_pong(&mut self.pongs, &self.header, self.from, bytes, now);
                continue;
            }
            break (place, &self.inbox.messages[self.begun - 1]);
        };
        let bytes = &self.inbox.memory[place];
        Some((self.from, Packet { bytes, wire_len: bytes.len(), ecn: message.ecn }))
    }

    /// Memory for the machine's next packet.
    pub fn room(&mut self, longest: usize) -> &mut [u8] {
        self.outbox.room(longest, &self.addresses, &mut self.udp)
    }

    /// Takes the packet that the machine has written there; full runs leave at once.
    pub fn send(&mut self, transmit: &Transmit) {
        self.outbox.push(transmit, &self.addresses, &mut self.udp);
    }

    /// Sends all that was gathered.
    pub fn flush(&mut self, now: Time) {
        self.outbox.flush(&self.addresses, &mut self.udp);
        if self.outbox.take_told_switch() {
            self.switch_last_told = now;
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

fn note_pong(pongs: &mut [Option<(usize, Time)>], ours: &Common, from: Addr, bytes: &[u8], now: Time) {
    let is_ours = Common::parse(bytes).is_ok_and(|common| common == Common { kind: kind::PONG, ..*ours });
    if let (Addr::Switch(shard), true) = (from, is_ours) {
        let pong = &mut pongs[shard.index()];
        if pong.is_none_or(|(len, _)| len <= bytes.len()) {
            *pong = Some((bytes.len(), now));
        }
    }
}
