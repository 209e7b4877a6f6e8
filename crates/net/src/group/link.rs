//! A worker's way to its switch and peers: packets of its machine leave in runs, and runs that arrive are cut.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tributary_proto::host::Host;
use tributary_proto::ids::{ShardId, WorkerId};
use tributary_proto::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::time::Time;
use tributary_proto::wire::{COMMON_LEN, Common, kind};

use crate::rendezvous::JoinAnswer;
use crate::udp::{BATCH, Destination, Inbox, MAX_RUN, MAX_RUN_BYTES, SocketCounters, UdpPort, key_of};

/// Batches that one turn takes at most, so that others who want the engine get it.
const BATCHES_IN_A_TURN: usize = 8;

/// The socket, the addresses, and the run that is being gathered.
pub struct Link {
    udp: UdpPort,
    header: Common,
    shards: Vec<Destination>,
    peers: Vec<Destination>,
    senders: HashMap<(IpAddr, u16), Addr>,
    inbox: Inbox,
    outbox: Outbox,
    last_sent: Time,
    /// Packets from addresses that are neither the switch's nor a peer's.
    strangers: u64,
    /// For each shard, bytes of the longest of our pings that came back, and when.
    pongs: Vec<Option<(usize, Time)>>,
}

/// Packets that wait to be sent together: neighbours in memory, for one receiver, all of one length but the last.
struct Outbox {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
    packets: usize,
    /// The first packet, which those behind it continue.
    first: Option<Transmit>,
}

impl Link {
    /// The way that the rendezvous has told.
    pub fn new(udp: UdpPort, header: Common, answer: &JoinAnswer) -> Link {
        let shards = answer.shards.iter().enumerate().map(|(i, &a)| (key_of(a), Addr::Switch(ShardId(i as u16))));
        let peers = answer.peers.iter().enumerate().map(|(i, &a)| (key_of(a), Addr::Worker(WorkerId(i as u16))));
        Link {
            header,
            senders: peers.chain(shards).collect(),
            shards: answer.shards.iter().map(|&shard| udp.destination(shard)).collect(),
            peers: answer.peers.iter().map(|&peer| udp.destination(peer)).collect(),
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            last_sent: Time::ZERO,
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

    /// When a packet was last handed to the kernel.
    pub fn last_sent(&self) -> Time {
        self.last_sent
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
        for shard in &self.shards {
            self.udp.send(shard, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
        self.last_sent = now;
    }

    /// Receives what is there, tells the machine, and sends what it answers. `now` is read once for each batch.
    pub fn receive(&mut self, host: &mut dyn Host, now: impl Fn() -> Time) {
        for _ in 0..BATCHES_IN_A_TURN {
            let messages = self.udp.receive(&mut self.inbox);
            if messages > 0 {
                self.handle_batch(host, now());
            }
            if messages < BATCH {
                return;
            }
        }
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
                    self.gather(host, now);
                }
            }
        }
        self.gather(host, now);
        self.flush(now);
    }

    /// Sends all that the machine wants sent.
    pub fn transmit(&mut self, host: &mut dyn Host, now: Time) {
        self.gather(host, now);
        self.flush(now);
    }

    fn gather(&mut self, host: &mut dyn Host, now: Time) {
        let longest = host.max_packet_len();
        loop {
            if self.outbox.room() < longest {
                self.flush(now);
            }
            let Some(transmit) = host.poll_transmit(now, &mut self.outbox.memory[self.outbox.end..]) else { return };
            if !self.outbox.continues(&transmit) {
                // The new packet lies behind those that it does not continue, and begins the next run.
                self.send_gathered(now);
                self.outbox.first = Some(transmit);
            }
            self.outbox.packets += 1;
            self.outbox.end += transmit.len;
        }
    }

    fn flush(&mut self, now: Time) {
        self.send_gathered(now);
        (self.outbox.start, self.outbox.end) = (0, 0);
    }

    fn send_gathered(&mut self, now: Time) {
        let outbox = &mut self.outbox;
        if let Some(first) = outbox.first.take() {
            let to = match first.to {
                Addr::Switch(shard) => self.shards.get(shard.index()),
                Addr::Worker(worker) => self.peers.get(worker.index()),
            };
            let to = to.expect("machines send to the shards and workers of their job");
            let bytes = &outbox.memory[outbox.start..outbox.end];
            self.udp.send(to, &[IoSlice::new(bytes)], first.len, first.ecn);
            self.last_sent = now;
        }
        (outbox.start, outbox.packets) = (outbox.end, 0);
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

impl Outbox {
    fn new() -> Outbox {
        Outbox { memory: vec![0; 2 << 16].into_boxed_slice(), start: 0, end: 0, packets: 0, first: None }
    }

    fn room(&self) -> usize {
        self.memory.len() - self.end
    }

    fn continues(&self, next: &Transmit) -> bool {
        let bytes = self.end - self.start;
        self.first.is_some_and(|first| {
            (first.to, first.ecn) == (next.to, next.ecn)
                && bytes == self.packets * first.len
                && next.len <= first.len
                && self.packets < MAX_RUN
                && bytes + next.len <= MAX_RUN_BYTES
        })
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
