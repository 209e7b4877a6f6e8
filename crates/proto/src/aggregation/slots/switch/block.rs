//! What the contributions to one phase of a slot must have in common.

use crate::aggregation::agreement::Stage;
use crate::aggregation::slots::wire::Kind;
use crate::contract::tensor::Spec;

/// What contributions to one phase of a slot must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// UPDATE or PROBE.
    pub kind: Kind,
    /// The collective.
    pub spec: Spec,
    /// Elements of the vector.
    pub elements: u32,
}

impl Block {
    /// The stage of the hosts' slots.
    pub fn stage(&self) -> Stage {
        match self.kind {
            Kind::Probe if self.elements == 0 => Stage::Probe,
            Kind::Probe => Stage::Guess,
            _ => Stage::Update,
        }
    }
}
