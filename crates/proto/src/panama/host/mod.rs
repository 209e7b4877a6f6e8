//! A worker (§4.1, §4.2.2): blocks go to trees in turn, each tree has a window, and results are implicit
//! acknowledgements.

mod kept;
mod results;
mod tree;

use self::tree::Tree;
use super::options::Choices;
use super::wire::{HEADER_LEN, Header, Kind, Mismatch, NO_CAP, epoch, near, put_top};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::report::Report;
use crate::aggregation::stream::{Op, Stream};
use crate::congestion::RankSynchronous;
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, TreeId};
use crate::contract::metric::Metric;
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::packet::{Addr, Ecn, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::tensor::Spec;
use crate::contract::time::Time;
use crate::contract::values::{FINGERPRINT_LEN, Values};
use crate::contract::wire::{COMMON_LEN, Common};
use crate::reliability::slot_lists;

/// A worker's machine.
#[derive(Clone, Hash)]
pub struct PanamaHost {
    config: HostConfig,
    common: [u8; COMMON_LEN],
    choices: Choices,
    life: Life,
    trees: Vec<Tree>,
    /// The tree whose turn it is.
    turn: usize,
    /// When a result last came. A packet that is sent at the same time is sent because of it.
    stirred_at: Option<Time>,
    is_leaving: bool,
    stats: HostStats,
}

impl PanamaHost {
    /// A worker that has no collectives.
    pub fn new(values: Values, config: &HostConfig) -> PanamaHost {
        PanamaHost::starting_at(values, config, 0)
    }

    /// The same with another first VID, for tests of what happens where 32 bits end.
    pub fn starting_at(values: Values, config: &HostConfig, first: u32) -> PanamaHost {
        let (job, choices) = (&config.job, Choices::of(&config.job.options));
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        // A packet holds at least one element, however short the job's packets are.
        let stride =
            if values == Values::Elements { job.payload_bytes().max(size_of::<f64>()) } else { FINGERPRINT_LEN };
        let tree = |id| {
            let capacity = slot_lists::slots_of(job, id).len().max(1);
            Tree::new((id, config.leaf(id).child), first.into(), capacity, stride, choices, config.timers)
        };
        PanamaHost {
            common,
            choices,
            life: Life::new(Stream::new(values, Numbers::Float, NarrowBlocks::fitting(job.levels), job)),
            trees: (0..job.trees).map(|id| tree(TreeId(id))).collect(),
            turn: 0,
            stirred_at: None,
            is_leaving: false,
            stats: HostStats::default(),
            config: config.clone(),
        }
    }

    /// The controller of a tree, and the first VID of the tree whose result has never come.
    pub fn window(&self, tree: TreeId) -> Option<(&dyn RankSynchronous, u64)> {
        self.trees.get(tree.index()).map(|tree| (&*tree.window, tree.done()))
    }

    /// The number of the block that a VID of a tree stands for (§4.1).
    fn block(&self, tree: usize, vid: u64) -> u64 {
        (vid - self.trees[tree].first) * self.trees.len() as u64 + tree as u64
    }

    /// The first VID of a tree that stands for this block or a later one.
    fn vid_from(&self, tree: usize, block: u64) -> u64 {
        let trees = self.trees.len() as u64;
        self.trees[tree].first + (block + trees - 1 - tree as u64) / trees
    }

    /// The VID behind the last one of a tree whose block was submitted.
    fn submitted(&self, tree: usize) -> u64 {
        self.vid_from(tree, self.life.stream.blocks())
    }

    /// The tree that sends next, and its VID.
    fn next_turn(&self) -> Option<(usize, u64)> {
        let trees = self.trees.len();
        if self.choices.strict {
            let waits = |tree: &usize| self.trees[*tree].has_next(self.submitted(*tree));
            let first = (0..trees).filter(waits).min_by_key(|&tree| self.block(tree, self.trees[tree].next()))?;
            return self.trees[first].sendable(self.submitted(first)).map(|vid| (first, vid));
        }
        let mut turns = (self.turn..trees).chain(0..self.turn);
        turns.find_map(|tree| self.trees[tree].sendable(self.submitted(tree)).map(|vid| (tree, vid)))
    }

    fn receive(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        Common::parse_kind(packet.bytes, &self.config.job.common())?;
        let header = Header::parse(packet.bytes)?;
        let kind = Kind::of(packet.bytes)?;
        let tree = self.trees.get_mut(header.tree().index()).ok_or(DropReason::BadField)?;
        if from != Addr::Switch(tree.id) {
            return Err(DropReason::NotAMember);
        }
        if self.life.broken().is_some() {
            return Err(DropReason::Unexpected);
        }
        let vid = near(tree.done(), header.vid);
        match kind {
            Kind::FinAsk => tree.on_fin_ask(vid),
            Kind::FinDone => tree.on_fin_done(now, vid),
            Kind::Sync if epoch(header.epoch, tree.epoch).is_lt() => return Err(DropReason::StaleEpoch),
            Kind::Sync if header.epoch == tree.epoch && !tree.is_syncing => return Err(DropReason::Stale),
            Kind::Sync => tree.on_sync(now, header.epoch),
            _ if epoch(header.epoch, tree.epoch).is_lt() => return Err(DropReason::StaleEpoch),
            _ if header.epoch != tree.epoch => return Err(DropReason::Ahead),
            Kind::Rewind if !tree.is_syncing => return Err(DropReason::Stale),
            Kind::Rewind if !tree.on_rewind(now, vid) => return Err(DropReason::BadField),
            Kind::Rewind => {}
            _ if tree.is_syncing => return Err(DropReason::StaleEpoch),
            Kind::Result => return self.result(now, &header, vid, packet),
            Kind::Waiting => tree.last_report.on_report(vid, Report::parse(&packet.bytes[HEADER_LEN..])?),
            Kind::Passed => tree.on_passed(now, vid),
            Kind::Resend if tree.on_resend(vid) => {}
            Kind::Resend => return Err(DropReason::Stale),
            Kind::Mismatch => return self.mismatch(now, &header, vid, Mismatch::parse(&packet.bytes[HEADER_LEN..])?),
            _ => return Err(DropReason::BadKind),
        }
        Ok(())
    }

    /// Reports complete collectives, and leaves the trees when no more will come.
    fn complete_or_leave(&mut self, now: Time) {
        if self.complete_collectives() && self.is_leaving && self.life.stream.front().is_none() {
            self.trees.iter_mut().for_each(|tree| tree.leave(now));
        }
    }

    /// True if what this worker brings to a collective is in its input even after results have come.
    fn is_input_left(&self, op: &Op) -> bool {
        self.choices.quorum.is_none() && op.tensor.leaves_input()
    }

    fn header(&self, tree: usize, kind: Kind, vid: u64, (spec, contributors): (Spec, u16), buf: &mut [u8]) {
        let Tree { id, child, epoch, .. } = &self.trees[tree];
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        kind.put(buf);
        let (vid, tid, wid) = (vid as u32, id.0 as u8, *child);
        Header { vid, tid, wnd_cap: NO_CAP, epoch: *epoch, wid, spec, contributors }.emit(buf);
    }

    /// Writes a VID's packet; returns its length in memory and on the wire.
    fn contribution(&self, index: usize, vid: u64, buf: &mut [u8]) -> (usize, usize) {
        let tree = &self.trees[index];
        if tree.has(vid)
            && let Some((kept, bytes)) = tree.kept.get(vid)
        {
            let kind = if self.choices.quorum.is_some() { Kind::Known } else { Kind::Contribution };
            self.header(index, kind, vid, (kept.spec, kept.contributors), buf);
            buf[HEADER_LEN..HEADER_LEN + kept.len].copy_from_slice(bytes);
            return (HEADER_LEN + kept.len, HEADER_LEN + kept.wire_len);
        }
        let block = self.block(index, vid);
        let op = self.life.stream.op_of(block).expect("a VID that may be sent is a block of a collective");
        assert!(!tree.has(vid) || self.is_input_left(op), "what may be wanted again is kept, or still in the input");
        self.header(index, Kind::Contribution, vid, (op.spec, 1), buf);
        let (len, wire_len) = lengths(op, block);
        read(op, block, &self.config, &mut buf[HEADER_LEN..HEADER_LEN + len]);
        (HEADER_LEN + len, HEADER_LEN + wire_len)
    }

    fn poll_notice(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        let (index, (kind, vid)) = (0..self.trees.len()).find_map(|index| {
            let submitted = self.submitted(index);
            self.trees[index].poll_notice(submitted).map(|said| (index, said))
        })?;
        self.header(index, kind, vid, (Spec::NOTHING, 0), buf);
        let has_top = kind == Kind::Base && self.choices.quorum.is_some();
        let body = if has_top { put_top(self.trees[index].top() as u32, &mut buf[HEADER_LEN..]) } else { 0 };
        let (to, len) = (Addr::Switch(self.trees[index].id), HEADER_LEN + body);
        Some(Transmit { to, len, wire_len: len, ecn: Ecn::NotCapable })
    }
}

/// The lengths of a block's vector in memory and on the wire.
fn lengths(op: &Op, block: u64) -> (usize, usize) {
    let elements = op.range(block).len();
    (op.encoding.buffer_len(elements), op.encoding.wire_len(elements))
}

/// Writes what this rank brings to a block.
fn read(op: &Op, block: u64, config: &HostConfig, vector: &mut [u8]) {
    if !vector.is_empty() && op.spec.primitive.contributes(config.rank) {
        op.read(block, None, config.job.world_size, vector);
    } else {
        // In a broadcast other ranks bring zeros, so that the sum is the root's words as they are.
        vector.fill(0);
    }
}

impl Host for PanamaHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let (id, blocks) = self.life.submit(now, collective)?;
        if self.choices.quorum.is_some() {
            self.write_early(now, blocks);
        }
        Ok(id)
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(now, from, packet);
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.life.broken().is_none() {
            self.trees.iter_mut().for_each(|tree| tree.handle_timeout(now));
        }
        self.check_deadlines(now);
    }

    fn abort(&mut self, _now: Time) {
        self.fail(CollectiveError::Aborted);
    }

    fn finish(&mut self, now: Time) {
        self.is_leaving = true;
        self.complete_or_leave(now);
    }

    fn may_leave(&self) -> bool {
        let has_parted = |tree: &Tree| tree.has_parted;
        !self.is_leaving || self.life.broken().is_some() || self.trees.iter().all(has_parted)
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if self.life.broken().is_some() {
            return None;
        }
        if let Some(notice) = self.poll_notice(buf) {
            self.stats.packets_sent += 1;
            return Some(notice);
        }
        let (index, vid) = self.next_turn()?;
        self.turn = (index + 1) % self.trees.len();
        let (len, wire_len) = self.contribution(index, vid, buf);
        let (in_step, tree) = (self.stirred_at == Some(now), &mut self.trees[index]);
        self.stats.retransmissions += u64::from(tree.on_sent(now, in_step));
        self.stats.packets_sent += 1;
        let ecn = if self.choices.congestion_control.follows_marks { Ecn::Capable } else { Ecn::NotCapable };
        Some(Transmit { to: Addr::Switch(tree.id), len, wire_len, ecn })
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.life.poll_event()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let trees = self.trees.iter().filter(|_| self.life.broken().is_none()).filter_map(Tree::due);
        trees.chain(self.life.next_deadline()).min()
    }

    fn max_packet_len(&self) -> usize {
        HEADER_LEN + self.config.job.payload_bytes().max(FINGERPRINT_LEN)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn metrics(&self) -> Vec<Metric> {
        let window: u64 = self.trees.iter().map(|tree| tree.window.packets()).sum();
        vec![Metric::gauge(
            "window_packets",
            window as f64,
            "Packets that may be without a result, of all trees: cwnd.",
        )]
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}

// Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

impl PanamaHost {
    fn mismatch(&mut self, now: Time, header: &Header, vid: u64, mismatch: Mismatch) -> Result<(), DropReason> {
        let index = header.tree().index();
        let tree = &self.trees[index];
        if vid < tree.done() || vid >= tree.next().min(self.submitted(index)) || tree.has(vid) {
            return Err(DropReason::Unexpected);
        }
        let block = self.block(index, vid);
        let op = self.life.stream.op_of(block).expect("what was sent and has no result has a collective").id;
        self.life.dispute(op, mismatch);
        self.complete_or_leave(now);
        Ok(())
    }
}

impl LifeCycle for PanamaHost {
    /// A tree, and the block that it waits with.
    type Waiting = (usize, u64);

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn on_complete(&mut self, op: &Op) {
        if self.is_input_left(op) {
            self.keep_latest(op);
        }
    }

    /// The trees stop because the life is broken.
    fn stop(&mut self) {}

    fn oldest_waiting(&self) -> Option<(usize, u64)> {
        let waiting = |(index, tree): (usize, &Tree)| {
            tree.oldest(self.submitted(index)).map(|vid| (index, self.block(index, vid)))
        };
        self.trees.iter().enumerate().filter_map(waiting).min_by_key(|&(_, block)| block)
    }

    fn ask(&mut self, waiting: Option<(usize, u64)>) {
        if let Some((tree, _)) = waiting {
            self.trees[tree].ask();
        }
    }

    fn blame(&self, (index, block): (usize, u64)) -> CollectiveError {
        let (tree, op) =
            (&self.trees[index], self.life.stream.op_of(block).expect("a block that waits has a collective"));
        let (local, op) = (op.local(block), op.id);
        let blamed = tree.last_report.of(&tree.done()).and_then(|report| report.blame(index as u32, local, op));
        blamed.unwrap_or(CollectiveError::SwitchSilent { tree: tree.id, block: local, op })
    }
}
