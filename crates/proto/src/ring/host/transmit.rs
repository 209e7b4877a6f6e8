//! What the machine sends next: faults, acknowledgements and notices, then blocks.

use super::super::running::{Cargo, Item};
use super::super::wire::{self, DATA_LEN, Data, MAX_ACK_WORDS, Notice};
use super::RingHost;
use crate::contract::ids::OpId;
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::time::Time;
use crate::reliability::link::Numbers;

impl RingHost {
    /// True if a block waits to be sent for the first time.
    pub(super) fn has_more(&self) -> bool {
        !self.forwards.is_empty() || self.has_own()
    }

    /// The next block to send. Blocks that are passed on come before own blocks, so that few blocks are under way.
    fn next_item(&mut self) -> Option<Item> {
        if let Some(item) = self.forwards.pop_front() {
            return Some(item);
        }
        if !self.has_own() {
            return None;
        }
        let op = self.unsent_op;
        let block = self.running(op)?.next_own()?;
        self.skip_spent();
        Some(Item { op, block, phase: wire::Phase::Reduce })
    }

    pub(super) fn transmit_data(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if self.sender.may_resend(now) {
            return self.transmit_again(now, buf);
        }
        if !self.sender.may_send(now) {
            return None;
        }
        let item = self.next_item()?;
        let numbers = self.sender.send(now, Cargo { item, copy: None }, self.has_more());
        let running = &mut self.ops[(item.op - self.first_op) as usize];
        running.to_send -= 1;
        let (header, begin) = (running.header(item.block, item.phase), DATA_LEN);
        let (len, wire_len) = running.read(item.block, item.phase, &mut buf[begin..]);
        let transmit = self.emit_data(header, numbers, begin + len, begin + wire_len, buf);
        self.complete_collectives(now);
        Some(transmit)
    }

    fn transmit_again(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let (numbers, cargo) = self.sender.resend(now)?;
        let (header, len, wire_len) = match &cargo.copy {
            Some(copy) => {
                let begin = DATA_LEN;
                let len = begin + copy.vector.len();
                buf[begin..len].copy_from_slice(&copy.vector);
                (copy.header, len, copy.wire_len)
            }
            None => {
                let Item { op, block, phase } = cargo.item;
                let running = &self.ops[(op - self.first_op) as usize];
                let begin = DATA_LEN;
                let (len, wire_len) = running.read(block, phase, &mut buf[begin..]);
                (running.header(block, phase), begin + len, begin + wire_len)
            }
        };
        self.stats.retransmissions += 1;
        Some(self.emit_data(header, numbers, len, wire_len, buf))
    }

    fn emit_data(&self, header: Data, numbers: Numbers, len: usize, wire_len: usize, buf: &mut [u8]) -> Transmit {
        wire::emit_common(buf, wire::DATA, &self.config.job);
        let Numbers { seq, attempt, ack_now } = numbers;
        Data { seq, attempt, ack_now, ..header }.emit(buf);
        Transmit { to: Addr::Worker(self.successor), len, wire_len, ecn: Ecn::Capable }
    }

    /// A packet without a vector, if one is due.
    pub(super) fn transmit_control(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let (kind, to, len) = if let Some((to, len)) = self.emit_fault(buf) {
            (wire::FAULT, to, len)
        } else if let Some(len) = self.emit_ack(buf) {
            (wire::ACK, self.predecessor, len)
        } else {
            let period = self.notice_period();
            let worker = self.watch.take_relay(now, period)?;
            (wire::NOTICE, self.successor, Notice { op: OpId(self.first_op), worker }.emit(buf))
        };
        wire::emit_common(buf, kind, &self.config.job);
        Some(Transmit { to: Addr::Worker(to), len, wire_len: len, ecn: Ecn::NotCapable })
    }

    fn emit_ack(&mut self, buf: &mut [u8]) -> Option<usize> {
        let mut words = [0; MAX_ACK_WORDS];
        let (ack, count) = self.receiver.poll_ack(self.early.len(), &mut words)?;
        Some(ack.emit(&words[..count], buf))
    }
}
