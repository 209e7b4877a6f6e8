//! A worker: Algorithm 4 over the continuous stream of appendix B, with the exponent look-ahead of §4.6.
//!
//! Each slot goes its own way: its block is sent, the result comes, its next block (`s` further in the stream) follows
//! at once. A block of floats whose exponent ranks could not agree on in the phase before, because some rank did not
//! know the block yet, is preceded by a phase that agrees on it (PROBE). In collectives that fit into the pool that
//! phase carries the block too, scaled by the slot's last exponent: if ranks then agree on just that one, it is the
//! sum, and a small tensor took one round trip. Results are the same to the bit either way.

mod failure;

use self::failure::Heard;
use super::wire::{HEADER_LEN, Header, Kind, LookAhead, Mismatch};
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::OpId;
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::packet::{Addr, Ecn, Packet, Transmit};
use crate::contract::time::Time;
use crate::contract::values::{FINGERPRINT_LEN, Values};
use crate::contract::wire::{COMMON_LEN, Common};
use crate::parts::agreement::{Agreement, Stage};
use crate::parts::deadlines::Due;
use crate::parts::life::Life;
use crate::parts::recovery::{Order, Recovery};
use crate::parts::report::Report;
use crate::parts::send_queue::SendQueue;
use crate::parts::stream::Stream;

struct Slot {
    /// The block of the stream that it works on, or waits for.
    block: u64,
    /// How many times it was used.
    phase: u32,
    stage: Stage,
    agreement: Agreement,
    /// A packet of this phase has left.
    in_flight: bool,
    /// The phase began when the one before it ended.
    in_step: bool,
}

/// A worker's machine.
pub struct SwitchMlHost {
    config: HostConfig,
    common: [u8; COMMON_LEN],
    life: Life,
    slots: Vec<Slot>,
    queue: SendQueue,
    recovery: Recovery,
    /// The slot to ask about.
    question: Option<u16>,
    heard: Option<Heard>,
    stats: HostStats,
}

impl SwitchMlHost {
    /// A worker that has nothing to do.
    pub fn new(values: Values, config: &HostConfig) -> SwitchMlHost {
        let job = &config.job;
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        let slot = |idx| Slot {
            block: u64::from(idx),
            phase: 0,
            stage: Stage::Idle,
            agreement: Agreement::default(),
            in_flight: false,
            in_step: false,
        };
        SwitchMlHost {
            common,
            life: Life::new(Stream::new(
                values,
                Numbers::chosen(&job.options),
                NarrowBlocks::chosen(&job.options, job.levels),
                job,
            )),
            slots: (0..job.slots).map(slot).collect(),
            queue: SendQueue::new(job.slots),
            recovery: Recovery::new(job, config.rank, config.timers, Order::Sent),
            question: None,
            heard: None,
            stats: HostStats::default(),
            config: config.clone(),
        }
    }

    /// Starts a slot whose block was submitted.
    fn start(&mut self, idx: u16, in_step: bool) {
        let pool = self.slots.len() as u64;
        let slot = &mut self.slots[usize::from(idx)];
        let Some(op) = self.life.stream.op_of(slot.block) else {
            slot.stage = Stage::Idle;
            return;
        };
        slot.stage = slot.agreement.begin(op, slot.block, pool);
        slot.in_step = in_step;
        self.queue.push(idx);
    }

    fn receive(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        Common::parse_kind(packet.bytes, &self.config.job)?;
        let header = Header::parse(packet.bytes)?;
        let slot = self.slots.get(usize::from(header.idx)).ok_or(DropReason::BadField)?;
        if from != Addr::Switch(self.recovery.tree_of_slot(header.idx)) {
            return Err(DropReason::NotAMember);
        }
        match header.phase.wrapping_sub(slot.phase) as i32 {
            ..0 => return Err(DropReason::Stale),
            1.. => return Err(DropReason::Ahead),
            0 if !slot.in_flight => return Err(DropReason::Unexpected),
            0 => {}
        }
        match Kind::of(packet.bytes)? {
            Kind::Result => self.result(now, &header, packet),
            Kind::Report => self.report(&header, Report::parse(&packet.bytes[HEADER_LEN..])?),
            Kind::Mismatch => self.mismatch(&header, Mismatch::parse(&packet.bytes[HEADER_LEN..])?),
            Kind::Update | Kind::Probe | Kind::Query => Err(DropReason::BadKind),
        }
    }

    /// The answer to the slot's phase (Algorithm 4, lines 10 to 18).
    fn result(&mut self, now: Time, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        let (world, stride) = (self.config.job.world, self.slots.len() as u64);
        let slot = &mut self.slots[usize::from(header.idx)];
        let op = self.life.stream.op_of_mut(slot.block).expect("a slot in flight has a block");
        if header.spec != op.spec {
            return Err(DropReason::BadField);
        }
        let range = if slot.stage == Stage::Probe { 0..0 } else { op.range(slot.block) };
        if packet.wire_len != HEADER_LEN + op.encoding.wire_len(range.len())
            || packet.bytes.len() != HEADER_LEN + op.encoding.buffer_len(range.len())
        {
            return Err(DropReason::BadLength);
        }
        if let Some(exponent) = slot.agreement.conclude(slot.stage, header.look_ahead.agreed())? {
            if !range.is_empty() && op.spec.primitive.gets(self.config.rank) {
                op.write(slot.block, exponent, world, &packet.bytes[HEADER_LEN..]);
            }
            op.remaining -= 1;
            self.stats.blocks_in_network += 1;
            slot.block += stride;
        }
        slot.phase = slot.phase.wrapping_add(1);
        slot.in_flight = false;
        self.recovery.answered(now, header.idx, &mut self.queue);
        self.start(header.idx, true);
        self.settle();
        Ok(())
    }

    /// Reports collectives that are complete, in their order, and fails the rest if the next one must fail.
    fn settle(&mut self) {
        loop {
            match self.life.complete_next() {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    /// What this rank says about the block behind `block` in the same slot.
    fn look_ahead(&self, block: u64) -> LookAhead {
        let next = block + self.slots.len() as u64;
        match self.life.stream.op_of(next) {
            Some(op) => LookAhead::known(op.exponent(next)),
            None => LookAhead::UNKNOWN,
        }
    }

    /// Writes the slot's packet; gives its length in memory and on the wire.
    fn write(&self, idx: u16, kind: Kind, buf: &mut [u8]) -> (usize, usize) {
        let slot = &self.slots[usize::from(idx)];
        let op = self.life.stream.op_of(slot.block).expect("a slot that sends has a block");
        let look_ahead = match kind {
            Kind::Update => self.look_ahead(slot.block),
            Kind::Probe => LookAhead::known(op.exponent(slot.block)),
            _ => LookAhead::UNKNOWN,
        };
        let scaled_by = slot.agreement.scaled_by(slot.stage);
        buf[..COMMON_LEN].copy_from_slice(&self.common);
        kind.put(buf);
        let wid = self.config.place(self.recovery.tree_of_slot(idx)).child;
        Header { wid, idx, look_ahead, phase: slot.phase, spec: op.spec }.emit(buf);
        if kind == Kind::Query || slot.stage == Stage::Probe {
            return (HEADER_LEN, HEADER_LEN);
        }
        let range = op.range(slot.block);
        let elements = range.len();
        let len = HEADER_LEN + op.encoding.buffer_len(elements);
        if elements > 0 && op.spec.primitive.brings(self.config.rank) {
            op.read(slot.block, scaled_by, self.config.job.world, &mut buf[HEADER_LEN..len]);
        } else {
            // Nothing, of a rank that a broadcast is for: the sum is the root's words as they are.
            buf[HEADER_LEN..len].fill(0);
        }
        (len, HEADER_LEN + op.encoding.wire_len(elements))
    }

    fn transmit(&mut self, idx: u16, (len, wire_len): (usize, usize)) -> Transmit {
        self.stats.packets_sent += 1;
        Transmit { to: Addr::Switch(self.recovery.tree_of_slot(idx)), len, wire_len, ecn: Ecn::NotCapable }
    }
}

impl Host for SwitchMlHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let (id, blocks) = self.life.submit(now, collective)?;
        let slots = self.slots.len() as u64;
        for block in blocks.take(self.slots.len()) {
            let idx = (block % slots) as u16;
            let slot = &self.slots[usize::from(idx)];
            if slot.stage == Stage::Idle && slot.block == block {
                self.start(idx, false);
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
        self.recovery.handle_timeout(now, &mut self.queue);
        match self.life.poll_deadline(now) {
            Some(Due::Failed) => self.fail(self.diagnose()),
            Some(Due::Ask) => self.question = self.oldest_waiting(),
            None => {}
        }
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

    fn max_packet_len(&self) -> usize {
        HEADER_LEN + self.config.job.payload_bytes().max(FINGERPRINT_LEN)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }
}
