//! What Flare says in its packets, and how its switches combine: see [`Dialect`].

use tributary_numeric::BlockExponent;

use super::design::Design;
use super::options::Choices;
use super::wire::{Kind, Order};
use crate::contract::config::HostConfig;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::Options;
use crate::contract::tensor::Spec;
use crate::parts::ordered::Arrangement;
use crate::parts::slots::Dialect;
use crate::parts::slots::host::Epochs;

/// Slots whose blocks are combined in the designs of §6, all types and operators as what they are.
#[derive(Clone, Copy)]
pub struct FlareDialect {
    choices: Choices,
    narrow: NarrowBlocks,
}

impl Dialect for FlareDialect {
    type Word = Order;

    fn of(options: &Options, levels: bool) -> FlareDialect {
        FlareDialect { choices: Choices::of(options), narrow: NarrowBlocks::chosen(options, levels) }
    }

    fn numbers(&self) -> Numbers {
        Numbers::Float
    }

    fn narrow(&self) -> NarrowBlocks {
        self.narrow
    }

    fn width(&self, children: usize) -> usize {
        self.choices.design.buffers(children)
    }

    /// The design's, for every type and operator: integers in a tree take its buffers too.
    fn arrangement(&self, spec: &Spec, _encoding: &Encoding, children: usize) -> Arrangement {
        self.choices.design.design(spec).arrangement(children)
    }

    /// There is no exponent to ask for.
    fn sends(kind: Kind) -> bool {
        kind != Kind::Probe
    }

    fn says(&self, host: &HostConfig, kind: Kind, _exponent: impl Fn(u64) -> Option<BlockExponent>) -> Order {
        if kind == Kind::Update { Order::of_rank(host.rank) } else { Order::NONE }
    }

    fn epochs(&self, host: &HostConfig) -> Option<Epochs> {
        self.choices.stagger.then(|| Epochs::new(host.job.slots, host.rank.0, host.job.world))
    }

    fn concluded(&self, spec: &Spec, joined: Order) -> Order {
        match self.choices.design.design(spec) {
            Design::Tree => Order::of_switch(joined),
            Design::Single | Design::Multi(_) => Order::NONE,
        }
    }
}
