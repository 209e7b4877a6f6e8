//! Packets that a host sends: its blocks, questions, and the words of a shutdown. A block in fixed point is sent with a
//! guessed scale, before ranks have agreed on one.

use tributary_numeric::BlockExponent;

use super::BestEffortHost;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind, emit, seq_of_block};
use crate::aggregation::shutdown::Word;
use crate::aggregation::stream::Op;
use crate::contract::ids::Rank;
use crate::contract::packet::Transmit;
use crate::contract::time::Time;

impl BestEffortHost {
    pub(super) fn next_packet(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.bring_served(now);
        if let Some(said) = self.shutdown.poll() {
            return Some(self.write_shutdown(said, buf));
        }
        if let Some(said) = self.server.next_packet(&self.topology, buf) {
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

    /// The next block takes its entry in the window.
    pub(super) fn begin(&mut self) {
        let entry = self.window.begin();
        let op = self.life.stream.op_of(entry.block).expect("the block was submitted");
        entry.scale = BestEffortHost::guess(op, entry.block, entry.base);
    }

    /// The header that this rank's packets about a block have.
    pub(super) fn own_header(&self, op: &Op, block: u64, magnitude: &Magnitude) -> Header {
        let entry = self.window.waiting(block);
        Header {
            seq: seq_of_block(block),
            prog: 0,
            index: entry.map_or(0, |entry| entry.index),
            received: 0,
            flags: magnitude.flags,
            wid: self.own(),
            count: 1,
            attempt: entry.map_or(0, |entry| entry.attempt),
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
        let resend = self.window.waiting(block).is_some_and(|entry| entry.resend);
        let header = Header { flags: header.flags.with_if(resend, Flags::RESEND), ..header };
        let elements = if header.has_vector() { op.range(block).len() } else { 0 };
        let len = op.encoding.buffer_len(elements);
        self.read_own(op, block, &magnitude, &mut buf[HEADER_LEN..HEADER_LEN + len]);
        let lengths = (len, op.encoding.wire_len(elements));
        let to = self.topology.node_of(self.topology.server_of_block(block));
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
            let to = self.topology.node_of(self.topology.server_of_block(block));
            return Some(emit(&self.common, Kind::Query, &header, (0, 0), to, buf));
        }
        None
    }

    fn write_shutdown(&self, (to, word, completed): (Rank, Word, u64), buf: &mut [u8]) -> Transmit {
        let kind = if word == Word::Leaving { Kind::Leaving } else { Kind::Parted };
        let header = Header { wid: to, count: self.own().0, ..super::conclude::NO_BLOCK };
        buf[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&completed.to_be_bytes());
        emit(&self.common, kind, &header, (8, 8), self.topology.node_of(to), buf)
    }
}

// The scale of floats: a guess that is the same on all ranks (A26 in `docs/protocols/pa-atp.md`).
//
// A rank that sends a block has the result of the block a window before it, which says that block's magnitude. So all
// ranks know the same magnitude of a position, and scale its next block by one bit more. If the guess was wrong, or a
// position has no magnitude yet, the result is the order to send the block again, scaled by the magnitude that all
// ranks have told meanwhile. No rank waits for others before it sends: a rank that is ahead stays ahead with floats,
// too.

/// What a rank says about its block and the block's scale.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Magnitude {
    /// The block's own magnitude.
    pub exponent: BlockExponent,
    /// The scale of the vector.
    pub scale: BlockExponent,
    /// Whether the packet has no vector, because the block does not fit the scale or there is no scale yet.
    pub flags: Flags,
}

impl BestEffortHost {
    /// The guess for the next block of a position.
    pub(super) fn guess(op: &Op, block: u64, base: Option<BlockExponent>) -> Option<BlockExponent> {
        if !op.needs_exponent(block) {
            return None;
        }
        let base = base?;
        let exponent = base.exponent.saturating_add(1).min(BlockExponent::largest(op.spec.dtype));
        Some(BlockExponent { exponent, ..base })
    }

    /// What this rank says about the magnitude of a block that waits.
    pub(super) fn magnitude(&self, op: &Op, block: u64) -> Magnitude {
        let scale = self.window.waiting(block).and_then(|entry| entry.scale);
        let needs = op.needs_exponent(block) && op.spec.primitive.contributes(self.config.rank);
        let exponent = if needs { op.exponent(block) } else { BlockExponent::ZERO };
        let fits =
            |scale: BlockExponent| exponent.exponent <= scale.exponent && (scale.non_finite || !exponent.non_finite);
        let probes = scale.is_none() && op.needs_exponent(block);
        let flags = Flags::default()
            .with_if(probes, Flags::PROBE)
            .with_if(scale.is_some_and(|scale| !fits(scale)), Flags::OVERFLOW);
        Magnitude { exponent, scale: scale.unwrap_or(BlockExponent::ZERO), flags }
    }
}
