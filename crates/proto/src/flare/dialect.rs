//! The words of Flare's packets, and how its switches combine: see [`Dialect`].

use tributary_numeric::BlockExponent;

use super::design::Design;
use super::options::Choices;
use super::wire::{Kind, Order, Says};
use crate::aggregation::ordered::{Arrangement, nodes_needed};
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::host::Epochs;
use crate::contract::config::HostConfig;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::Options;
use crate::contract::sum_tree::SumTree;
use crate::contract::tensor::Spec;

/// Slots whose blocks are combined in the designs of §6; values of every type and operator travel as they are.
#[derive(Clone, Copy, Hash)]
pub struct FlareDialect {
    choices: Choices,
    narrow: NarrowBlocks,
    /// The order of a sum along one tree over all ranks, if the job has such a tree over several switches.
    over_ranks: Option<Order>,
}

impl Dialect for FlareDialect {
    type Word = Says;

    fn of(options: &Options, levels: bool, world_size: u16) -> FlareDialect {
        let choices = Choices::of(options);
        // In one switch the tree over the switch's children is the tree over ranks.
        let over_ranks = (choices.over_ranks && levels).then(|| Order::of(&SumTree::star(world_size)));
        FlareDialect { choices, narrow: NarrowBlocks::chosen(options, levels), over_ranks }
    }

    fn numbers(&self) -> Numbers {
        Numbers::Float
    }

    fn narrow(&self) -> NarrowBlocks {
        self.narrow
    }

    fn width(&self, children: usize, world_size: u16) -> usize {
        match self.over_ranks {
            Some(_) => nodes_needed(world_size.into()),
            None => self.choices.design.buffers(children),
        }
    }

    fn is_over_ranks(&self) -> bool {
        self.over_ranks.is_some()
    }

    /// The design's arrangement, for every type and operator: integers in a tree take the tree's buffers too.
    fn arrangement(&self, spec: &Spec, _encoding: &Encoding, children: usize) -> Arrangement {
        match self.over_ranks {
            Some(_) => Arrangement::Forest,
            None => self.choices.design.design(spec).arrangement(children),
        }
    }

    /// Floats need no exponent, so no probe is sent.
    fn sends(kind: Kind) -> bool {
        kind != Kind::Probe
    }

    fn says(&self, host: &HostConfig, kind: Kind, _exponent: impl Fn(u64) -> Option<BlockExponent>) -> Says {
        let order = if kind == Kind::Update { Order::of_rank(host.rank) } else { Order::NONE };
        Says { subtree: 0, order }
    }

    fn epochs(&self, host: &HostConfig) -> Option<Epochs> {
        self.choices.stagger.then(|| Epochs::new(host.job.slots, host.rank.0, host.job.world_size))
    }

    fn concluded(&self, spec: &Spec, joined: Says, of_all: bool) -> Says {
        let order = match (self.over_ranks, self.choices.design.design(spec)) {
            (Some(order), _) if of_all => order,
            // The parts are several nodes of the tree, which together have no name.
            (Some(_), _) | (_, Design::Single | Design::Multi(_)) => Order::NONE,
            (None, Design::Tree) => Order::of_switch(joined.order),
        };
        Says { subtree: 0, order }
    }
}
