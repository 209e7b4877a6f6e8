//! SwitchML as a value of the registry.

use super::{SwitchMl, SwitchMlDialect, SwitchMlHost, wire};
use crate::aggregation::slots;
use crate::aggregation::slots::host::SendWindow;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::options::{OptionSet, Options};
use crate::contract::protocol::{Placement, Protocol, Refusal};
use crate::contract::tensor::Spec;
use crate::contract::values::Values;
use crate::reliability::layout;
use crate::reliability::recovery::Order;

/// SwitchML (Sapio et al., NSDI 2021): self-clocked slots in one switch, or in levels of switches.
pub static PROTOCOL: Protocol = Protocol {
    code: 1,
    name: "switchml",
    about: "the switch sums, or a tree of switches",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    passes_results_on: false,
    spares_others: true,
    options: OptionSet {
        simulated: &[SendWindow::SIMULATED],
        ..OptionSet::new("switchml", &[Numbers::OPTION, NarrowBlocks::OPTION, SendWindow::OPTION, Order::OPTION])
    },
    numbers: Numbers::chosen,
    can: |spec, options| can("switchml", spec, options),
    can_sparse: None,
    memory: slots::switch::memory::<SwitchMlDialect>,
    host: |values, config| Box::new(SwitchMlHost::new(values, config)),
    switch: Some(|values, config| Box::new(SwitchMl::new(values, config))),
    resizes: false,
    replants: false,
    recompute: None,
    shared: None,
    server: None,
    describe: wire::describe,
    tree_of: |job, packet| layout::tree_of(job, wire::describe(packet).slot),
};

/// What slots can sum: floats as floats; in fixed point, the floats that it can hold; integers always.
pub(crate) fn can(protocol: &'static str, spec: &Spec, options: &Options) -> Result<(), Refusal> {
    let numbers = Numbers::chosen(options);
    if Encoding::new(Values::Elements, numbers, spec).is_some() {
        return Ok(());
    }
    let (why, instead) = match Encoding::new(Values::Elements, Numbers::Float, spec) {
        Some(_) => (" in fixed point", "choose numbers=float, or sum or average f32, f16 or bf16"),
        None => ("", "band, bor and bxor are for integers"),
    };
    Err(Refusal { protocol, spec: *spec, why, instead })
}
