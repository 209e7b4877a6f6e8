//! A worker of sparse allreduces: slots take the stream's blocks as in dense allreduces, and each block is a stream of
//! shards both ways.
//!
//! A slot's next phase begins when all shards of its sum have come. Only hosts have timers: a host sends late shards
//! again, or asks for late sums, for the slot that has waited longest first.

mod slot;

use self::slot::{Say, Slot};
use super::layout::{Choices, Layout};
use super::wire::{HEADER_LEN, Header, Kind, bits, put_bits};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::ordered::VectorFormat;
use crate::aggregation::report::{LastReport, Mismatch, Report};
use crate::aggregation::stream::{Op, Stream};
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::OpId;
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::packet::{Addr, Ecn, Packet, Transmit};
use crate::contract::tensor::{SparseTensor, Spec};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::{COMMON_LEN, Common};
use crate::reliability::recovery::{Order, Recovery};
use crate::reliability::slot_lists::SendQueue;

/// Bytes that a pair's index and value may be longer in memory than on the wire: a fingerprint's value is as long as
/// the longest value.
const LONGER: usize = 8;

/// A worker's machine.
pub struct SparseHost {
    values: Values,
    choices: Choices,
    config: HostConfig,
    common: [u8; COMMON_LEN],
    life: Life,
    slots: Vec<Slot>,
    /// The slot whose block is being sent. Blocks are sent one after the other, so that the first is summed first.
    current: Option<u16>,
    queue: SendQueue,
    /// Slots whose timers have run out.
    late: SendQueue,
    recovery: Recovery,
    /// The slot that this worker asks about.
    question: Option<u16>,
    /// What the switch last said about a slot and its phase.
    last_report: LastReport<(u16, u32)>,
    stats: HostStats,
}

impl SparseHost {
    /// A worker that has no collectives.
    pub fn new(values: Values, config: &HostConfig, choices: Choices) -> SparseHost {
        let job = &config.job;
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        let payload_bytes = job.payload_bytes();
        let span = move |spec: &Spec| {
            Layout::new(values, payload_bytes, &choices, spec).expect("a driver asks first what a protocol can").span
        };
        let stream = Stream::new(values, Numbers::Float, NarrowBlocks::fitting(job.levels), job);
        SparseHost {
            values,
            choices,
            common,
            life: Life::new(stream.in_spans(std::sync::Arc::new(span))),
            slots: (0..job.slots).map(Slot::new).collect(),
            current: None,
            queue: SendQueue::new(job.slots),
            late: SendQueue::new(job.slots),
            // Blocks end in any order: a block of more shards ends later.
            recovery: Recovery::new(job, config.rank, config.timers, Order::Any),
            question: None,
            last_report: LastReport::default(),
            stats: HostStats::default(),
            config: config.clone(),
        }
    }

    fn layout(&self, op: &Op) -> Layout {
        let payload_bytes = self.config.job.payload_bytes();
        Layout::new(self.values, payload_bytes, &self.choices, &op.spec).expect("it was submitted")
    }

    /// Starts a slot whose block has been submitted.
    fn start(&mut self, idx: u16, in_step: bool) {
        let slot = &self.slots[usize::from(idx)];
        let Some(op) = self.life.stream.op_of(slot.block) else { return };
        let range = op.range(slot.block);
        let positions = sparse(op).positions(range.start as u32..range.end as u32);
        let layout = self.layout(op);
        self.slots[usize::from(idx)].begin(positions, &layout, in_step);
        self.queue.push(idx);
    }

    fn receive(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        Common::parse_kind(packet.bytes, &self.config.job.common())?;
        let (kind, header) = (Kind::of(packet.bytes)?, Header::parse(packet.bytes)?);
        let slot = self.slots.get(usize::from(header.idx)).ok_or(DropReason::BadField)?;
        if from != Addr::Switch(self.recovery.tree_of_slot(header.idx)) {
            return Err(DropReason::NotAMember);
        }
        match header.phase.wrapping_sub(slot.phase) as i32 {
            ..0 => return Err(DropReason::Stale),
            1.. => return Err(DropReason::Ahead),
            0 if !slot.is_active => return Err(DropReason::Unexpected),
            0 => {}
        }
        let body = &packet.bytes[HEADER_LEN..];
        match kind {
            Kind::Sum => self.sum(now, &header, body, packet.wire_len.saturating_sub(HEADER_LEN)),
            Kind::Taken => self.taken(now, &header, bits(body)?),
            Kind::Report => {
                self.last_report.on_report((header.idx, header.phase), Report::parse(body)?);
                Ok(())
            }
            Kind::Mismatch => self.mismatch(&header, Mismatch::parse(body)?),
            Kind::Shard | Kind::Have | Kind::Want | Kind::Query => Err(DropReason::BadKind),
        }
    }

    /// Takes in a shard of the sum.
    fn sum(&mut self, now: Time, header: &Header, body: &[u8], wire_len: usize) -> Result<(), DropReason> {
        let (idx, world_size) = (header.idx, self.config.job.world_size);
        let slot = &mut self.slots[usize::from(idx)];
        let op = self.life.stream.op_of_mut(slot.block).expect("an active slot has a block");
        if header.spec != op.spec {
            return Err(DropReason::BadField);
        }
        let payload_bytes = self.config.job.payload_bytes();
        let layout = Layout::new(self.values, payload_bytes, &self.choices, &op.spec).expect("it was submitted");
        let format = if header.is_finished { VectorFormat::Host } else { VectorFormat::Partial };
        let range = op.range(slot.block);
        let block = range.start as u32..range.end as u32;
        layout.parse(body, wire_len, format, block.end - block.start)?;
        let taken = slot.sum.take(header, body);
        if header.asks && matches!(taken, Ok(()) | Err(DropReason::Duplicate)) {
            slot.owe_have();
            self.queue.push(idx);
        }
        taken?;
        if !slot.sum.received.is_complete() {
            self.rearm(now, idx);
            return Ok(());
        }
        slot.sum.write(&layout, world_size, block, op.tensor.sparse_mut().expect("the job's tensors are sparse"));
        op.remaining -= 1;
        self.stats.blocks_in_network += 1;
        slot.end(self.config.job.slots.into());
        self.recovery.answered(now, idx, &mut self.queue);
        self.start(idx, true);
        self.complete_collectives();
        Ok(())
    }

    /// The switch has some of the slot's shards. If it has all of them, and waits too, the slot's timer is not set
    /// again.
    fn taken(&mut self, now: Time, header: &Header, bits: u64) -> Result<(), DropReason> {
        let slot = &mut self.slots[usize::from(header.idx)];
        slot.taken(header, bits);
        if slot.has_more() {
            self.queue.push(header.idx);
            self.rearm(now, header.idx);
        }
        Ok(())
    }

    /// The slot makes progress: its timer is set again.
    fn rearm(&mut self, now: Time, idx: u16) {
        if self.slots[usize::from(idx)].is_armed {
            self.recovery.stirred(now, idx);
        }
    }

    /// The slot that sends next: the current one, one whose timer has run out, or the next in turn.
    fn next_slot(&mut self, now: Time) -> Option<u16> {
        if let Some(idx) = self.current.take() {
            return Some(idx);
        }
        let Some(idx) = self.late.pop() else { return self.queue.pop() };
        let slot = &mut self.slots[usize::from(idx)];
        if slot.is_active {
            slot.time_out();
            self.recovery.sent(now, idx, false);
        }
        Some(idx)
    }

    /// The slot has nothing more to send, and waits.
    fn wait(&mut self, now: Time, idx: u16) {
        let slot = &mut self.slots[usize::from(idx)];
        if slot.is_active && !std::mem::replace(&mut slot.is_armed, true) {
            self.recovery.sent(now, idx, slot.in_step);
        }
    }

    /// Writes a packet of a slot; returns its length in memory and on the wire.
    fn write(&self, idx: u16, say: Say, buf: &mut [u8]) -> (usize, usize) {
        let slot = &self.slots[usize::from(idx)];
        let op = self.life.stream.op_of(slot.block).expect("an active slot has a block");
        let blank = self.blank(idx, op);
        let (shard, asks) = match say {
            Say::Shard { shard, asks, .. } => (shard, asks),
            Say::Have | Say::Want => {
                let received = slot.sum.received;
                let kind = if say == Say::Want { Kind::Want } else { Kind::Have };
                self.put(kind, &Header { shard: received.next, ..blank }, buf);
                let len = put_bits(buf, received.bits);
                return (len, len);
            }
        };
        let (positions, count) = slot.shard(shard);
        self.put(Kind::Shard, &Header { shard, count, asks, ..blank }, buf);
        let (layout, tensor, pairs) = (self.layout(op), sparse(op), positions.len());
        let len = HEADER_LEN + layout.buffer_len(pairs, VectorFormat::Host);
        let body = &mut buf[HEADER_LEN..len];
        let start = op.range(slot.block).start as u32;
        layout.put_offsets(body, &tensor.indices()[positions.clone()], start);
        tensor.read_values(positions, layout.values(body, pairs, VectorFormat::Host));
        (len, HEADER_LEN + layout.wire_len(pairs, VectorFormat::Host))
    }

    fn blank(&self, idx: u16, op: &Op) -> Header {
        let wid = self.config.leaf(self.recovery.tree_of_slot(idx)).child;
        let phase = self.slots[usize::from(idx)].phase;
        Header { wid, idx, phase, shard: 0, count: 0, asks: false, is_finished: false, spec: op.spec }
    }

    fn put(&self, kind: Kind, header: &Header, buf: &mut [u8]) {
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        kind.put(buf);
        header.emit(buf);
    }

    fn transmit(&mut self, idx: u16, len: usize, wire_len: usize) -> Transmit {
        self.stats.packets_sent += 1;
        Transmit { to: Addr::Switch(self.recovery.tree_of_slot(idx)), len, wire_len, ecn: Ecn::NotCapable }
    }
}

/// The data of a collective in a job whose tensors are sparse.
fn sparse(op: &Op) -> &dyn SparseTensor {
    op.tensor.sparse().expect("the job's tensors are sparse")
}

impl Host for SparseHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let (id, blocks) = self.life.submit(now, collective)?;
        let slots = self.slots.len() as u64;
        for block in blocks.take(self.slots.len()) {
            let slot = &self.slots[(block % slots) as usize];
            if !slot.is_active && slot.block == block {
                self.start((block % slots) as u16, false);
            }
        }
        Ok(id)
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(now, from, packet);
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, now: Time) {
        self.recovery.handle_timeout(now, &mut self.late);
        self.check_deadlines(now);
    }

    fn abort(&mut self, _now: Time) {
        self.fail(CollectiveError::Aborted);
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if let Some(idx) = self.question.take().filter(|&idx| self.slots[usize::from(idx)].is_active) {
            let op = self.life.stream.op_of(self.slots[usize::from(idx)].block).expect("it is active");
            self.put(Kind::Query, &self.blank(idx, op), buf);
            return Some(self.transmit(idx, HEADER_LEN, HEADER_LEN));
        }
        loop {
            let idx = self.next_slot(now)?;
            let Some(say) = self.slots[usize::from(idx)].next() else {
                self.wait(now, idx);
                continue;
            };
            self.current = Some(idx);
            self.stats.retransmissions += u64::from(matches!(say, Say::Shard { again: true, .. } | Say::Want));
            let (len, wire_len) = self.write(idx, say, buf);
            return Some(self.transmit(idx, len, wire_len));
        }
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.life.poll_event()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.recovery.poll_timeout().into_iter().chain(self.life.next_deadline()).min()
    }

    fn max_packet_len(&self) -> usize {
        let pairs = self.config.job.payload_bytes() / 3 + 1;
        let longer = if self.values == Values::Elements { 0 } else { LONGER * pairs };
        HEADER_LEN + self.config.job.payload_bytes().max(2 * LONGER) + longer
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }
}

// Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

impl SparseHost {
    fn mismatch(&mut self, header: &Header, mismatch: Mismatch) -> Result<(), DropReason> {
        let slot = &mut self.slots[usize::from(header.idx)];
        slot.is_active = false;
        self.recovery.forget(header.idx);
        let op = self.life.stream.op_of(slot.block).expect("an active slot has a block").id;
        self.life.dispute(op, mismatch);
        self.complete_collectives();
        Ok(())
    }
}

impl LifeCycle for SparseHost {
    type Waiting = u16;

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn stop(&mut self) {
        for (idx, slot) in self.slots.iter_mut().enumerate() {
            slot.is_active = false;
            self.recovery.forget(idx as u16);
        }
        self.queue.clear();
        self.late.clear();
        (self.current, self.question) = (None, None);
    }

    fn oldest_waiting(&self) -> Option<u16> {
        let block_of = |&idx: &u16| self.slots[usize::from(idx)].block;
        (0..self.slots.len() as u16).filter(|&idx| self.slots[usize::from(idx)].is_active).min_by_key(block_of)
    }

    fn ask(&mut self, waiting: Option<u16>) {
        self.question = waiting;
    }

    fn blame(&self, idx: u16) -> CollectiveError {
        let slot = &self.slots[usize::from(idx)];
        let op = self.life.stream.op_of(slot.block).expect("a slot that waits has a block");
        let at = (idx.into(), self.recovery.tree_of_slot(idx));
        self.last_report.blame(&(idx, slot.phase), at, op.local(slot.block), op.id)
    }
}
