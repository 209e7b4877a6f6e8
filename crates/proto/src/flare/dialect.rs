//! What Flare says in its packets, and how its switches combine: see [`Dialect`].

use tributary_numeric::BlockExponent;

use super::design::Design;
use super::options::Choices;
use super::wire::{Kind, Order, Says};
use crate::contract::config::HostConfig;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::Options;
use crate::contract::sum_tree::SumTree;
use crate::contract::tensor::Spec;
use crate::parts::ordered::{Arrangement, nodes_needed};
use crate::parts::slots::Dialect;
use crate::parts::slots::host::Epochs;

/// Slots whose blocks are combined in the designs of §6, all types and operators as what they are.
#[derive(Clone, Copy, Hash)]
pub struct FlareDialect {
    choices: Choices,
    narrow: NarrowBlocks,
    /// The order of one tree over all ranks, where the job has one over several switches.
    over_ranks: Option<Order>,
}

impl Dialect for FlareDialect {
    type Word = Says;

    fn of(options: &Options, levels: bool, world: u16) -> FlareDialect {
        let choices = Choices::of(options);
        // In one switch the tree over its children is the tree over ranks.
        let over_ranks = (choices.over_ranks && levels).then(|| Order::of(&SumTree::star(world)));
        FlareDialect { choices, narrow: NarrowBlocks::chosen(options, levels), over_ranks }
    }

    fn numbers(&self) -> Numbers {
        Numbers::Float
    }

    fn narrow(&self) -> NarrowBlocks {
        self.narrow
    }

    fn width(&self, children: usize, world: u16) -> usize {
        match self.over_ranks {
            Some(_) => nodes_needed(world.into()),
            None => self.choices.design.buffers(children),
        }
    }

    fn is_over_ranks(&self) -> bool {
        self.over_ranks.is_some()
    }

    /// The design's, for every type and operator: integers in a tree take its buffers too.
    fn arrangement(&self, spec: &Spec, _encoding: &Encoding, children: usize) -> Arrangement {
        match self.over_ranks {
            Some(_) => Arrangement::Forest,
            None => self.choices.design.design(spec).arrangement(children),
        }
    }

    /// There is no exponent to ask for.
    fn sends(kind: Kind) -> bool {
        kind != Kind::Probe
    }

    fn says(&self, host: &HostConfig, kind: Kind, _exponent: impl Fn(u64) -> Option<BlockExponent>) -> Says {
        let order = if kind == Kind::Update { Order::of_rank(host.rank) } else { Order::NONE };
        Says { part: 0, order }
    }

    fn epochs(&self, host: &HostConfig) -> Option<Epochs> {
        self.choices.stagger.then(|| Epochs::new(host.job.slots, host.rank.0, host.job.world))
    }

    fn concluded(&self, spec: &Spec, joined: Says, of_all: bool) -> Says {
        let order = match (self.over_ranks, self.choices.design.design(spec)) {
            (Some(order), _) if of_all => order,
            // Some nodes of the tree, which together have no name.
            (Some(_), _) | (_, Design::Single | Design::Multi(_)) => Order::NONE,
            (None, Design::Tree) => Order::of_switch(joined.order),
        };
        Says { part: 0, order }
    }
}
