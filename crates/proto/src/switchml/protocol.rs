//! SwitchML as a value of the registry, and the words of its packets ([`Dialect`]).

use tributary_numeric::BlockExponent;

use super::wire::{self, ExponentHint, Kind};
use super::{SwitchMl, SwitchMlHost};
use crate::aggregation::ordered::{Arrangement, nodes_needed};
use crate::aggregation::slots::host::{Epochs, SIMULATED_WINDOW, WINDOW_OPTIONS};
use crate::aggregation::slots::{self, Dialect};
use crate::contract::config::HostConfig;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::{OptionSet, OptionSpec, Options};
use crate::contract::protocol::{Placement, Protocol};
use crate::contract::seal;
use crate::contract::tensor::Spec;
use crate::reliability::recovery::Order;
use crate::reliability::slot_lists;

/// SwitchML (Sapio et al., NSDI 2021): self-clocked slots in one switch, or in levels of switches.
pub static PROTOCOL: Protocol = Protocol {
    code: 1,
    name: "switchml",
    about: "the switch sums, or a tree of switches",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    rooted_is_unicast: true,
    options: options("switchml", &SPECS),
    numbers: Numbers::chosen,
    check: |spec, options| slots::check("switchml", spec, options),
    memory: slots::switch::memory::<SwitchMlDialect>,
    host: |values, config| Box::new(SwitchMlHost::new(values, config)),
    switch: Some(|values, config| Box::new(SwitchMl::new(values, config))),
    divides_slots: |_| true,
    describe: wire::describe,
    tree_of: |job, packet| slot_lists::tree_of(job, wire::describe(packet).slot),
    ..Protocol::BASE
};

/// The options of slots whose floats travel as floats, in fixed point or as codes.
pub(crate) const SLOT_SPECS: [OptionSpec; 6] =
    [Numbers::OPTION, Numbers::DOWN, NarrowBlocks::OPTION, WINDOW_OPTIONS[0], WINDOW_OPTIONS[1], Order::OPTION];

/// These, and what takes a pipeline that checks packets.
const SPECS: [OptionSpec; 7] = {
    let [numbers, down, narrow, window, delay, order] = SLOT_SPECS;
    [numbers, down, narrow, window, delay, order, seal::OPTION]
};

/// Such options for the protocol of this name.
pub(crate) const fn options(protocol: &'static str, specs: &'static [OptionSpec]) -> OptionSet {
    let set = OptionSet::new(protocol, specs);
    OptionSet { simulated: SIMULATED_WINDOW, together: Numbers::check_together, ..set }
}

/// Slots whose packets look one block ahead (§4.6).
#[derive(Clone, Copy, Hash)]
pub struct SwitchMlDialect {
    numbers: Numbers,
    narrow: NarrowBlocks,
    order: Order,
}

impl Dialect for SwitchMlDialect {
    type Word = ExponentHint;

    fn of(options: &Options, levels: bool, world_size: u16) -> SwitchMlDialect {
        SwitchMlDialect {
            numbers: Numbers::of_job(options, world_size),
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
            Numbers::Fixed | Numbers::Int8(_) | Numbers::Thc4(_) => 1,
        }
    }

    /// If the order matters, vectors are combined along the tree, whatever their order of arrival; otherwise as they
    /// come.
    fn arrangement(&self, _spec: &Spec, encoding: &Encoding, _children: usize) -> Arrangement {
        if encoding.is_ordered { Arrangement::Tree } else { Arrangement::Buffers(1) }
    }

    fn says(&self, _host: &HostConfig, kind: Kind, exponent: impl Fn(u64) -> Option<BlockExponent>) -> ExponentHint {
        self.hint(kind, exponent)
    }

    fn epochs(&self, _host: &HostConfig) -> Option<Epochs> {
        None
    }

    fn order(&self) -> Order {
        self.order
    }
}
