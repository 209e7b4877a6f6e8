//! A switch's state of one job: which block is at each of its positions, how far its ranks are, and which gradients
//! have gone on unsummed.

use super::super::topology::{Level, Topology};
use super::super::wire::{Header, Kind, PROG_MASK, is_after};
use super::aggregators::Counters;
use crate::aggregation::modulo::Modulo;
use crate::contract::config::SharedJob;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{JobId, NodeId, PortId, PortSet, Rank};
use crate::contract::protocol::ShardShape;
use crate::contract::switch::{Lag, Verdict};
use crate::contract::time::Time;
use crate::contract::wire::COMMON_LEN;
use crate::heap::heap_bytes;

/// The state of a position's block at this switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The position has had no block yet.
    Unused,
    /// No packet of the block was seen.
    Free,
    /// An aggregator has some contributions to the block.
    Summing,
    /// The aggregator's sum is about to leave; later contributions go on unsummed.
    Releasing,
    /// Some contributions went on unsummed, so that no sum made here could be complete: all others go on unsummed too.
    Passed,
    /// The block's result passed.
    Over,
}

/// A block and its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The block.
    pub seq: u32,
    /// The attempt.
    pub attempt: u8,
}

impl Key {
    /// True if it comes after another key of the same position.
    pub fn is_after(self, other: Key) -> bool {
        is_after(self.seq, other.seq) || self.seq == other.seq && self.attempt > other.attempt
    }
}

/// One position of a job's window.
#[derive(Clone, Copy, Hash)]
pub struct Position {
    /// Its block.
    pub key: Key,
    /// The block's state.
    pub state: State,
    /// The block's aggregator, while it has one.
    pub entry: u32,
}

/// A job at one switch.
#[derive(Clone, Hash)]
pub struct Job {
    /// The job's id.
    pub id: JobId,
    /// Where the job's ranks and servers are.
    pub topology: Topology,
    /// For each rank, then for each server on a host of its own: the host's port, if the host is connected to this
    /// switch.
    ports: Vec<Option<PortId>>,
    /// The ports of all those hosts.
    local: PortSet,
    /// The ports of ranks.
    ranks: PortSet,
    /// How many ranks are connected to this switch.
    behind: u16,
    /// The common header of its packets.
    pub common: [u8; COMMON_LEN],
    positions: Vec<Position>,
    /// Blocks take positions in turn.
    turn: Modulo,
    /// Which ranks have contributed, position by position.
    seen: Vec<u64>,
    words: usize,
    /// For each rank the newest sequence number (the paper's `S_n`), and whether there was any.
    newest: Vec<(u32, bool)>,
    /// The sum of those numbers (the paper's `S_sum`).
    sum: u32,
    /// How many ranks were never heard.
    unheard: u32,
    /// The newest result that passed.
    floor: u32,
    /// A sequence number that no rank can be beyond, as far as was checked.
    horizon: u32,
    /// For each server, how many gradients went to it unsummed, and how many of these have come according to the
    /// server.
    sent: Vec<(u32, u32)>,
    /// The sum of the differences.
    pub outstanding: u64,
    /// How many aggregators the job holds.
    pub in_use: u32,
    /// When an aggregator was last held, or a gradient went on for lack of room.
    pub busy_at: Time,
    /// The job's counts.
    pub counters: Counters,
}

impl Job {
    /// A job that begins.
    pub fn new(plan: &SharedJob) -> Job {
        let world_size = usize::from(plan.job.world_size);
        let topology = Topology::new(&plan.job, &plan.fabric);
        let (mut local, mut ranks) = (PortSet::EMPTY, PortSet::EMPTY);
        for (number, port) in (0..).zip(&plan.ports).filter_map(|(number, port)| Some((number, (*port)?))) {
            local.insert(port);
            if number < world_size {
                ranks.insert(port);
            }
        }
        let members = usize::from(topology.members());
        let mut common = [0; COMMON_LEN];
        plan.job.common().emit(&mut common);
        let window = usize::from(plan.job.slots.max(1));
        let words = world_size.div_ceil(64);
        let free = Position { key: Key { seq: 0, attempt: 0 }, state: State::Unused, entry: 0 };
        Job {
            id: plan.job.job,
            behind: plan.ports.iter().take(world_size).flatten().count() as u16,
            ports: (0..members).map(|rank| plan.ports.get(rank).copied().flatten()).collect(),
            local,
            ranks,
            common,
            positions: vec![free; window],
            turn: Modulo::new(window as u32),
            seen: vec![0; window * words],
            words,
            newest: vec![(0, false); world_size],
            sum: 0,
            unheard: world_size as u32,
            floor: 0,
            horizon: 0,
            sent: vec![(0, 0); members],
            outstanding: 0,
            in_use: 0,
            busy_at: Time::ZERO,
            counters: Counters::default(),
            topology,
        }
    }

    /// Bytes that a job takes here, if it may have as many servers on hosts of their own as it has ranks.
    pub fn bytes_of(shape: &ShardShape<'_>) -> u64 {
        let (world_size, window) = (usize::from(shape.world_size), usize::from(shape.slots.max(1)));
        let of_member = size_of::<Option<PortId>>() + size_of::<(u32, u32)>();
        let of_rank = size_of::<(u32, bool)>() + 2 * of_member;
        let of_position = size_of::<Position>() + world_size.div_ceil(64) * size_of::<u64>();
        (size_of::<Job>() + world_size * of_rank + window * of_position) as u64
    }

    /// The position of a sequence number.
    #[inline]
    pub fn position_of(&self, seq: u32) -> usize {
        self.turn.of(seq) as usize
    }

    /// A position.
    #[inline]
    pub fn position(&mut self, at: usize) -> &mut Position {
        &mut self.positions[at]
    }

    /// All positions.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// Forgets the contributions to the block of a position.
    pub fn clear(&mut self, at: usize) {
        self.seen[at * self.words..][..self.words].fill(0);
    }

    /// True if the rank has contributed.
    #[inline]
    pub fn has_seen(&self, at: usize, rank: Rank) -> bool {
        self.seen[at * self.words + rank.index() / 64] >> (rank.index() % 64) & 1 != 0
    }

    /// How many ranks whose blocks are in a packet have contributed before, and how many have not.
    #[inline]
    pub fn seen_of(&self, at: usize, kind: Kind, header: &Header) -> (u16, u16) {
        if kind != Kind::Sum {
            return if self.has_seen(at, header.wid) { (1, 0) } else { (0, 1) };
        }
        contributors(&self.topology, header).fold((0, 0), |(seen, unseen), rank| match self.has_seen(at, rank) {
            true => (seen + 1, unseen),
            false => (seen, unseen + 1),
        })
    }

    /// Notes the ranks whose blocks are in a packet as contributors; returns how many they are.
    #[inline]
    pub fn see(&mut self, at: usize, kind: Kind, header: &Header) -> u16 {
        let words = &mut self.seen[at * self.words..][..self.words];
        let mut see = |rank: Rank| words[rank.index() / 64] |= 1 << (rank.index() % 64);
        if kind != Kind::Sum {
            see(header.wid);
            return 1;
        }
        contributors(&self.topology, header).map(see).count() as u16
    }

    /// Writes the contributors as the bitmap that a sum carries.
    pub fn put_seen(&self, at: usize, bytes: &mut [u8]) {
        let words = &self.seen[at * self.words..][..self.words];
        for (target, byte) in bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())) {
            *target = byte;
        }
    }

    /// A packet of a rank must come from the rank's port or, for a rank elsewhere, from a port that belongs to no rank
    /// or server.
    #[inline]
    pub fn check_sender(&self, ingress: PortId, rank: Rank) -> Result<(), DropReason> {
        if rank.0 >= self.topology.world_size() {
            return Err(DropReason::BadField);
        }
        self.check_member(ingress, rank)
    }

    /// The same for a packet of a rank or a server.
    #[inline]
    pub fn check_member(&self, ingress: PortId, number: Rank) -> Result<(), DropReason> {
        match self.ports.get(number.index()).ok_or(DropReason::BadField)? {
            Some(port) if *port == ingress => Ok(()),
            None if !self.is_local(ingress) => Ok(()),
            _ => Err(DropReason::WrongWorker),
        }
    }

    /// True if the host of a rank or a server is behind the port.
    pub fn is_local(&self, port: PortId) -> bool {
        port.index() < PortSet::CAPACITY && self.local.contains(port)
    }

    /// The way to a rank or a server.
    #[inline]
    pub fn way_to(&self, rank: Rank) -> Verdict {
        match self.ports[rank.index()] {
            Some(port) => Verdict::Port(port),
            None => Verdict::Route(self.topology.node_of(rank)),
        }
    }

    /// The ports of all ranks behind this switch, except the one on a server's host.
    pub fn all_but(&self, rank: Rank) -> PortSet {
        let mut ports = self.ranks;
        if let Some(port) = self.ports[rank.index()] {
            ports.remove(port);
        }
        ports
    }

    /// What this switch, `node`, does for a server's blocks, and for how many ranks.
    #[inline]
    pub fn level(&self, node: NodeId, server: Rank) -> (Level, u16) {
        let level = self.topology.level(node, server, self.behind);
        let ranks = if level == Level::Edge { self.topology.contributors() } else { self.behind };
        (level, ranks)
    }

    /// A rank has sent a block: updates `S_n` and `S_sum`, never backwards. As far as the ranks behind this switch
    /// tell, no rank can be two windows ahead of another; gradients of other ranks pass here only sometimes.
    #[inline]
    pub fn advance(&mut self, rank: Rank, seq: u32) -> Result<(), DropReason> {
        let window = self.positions.len() as u32;
        if is_after(seq, self.horizon) {
            let local = self.newest.iter().zip(&self.ports).filter(|((_, has_sent), port)| *has_sent && port.is_some());
            let last = local.map(|(&(newest, _), _)| newest).reduce(|a, b| if is_after(a, b) { b } else { a });
            if let Some(last) = last {
                self.horizon = last.wrapping_add(window.saturating_mul(2));
                if is_after(seq, self.horizon) {
                    return Err(DropReason::Ahead);
                }
            }
        }
        let (newest, has_sent) = &mut self.newest[rank.index()];
        if !*has_sent {
            (*newest, *has_sent) = (seq, true);
            self.unheard -= 1;
            self.sum = self.sum.wrapping_add(seq);
        } else if is_after(seq, *newest) {
            self.sum = self.sum.wrapping_add(seq.wrapping_sub(*newest));
            *newest = seq;
        }
        Ok(())
    }

    /// The result of a block passed, so all ranks have sent the block.
    pub fn complete(&mut self, seq: u32) {
        if is_after(seq, self.floor) {
            self.floor = seq;
        }
    }

    /// The sum of all ranks' newest numbers (the paper's PROG). A rank that never passed here has sent all blocks that
    /// have a result.
    #[inline]
    pub fn progress(&self) -> u32 {
        self.sum.wrapping_add(self.unheard.wrapping_mul(self.floor)) & PROG_MASK
    }

    /// Of the ranks behind this switch, the one that is furthest behind the first of all ranks, and by how many blocks.
    /// All ranks have sent blocks that have a result; how far ranks elsewhere are beyond that, only their own switches
    /// know.
    pub fn last(&self) -> Option<(Rank, u32)> {
        let later = |a, b| if is_after(b, a) { b } else { a };
        let reached = |&(newest, has_sent): &(u32, bool)| if has_sent { later(newest, self.floor) } else { self.floor };
        let first = self.newest.iter().map(reached).reduce(later)?;
        let ranks = (0..).map(Rank).zip(&self.newest).zip(&self.ports);
        let local = ranks.filter(|(_, port)| port.is_some());
        local.map(|((rank, at), _)| (rank, first.wrapping_sub(reached(at)))).max_by_key(|&(_, behind)| behind)
    }

    /// The same, if results wait for that rank. Ranks that keep pace differ by fewer blocks than there are ranks, since
    /// no rank sends blocks that its own host serves.
    pub fn lag(&self) -> Option<Lag> {
        let (rank, blocks) = self.last()?;
        (blocks >= u32::from(self.topology.world_size())).then_some(Lag { rank, blocks })
    }

    /// A gradient goes to a server because there was no room.
    pub fn overflow(&mut self, now: Time, server: Rank) {
        let (sent, _) = &mut self.sent[server.index()];
        *sent = sent.wrapping_add(1);
        self.counters.overflowed += 1;
        self.outstanding += 1;
        self.busy_at = now;
    }

    /// A rank sends such a gradient again: the first one was lost, and only one counts. If it was not lost, the server
    /// will report more gradients than were sent, and both counts restart.
    pub fn resent(&mut self, server: Rank) {
        let (sent, known) = &mut self.sent[server.index()];
        if *sent != *known {
            *sent = sent.wrapping_sub(1);
            self.outstanding -= 1;
        }
    }

    /// A server reports how many such gradients have come.
    pub fn received(&mut self, server: Rank, received: u32) {
        let (sent, known) = &mut self.sent[server.index()];
        if is_after(received, *sent) {
            // This switch was started again, and has sent fewer than the server has had from it.
            self.outstanding -= u64::from(sent.wrapping_sub(*known));
            (*sent, *known) = (received, received);
        } else if is_after(received, *known) {
            self.outstanding -= u64::from(received.wrapping_sub(*known));
            *known = received;
        }
    }

    /// Nothing was held for a lease: gradients that have not come by now are lost.
    pub fn forget_lost(&mut self) {
        self.sent.iter_mut().for_each(|(sent, known)| *known = *sent);
        self.outstanding = 0;
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.ports)
            + heap_bytes(&self.positions)
            + heap_bytes(&self.seen)
            + heap_bytes(&self.newest)
            + heap_bytes(&self.sent)
    }
}

/// The ranks whose blocks are in a switch's sum: all ranks behind that switch, or all but the server's.
fn contributors(topology: &Topology, header: &Header) -> impl Iterator<Item = Rank> {
    let server = topology.server_of(header.seq);
    let is_all = header.count == topology.contributors();
    let switch = topology.switch_of(header.wid);
    let is_in = move |rank: &Rank| if is_all { *rank != server } else { topology.switch_of(*rank) == switch };
    (0..topology.world_size()).map(Rank).filter(is_in)
}
