//! What a host does with packets about blocks that other ranks lead.

use super::transmit::Outgoing;
use super::window::Step;
use super::{CanaryHost, Stage, Way};
use crate::aggregation::life::LifeCycle;
use crate::aggregation::report::Mismatch;
use crate::aggregation::slots::switch::Relation;
use crate::canary::host::lead::State;
use crate::canary::wire::{HEADER_LEN, Header};
use crate::contract::config::TimerConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::Rank;
use crate::contract::packet::Packet;
use crate::contract::time::{Span, Time};

impl CanaryHost {
    /// Checks that this host waits for the packet's block and that another rank leads the block.
    pub(super) fn follows(&self, step: Step, header: &Header) -> Result<(), DropReason> {
        let state = &self.entries[usize::from(step.position)];
        match self.steps.relation(step.phase, state.phase) {
            Relation::Earlier => return Err(DropReason::Stale),
            Relation::Next | Relation::Later => return Err(DropReason::Ahead),
            Relation::Same => {}
        }
        if !state.stage.waits() || self.leader_of(step.position) == self.config.rank {
            return Err(DropReason::Unexpected);
        }
        // `receive` has checked the field.
        debug_assert!(header.hosts == self.world_size());
        Ok(())
    }

    /// The sum (§3.1.2). The sum of any issue is right: each has all contributions in it.
    pub(super) fn sum(&mut self, now: Time, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.follows(step, header)?;
        if header.spec != self.spec_at(step.position) {
            return Err(DropReason::BadField);
        }
        let elements = self.vector_elements(header, &packet)?;
        let is_narrow = elements > 0 && self.scale_at(step.position).is_some();
        if elements != self.returned_elements_at(step.position) || header.scale.is_some() != is_narrow {
            return Err(DropReason::BadLength);
        }
        let way = if header.multicast { Way::Tree } else { Way::Answer };
        self.conclude(now, step.position, header.exponent_hint, &packet.bytes[HEADER_LEN..], way)
    }

    /// The leader has given an issue up: the block is sent again as the next issue (§3.3).
    pub(super) fn failed(&mut self, now: Time, step: Step, header: &Header) -> Result<(), DropReason> {
        self.follows(step, header)?;
        let state = &mut self.entries[usize::from(step.position)];
        let direct = header.attempt >= self.reissues;
        if direct && header.attempt == state.attempt && state.contributed {
            // The leader sums alone and lacks this rank's contribution: only this rank sends again.
            state.contributed = false;
            self.queue.push(step.position);
            return Ok(());
        }
        if header.attempt <= state.attempt {
            return Err(DropReason::Stale);
        }
        debug_assert!(state.stage != Stage::Idle);
        (state.attempt, state.contributed, state.in_step) = (header.attempt, false, false);
        // The leader has answered, so the timeout was justified.
        self.recovery.recovered(now, step.position);
        self.queue.push(step.position);
        Ok(())
    }
}

// Claims. The root of a reduce or a broadcast leads its blocks, and says so to ranks that it has waited for in vain,
// because they may have named another root. Without claims, ranks that each name themselves would wait for one
// another: a leader sends no contribution.

/// How many ranks are told at a time.
const CLAIMS_AT_ONCE: u16 = 16;

/// When this rank next looks whether a block of which it is the root stands still.
#[derive(Clone, Default, Hash)]
pub struct Claims {
    at: Option<Time>,
    wait: Span,
    /// The oldest block that waited at the last look.
    block: Option<u64>,
    /// The next rank to be told.
    next: u16,
}

impl Claims {
    /// A collective begins whose root is this rank.
    pub fn begin(&mut self, now: Time, timers: TimerConfig) {
        if self.at.is_none() {
            *self =
                Claims { at: Some(now + timers.initial_rto), wait: timers.initial_rto, block: None, next: self.next };
        }
    }

    /// When to look next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.at
    }

    /// No block waits any more.
    pub fn end(&mut self) {
        self.at = None;
    }
}

impl CanaryHost {
    /// Sends claims about the oldest block that waits, if it has waited since the last look and this rank is its root.
    pub(super) fn claim_if_due(&mut self, now: Time) {
        if self.claims.at.is_none_or(|at| at > now) {
            return;
        }
        let Some(position) = self.oldest_waiting() else { return self.claims.end() };
        let block = self.entries[usize::from(position)].block;
        let moved = self.claims.block.replace(block) != Some(block);
        let timers = self.config.timers;
        self.claims.wait = if moved { timers.initial_rto } else { self.claims.wait.times(2).min(timers.max_rto) };
        self.claims.at = Some(now + self.claims.wait);
        if moved || self.spec_at(position).primitive.root() != Some(self.config.rank) {
            return;
        }
        let step = self.step_of(position);
        for _ in 0..CLAIMS_AT_ONCE.min(self.world_size()) {
            let rank = Rank(self.claims.next % self.world_size());
            self.claims.next = (rank.0 + 1) % self.world_size();
            if rank != self.config.rank && !self.has_contributed(step, rank) {
                self.outbox.push_back(Outgoing::Claim(step, rank));
            }
        }
    }

    /// Another rank says that it leads a block, and what the block is.
    pub(super) fn claim(&mut self, step: Step, header: &Header) -> Result<(), DropReason> {
        let state = &self.entries[usize::from(step.position)];
        match self.steps.relation(step.phase, state.phase) {
            Relation::Earlier => return Err(DropReason::Stale),
            Relation::Next | Relation::Later => return Err(DropReason::Ahead),
            Relation::Same => {}
        }
        if state.stage.waits() && header.spec != self.spec_at(step.position) {
            return Err(self.disagree(step, header));
        }
        let lead = self.leads.get(step.position, step.phase);
        if !state.stage.waits() && lead.is_some_and(|lead| matches!(lead.state, State::Refused(_))) {
            self.outbox.push_back(Outgoing::Mismatch(step, header.wid));
        }
        Ok(())
    }

    /// A packet about a block that this rank waits for. If it names another collective than this rank, all ranks are
    /// told.
    pub(super) fn disagree(&mut self, step: Step, header: &Header) -> DropReason {
        let (own, spec) = (self.config.rank, self.spec_at(step.position));
        if header.spec == spec {
            return DropReason::Unexpected;
        }
        self.leads.open(step.position, step.phase);
        self.dispute(step, Mismatch { a: own, a_spec: spec, b: header.wid, b_spec: header.spec });
        DropReason::Mismatch
    }

    /// If everything has failed here because ranks disagree, tells so to a sender whose block is not complete. True if
    /// it was told.
    pub(super) fn notify_mismatch(&mut self, step: Step, header: &Header) -> bool {
        let Some(&CollectiveError::Mismatch { a, a_spec, b, b_spec, .. }) = self.life.broken() else { return false };
        let phase = self.entries[usize::from(step.position)].phase;
        let is_open = matches!(self.steps.relation(step.phase, phase), Relation::Same | Relation::Next);
        let is_done = self.leads.get(step.position, step.phase).is_some_and(|lead| lead.state == State::Done);
        if !is_open || is_done {
            return false;
        }
        self.leads.open(step.position, step.phase).state = State::Refused(Mismatch { a, a_spec, b, b_spec });
        self.outbox.push_back(Outgoing::Mismatch(step, header.wid));
        true
    }

    /// This rank comes to a block that another rank leads. A third rank may have sent a contribution to this rank, as
    /// if to the leader.
    pub(super) fn begin_following(&mut self, position: u16) {
        let (step, spec) = (self.step_of(position), self.spec_at(position));
        self.queue.push(position);
        let Some(lead) = self.leads.get(position, step.phase) else { return };
        match (lead.state, lead.what) {
            (State::Refused(_), _) => self.ready.push_back(step),
            (State::Gathering, Some((rank, other))) if other != spec => {
                let mismatch = Mismatch { a: rank, a_spec: other, b: self.config.rank, b_spec: spec };
                self.dispute(step, mismatch);
            }
            _ => {}
        }
    }

    /// Another rank reports that ranks disagree. Ranks that come to the block later, or ask for it here, are told too.
    pub(super) fn note_mismatch(&mut self, step: Step, from: Rank, mismatch: Mismatch) -> Result<(), DropReason> {
        let state = &self.entries[usize::from(step.position)];
        match self.steps.relation(step.phase, state.phase) {
            Relation::Earlier => return Err(DropReason::Stale),
            Relation::Later => return Err(DropReason::Ahead),
            Relation::Same if state.stage == Stage::Refused => return Err(DropReason::Duplicate),
            Relation::Same | Relation::Next => {}
        }
        let leader = self.entries[usize::from(step.position)].stage.waits().then(|| self.leader_of(step.position));
        let lead = self.leads.open(step.position, step.phase);
        if lead.state != State::Gathering {
            return Err(DropReason::Duplicate);
        }
        lead.state = State::Refused(mismatch);
        self.ready.push_back(step);
        // The leader sends no request that this rank could answer, and the report may not have reached the leader.
        let untold = |leader: &Rank| *leader != from && *leader != self.config.rank;
        self.outbox.extend(leader.filter(untold).map(|leader| Outgoing::Mismatch(step, leader)));
        Ok(())
    }
}
