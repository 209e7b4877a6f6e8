//! The order in which a host sends: its server's packets, then gradients that are sent again, then questions, then as
//! many new gradients as its windows allow.

use super::BestEffortHost;
use super::scaling::Magnitude;
use crate::aggregation::best_effort::seq;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind, emit};
use crate::aggregation::shutdown::Word;
use crate::aggregation::stream::Op;
use crate::contract::ids::Rank;
use crate::contract::packet::Transmit;
use crate::contract::time::Time;

impl BestEffortHost {
    pub(super) fn next_packet(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.bring_served(now);
        if let Some(said) = self.farewell.poll() {
            return Some(self.write_farewell(said, buf));
        }
        if let Some(said) = self.server.next_packet(&self.places, buf) {
            return Some(said);
        }
        if let Some((block, is_resend)) = self.window.next_again()
            && (!is_resend || self.may_resend(now))
        {
            self.window.pop_again();
            if let Some(waiting) = self.window.waiting(block) {
                let is_reissued = waiting.sends == 0 && waiting.attempt > 0;
                self.stats.reissued += u64::from(is_reissued);
                self.stats.retransmissions += u64::from(is_reissued || waiting.sends > 0);
            }
            return Some(self.write_gradient(now, block, buf));
        }
        // Questions come after packets that are sent again, which are longer: sent first, questions would fill a short
        // queue each time.
        if let Some(question) = self.next_question(buf) {
            return Some(question);
        }
        let next = self.window.next;
        if self.window.flying >= self.congestion.window() || !self.may_begin(next) {
            return None;
        }
        self.begin();
        Some(self.write_gradient(now, next, buf))
    }

    /// True if the next block was submitted and the last result allows it to be sent.
    pub(super) fn may_begin(&self, next: u64) -> bool {
        let reach = self.reach().clamp(1, self.config.job.slots.max(1).into());
        next < self.submitted && next < self.window.first + reach && self.life.broken().is_none()
    }

    /// The next block takes its place in the window.
    pub(super) fn begin(&mut self) {
        let place = self.window.begin();
        let op = self.life.stream.op_of(place.block).expect("the block was submitted");
        place.scale = BestEffortHost::guess(op, place.block, place.base);
    }

    /// The header that this rank's packets about a block have.
    pub(super) fn own_header(&self, op: &Op, block: u64, magnitude: &Magnitude) -> Header {
        let place = self.window.waiting(block);
        Header {
            seq: seq::of_block(block),
            prog: 0,
            index: place.map_or(0, |place| place.index),
            received: 0,
            flags: magnitude.flags,
            wid: self.own(),
            count: 1,
            attempt: place.map_or(0, |place| place.attempt),
            exponent: magnitude.exponent,
            scale: magnitude.scale,
            spec: op.spec,
        }
    }

    /// Writes the gradient of a block, for its server.
    fn write_gradient(&mut self, now: Time, block: u64, buf: &mut [u8]) -> Transmit {
        self.window.sent(now, block);
        self.recovery.begin(now);
        let op = self.life.stream.op_of(block).expect("a block that waits has a collective");
        let magnitude = self.magnitude(op, block);
        let header = self.own_header(op, block, &magnitude);
        let resend = self.window.waiting(block).is_some_and(|place| place.resend);
        let header = Header { flags: header.flags.with_if(resend, Flags::RESEND), ..header };
        let elements = if header.has_vector() { op.range(block).len() } else { 0 };
        let len = op.encoding.buffer_len(elements);
        self.read_own(op, block, &magnitude, &mut buf[HEADER_LEN..HEADER_LEN + len]);
        let lengths = (len, op.encoding.wire_len(elements));
        let to = self.places.node_of(self.places.server_of_block(block));
        emit(&self.common, Kind::Gradient, &header, lengths, to, buf)
    }

    /// Writes this rank's contribution to a block.
    pub(super) fn read_own(&self, op: &Op, block: u64, magnitude: &Magnitude, vector: &mut [u8]) {
        if !vector.is_empty() && op.spec.primitive.contributes(self.config.rank) {
            op.read(block, Some(magnitude.scale), self.world_size(), vector);
        } else {
            // In a broadcast other ranks bring zeros, so that the sum is the root's words as they are.
            vector.fill(0);
        }
    }

    /// A question about a block that another host serves.
    fn next_question(&mut self, buf: &mut [u8]) -> Option<Transmit> {
        while let Some(block) = self.questions.pop_front() {
            // The block's result may have come since, and its collective may be complete.
            if self.window.waiting(block).is_none() {
                continue;
            }
            let Some(op) = self.life.stream.op_of(block) else { continue };
            let magnitude = self.magnitude(op, block);
            let header = Header { flags: Flags::default(), count: 0, ..self.own_header(op, block, &magnitude) };
            let to = self.places.node_of(self.places.server_of_block(block));
            return Some(emit(&self.common, Kind::Query, &header, (0, 0), to, buf));
        }
        None
    }

    fn write_farewell(&self, (to, word, completed): (Rank, Word, u64), buf: &mut [u8]) -> Transmit {
        let kind = if word == Word::Leaving { Kind::Leaving } else { Kind::Parted };
        let header = Header { wid: to, count: self.own().0, ..super::failing::NO_BLOCK };
        buf[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&completed.to_be_bytes());
        emit(&self.common, kind, &header, (8, 8), self.places.node_of(to), buf)
    }
}
