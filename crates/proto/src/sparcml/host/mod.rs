//! SparCML's machine: collectives in order, and a link to each rank that one of them needs.

mod failure;
mod peers;

use std::collections::VecDeque;
use std::ops::Range;

use self::failure::Failure;
use self::peers::{Out, Peers};
use super::running::{Outgoing, Running};
use super::wire::{self, Ack, DATA_LEN, Data, MAX_CONTROL_LEN, Notice};
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::packet::{Addr, Ecn, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;

/// How many collectives may be under way at once: each holds a copy of its tensor.
const COLLECTIVES_UNDER_WAY: usize = 8;

/// A packet of a collective that this rank has not submitted yet.
#[derive(Clone, Hash)]
struct Early {
    op: u64,
    from: Rank,
    data: Data,
    body: Box<[u8]>,
    wire_len: usize,
}

/// One rank.
#[derive(Clone, Hash)]
pub struct SparcmlHost {
    values: Values,
    config: HostConfig,
    /// Collectives from `first_op` on, in order.
    ops: VecDeque<Running>,
    first_op: u64,
    early: VecDeque<Early>,
    peers: Peers,
    failure: Failure,
    events: VecDeque<HostEvent>,
    stats: HostStats,
}

impl SparcmlHost {
    /// A rank that has submitted nothing.
    pub fn new(values: Values, config: &HostConfig) -> SparcmlHost {
        SparcmlHost {
            values,
            ops: VecDeque::new(),
            first_op: 0,
            early: VecDeque::new(),
            peers: Peers::new(config),
            failure: Failure::default(),
            events: VecDeque::new(),
            stats: HostStats::default(),
            config: config.clone(),
        }
    }

    fn next_op(&self) -> u64 {
        self.first_op + self.ops.len() as u64
    }

    fn handle(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let kind = Common::parse_kind(packet.bytes, &self.config.job.common())?;
        let Addr::Worker(from) = from else { return Err(DropReason::NotAMember) };
        let world_size = self.config.job.world_size;
        if from.0 >= world_size || from == self.config.rank {
            return Err(DropReason::NotAMember);
        }
        match kind {
            wire::DATA => self.handle_data(now, from, packet),
            wire::ACK => {
                let (ack, words, count) = Ack::parse(packet.bytes)?;
                self.peers.handle_ack(now, from, &ack, &words[..count])
            }
            wire::NOTICE => {
                let notice = Notice::parse(packet.bytes, world_size)?;
                self.peers.on_notice(now, from, notice.worker);
                Ok(())
            }
            wire::FAULT => self.handle_fault(now, from, packet.bytes),
            _ => Err(DropReason::BadKind),
        }
    }

    fn handle_data(&mut self, now: Time, from: Rank, packet: Packet<'_>) -> Result<(), DropReason> {
        let data = Data::parse(packet.bytes)?;
        let distance = i64::from(data.op.wrapping_sub(self.first_op as u16) as i16);
        let op = self.first_op.checked_add_signed(distance).ok_or(DropReason::Stale)?;
        if self.is_broken_at(op) {
            self.notify(from);
            return Err(DropReason::Unexpected);
        }
        let seq = self.peers.check(from, data.numbers())?;
        if op < self.first_op {
            return Err(DropReason::Stale);
        }
        let body = &packet.bytes[DATA_LEN..];
        let wire_len = packet.wire_len.saturating_sub(DATA_LEN);
        if op >= self.next_op() {
            if body.len() > self.max_packet_len() {
                return Err(DropReason::BadLength);
            }
            self.peers.keep(from, seq)?;
            self.early.push_back(Early { op, from, data, body: body.into(), wire_len });
        } else {
            self.take(now, op, from, &data, body, wire_len)?;
        }
        self.peers.accept(from, seq, data.numbers(), packet.ecn);
        Ok(())
    }

    /// Takes in a fragment of a message of a collective that was submitted.
    fn take(
        &mut self,
        now: Time,
        op: u64,
        from: Rank,
        data: &Data,
        body: &[u8],
        wire_len: usize,
    ) -> Result<(), DropReason> {
        let running = &mut self.ops[(op - self.first_op) as usize];
        if running.spec != data.spec {
            let mine = running.spec;
            self.break_with_mismatch(now, op, mine, from, data.spec);
            return Err(DropReason::Mismatch);
        }
        running.take(from, data, body, wire_len)?;
        let outgoing = running.advance();
        for rank in running.take_served() {
            self.peers.forget_brought(rank, op);
        }
        self.send(outgoing);
        self.complete_collectives();
        Ok(())
    }

    fn send(&mut self, outgoing: Vec<Outgoing>) {
        for (to, message) in outgoing {
            self.peers.send(to, message);
        }
    }

    /// Hands back complete collectives in order, and begins the next ones.
    fn complete_collectives(&mut self) {
        loop {
            while let Some(running) = self.ops.pop_front_if(|front| front.is_complete) {
                self.stats.blocks_at_hosts += 1;
                self.events.push_back(HostEvent::Done { op: OpId(self.first_op), tensor: running.tensor });
                self.first_op += 1;
            }
            for index in 0..self.ops.len().min(COLLECTIVES_UNDER_WAY) {
                if !self.ops[index].is_started {
                    let outgoing = self.ops[index].start();
                    self.send(outgoing);
                }
            }
            // A collective that needs no other rank is complete as soon as it begins.
            if self.ops.front().is_none_or(|front| !front.is_complete) {
                break;
            }
        }
    }
}

impl Host for SparcmlHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let op = self.next_op();
        if let Some(broken) = self.failure.broken.as_mut().filter(|broken| broken.covers(op)) {
            self.events.push_back(broken.turn_away(OpId(op), collective.tensor)?);
            return Ok(OpId(op));
        }
        self.ops.push_back(Running::new(now, op, collective, self.values, &self.config));
        self.complete_collectives();
        for early in std::mem::take(&mut self.early) {
            if early.op != op {
                self.early.push_back(early);
                continue;
            }
            self.peers.release(early.from);
            // The last submission, or an earlier one of these packets, may have broken the job.
            if !self.is_broken_at(op)
                && let Err(reason) = self.take(now, op, early.from, &early.data, &early.body, early.wire_len)
            {
                self.stats.drops.count(reason);
            }
        }
        Ok(OpId(op))
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let outcome = self.handle(now, from, packet);
        self.stats.count_received(outcome);
        outcome
    }

    fn handle_timeout(&mut self, now: Time) {
        self.peers.handle_timeout(now);
        self.check_deadlines(now);
        self.repeat_fault(now);
        self.notify_waiting(now);
    }

    fn abort(&mut self, now: Time) {
        if !self.ops.is_empty() || !self.is_broken_at(u64::MAX) {
            self.break_with(now, self.first_op, CollectiveError::Aborted, None);
        }
    }

    fn may_leave(&self) -> bool {
        self.peers.are_served()
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let transmit = self.transmit(now, buf)?;
        self.stats.packets_sent += 1;
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let deadline = self.ops.iter().filter_map(|running| running.deadline).min();
        [self.peers.poll_timeout(), deadline, self.notice_due(), self.repeat_due()].into_iter().flatten().min()
    }

    fn max_packet_len(&self) -> usize {
        // At least eight elements, with their bits; a fingerprint has eight bytes for each byte of an element.
        let payload = self.config.job.payload_bytes().max(128);
        let longer = if self.values == Values::Elements { 1 } else { 8 };
        (DATA_LEN + payload * longer).max(MAX_CONTROL_LEN)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}

impl SparcmlHost {
    fn transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if let Some((to, len)) = self.emit_fault(buf) {
            return Some(self.control(wire::FAULT, to, len, buf));
        }
        if let Some((to, worker)) = self.failure.next_notice() {
            let len = Notice { op: OpId(self.first_op), worker }.emit(buf);
            return Some(self.control(wire::NOTICE, to, len, buf));
        }
        let (to, out) = self.peers.poll(now)?;
        match out {
            Out::Ack(ack, words, count) => {
                let len = ack.emit(&words[..count], buf);
                Some(self.control(wire::ACK, to, len, buf))
            }
            Out::Fragment(numbers, fragment, again) => {
                self.stats.retransmissions += u64::from(again);
                let running = fragment.message.op.checked_sub(self.first_op).and_then(|at| self.ops.get(at as usize));
                let brought = |block: Range<usize>, vector: &mut [u8]| {
                    running.expect("what it brings is gone before the collective is over").read(block, vector);
                };
                let (header, len, wire_len) = fragment.message.write(fragment.number, &brought, buf);
                Data { seq: numbers.seq, attempt: numbers.attempt, ack_now: numbers.ack_now, ..header }.emit(buf);
                Common { kind: wire::DATA, ..self.config.job.common() }.emit(buf);
                Some(Transmit { to: Addr::Worker(to), len, wire_len, ecn: Ecn::Capable })
            }
        }
    }

    fn control(&self, kind: u8, to: Rank, len: usize, buf: &mut [u8]) -> Transmit {
        Common { kind, ..self.config.job.common() }.emit(buf);
        Transmit { to: Addr::Worker(to), len, wire_len: len, ecn: Ecn::NotCapable }
    }
}
