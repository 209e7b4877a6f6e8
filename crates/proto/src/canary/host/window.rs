//! Which block is at which place of the window, which rank leads it, where its tree ends, and what it consists of.

use tributary_numeric::BlockExponent;

use super::steps::Step;
use super::{CanaryHost, NOTICE, Stage};
use crate::aggregation::exponent_hint::LookAhead;
use crate::aggregation::stream::Op;
use crate::contract::ids::{NodeId, Rank};
use crate::contract::tensor::{Primitive, Spec};

impl CanaryHost {
    pub(super) fn window(&self) -> u16 {
        self.places.len() as u16 - 1
    }

    pub(super) fn is_notice(&self, place: u16) -> bool {
        place == self.window()
    }

    pub(super) fn world(&self) -> u16 {
        self.config.job.world
    }

    pub(super) fn node_of(&self, rank: Rank) -> NodeId {
        self.config.fabric.hosts[rank.index()]
    }

    pub(super) fn own_node(&self) -> NodeId {
        self.node_of(self.config.rank)
    }

    /// The leader of a block or a notice whose collective names no root.
    pub(super) fn leader_in_turn(&self, block: u64) -> Rank {
        Rank((block % u64::from(self.world())) as u16)
    }

    /// The leader of a place that waits. A reduce is led by the rank that gets its result, a broadcast by its source
    /// (§6).
    pub(super) fn leader_of(&self, place: u16) -> Rank {
        self.spec_at(place)
            .primitive
            .root()
            .unwrap_or_else(|| self.leader_in_turn(self.places[usize::from(place)].block))
    }

    /// The switch in which the tree of a place's block ends.
    pub(super) fn root_of(&self, place: u16) -> NodeId {
        let leader = self.spec_at(place).primitive.root();
        let turn = leader.map_or(self.places[usize::from(place)].block, |rank| rank.0.into());
        self.roots[(turn % self.roots.len() as u64) as usize]
    }

    pub(super) fn step_of(&self, place: u16) -> Step {
        Step { place, phase: self.places[usize::from(place)].phase }
    }

    /// True if the leader sums this issue alone, because so many issues failed.
    pub(super) fn is_direct(&self, attempt: u8) -> bool {
        attempt >= self.reissues
    }

    /// The collective of a place, if its block was submitted.
    pub(super) fn op_at(&self, place: u16) -> Option<&Op> {
        if self.is_notice(place) { None } else { self.life.stream.op_of(self.places[usize::from(place)].block) }
    }

    /// What a place reduces.
    pub(super) fn spec_at(&self, place: u16) -> Spec {
        self.op_at(place).map_or(NOTICE, |op| op.spec)
    }

    /// Elements of a place's block; 0 in a phase without a vector.
    pub(super) fn elements_at(&self, place: u16) -> usize {
        let state = &self.places[usize::from(place)];
        match self.op_at(place) {
            Some(op) if state.stage != Stage::Probe => op.range(state.block).len(),
            _ => 0,
        }
    }

    /// Elements of the vector in a contribution. A contribution to a broadcast has none: it only shows that its rank
    /// has come to the block.
    pub(super) fn contributed_elements_at(&self, place: u16) -> usize {
        if self.is_broadcast(place) { 0 } else { self.elements_at(place) }
    }

    /// Elements of the vector that comes back: 0 for a reduce, whose result is the leader's alone.
    pub(super) fn returned_elements_at(&self, place: u16) -> usize {
        if matches!(self.spec_at(place).primitive, Primitive::Reduce(_)) { 0 } else { self.elements_at(place) }
    }

    pub(super) fn is_broadcast(&self, place: u16) -> bool {
        matches!(self.spec_at(place).primitive, Primitive::Broadcast(_))
    }

    /// What this rank says about the next block of a place; while ranks agree on the exponent of the current block,
    /// about that block.
    pub(super) fn look_ahead_at(&self, place: u16) -> LookAhead {
        if self.is_notice(place) {
            return LookAhead::UNKNOWN;
        }
        let state = &self.places[usize::from(place)];
        let block = match state.stage {
            Stage::Probe | Stage::Guess => state.block,
            _ => state.block + u64::from(self.window()),
        };
        self.life.stream.op_of(block).map_or(LookAhead::UNKNOWN, |op| LookAhead::known(op.exponent(block)))
    }

    /// The exponent of a vector that travels as 16-bit floats, by which the machine that sums the vector scales it.
    pub(super) fn scale_at(&self, place: u16) -> Option<BlockExponent> {
        self.op_at(place)?.encoding.at_switch.and_then(|_| self.agreed_at(place))
    }

    /// The exponent that a place's vector is scaled by, if it is scaled.
    pub(super) fn agreed_at(&self, place: u16) -> Option<BlockExponent> {
        let state = &self.places[usize::from(place)];
        state.agreement.scaled_by(state.stage)
    }
}
