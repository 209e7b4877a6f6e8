//! What the machine sends next: faults first, then notices, then the packets of links.

use std::ops::Range;

use super::super::wire::{self, Data, Notice};
use super::SparcmlHost;
use super::peers::Out;
use crate::contract::ids::{OpId, Rank};
use crate::contract::packet::{Addr, Ecn, Transmit};
use crate::contract::time::Time;
use crate::contract::wire::Common;

impl SparcmlHost {
    pub(super) fn transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
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
