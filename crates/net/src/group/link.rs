//! A worker's link to its switch and peers: packets of its machine leave in runs, and runs that arrive are split into
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

use crate::fabric::wire::read_pause;
use crate::progress::Progress;
use crate::rendezvous::JoinAnswer;
use crate::transmit::{Addresses, Outbox, PacedQueue};
use crate::udp::path::{self, MtuProbe};
use crate::udp::{Inbox, Reassembly, Segments, SocketCounters, UdpPort, key_of};

/// The number of receivers whose runs are gathered at the same time. This is enough for a ring's two neighbours, each
/// with two kinds of packets, or for some of the workers and servers to which a worker with its own server sends in
/// turn.
const RECEIVERS: usize = 16;

/// A path on which only keepalives pass.
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
    /// The number of messages of the batch that were begun. `from` is the sender of the last one, and `left` has its
    /// remaining packets.
    begun: usize,
    from: Addr,
    left: Segments,
    outbox: Outbox<RECEIVERS>,
    /// Packets that have left the machine and not the host, in a lossless fabric.
    paced_queue: Option<PacedQueue>,
    /// When the switch was last sent a packet. Where paths are not probed, that is our keepalive; packets to peers do not
    /// count.
    last_sent_to_switch: Time,
    /// Packets from addresses that are neither the switch's nor a peer's.
    rejected_packets: u64,
    /// The trees of the job, if it has several.
    trees: Option<Trees>,
    /// For each shard and each server on another host, bytes of the longest of our pings that came back, and when.
    pongs: BTreeMap<Addr, Option<(usize, Time)>>,
    /// True if each worker is also a server, at the same address.
    colocated: bool,
    /// Bytes of the job's longest packet.
    full: usize,
    /// The paths to shards and servers, and to peers to which we send. Empty in a fabric, whose switches do not reassemble
    /// fragments.
    probes: BTreeMap<Addr, MtuProbe>,
    in_fabric: bool,
    fragments: Reassembly<Addr, Addr>,
    /// The packet that was reassembled last.
    reassembled: Vec<u8>,
}

/// The trees of a job through a fabric. All packets of a worker come from its own switch, for all trees.
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
        // In a fabric the worker exchanges packets with its own switch alone, which knows the routes to servers.
        let in_fabric = answer.fabric.is_some();
        let servers = servers.filter(|_| !in_fabric);
        // Where a worker is also a server, its packets come from a worker: see `Addr`.
        let known = servers.chain(peers).chain(shards);
        let probed = known.clone().map(|(addr, _)| addr).filter(|addr| match addr {
            Addr::Switch(_) => true,
            Addr::Server(server) => Some(*server) != answer.serves,
            Addr::Worker(_) | Addr::Node(_) => false,
        });
        let more = 1..trees.as_ref().map_or(1, |trees| trees.job.trees);
        let more = more.filter_map(|tree| Some((Addr::Switch(TreeId(tree)), *answer.shards.first()?)));
        Link {
            pongs: probed.map(|addr| (addr, None)).collect(),
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
            paced_queue: answer.fabric.as_ref().and_then(|fabric| fabric.lossless_bits_per_s).map(PacedQueue::new),
            last_sent_to_switch: Time::ZERO,
            rejected_packets: 0,
            full,
            probes: BTreeMap::new(),
            in_fabric,
            fragments: Reassembly::default(),
            reassembled: Vec::new(),
            udp,
        }
    }

    /// The socket's counters.
    pub fn counters(&self) -> &SocketCounters {
        self.udp.counters()
    }

    /// Packets from addresses that belong neither to the switch nor to a peer.
    pub fn rejected_packets(&self) -> u64 {
        self.rejected_packets
    }

    /// Every shard and every server on another host, with the time at which it returned a ping of at least `len` bytes,
    /// if it has.
    pub fn pongs(&self, len: usize) -> impl Iterator<Item = (Addr, Option<Time>)> + '_ {
        let at = move |pong: &Option<(usize, Time)>| pong.filter(|&(bytes, _)| bytes >= len).map(|(_, at)| at);
        self.pongs.iter().map(move |(&addr, pong)| (addr, at(pong)))
    }

    /// Pings all of these with a packet of `len` bytes, which is a keepalive too.
    pub fn ping(&mut self, now: Time, len: usize) {
        for to in self.probed() {
            self.ping_one(to, len);
        }
        self.last_sent_to_switch = now;
    }

    /// Begins to probe the paths, which are known to hold packets of `limit` bytes.
    pub fn watch_paths(&mut self, limit: usize) {
        if self.in_fabric {
            return;
        }
        for to in self.probed() {
            self.probes.insert(to, MtuProbe::new(self.full, limit));
            self.apply(to);
        }
    }

    /// When [`Link::keep_alive`] has something to do.
    pub fn ping_due(&self) -> Time {
        let watched = self.probes.values().map(MtuProbe::due).min();
        watched.unwrap_or(self.last_sent_to_switch + Timers::KEEPALIVE)
    }

    /// Sends keepalives to shards and peers, which also test how long a packet the paths to them hold.
    pub fn keep_alive(&mut self, now: Time) {
        if self.probes.is_empty() {
            return self.ping(now, COMMON_LEN);
        }
        for peer in self.outbox.take_new_peers().into_iter().filter(|_| !self.in_fabric) {
            self.probes.insert(peer, MtuProbe::new(self.full, self.full));
        }
        let due: Vec<(Addr, Vec<usize>)> = self.probes.iter_mut().map(|(&to, probe)| (to, probe.poll(now))).collect();
        for (to, lengths) in due {
            self.apply(to);
            lengths.into_iter().for_each(|len| self.ping_one(to, len));
        }
    }

    /// Sends the progress of this rank to its switch.
    pub fn send_progress(&mut self, progress: &Progress) {
        if let Some(to) = self.addresses.get(&Addr::Switch(TreeId(0))) {
            let packet = progress.packet(self.header);
            self.udp.send(to, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
    }

    /// The paths on which only keepalives pass.
    pub fn blocked(&self) -> Vec<Blocked> {
        let of = |(&to, probe): (&Addr, &MtuProbe)| {
            Some(Blocked { to, at: self.addresses.get(&to)?.remote()?, bytes: probe.blocked()? })
        };
        self.probes.iter().filter_map(of).collect()
    }

    fn probed(&self) -> Vec<Addr> {
        self.pongs.keys().copied().collect()
    }

    fn ping_one(&mut self, to: Addr, len: usize) {
        let limit = self.probes.get(&to).and_then(MtuProbe::limit);
        let packet = path::ping(self.header, len, limit);
        if let Some(to) = self.addresses.get(&to) {
            self.udp.send(to, &[IoSlice::new(&packet)], packet.len(), Ecn::NotCapable);
        }
    }

    /// Applies the known limit of a path to the packets that are sent on it.
    fn apply(&mut self, to: Addr) {
        if let (Some(probe), Some(destination)) = (self.probes.get(&to), self.addresses.get_mut(&to)) {
            destination.set_limit(probe.limit());
        }
    }

    /// Receives a batch of packets; true if there may be more.
    pub fn receive(&mut self) -> bool {
        (self.begun, self.left) = (0, Segments::default());
        self.udp.receive(&mut self.inbox)
    }

    /// The next packet of the batch that is for the machine. Counts packets from unknown addresses, and notes pongs.
    pub fn next(&mut self, now: Time) -> Option<(Addr, Packet<'_>)> {
        let (range, message) = loop {
            let Some(range) = self.left.next() else {
                let message = self.inbox.messages.get(self.begun)?;
                self.begun += 1;
                match self.senders.get(&key_of(message.from)) {
                    Some(&from) => (self.from, self.left) = (from, message.segments()),
                    None => self.rejected_packets += message.segments().count() as u64,
                }
                continue;
            };
            let is_shared = self.inbox.memory[range.clone()].get(4).is_some_and(|&kind| kind < kind::FIRST_OF_PROTOCOL);
            if is_shared {
                let ecn = self.inbox.messages[self.begun - 1].ecn;
                let Some(reassembled) = self.handle_shared(self.from, range, now) else { continue };
                self.reassembled = reassembled;
                return Some((self.from, Packet { bytes: &self.reassembled, wire_len: self.reassembled.len(), ecn }));
            }
            break (range, &self.inbox.messages[self.begun - 1]);
        };
        let bytes = &self.inbox.memory[range];
        let from = match (&self.trees, self.from) {
            (Some(trees), Addr::Switch(_)) => trees.sender(bytes),
            (_, from) => from,
        };
        Some((from, Packet { bytes, wire_len: bytes.len(), ecn: message.ecn }))
    }

    /// Handles a packet of a kind that all protocols share. Returns the packet that it completes, if it is the last
    /// fragment of one.
    fn handle_shared(&mut self, from: Addr, range: Range<usize>, now: Time) -> Option<Vec<u8>> {
        let bytes = &mut self.inbox.memory[range];
        let common = Common::parse(bytes).ok().filter(|common| Common { kind: 0, ..*common } == self.header)?;
        match (common.kind, from) {
            (kind::PONG, _) => {
                let len = bytes.len();
                self.on_pong(from, len, now);
                if let (true, Addr::Worker(rank)) = (self.colocated, from) {
                    self.on_pong(Addr::Server(ServerId(rank.0)), len, now);
                }
            }
            (kind::PING, Addr::Worker(_)) => {
                // This worker's own probes know better.
                if let (false, Some(limit)) = (self.probes.contains_key(&from), path::advertised_limit(bytes))
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
            (kind::FRAGMENT, _) => return self.fragments.add(now, from, from, bytes),
            (kind::PAUSE, Addr::Switch(_)) => {
                if let (Some(paced_queue), Some(span)) = (&mut self.paced_queue, read_pause(bytes)) {
                    paced_queue.pause(now, span);
                }
            }
            _ => {}
        }
        None
    }

    fn on_pong(&mut self, from: Addr, len: usize, now: Time) {
        if let Some(pong) = self.pongs.get_mut(&from).filter(|pong| pong.is_none_or(|(longest, _)| longest <= len)) {
            *pong = Some((len, now));
        }
        if let Some(probe) = self.probes.get_mut(&from) {
            probe.on_pong(len);
            self.apply(from);
        }
    }

    /// Memory for the machine's next packet.
    pub fn buffer(&mut self, longest: usize) -> &mut [u8] {
        self.outbox.buffer(longest, &self.addresses, &mut self.udp)
    }

    /// Takes the packet that the machine has written into this memory. Full runs leave at once.
    pub fn send(&mut self, transmit: &Transmit) {
        if let Some(paced_queue) = &mut self.paced_queue {
            return paced_queue.offer(self.outbox.written(transmit.len), transmit);
        }
        self.outbox.push(transmit, &self.addresses, &mut self.udp);
    }

    /// When the next packet that waits for the cable may leave.
    pub fn due(&self) -> Option<Time> {
        self.paced_queue.as_ref().and_then(PacedQueue::due)
    }

    /// Sends the packets that wait for the cable and may leave by now.
    pub fn drain(&mut self, now: Time) {
        if let Some(paced_queue) = &mut self.paced_queue {
            paced_queue.drain(now, &self.addresses, &mut self.udp);
        }
    }

    /// Sends all packets that were gathered.
    pub fn flush(&mut self, now: Time) {
        self.outbox.flush(&self.addresses, &mut self.udp);
        self.drain(now);
        if self.outbox.take_sent_to_switch() {
            self.last_sent_to_switch = now;
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}
