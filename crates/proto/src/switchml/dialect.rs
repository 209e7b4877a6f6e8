//! The word in SwitchML's packets, and how its switches combine vectors: see [`Dialect`].

use tributary_numeric::BlockExponent;

use super::wire::{ExponentHint, Kind};
use crate::aggregation::ordered::{Arrangement, nodes_needed};
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::host::Epochs;
use crate::contract::config::HostConfig;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::Options;
use crate::contract::tensor::Spec;
use crate::reliability::recovery::Order;

/// Slots whose packets look one block ahead (§4.6).
#[derive(Clone, Copy, Hash)]
pub struct SwitchMlDialect {
    numbers: Numbers,
    narrow: NarrowBlocks,
    order: Order,
}

impl Dialect for SwitchMlDialect {
    type Word = ExponentHint;

    fn of(options: &Options, levels: bool, _world_size: u16) -> SwitchMlDialect {
        SwitchMlDialect {
            numbers: Numbers::chosen(options),
            narrow: NarrowBlocks::chosen(options, levels),
            order: Order::chosen(options),
        }
    }

    fn numbers(&self) -> Numbers {
        self.numbers
    }

    fn narrow(&self) -> NarrowBlocks {
        self.narrow
    }

    fn width(&self, children: usize, _world_size: u16) -> usize {
        match self.numbers {
            Numbers::Float => nodes_needed(children),
            Numbers::Fixed => 1,
        }
    }

    /// If the order matters, vectors are combined along the tree, whatever their order of arrival; otherwise as they
    /// come.
    fn arrangement(&self, _spec: &Spec, encoding: &Encoding, _children: usize) -> Arrangement {
        if encoding.is_ordered { Arrangement::Tree } else { Arrangement::Buffers(1) }
    }

    fn sends(_kind: Kind) -> bool {
        true
    }

    /// The exponent of the sender's next block in the slot; in a PROBE, of this block.
    fn says(&self, _host: &HostConfig, kind: Kind, exponent: impl Fn(u64) -> Option<BlockExponent>) -> ExponentHint {
        let known = match kind {
            Kind::Update => exponent(1),
            Kind::Probe => exponent(0),
            _ => None,
        };
        known.map_or(ExponentHint::UNKNOWN, ExponentHint::known)
    }

    fn epochs(&self, _host: &HostConfig) -> Option<Epochs> {
        None
    }

    fn order(&self) -> Order {
        self.order
    }
}
