//! Which block is at which position of the window, which rank leads it, where its tree ends, and what it consists of.

use tributary_numeric::BlockExponent;

use super::steps::Step;
use super::{CanaryHost, NOTICE, Stage};
use crate::aggregation::exponent_hint::ExponentHint;
use crate::aggregation::stream::Op;
use crate::contract::ids::{NodeId, Rank};
use crate::contract::tensor::{Primitive, Spec};

impl CanaryHost {
    pub(super) fn window(&self) -> u16 {
        self.entries.len() as u16 - 1
    }

    pub(super) fn is_notice(&self, position: u16) -> bool {
        position == self.window()
    }

    pub(super) fn world_size(&self) -> u16 {
        self.config.job.world_size
    }

    pub(super) fn node_of(&self, rank: Rank) -> NodeId {
        self.config.fabric.hosts[rank.index()]
    }

    pub(super) fn own_node(&self) -> NodeId {
        self.node_of(self.config.rank)
    }

    /// The leader of a block or a notice whose collective names no root.
    pub(super) fn leader_in_turn(&self, block: u64) -> Rank {
        Rank((block % u64::from(self.world_size())) as u16)
    }

    /// The leader of a position that waits. A reduce is led by the rank that gets its result, a broadcast by its source
    /// (§6).
    pub(super) fn leader_of(&self, position: u16) -> Rank {
        self.spec_at(position)
            .primitive
            .root()
            .unwrap_or_else(|| self.leader_in_turn(self.entries[usize::from(position)].block))
    }

    /// The switch in which the tree of a position's block ends.
    pub(super) fn root_of(&self, position: u16) -> NodeId {
        let leader = self.spec_at(position).primitive.root();
        let turn = leader.map_or(self.entries[usize::from(position)].block, |rank| rank.0.into());
        self.roots[(turn % self.roots.len() as u64) as usize]
    }

    pub(super) fn step_of(&self, position: u16) -> Step {
        Step { position, phase: self.entries[usize::from(position)].phase }
    }

    /// True if the leader sums this issue alone, because too many issues failed.
    pub(super) fn is_direct(&self, attempt: u8) -> bool {
        attempt >= self.reissues
    }

    /// The collective of a position, if its block was submitted.
    pub(super) fn op_at(&self, position: u16) -> Option<&Op> {
        if self.is_notice(position) { None } else { self.life.stream.op_of(self.entries[usize::from(position)].block) }
    }

    /// What a position reduces.
    pub(super) fn spec_at(&self, position: u16) -> Spec {
        self.op_at(position).map_or(NOTICE, |op| op.spec)
    }

    /// Elements of a position's block; 0 in a phase without a vector.
    pub(super) fn elements_at(&self, position: u16) -> usize {
        let state = &self.entries[usize::from(position)];
        match self.op_at(position) {
            Some(op) if state.stage != Stage::Probe => op.range(state.block).len(),
            _ => 0,
        }
    }

    /// Elements of the vector in a contribution. A contribution to a broadcast has none: it only shows that its rank
    /// has come to the block.
    pub(super) fn contributed_elements_at(&self, position: u16) -> usize {
        if self.is_broadcast(position) { 0 } else { self.elements_at(position) }
    }

    /// Elements of the vector that comes back: 0 for a reduce, whose result is the leader's alone.
    pub(super) fn returned_elements_at(&self, position: u16) -> usize {
        if matches!(self.spec_at(position).primitive, Primitive::Reduce(_)) { 0 } else { self.elements_at(position) }
    }

    pub(super) fn is_broadcast(&self, position: u16) -> bool {
        matches!(self.spec_at(position).primitive, Primitive::Broadcast(_))
    }

    /// What this rank says about the next block of a position; while ranks agree on the exponent of the current block,
    /// about that block.
    pub(super) fn exponent_hint_at(&self, position: u16) -> ExponentHint {
        if self.is_notice(position) {
            return ExponentHint::UNKNOWN;
        }
        let state = &self.entries[usize::from(position)];
        let block = match state.stage {
            Stage::Probe | Stage::Guess => state.block,
            _ => state.block + u64::from(self.window()),
        };
        self.life.stream.op_of(block).map_or(ExponentHint::UNKNOWN, |op| ExponentHint::known(op.exponent(block)))
    }

    /// The exponent of a vector that travels as 16-bit floats, by which the machine that sums the vector scales it.
    pub(super) fn scale_at(&self, position: u16) -> Option<BlockExponent> {
        self.op_at(position)?.encoding.at_switch.and_then(|_| self.agreed_at(position))
    }

    /// The exponent that a position's vector is scaled by, if it is scaled.
    pub(super) fn agreed_at(&self, position: u16) -> Option<BlockExponent> {
        let state = &self.entries[usize::from(position)];
        state.agreement.scaled_by(state.stage)
    }
}
