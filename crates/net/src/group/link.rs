//! A worker's way to its switch and peers: packets of its machine leave in runs, and runs that arrive are cut into
//! packets.

use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use tributary_control::Timers;
use tributary_proto::contract::config::{HostConfig, JobConfig};
use tributary_proto::contract::ids::{Rank, ServerId, TreeId};
use tributary_proto::contract::packet::{Addr, Ecn, Packet, Transmit};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;
use tributary_proto::contract::wire::{COMMON_LEN, Common, kind};

use super::nic::Nic;
use crate::fabric::wire::read_pause;
use crate::outbox::{Addresses, Outbox};
use crate::progress::Progress;
use crate::rendezvous::JoinAnswer;
use crate::udp::probe::{self, PathProbe};
use crate::udp::{Inbox, Reassembly, Segments, SocketCounters, UdpPort, key_of};

/// The number of receivers whose runs are gathered at the same time. This is enough for a ring's two neighbours, each
/// with two kinds of packets, or for some of the workers and servers to which a worker with its own server sends in
/// turn.
const LANES: usize = 16;

/// A way on which only signs of life pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The peer or shard to which it leads.
    pub to: Addr,
    /// The address of that peer or shard.
    pub at: SocketAddr,
    /// Bytes of the shortest packet that did not come back.
    pub bytes: usize,
}

/// The socket, the addresses, and the packets that wait to be sent.
pub struct Link {
    udp: UdpPort,
    header: Common,
    addresses: Addresses,
    senders: HashMap<(IpAddr, u16), Addr>,
    inbox: Inbox,
    /// The number of messages of the batch that have begun. `from` is the sender of the last one, and `left` has its
    /// packets that have not had their turn.
    begun: usize,
    from: Addr,
    left: Segments,
    outbox: Outbox<LANES>,
    /// The packets that have left the machine and not the host. Only lossless fabrics have this queue.
    nic: Option<Nic>,
    /// When the switch was last sent a packet. Where ways are not watched, that is our sign of life. Packets to peers
    /// are none.
    switch_last_told: Time,
    /// Packets from addresses that are neither the switch's nor a peer's.
    strangers: u64,
    /// The trees of the job, if it has several.
    trees: Option<Trees>,
    /// For each shard and each server on another host, bytes of the longest of our pings that came back, and when.
    pongs: BTreeMap<Addr, Option<(usize, Time)>>,
    /// True if each worker is a server too, at the same address.
    colocated: bool,
    /// Bytes of the job's longest packet.
    full: usize,
    /// The ways to shards and servers, and to peers to which we send. Empty in a fabric, whose switches do not put
    /// pieces together.
    paths: BTreeMap<Addr, PathProbe>,
    in_fabric: bool,
    pieces: Reassembly<Addr>,
    /// The packet that was put together last.
    whole: Vec<u8>,
}

/// The trees of a job through a fabric. The worker's own switch speaks for all of them.
pub struct Trees {
    protocol: &'static Protocol,
    job: JobConfig,
}

impl Trees {
    /// The trees of this job; `None` if the job has at most one tree.
    pub fn of(protocol: &'static Protocol, config: &HostConfig) -> Option<Trees> {
        (config.trees.len() > 1).then(|| Trees { protocol, job: config.job.clone() })
    }

    /// The sender of a packet that came from the switch.
    fn sender(&self, bytes: &[u8]) -> Addr {
        let tree = bytes.get(..COMMON_LEN).and_then(|_| (self.protocol.tree_of)(&self.job, bytes));
        Addr::Switch(tree.unwrap_or_default())
    }
}

impl Link {
    /// The link that the rendezvous has described, for packets of at most `full` bytes.
    pub fn new(udp: UdpPort, header: Common, answer: &JoinAnswer, full: usize, trees: Option<Trees>) -> Link {
        let shards = answer.shards.iter().enumerate().map(|(i, &at)| (Addr::Switch(TreeId(i as u16)), at));
        let peers = answer.peers.iter().enumerate().map(|(i, &at)| (Addr::Worker(Rank(i as u16)), at));
        let servers = answer.servers.iter().enumerate().map(|(i, &at)| (Addr::Server(ServerId(i as u16)), at));
        // In a fabric the worker speaks to its own switch alone, which knows the ways to servers.
        let in_fabric = answer.fabric.is_some();
        let servers = servers.filter(|_| !in_fabric);
        // Where a worker's host is a server besides, its packets come from a worker: see `Addr`.
        let known = servers.chain(peers).chain(shards);
        let asked = known.clone().map(|(addr, _)| addr).filter(|addr| match addr {
            Addr::Switch(_) => true,
            Addr::Server(server) => Some(*server) != answer.serves,
            Addr::Worker(_) | Addr::Node(_) => false,
        });
        let more = 1..trees.as_ref().map_or(1, |trees| trees.job.trees);
        let more = more.filter_map(|tree| Some((Addr::Switch(TreeId(tree)), *answer.shards.first()?)));
        Link {
            pongs: asked.map(|addr| (addr, None)).collect(),
            colocated: answer.serves.is_some(),
            header,
            trees,
            senders: known.clone().map(|(addr, at)| (key_of(at), addr)).collect(),
            addresses: known.chain(more).map(|(addr, at)| (addr, udp.destination(at))).collect(),
            inbox: Inbox::new(),
            begun: 0,
            from: Addr::Switch(TreeId(0)),
            left: Segments::default(),
            outbox: Outbox::new(),
            nic: answer.fabric.as_ref().and_then(|fabric| fabric.lossless_bits_per_s).map(Nic::new),
            switch_last_told: Time::ZERO,
            strangers: 0,
            full,
            paths: BTreeMap::new(),
            in_fabric,
            pieces: Reassembly::default(),
            whole: Vec::new(),
            udp,
        }
    }

    /// The socket's counters.
    pub fn counters(&self) -> &SocketCounters {
        self.udp.counters()
    }

    /// Packets from addresses that belong neither to the switch nor to a peer.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Every shard and every server on another host, with the time at which it returned a ping of at least `len` bytes,
    /// if it has.
    pub fn heard(&self, len: usize) -> impl Iterator<Item = (Addr, Option<Time>)> + '_ {
        let at = move |pong: &Option<(usize, Time)>| pong.filter(|&(bytes, _)| bytes >= len).map(|(_, at)| at);
        self.pongs.iter().map(move |(&addr, pong)| (addr, at(pong)))
    }

    /// Asks all of these for a sign of life, with a packet of `len` bytes, which is a sign of life too.
    pub fn ping(&mut self, now: Time, len: usize) {
        for to in self.asked() {
            self.ping_one(to, len);
        }
        self.switch_last_told = now;
    }

    /// Begins to watch the ways. They are known to hold packets of `limit` bytes.
    pub fn watch_ways(&mut self, limit: usize) {
        if self.in_fabric {
            return;
        }
        for to in self.asked() {
            self.paths.insert(to, PathProbe::new(self.full, limit));
            self.apply(to);
        }
    }

    /// When [`Link::keep_alive`] has something to do.
    pub fn ping_due(&self) -> Time {
        let watched = self.paths.values().map(PathProbe::due).min();
        watched.unwrap_or(self.switch_last_told + Timers::KEEPALIVE)
    }

    /// Shows shards and peers that this worker is alive, and tests how long a packet the ways to them hold.
    pub fn keep_alive(&mut self, now: Time) {
        if self.paths.is_empty() {
            return self.ping(now, COMMON_LEN);
        }
        for peer in self.outbox.take_new_peers().into_iter().filter(|_| !self.in_fabric) {
            self.paths.insert(peer, PathProbe::new(self.full, self.full));
        }
        let due: Vec<(Addr, Vec<usize>)> = self.paths.iter_mut().map(|(&to, path)| (to, path.poll(now))).collect();
        for (to, lengths) in due {
            self.apply(to);
            lengths.into_iter().for_each(|len| self.ping_one(to, len));
        }
    }

    /// Tells this worker's switch the progress of this rank.
    pub fn tell(&mut self, progress: &Progress) {
        if let Some(to) = self.addresses.get(&Addr::Switch(TreeId(0))) {
            let packet = progress.packet(self.header);
            self.udp.send(to, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
    }

    /// The ways on which only signs of life pass.
    pub fn blocked(&self) -> Vec<Blocked> {
        let of = |(&to, path): (&Addr, &PathProbe)| {
            Some(Blocked { to, at: self.addresses.get(&to)?.remote()?, bytes: path.blocked()? })
        };
        self.paths.iter().filter_map(of).collect()
    }

    fn asked(&self) -> Vec<Addr> {
        self.pongs.keys().copied().collect()
    }

    fn ping_one(&mut self, to: Addr, len: usize) {
        let limit = self.paths.get(&to).and_then(PathProbe::limit);
        let packet = probe::ping(self.header, len, limit);
        if let Some(to) = self.addresses.get(&to) {
            self.udp.send(to, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
    }

    /// Applies the known limit of a way to the packets that are sent on it.
    fn apply(&mut self, to: Addr) {
        if let (Some(path), Some(destination)) = (self.paths.get(&to), self.addresses.get_mut(&to)) {
            destination.set_limit(path.limit());
        }
    }

    /// Receives a batch of packets; true if there may be more.
    pub fn receive(&mut self) -> bool {
        (self.begun, self.left) = (0, Segments::default());
        self.udp.receive(&mut self.inbox)
    }

    /// The next packet of the batch that is for the machine. Counts packets of strangers, and notes the switch's signs
    /// of life.
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
            let is_shared = self.inbox.memory[place.clone()].get(4).is_some_and(|&kind| kind < kind::FIRST_OF_PROTOCOL);
            if is_shared {
                let ecn = self.inbox.messages[self.begun - 1].ecn;
                let Some(whole) = self.handle_shared(self.from, place, now) else { continue };
                self.whole = whole;
                return Some((self.from, Packet { bytes: &self.whole, wire_len: self.whole.len(), ecn }));
            }
            break (place, &self.inbox.messages[self.begun - 1]);
        };
        let bytes = &self.inbox.memory[place];
        let from = match (&self.trees, self.from) {
            (Some(trees), Addr::Switch(_)) => trees.sender(bytes),
            (_, from) => from,
        };
        Some((from, Packet { bytes, wire_len: bytes.len(), ecn: message.ecn }))
    }

    /// Handles a packet of a kind that all protocols share. Returns the packet that it completes, if it is the last
    /// piece of one.
    fn handle_shared(&mut self, from: Addr, place: Range<usize>, now: Time) -> Option<Vec<u8>> {
        let bytes = &mut self.inbox.memory[place];
        let common = Common::parse(bytes).ok().filter(|common| Common { kind: 0, ..*common } == self.header)?;
        match (common.kind, from) {
            (kind::PONG, _) => {
                let len = bytes.len();
                self.hear_pong(from, len, now);
                if let (true, Addr::Worker(rank)) = (self.colocated, from) {
                    self.hear_pong(Addr::Server(ServerId(rank.0)), len, now);
                }
            }
            (kind::PING, Addr::Worker(_)) => {
                // On ways that this worker watches itself, it knows better.
                if let (false, Some(limit)) = (self.paths.contains_key(&from), probe::said(bytes))
                    && let Some(to) = self.addresses.get_mut(&from)
                {
                    to.set_limit(limit);
                }
                Common { kind: kind::PONG, ..common }.emit(bytes);
                if let Some(to) = self.addresses.get(&from) {
                    self.udp.send(to, &[IoSlice::new(bytes)], bytes.len(), Ecn::NotCapable);
                }
                return None;
            }
            (kind::FRAGMENT, _) => return self.pieces.add(from, bytes),
            (kind::PAUSE, Addr::Switch(_)) => {
                if let (Some(nic), Some(span)) = (&mut self.nic, read_pause(bytes)) {
                    nic.pause(now, span);
                }
            }
            _ => {}
        }
        None
    }

    fn hear_pong(&mut self, from: Addr, len: usize, now: Time) {
        if let Some(pong) = self.pongs.get_mut(&from).filter(|pong| pong.is_none_or(|(longest, _)| longest <= len)) {
            *pong = Some((len, now));
        }
        if let Some(path) = self.paths.get_mut(&from) {
            path.hear(len);
            self.apply(from);
        }
    }

    /// Memory for the machine's next packet.
    pub fn room(&mut self, longest: usize) -> &mut [u8] {
        self.outbox.room(longest, &self.addresses, &mut self.udp)
    }

    /// Takes the packet that the machine has written into this memory. Full runs leave at once.
    pub fn send(&mut self, transmit: &Transmit) {
        if let Some(nic) = &mut self.nic {
            return nic.offer(self.outbox.written(transmit.len), transmit);
        }
        self.outbox.push(transmit, &self.addresses, &mut self.udp);
    }

    /// When the next packet that waits for the cable may leave.
    pub fn due(&self) -> Option<Time> {
        self.nic.as_ref().and_then(Nic::due)
    }

    /// Sends the packets that wait for the cable and may leave by now.
    pub fn drain(&mut self, now: Time) {
        if let Some(nic) = &mut self.nic {
            nic.drain(now, &self.addresses, &mut self.udp);
        }
    }

    /// Sends all packets that were gathered.
    pub fn flush(&mut self, now: Time) {
        self.outbox.flush(&self.addresses, &mut self.udp);
        self.drain(now);
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
