//! What a host does about the blocks that it leads (§3.1.4, §3.3).

use super::lead::State;
use super::transmit::{Outgoing, group};
use super::window::Step;
use super::{CanaryHost, Stage, Way};
use crate::aggregation::report::Mismatch;
use crate::aggregation::slots::switch::Relation;
use crate::canary::vector::Codec;
use crate::canary::wire::{HEADER_LEN, Header, NO_SWITCH, RankProof, proof};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{PortId, Rank};
use crate::contract::packet::Packet;
use crate::contract::time::Time;

/// How many contributions a leader that sums alone calls for at a time.
const CALLS: u16 = 16;

impl CanaryHost {
    /// The leader itself comes to a block. Contributions of other ranks may have come before.
    pub(super) fn begin_lead(&mut self, position: u16) {
        let step = self.step_of(position);
        let (spec, elements, own) = (self.spec_at(position), self.contributed_elements_at(position), self.config.rank);
        let block = self.entries[usize::from(position)].block;
        let (is_notice, root) = (self.is_notice(position), self.root_of(position));
        let lead = self.leads.open(step.position, step.phase);
        lead.root = root;
        lead.block = (!is_notice).then_some(block);
        let dispute = match lead.what {
            Some((rank, other)) if other != spec && lead.state == State::Gathering => {
                Some(Mismatch { a: rank, a_spec: other, b: own, b_spec: spec })
            }
            _ => None,
        };
        (lead.what, lead.elements) = (Some((own, spec)), elements);
        match dispute {
            Some(mismatch) => self.dispute(step, mismatch),
            None => self.ready.push_back(step),
        }
    }

    /// Checks that this host leads the packet's block, as far as this host knows.
    fn leads_step(&mut self, step: Step, header: &Header) -> Result<(), DropReason> {
        if header.destination != self.own_node() {
            return Err(DropReason::NotAMember);
        }
        let state = &self.entries[usize::from(step.position)];
        match self.steps.relation(step.phase, state.phase) {
            Relation::Same if state.stage.waits() && self.leader_of(step.position) != self.config.rank => {
                Err(self.disagree(step, header))
            }
            Relation::Same | Relation::Next => Ok(()),
            Relation::Earlier => self.leads.get(step.position, step.phase).map(|_| ()).ok_or(DropReason::Stale),
            Relation::Later => Err(DropReason::Ahead),
        }
    }

    /// Contributions of other ranks, summed on the way or single.
    pub(super) fn contribution(&mut self, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.leads_step(step, header)?;
        let elements = self.vector_elements(header, &packet)?;
        let (others, direct) = (self.world_size() - 1, self.is_direct(header.attempt));
        if header.counter == 0 || header.counter > others || direct && header.counter != 1 {
            return Err(DropReason::BadField);
        }
        if elements > usize::from(self.config.job.elements_per_packet) {
            return Err(DropReason::BadLength);
        }
        let rank = header.wid;
        let lead = self.leads.open(step.position, step.phase);
        match lead.state {
            State::Refused(_) => {
                self.outbox.push_back(Outgoing::Mismatch(step, rank));
                return Err(DropReason::Mismatch);
            }
            State::Done if direct => {
                self.outbox.push_back(Outgoing::Answer(step, rank));
                return Ok(());
            }
            State::Done => return Err(DropReason::Duplicate),
            State::Gathering => {}
        }
        if header.attempt != lead.attempt {
            return Err(if header.attempt < lead.attempt { DropReason::Stale } else { DropReason::Ahead });
        }
        match lead.what {
            None => (lead.what, lead.elements) = (Some((rank, header.spec)), elements),
            Some((a, a_spec)) if a_spec != header.spec => {
                self.dispute(step, Mismatch { a, a_spec, b: rank, b_spec: header.spec });
                return Err(DropReason::Mismatch);
            }
            Some(_) if lead.elements != elements => return Err(DropReason::BadLength),
            Some(_) => {}
        }
        if direct {
            lead.seen.insert(rank);
            if !lead.requested.insert(rank) {
                return Err(DropReason::Duplicate);
            }
        } else if header.counter > others - lead.counter {
            // The network duplicated a packet whose block no switch remembered.
            self.fail_issue(step);
            return Err(DropReason::Duplicate);
        }
        lead.counter += header.counter;
        lead.contributors = lead.contributors.wrapping_add(header.contributors);
        lead.exponent_hint.join(&header.exponent_hint);
        if header.switch_address == NO_SWITCH {
            lead.has_tree |= !direct;
            lead.root = header.root;
        } else {
            lead.collisions.push((header.switch_address, PortId(header.children as u16)));
        }
        lead.add(Codec::of(self.values, header), &packet.bytes[HEADER_LEN..]);
        if lead.counter == others {
            self.ready.push_back(step);
        } else if direct {
            self.call(step, 1);
        }
        Ok(())
    }

    /// Completes all blocks that can be completed. A completed block may let the next block of its position begin.
    pub(super) fn complete_ready(&mut self, now: Time) {
        while let Some(step) = self.ready.pop_front() {
            self.complete(now, step);
        }
    }

    /// Completes a block if only the leader's own contribution is missing.
    fn complete(&mut self, now: Time, step: Step) {
        let position = step.position;
        let state = &self.entries[usize::from(position)];
        if state.phase != step.phase || !state.stage.waits() {
            return;
        }
        let Some(lead) = self.leads.get(position, step.phase) else { return };
        match lead.state {
            State::Refused(mismatch) => return self.refuse(now, position, mismatch),
            State::Done => return,
            State::Gathering if lead.counter + 1 < self.world_size() => return,
            State::Gathering => {}
        }
        if lead.contributors != proof(self.others_proof, self.steps.id(step), lead.attempt) {
            // As many contributions as ranks, but not one from each.
            return self.fail_issue(step);
        }
        let (attempt, elements, is_broadcast) = (lead.attempt, self.elements_at(position), self.is_broadcast(position));
        self.entries[usize::from(position)].attempt = attempt;
        let own = self.exponent_hint_at(position);
        let mut vector = std::mem::take(&mut self.vector);
        let header = Header { scale: self.scale_at(position), ..self.header(step, NO_SWITCH, attempt) };
        let codec = Codec::of(self.values, &header);
        let len = codec.buffer_len(elements);
        if elements > 0 {
            let (agreed, block) = (self.agreed_at(position), self.entries[usize::from(position)].block);
            let op = self.op_at(position).expect("a place that waits has a block");
            op.read(block, agreed, self.world_size(), &mut vector[..len]);
        }
        let lead = self.leads.open(position, step.phase);
        if is_broadcast {
            lead.elements = elements;
        } else if elements > 0 {
            lead.add(codec, &vector[..len]);
            lead.load(codec, header.spec.op, &mut vector[..len]);
        }
        lead.keep(header.scale, &vector[..len]);
        lead.exponent_hint.join(&own);
        lead.state = State::Done;
        let exponent_hint = lead.exponent_hint;
        self.broadcast(step, attempt);
        let concluded = self.conclude(now, position, exponent_hint, &vector[..len], Way::Own);
        debug_assert!(concluded.is_ok(), "a leader's own sum is of use to it");
        self.vector = vector;
    }

    /// The sum takes the way that contributions came by.
    fn broadcast(&mut self, step: Step, attempt: u8) {
        if self.is_direct(attempt) {
            return self.outbox.extend(self.others().map(|rank| Outgoing::Answer(step, rank)));
        }
        let lead = self.leads.open(step.position, step.phase);
        if lead.has_tree {
            self.outbox.push_back(Outgoing::Tree(step));
        }
        self.outbox.extend(group(&mut lead.collisions).into_iter().map(|ports| Outgoing::Restoration(step, ports)));
    }

    /// This issue of a block cannot succeed: all ranks send again (§3.3).
    fn fail_issue(&mut self, step: Step) {
        let lead = self.leads.open(step.position, step.phase);
        lead.attempt += 1;
        self.stats.reissues += 1;
        let attempt = lead.attempt;
        if lead.has_tree {
            self.outbox.push_back(Outgoing::FailedTree(step, attempt));
        }
        let restorations = group(&mut lead.collisions);
        lead.restart();
        self.outbox.extend(restorations.into_iter().map(|ports| Outgoing::FailedRestoration(step, attempt, ports)));
        if self.is_direct(attempt) {
            return self.call(step, CALLS);
        }
        self.outbox.extend(self.others().map(|rank| Outgoing::Failed(step, rank)));
    }

    /// Calls for the contributions of the next ranks, few at a time: all at once would flood this host's link.
    fn call(&mut self, step: Step, count: u16) {
        let (world_size, own) = (self.world_size(), self.config.rank);
        let lead = self.leads.open(step.position, step.phase);
        for _ in 0..count {
            if lead.next_call == own {
                lead.next_call.0 += 1;
            }
            if lead.next_call.0 >= world_size {
                return;
            }
            self.outbox.push_back(Outgoing::Failed(step, lead.next_call));
            lead.next_call.0 += 1;
        }
    }

    pub(super) fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let own = self.config.rank;
        (0..self.world_size()).map(Rank).filter(move |&rank| rank != own)
    }

    /// A rank waits for the sum (§3.3). The issue fails as soon as requests show that a contribution was lost. The
    /// paper's leader fails it at the first request, so that all ranks send again whenever one is merely late.
    pub(super) fn request(&mut self, step: Step, header: &Header) -> Result<(), DropReason> {
        self.leads_step(step, header)?;
        let lead = self.leads.open(step.position, step.phase);
        lead.seen.insert(header.wid);
        match lead.state {
            State::Done => self.outbox.push_back(Outgoing::Answer(step, header.wid)),
            State::Refused(_) => self.outbox.push_back(Outgoing::Mismatch(step, header.wid)),
            State::Gathering if header.attempt > lead.attempt => return Err(DropReason::Ahead),
            // This host sums alone, and knows which of the contributions that it has called for are missing.
            State::Gathering if self.reissues <= lead.attempt => {
                let was_called = header.wid < lead.next_call || lead.attempt == 0;
                if was_called && !lead.requested.contains(header.wid) {
                    self.outbox.push_back(Outgoing::Failed(step, header.wid));
                }
            }
            State::Gathering if header.attempt < lead.attempt => {
                self.outbox.push_back(Outgoing::Failed(step, header.wid));
            }
            State::Gathering => {
                lead.requested.insert(header.wid);
                if self.fails_at_once || self.has_lost(step, header.wid) {
                    self.fail_issue(step);
                }
            }
        }
        Ok(())
    }

    /// A rank's deadline is near: it asks which ranks are missing.
    pub(super) fn query(&mut self, step: Step, header: &Header) -> Result<(), DropReason> {
        self.leads_step(step, header)?;
        let lead = self.leads.open(step.position, step.phase);
        lead.seen.insert(header.wid);
        self.outbox.push_back(match lead.state {
            State::Done => Outgoing::Answer(step, header.wid),
            State::Refused(_) => Outgoing::Mismatch(step, header.wid),
            State::Gathering => Outgoing::Report(step, header.wid),
        });
        Ok(())
    }

    /// True if a rank is known to have sent its contribution: the rank has asked for the sum since.
    pub(super) fn has_contributed(&self, step: Step, rank: Rank) -> bool {
        if rank == self.config.rank {
            let state = &self.entries[usize::from(step.position)];
            return state.phase == step.phase && state.stage != Stage::Idle;
        }
        self.leads.get(step.position, step.phase).is_some_and(|lead| lead.seen.contains(rank))
    }
}

// Whether a contribution to an issue was lost. The leader infers it from the ranks that have asked for the sum, and
// from the proofs of the contributions that came.
//
// A rank asks a timeout after it has contributed. So a contribution was lost if a rank that has asked is among those
// whose contribution is missing. Ranks that have not asked may be late.

/// The most ranks that have not asked whose subsets are all compared with what is missing.
const MAX_SILENT: usize = 8;

impl CanaryHost {
    /// True if the contribution of a rank that has asked is missing. `asker` is the last rank that asked. The answer is
    /// exact where only the asker's contribution is missing, and where at most `MAX_SILENT` ranks have not asked. Where
    /// it cannot be told, the answer is false.
    pub(super) fn has_lost(&self, step: Step, asker: Rank) -> bool {
        let Some(lead) = self.leads.get(step.position, step.phase) else { return false };
        let others = self.world_size() - 1;
        let (missing, silent) = (others - lead.counter, others - lead.requested.len());
        if missing == 0 || missing > silent {
            return missing > 0;
        }
        let (id, attempt) = (self.steps.id(step), lead.attempt);
        let lacks = proof(self.others_proof, id, attempt).wrapping_sub(lead.contributors);
        if missing == 1 && proof(RankProof::of(asker), id, attempt) == lacks {
            return true;
        }
        if usize::from(silent) > MAX_SILENT {
            return false;
        }
        let silent: Vec<RankProof> =
            self.others().filter(|&rank| !lead.requested.contains(rank)).map(RankProof::of).collect();
        let sum_of = |subset: u32| {
            let chosen = silent.iter().enumerate().filter(|&(index, _)| subset >> index & 1 != 0);
            proof(chosen.map(|(_, &rank_proof)| rank_proof).sum(), id, attempt)
        };
        let may_be_late = |subset: u32| subset.count_ones() == u32::from(missing) && sum_of(subset) == lacks;
        !(0..1u32 << silent.len()).any(may_be_late)
    }
}
