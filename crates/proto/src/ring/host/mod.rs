//! The ring's machine: collectives in their order, a link from the predecessor, a link to the successor.

mod failure;
mod transmit;

use std::collections::VecDeque;

use self::failure::Failure;
use super::running::{Cargo, Item, Running};
use super::watch::Watch;
use super::wire::{self, Ack, DATA_LEN, Data, MAX_CONTROL_LEN, Notice};
use crate::contract::config::HostConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::time::{Span, Time};
use crate::contract::values::FINGERPRINT_LEN;
use crate::reliability::link::receiver::Receiver;
use crate::reliability::link::sender::{Sender, controller};

/// This many collectives may have own blocks under way at once; `op` in packets is 16 bits wide.
const COLLECTIVES_UNDER_WAY: u64 = 1024;
/// After this many of the longest retransmission timeouts, a complete collective is reported even if the successor has
/// not acknowledged all of it: the successor's process may have ended, and its last acknowledgement may be lost.
const LINGER_RTOS: u64 = 2;

/// A packet of a collective that this rank has not submitted yet.
#[derive(Clone, Hash)]
struct Early {
    op: u64,
    data: Data,
    vector: Box<[u8]>,
}

/// One rank of a ring.
#[derive(Clone, Hash)]
pub struct RingHost {
    config: HostConfig,
    predecessor: Rank,
    successor: Rank,
    /// The collectives from `first_op` on, in order.
    ops: VecDeque<Running>,
    first_op: u64,
    /// The first collective that may have own blocks to send.
    unsent_op: u64,
    /// Blocks to pass on, in the order of their arrival.
    forwards: VecDeque<Item>,
    early: VecDeque<Early>,
    sender: Sender<Cargo>,
    receiver: Receiver,
    watch: Watch,
    failure: Option<Failure>,
    /// The earliest deadline of all collectives.
    deadline: Option<Time>,
    events: VecDeque<HostEvent>,
    stats: HostStats,
}

impl RingHost {
    /// A rank that has submitted nothing.
    pub fn new(config: &HostConfig) -> RingHost {
        let (me, world_size) = (config.rank.0, config.job.world_size);
        let predecessor = Rank((me + world_size - 1) % world_size);
        let successor = Rank((me + 1) % world_size);
        RingHost {
            predecessor,
            successor,
            ops: VecDeque::new(),
            first_op: 0,
            unsent_op: 0,
            forwards: VecDeque::new(),
            early: VecDeque::new(),
            sender: Sender::new(config.timers, controller(&config.job)),
            receiver: Receiver::default(),
            watch: Watch::new(config.rank, predecessor, successor),
            failure: None,
            deadline: None,
            events: VecDeque::new(),
            stats: HostStats::default(),
            config: config.clone(),
        }
    }

    fn next_op(&self) -> u64 {
        self.first_op + self.ops.len() as u64
    }

    fn running(&mut self, op: u64) -> Option<&mut Running> {
        self.ops.get_mut(op.checked_sub(self.first_op)? as usize)
    }

    fn handle(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let kind = wire::parse_common(packet.bytes, &self.config.job)?;
        let Addr::Worker(from) = from else { return Err(DropReason::NotAMember) };
        let world_size = self.config.job.world_size;
        if from.0 >= world_size || world_size == 1 {
            return Err(DropReason::NotAMember);
        }
        if from != self.predecessor && from != self.successor {
            return Err(DropReason::WrongWorker);
        }
        match kind {
            wire::DATA if from == self.predecessor => self.handle_data(now, packet),
            wire::ACK if from == self.successor => self.handle_ack(now, packet.bytes),
            wire::NOTICE if from == self.predecessor => {
                let notice = Notice::parse(packet.bytes, world_size)?;
                self.watch.on_notice(now, notice.worker);
                Ok(())
            }
            wire::FAULT => self.handle_fault(now, from, packet.bytes),
            _ => Err(DropReason::BadKind),
        }
    }

    fn handle_data(&mut self, now: Time, packet: Packet<'_>) -> Result<(), DropReason> {
        let data = Data::parse(packet.bytes)?;
        if packet.bytes.len() > self.max_packet_len() {
            return Err(DropReason::BadLength);
        }
        self.watch.on_packet(now);
        let distance = i64::from(data.op.wrapping_sub(self.first_op as u16) as i16);
        let op = self.first_op.checked_add_signed(distance).ok_or(DropReason::Stale)?;
        if let Some(failure) = self.failure.as_mut().filter(|failure| failure.broken.covers(op)) {
            failure.notify_predecessor = true;
            return Err(DropReason::Unexpected);
        }
        let seq = self.receiver.check(data.numbers())?;
        if op < self.first_op {
            return Err(DropReason::Stale);
        }
        let vector = &packet.bytes[DATA_LEN..];
        if op >= self.next_op() {
            if seq >= self.receiver.limit(self.early.len()) {
                self.receiver.announce();
                return Err(DropReason::Unexpected);
            }
            self.early.push_back(Early { op, data, vector: vector.into() });
        } else {
            self.apply(now, op, &data, vector)?;
        }
        self.receiver.accept(seq, data.numbers(), packet.ecn);
        Ok(())
    }

    /// Reduces or writes one block of a collective that was submitted here.
    fn apply(&mut self, now: Time, op: u64, data: &Data, vector: &[u8]) -> Result<(), DropReason> {
        let running = &mut self.ops[(op - self.first_op) as usize];
        if running.spec != data.spec {
            let mine = running.spec;
            self.break_with_mismatch(now, op, mine, data.spec);
            return Err(DropReason::Mismatch);
        }
        let forward = running.apply(data, vector)?;
        if let Some((block, phase)) = forward {
            self.forwards.push_back(Item { op, block, phase });
        }
        self.complete_collectives(now);
        Ok(())
    }

    fn handle_ack(&mut self, now: Time, bytes: &[u8]) -> Result<(), DropReason> {
        let (ack, words, count) = Ack::parse(bytes)?;
        let (ops, first_op) = (&mut self.ops, self.first_op);
        self.sender.handle_ack(now, &ack, &words[..count], |cargo| {
            cargo.copy = None;
            // The number of a collective that was handed back is below `first_op`.
            if let Some(running) = cargo.item.op.checked_sub(first_op).and_then(|index| ops.get_mut(index as usize)) {
                running.unacknowledged -= 1;
            }
        })?;
        self.complete_collectives(now);
        Ok(())
    }

    /// Hands back, in order, collectives that are complete and acknowledged, or that have been complete for so long
    /// that the successor may have left.
    fn complete_collectives(&mut self, now: Time) {
        let linger = self.linger();
        while let Some(front) = self.ops.front_mut() {
            if front.to_receive > 0 || front.to_send > 0 {
                break;
            }
            let finished_at = *front.finished_at.get_or_insert(now);
            let patient = finished_at + linger > now && front.deadline.is_none_or(|deadline| deadline > now);
            if front.unacknowledged > 0 && patient {
                break;
            }
            self.hand_back();
        }
    }

    /// Hands back the first collective, which is complete. Packets that the successor has not acknowledged are copied
    /// first.
    fn hand_back(&mut self) {
        let Some(running) = self.ops.pop_front() else { return };
        let op = self.first_op;
        self.first_op += 1;
        if running.unacknowledged > 0 {
            for cargo in self.sender.unacknowledged().filter(|cargo| cargo.item.op == op) {
                cargo.copy = Some(running.copy(cargo.item.block, cargo.item.phase));
            }
        }
        self.stats.blocks_at_hosts += u64::from(running.total_blocks());
        if running.deadline.is_some() && running.deadline == self.deadline {
            self.deadline = self.ops.iter().filter_map(|running| running.deadline).min();
        }
        self.skip_spent();
        self.events.push_back(HostEvent::Done { op: OpId(op), tensor: running.tensor });
    }

    /// Moves `unsent_op` on to the first collective that has own blocks left.
    fn skip_spent(&mut self) {
        self.unsent_op = self.unsent_op.max(self.first_op);
        while self.ops.get((self.unsent_op - self.first_op) as usize).is_some_and(|running| !running.has_own()) {
            self.unsent_op += 1;
        }
        self.unsent_op = self.unsent_op.min(self.next_op());
    }

    fn has_own(&self) -> bool {
        self.unsent_op < self.next_op() && self.unsent_op < self.first_op + COLLECTIVES_UNDER_WAY
    }

    fn linger(&self) -> Span {
        self.config.timers.max_rto.times(LINGER_RTOS)
    }
}

impl Host for RingHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let op = self.next_op();
        if let Some(failure) = self.failure.as_mut().filter(|failure| failure.broken.covers(op)) {
            self.events.push_back(failure.broken.turn_away(OpId(op), collective.tensor)?);
            return Ok(OpId(op));
        }
        let deadline = collective.deadline;
        let mut running = Running::new(now, op, collective, self.config.rank, &self.config.job);
        if self.config.job.world_size == 1 {
            running.complete_alone();
        }
        self.ops.push_back(running);
        self.deadline = [self.deadline, deadline].into_iter().flatten().min();
        self.skip_spent();
        self.complete_collectives(now);
        let kept = self.early.len();
        for early in std::mem::take(&mut self.early) {
            if early.op != op {
                self.early.push_back(early);
            } else if self.failure.as_ref().is_none_or(|failure| !failure.broken.covers(op))
                && let Err(reason) = self.apply(now, op, &early.data, &early.vector)
            {
                self.stats.drops.count(reason);
            }
        }
        if self.early.len() < kept {
            self.receiver.announce();
        }
        Ok(OpId(op))
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let outcome = self.handle(now, from, packet);
        self.stats.count_received(outcome);
        outcome
    }

    fn handle_timeout(&mut self, now: Time) {
        let more = self.has_more();
        let copy_is_spent =
            |cargo: &Cargo| cargo.copy.as_ref().and_then(|copy| copy.until).is_some_and(|until| until <= now);
        self.sender.handle_timeout(now, more, copy_is_spent);
        self.complete_collectives(now);
        self.check_deadlines(now);
        self.repeat_fault(now);
        if let Some((since, period)) = self.waiting() {
            self.watch.handle_timeout(now, since, period);
        }
    }

    fn abort(&mut self, now: Time) {
        while self.ops.front().is_some_and(|front| front.to_receive == 0 && front.to_send == 0) {
            self.hand_back();
        }
        if self.failure.is_none() || !self.ops.is_empty() {
            self.break_with(now, self.first_op, CollectiveError::Aborted, None);
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let transmit = self.transmit_control(now, buf).or_else(|| self.transmit_data(now, buf))?;
        self.stats.packets_sent += 1;
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let waits = self.waiting().map(|(since, period)| self.watch.poll_timeout(since, period));
        let relay = self.watch.poll_relay(self.notice_period());
        let linger = self.ops.front().and_then(|front| front.finished_at).map(|at| at + self.linger());
        let repeat = self.failure.as_ref().and_then(|failure| failure.broken.repeat_due());
        let timers = [self.sender.poll_timeout(self.has_more()), self.deadline, waits, relay, linger, repeat];
        timers.into_iter().flatten().min()
    }

    fn max_packet_len(&self) -> usize {
        let vector = self.config.job.payload_bytes().max(FINGERPRINT_LEN);
        (DATA_LEN + vector).max(MAX_CONTROL_LEN)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}
