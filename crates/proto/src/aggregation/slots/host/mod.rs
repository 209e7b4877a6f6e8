//! A worker: SwitchML's Algorithm 4 over the continuous stream of appendix B, with the exponent look-ahead of §4.6.
//!
//! Each slot goes on by itself: its block is sent, the result comes, and its next block (`s` further in the stream)
//! follows at once. For a block of floats the ranks must agree on an exponent in the phase before. If they could not,
//! because some rank did not know the block yet, a phase that agrees on it (PROBE) precedes the block. In collectives
//! that fit into the pool that phase carries the block too, scaled by the slot's last exponent. If ranks then agree on
//! just that exponent, the result is the sum, and a small tensor took one round trip. Results are the same to the bit
//! either way.

mod send_order;
mod starts;
mod transmit;

use self::send_order::SendGate;
pub use self::send_order::{Epochs, SIMULATED_WINDOW, WINDOW_OPTIONS};
use super::wire::{Header, Kind, Mismatch, header_len};
use super::{Dialect, Word};
use crate::aggregation::agreement::{Agreement, Stage};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::report::{LastReport, Report};
use crate::aggregation::stream::{CoreBlocks, Op, Stream};
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError, Upcoming};
use crate::contract::ids::OpId;
use crate::contract::metric::Metric;
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::seal;
use crate::contract::state::HostState;
use crate::contract::time::Time;
use crate::contract::values::{FINGERPRINT_LEN, Values};
use crate::contract::wire::{COMMON_LEN, Common};
use crate::reliability::recovery::{Order, Recovery};
use crate::reliability::slot_lists::SendQueue;

#[derive(Clone, Hash)]
struct Slot {
    /// The block of the stream that the slot works on, or waits for.
    block: u64,
    /// How many times the slot was used.
    phase: u32,
    stage: Stage,
    agreement: Agreement,
    /// True if a packet of this phase has left.
    in_flight: bool,
    /// True if the packet was sent again and no longer counts as under way.
    is_late: bool,
    /// True if the phase began when the one before it ended.
    in_step: bool,
}

/// A worker's machine.
#[derive(Clone, Hash)]
pub struct SlotHost<D: Dialect> {
    dialect: D,
    config: HostConfig,
    common: [u8; COMMON_LEN],
    /// The job's packets have a checksum.
    is_sealed: bool,
    life: Life,
    slots: Vec<Slot>,
    queue: SendQueue,
    /// The host's own order, if it does not send blocks in the order of the tensor.
    epochs: Option<Box<Epochs>>,
    /// Holds blocks back, if fewer may be under way than the pool has slots.
    gate: Option<Box<SendGate>>,
    recovery: Recovery,
    /// The slot that the host asks about.
    question: Option<u16>,
    /// What the switch last said about a slot and its phase.
    last_report: LastReport<(u16, u32)>,
    stats: HostStats,
}

impl<D: Dialect> SlotHost<D> {
    const HEADER_LEN: usize = header_len::<D::Word>();

    /// A worker that has nothing to do.
    pub fn new(values: Values, config: &HostConfig) -> SlotHost<D> {
        let job = &config.job;
        let dialect = D::of(&job.options, job.levels, job.world_size);
        let epochs = dialect.epochs(config).map(Box::new);
        // If hosts send in orders of their own, results come in any order.
        let order = if epochs.is_some() { Order::Any } else { dialect.order() };
        // Hosts with orders of their own would not have the same blocks under way.
        let gate = if epochs.is_none() { SendGate::chosen(job, Self::HEADER_LEN) } else { None };
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        let slot = |idx| Slot {
            block: u64::from(idx),
            phase: 0,
            stage: Stage::Idle,
            agreement: Agreement::default(),
            in_flight: false,
            is_late: false,
            in_step: false,
        };
        let stream = Stream::new(values, dialect.numbers(), dialect.narrow(), job).of_rank(config.rank);
        let stream = if config.slots.cores > 1 { stream.of_core(CoreBlocks::new(job, config.slots)) } else { stream };
        SlotHost {
            common,
            is_sealed: seal::is_chosen(&job.options),
            life: Life::new(stream),
            slots: (0..job.slots).map(slot).collect(),
            dialect,
            epochs,
            gate: gate.map(Box::new),
            queue: SendQueue::new(job.slots),
            recovery: Recovery::new(job, config.rank, config.timers, order),
            question: None,
            last_report: LastReport::default(),
            stats: HostStats::default(),
            config: config.clone(),
        }
    }

    fn receive(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        match self.is_sealed {
            true => seal::parse_kind(packet.bytes, &self.config.job.common())?,
            false => Common::parse_kind(packet.bytes, &self.config.job.common())?,
        };
        let header = Header::parse(packet.bytes)?;
        let slot = self.slots.get(usize::from(header.idx)).ok_or(DropReason::BadField)?;
        if from != Addr::Switch(self.recovery.tree_of_slot(header.idx)) {
            return Err(DropReason::NotAMember);
        }
        if packet.wire_len == Self::HEADER_LEN && header.spec.primitive.sole_recipient() == Some(self.config.rank) {
            // All ranks hear that a block has reached its recipient. The recipient itself hears it twice.
            if Kind::of(packet.bytes)? == Kind::Result && !self.awaits_bare(&header, slot) {
                return Ok(());
            }
        }
        match header.phase.wrapping_sub(slot.phase) as i32 {
            ..0 => return Err(DropReason::Stale),
            1.. => return Err(DropReason::Ahead),
            0 if !slot.in_flight => return Err(DropReason::Unexpected),
            0 => {}
        }
        match Kind::of(packet.bytes)? {
            Kind::Result => self.result(now, &header, packet),
            Kind::Report => {
                self.last_report
                    .on_report((header.idx, header.phase), Report::parse(&packet.bytes[Self::HEADER_LEN..])?);
                Ok(())
            }
            Kind::Mismatch => self.mismatch(&header, Mismatch::parse(&packet.bytes[Self::HEADER_LEN..])?),
            Kind::Update | Kind::Probe | Kind::Query => Err(DropReason::BadKind),
        }
    }

    /// True if what a slot waits for in this phase has no vector.
    fn awaits_bare(&self, header: &Header<D::Word>, slot: &Slot) -> bool {
        let has_vector = |op: &Op| slot.stage != Stage::Probe && !op.range(slot.block).is_empty();
        header.phase == slot.phase && !self.life.stream.op_of(slot.block).is_some_and(has_vector)
    }

    /// Takes the answer to the slot's phase (Algorithm 4, lines 10 to 18).
    fn result(&mut self, now: Time, header: &Header<D::Word>, packet: Packet<'_>) -> Result<(), DropReason> {
        let (world_size, stride) = (self.config.job.world_size, self.slots.len() as u64);
        let slot = &mut self.slots[usize::from(header.idx)];
        let op = self.life.stream.op_of_mut(slot.block).expect("a slot in flight has a block");
        if header.spec != op.spec {
            return Err(DropReason::BadField);
        }
        let was_empty = slot.stage == Stage::Probe;
        let whole = if was_empty { 0..0 } else { op.range(slot.block) };
        // If the result belongs to another rank, this rank only hears that the slot is free.
        let is_mine = op.spec.primitive.sole_recipient().is_none_or(|recipient| recipient == self.config.rank);
        let range = if is_mine { whole } else { 0..0 };
        if packet.wire_len != Self::HEADER_LEN + op.encoding.result_wire_len(range.len())
            || packet.bytes.len() != Self::HEADER_LEN + op.encoding.result_buffer_len(range.len())
        {
            return Err(DropReason::BadLength);
        }
        let summed_with = slot.agreement.conclude(slot.stage, header.word.agreed())?;
        if let Some(exponent) = summed_with {
            if !range.is_empty() && op.spec.primitive.receives(self.config.rank) {
                op.write(slot.block, exponent, world_size, &packet.bytes[Self::HEADER_LEN..]);
            }
            op.remaining -= 1;
            self.stats.blocks_in_network += 1;
            self.stats.order = header.word.order();
            slot.block = self.life.stream.next_in_slot(slot.block + stride, stride);
        }
        slot.phase = slot.phase.wrapping_add(1);
        let took = self.recovery.answered(now, header.idx, &mut self.queue);
        // An empty packet's answer says nothing about how fast the path brings full ones.
        if let Some(gate) = self.gate.as_mut().filter(|_| !was_empty) {
            gate.on_answer(now, header.idx, took);
        }
        self.end_phase(header.idx);
        match summed_with {
            Some(_) => self.go_on(header.idx),
            None => self.start(header.idx, true),
        }
        self.release();
        self.complete_collectives();
        Ok(())
    }
}

impl<D: Dialect> Host for SlotHost<D> {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let (id, blocks) = self.life.submit(now, collective)?;
        self.begin(blocks);
        if self.config.slots.cores > 1 {
            // Perhaps all blocks are those of other cores.
            self.complete_collectives();
        }
        Ok(id)
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(now, from, packet);
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, now: Time) {
        self.recovery.handle_timeout(now, &mut self.queue);
        self.check_deadlines(now);
    }

    fn abort(&mut self, _now: Time) {
        self.fail(CollectiveError::Aborted);
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if let Some(idx) = self.question.take()
            && self.waits(idx)
        {
            let written = self.write(idx, Kind::Query, buf);
            return Some(self.transmit(idx, written));
        }
        loop {
            let idx = self.queue.pop()?;
            let kind = match self.slots[usize::from(idx)].stage {
                Stage::Probe | Stage::Guess => Kind::Probe,
                Stage::Update => Kind::Update,
                Stage::Idle | Stage::Refused => continue,
            };
            let written = self.write(idx, kind, buf);
            let slot = &mut self.slots[usize::from(idx)];
            slot.in_flight = true;
            if self.recovery.sent(now, idx, slot.in_step) {
                self.stats.retransmissions += 1;
                self.be_late(now, idx);
            }
            return Some(self.transmit(idx, written));
        }
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.life.poll_event()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.recovery.poll_timeout().into_iter().chain(self.life.next_deadline()).min()
    }

    fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        let deadline = self.life.next_deadline().filter(|&due| due < limit);
        self.recovery.poll_timeout_before(limit).into_iter().chain(deadline).min()
    }

    fn max_packet_len(&self) -> usize {
        Self::HEADER_LEN + self.config.job.payload_bytes().max(FINGERPRINT_LEN)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn prefetch(&self, upcoming: Upcoming<'_>) {
        self.ask_for_memory(upcoming);
    }

    fn metrics(&self) -> Vec<Metric> {
        let blocks =
            |gate: &SendGate| Metric::gauge("window_blocks", gate.window() as f64, "Blocks that may be under way.");
        self.gate.as_deref().map(blocks).into_iter().collect()
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}

// Collectives that cannot succeed: disagreements, deadlines, and the culprits.

impl<D: Dialect> SlotHost<D> {
    fn mismatch(&mut self, header: &Header<D::Word>, mismatch: Mismatch) -> Result<(), DropReason> {
        let slot = &mut self.slots[usize::from(header.idx)];
        slot.stage = Stage::Refused;
        self.recovery.forget(header.idx);
        let op = self.life.stream.op_of(slot.block).expect("a slot in flight has a block").id;
        self.life.dispute(op, mismatch);
        self.end_phase(header.idx);
        self.release();
        self.complete_collectives();
        Ok(())
    }

    /// True if the slot is one that this core drives.
    pub(super) fn drives(&self, idx: u16) -> bool {
        self.config.slots.has(&self.config.job, idx)
    }

    fn waits(&self, idx: u16) -> bool {
        self.slots[usize::from(idx)].stage.waits()
    }
}

impl<D: Dialect> LifeCycle for SlotHost<D> {
    type Waiting = u16;

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn stop(&mut self) {
        for (idx, slot) in self.slots.iter_mut().enumerate() {
            slot.stage = Stage::Idle;
            (slot.in_flight, slot.is_late) = (false, false);
            self.recovery.forget(idx as u16);
        }
        self.queue.clear();
        if let Some(gate) = &mut self.gate {
            gate.clear();
        }
        self.question = None;
    }

    fn oldest_waiting(&self) -> Option<u16> {
        let block_of = |&idx: &u16| self.slots[usize::from(idx)].block;
        (0..self.slots.len() as u16).filter(|&idx| self.waits(idx)).min_by_key(block_of)
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
