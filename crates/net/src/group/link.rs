//! A worker's way to its switch and peers: packets of its machine leave in runs, and runs that arrive are cut.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{Rank, ShardId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet};
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::outbox::{Addresses, Outbox};
use crate::rendezvous::JoinAnswer;
use crate::udp::{Inbox, SocketCounters, UdpPort, key_of};

/// Batches that one turn takes at most, so that others who want the engine get it.
const BATCHES_IN_A_TURN: usize = 8;

/// The socket, the addresses, and what waits to be sent.
pub struct Link {
    udp: UdpPort,
    header: Common,
    addresses: Addresses,
    senders: HashMap<(IpAddr, u16), Addr>,
    inbox: Inbox,
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

    /// Receives what is there, tells the machine, and sends what it answers: full runs at once, the rest at the end.
    /// `now` is read once for each batch.
    pub fn receive(&mut self, host: &mut dyn Host, now: impl Fn() -> Time) {
        for _ in 0..BATCHES_IN_A_TURN {
            let more = self.udp.receive(&mut self.inbox);
            self.handle_batch(host, now());
            if !more {
                break;
            }
        }
        self.transmit(host, now());
    }

    fn handle_batch(&mut self, host: &mut dyn Host, now: Time) {
        for i in 0..self.inbox.messages.len() {
            let message = self.inbox.messages[i];
            let Some(&from) = self.senders.get(&key_of(message.from)) else {
                self.strangers += message.segments().count() as u64;
                continue;
            };
            for place in message.segments() {
                let bytes = &self.inbox.memory[place];
                if bytes.get(4).is_some_and(|&kind| kind < kind::FIRST_OWN) {
                    note_pong(&mut self.pongs, &self.header, from, bytes, now);
                    continue;
                }
                let packet = Packet { bytes, wire_len: bytes.len(), ecn: message.ecn };
                // A packet of no use is counted by the machine, under its reason.
                if host.handle_packet(now, from, packet).is_ok() {
                    self.outbox.gather(host, now, &self.addresses, &mut self.udp);
                }
            }
        }
    }

    /// Sends all that the machine wants sent.
    pub fn transmit(&mut self, host: &mut dyn Host, now: Time) {
        self.outbox.gather(host, now, &self.addresses, &mut self.udp);
        self.flush(now);
    }

    fn flush(&mut self, now: Time) {
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
