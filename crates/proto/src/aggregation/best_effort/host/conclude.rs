//! How a host's blocks and collectives end: with a result, with another attempt, or with an error that names what is
//! missing.

use tributary_numeric::BlockExponent;

use super::BestEffortHost;
use crate::aggregation::best_effort::codec::Codec;
use crate::aggregation::best_effort::server::Standing;
use crate::aggregation::best_effort::wire::{Flags, Header};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::report::Mismatch;
use crate::aggregation::stream::Op;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::{Rank, ServerId};
use crate::contract::tensor::Spec;
use crate::contract::time::Time;

impl BestEffortHost {
    /// Contributes to the blocks that this host serves, as far as the window reaches, and finishes those that are
    /// complete.
    pub(super) fn bring_served(&mut self, now: Time) {
        loop {
            while self.serves(self.window.next) && self.may_begin(self.window.next) {
                let block = self.window.next;
                self.begin();
                self.bring(block);
            }
            let Some(block) = self.server.ready.pop_front() else { return };
            match self.server.standing(block) {
                Standing::Waits => {}
                Standing::Refused(mismatch) => drop(self.mismatch(block, mismatch)),
                Standing::Complete => self.complete(now, block),
            }
        }
    }

    /// Adds this rank's part to a block of its own server.
    fn bring(&mut self, block: u64) {
        self.window.ack(block);
        let Some(op) = self.life.stream.op_of(block) else { return };
        let magnitude = self.magnitude(op, block);
        let (header, elements) = (self.own_header(op, block, &magnitude), op.range(block).len());
        self.server.bring(block, &header, elements);
    }

    /// All ranks have contributed to a block that this host serves: finishes it.
    fn complete(&mut self, now: Time, block: u64) {
        let (Some(_), Some(op)) = (self.window.waiting(block), self.life.stream.op_of(block)) else { return };
        let Some(served) = self.server.get(block) else { return };
        if op.needs_exponent(block) && !served.fits() {
            let Some((attempt, scale)) = self.server.again(block, &self.topology) else { return };
            if let Some(entry) = self.window.waiting_mut(block) {
                entry.restart(attempt, Some(scale));
            }
            self.stats.reissues += 1;
            return self.bring(block);
        }
        let magnitude = self.magnitude(op, block);
        let Ok(codec) = Codec::new(self.values, &op.spec, magnitude.scale, self.world_size()) else { return };
        let mut header = self.own_header(op, block, &magnitude);
        header.count = served.singles;
        header.exponent = served.exponent;
        header.index = served.index.wrapping_add(served.collided.into());
        let len = op.encoding.buffer_len(op.range(block).len());
        let [mut own, mut result] = std::mem::take(&mut self.vectors);
        self.read_own(op, block, &magnitude, &mut own[..len]);
        self.server.finish(block, &codec, Some(&own[..len]), &mut result[..len], &self.topology);
        self.conclude(now, block, &header, &result[..len], false);
        self.vectors = [own, result];
    }

    /// The attempt to sum the block failed: this rank sends it again, scaled by the magnitude that all ranks have told.
    pub(super) fn again(&mut self, now: Time, block: u64, attempt: u8, scale: BlockExponent) {
        let Some(entry) = self.window.waiting(block) else { return };
        let (transmission, was_acked) = (entry.transmission, entry.acked);
        self.window.ack(block);
        if let Some(entry) = self.window.waiting_mut(block) {
            entry.restart(attempt, Some(scale));
        }
        self.window.send_again(block, false);
        if !was_acked {
            self.note_ack(now, transmission, false, None);
        }
        self.on_progress(now);
    }

    /// Takes in the result of a block, wherever it came from.
    pub(super) fn conclude(&mut self, now: Time, block: u64, header: &Header, vector: &[u8], marked: bool) {
        let (own, world_size) = (self.own(), self.world_size());
        let Some(entry) = self.window.waiting(block) else { return };
        let (transmission, was_acked, sends, sent_at) = (entry.transmission, entry.acked, entry.sends, entry.sent_at);
        let Some(op) = self.life.stream.op_of_mut(block) else { return };
        if !op.range(block).is_empty() && op.spec.primitive.receives(own) {
            op.write(block, Some(header.scale), world_size, vector);
        }
        op.remaining -= 1;
        let has_base = op.needs_exponent(block) && header.exponent.exponent != BlockExponent::ZERO.exponent;
        if let Some(entry) = self.window.waiting_mut(block) {
            entry.index = header.index;
            entry.base = if has_base { Some(header.exponent) } else { entry.base };
        }
        let rtt = (!self.rules.acknowledges && sends == 1).then(|| now.since(sent_at));
        if let Some(rtt) = rtt {
            self.rtt.sample(rtt);
            self.recovery.sample(rtt);
        }
        self.window.ack(block);
        self.window.conclude(block);
        let at_hosts = header.count > 0;
        self.stats.blocks_at_hosts += u64::from(at_hosts);
        self.stats.blocks_in_network += u64::from(!at_hosts);
        match was_acked {
            false => self.note_ack(now, transmission, marked, rtt),
            true if marked => self.congestion.on_late_mark(),
            true => {}
        }
        let round_trip = self.rtt.smoothed().unwrap_or(self.config.timers.initial_rto);
        if let Some(limit) = &mut self.lead_limit {
            limit.on_result(now, header.flags.has(Flags::AECN), round_trip);
        }
        self.on_progress(now);
        self.complete_collectives();
    }
}

/// The header of a packet that is about no block.
pub(super) const NO_BLOCK: Header = Header {
    seq: 0,
    prog: 0,
    index: 0,
    received: 0,
    flags: Flags(0),
    wid: Rank(0),
    count: 0,
    attempt: 0,
    exponent: BlockExponent::ZERO,
    scale: BlockExponent::ZERO,
    spec: Spec::NOTHING,
};

impl BestEffortHost {
    /// Ranks disagree on a block: its collective fails as soon as all collectives before it are complete.
    pub(super) fn mismatch(&mut self, block: u64, mismatch: Mismatch) -> Result<(), DropReason> {
        self.window.waiting(block).ok_or(DropReason::Unexpected)?;
        let op = self.life.stream.op_of(block).ok_or(DropReason::Unexpected)?.id;
        self.life.dispute(op, mismatch);
        self.complete_collectives();
        Ok(())
    }
}

impl LifeCycle for BestEffortHost {
    type Waiting = u64;

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn on_complete(&mut self, _op: &Op) {
        self.shutdown.complete();
    }

    /// This host still answers for the blocks that it serves.
    fn stop(&mut self) {
        self.window.clear();
        self.questions.clear();
        self.shutdown.fail();
    }

    fn oldest_waiting(&self) -> Option<u64> {
        let oldest = || self.window.all_waiting().map(|entry| entry.block);
        oldest().find(|&block| !self.serves(block)).or_else(|| oldest().next())
    }

    fn ask(&mut self, _waiting: Option<u64>) {
        self.ask_oldest();
    }

    fn blame(&self, number: u64) -> CollectiveError {
        let Some(op) = self.life.stream.op_of(number) else { return CollectiveError::Aborted };
        let (block, op) = (op.local(number), op.id);
        let missing = |missing| CollectiveError::Missing { missing, others: 0, slot: number as u32, block, op };
        if self.serves(number) {
            return missing(self.server.missing(number));
        }
        let server = self.topology.server_of_block(number);
        let silent = match self.topology.has_dedicated_servers() {
            true => CollectiveError::ServerSilent { server: ServerId(server.0 - self.world_size()), block, op },
            false => CollectiveError::PeerSilent { worker: server, op },
        };
        match &self.last_report {
            Some((about, report)) if *about == number => report.blame(number as u32, block, op).unwrap_or(silent),
            _ => silent,
        }
    }
}
