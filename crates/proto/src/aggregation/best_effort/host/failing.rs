//! Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

use tributary_numeric::BlockExponent;

use super::BestEffortHost;
use crate::aggregation::best_effort::wire::{Flags, Header};
use crate::aggregation::mismatch::Mismatch;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::{Rank, ServerId};
use crate::contract::tensor::Spec;

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

    /// All collectives that are queued fail, and all later ones. This host still answers for the blocks that it serves.
    pub(super) fn fail(&mut self, error: CollectiveError) {
        self.life.fail(error);
        self.window.clear();
        self.questions.clear();
        self.shutdown.fail();
    }

    /// Why a deadline has passed.
    pub(super) fn diagnose(&self) -> CollectiveError {
        if let Some(error) = self.life.failing() {
            return error.clone();
        }
        let oldest = || self.window.all_waiting().map(|entry| entry.block);
        let Some(number) = oldest().find(|&block| !self.serves(block)).or_else(|| oldest().next()) else {
            return CollectiveError::Aborted;
        };
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
