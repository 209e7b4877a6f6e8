//! Flare as a value of the registry.

use super::dialect::FlareDialect;
use super::{options, wire};
use crate::contract::numbers::{Encoding, Numbers};
use crate::contract::options::Options;
use crate::contract::protocol::{Placement, Protocol, Refusal};
use crate::contract::tensor::Spec;
use crate::contract::values::Values;
use crate::parts::layout;
use crate::parts::reference::reference;
use crate::parts::slots::{SlotHost, SlotSwitch, switch};

/// Flare (De Sensi et al., SC 2021): every type and operator in the switch, in one switch or in levels.
pub static PROTOCOL: Protocol = Protocol {
    code: 8,
    name: "flare",
    about: "the switch sums, or a tree of switches, in one of three designs, reproducibly if asked for",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    passes_results_on: false,
    options: options::SET,
    numbers: |_| Numbers::Float,
    can,
    memory: switch::memory::<FlareDialect>,
    host: |values, config| Box::new(SlotHost::<FlareDialect>::new(values, config)),
    switch: Some(|values, config| Box::new(SlotSwitch::<FlareDialect>::new(values, config))),
    resizes: false,
    recompute: Some(reference),
    shared: None,
    server: None,
    describe: wire::describe,
    tree_of: |job, packet| layout::tree_of(job, wire::describe(packet).slot),
};

/// Everything that has a meaning.
fn can(spec: &Spec, _options: &Options) -> Result<(), Refusal> {
    match Encoding::new(Values::Elements, Numbers::Float, spec) {
        Some(_) => Ok(()),
        None => {
            let instead = "band, bor and bxor are for integers";
            Err(Refusal { protocol: "flare", spec: *spec, why: "", instead })
        }
    }
}
