//! Canary as a value of the registry.

use super::{CanaryHost, CanarySwitch, options, wire};
use crate::contract::numbers::Numbers;
use crate::contract::protocol::{Placement, Protocol, Refusal, Shared};

/// Canary (De Sensi et al., 2023): dynamic trees through all switches of a fabric.
pub static PROTOCOL: Protocol = Protocol {
    code: 3,
    name: "canary",
    about: "the switches of a fabric sum, wherever a block's packets meet",
    header_len: wire::HEADER_LEN,
    placement: Placement::EveryHop,
    passes_results_on: false,
    spares_others: true,
    options: options::JOB,
    numbers: |_| Numbers::Fixed,
    can: |spec, _| match tributary_numeric::has_fixed_point(spec.dtype, spec.op) {
        true => Ok(()),
        false => {
            let (why, instead) = (
                ": its trees have no order, and its descriptors add 32-bit integers",
                "sum or average f32, f16, bf16 or i32, or take a protocol with planned trees",
            );
            Err(Refusal { protocol: "canary", spec: *spec, why, instead })
        }
    },
    can_sparse: None,
    memory: |_| 0,
    host: |values, config| Box::new(CanaryHost::new(values, config)),
    switch: None,
    resizes: false,
    replants: false,
    recompute: None,
    shared: Some(Shared {
        machine: |values, config| Box::new(CanarySwitch::new(values, config)),
        memory: CanarySwitch::bytes_of,
        options: options::SWITCH,
        longest_wait: |options| options.time("timeout"),
        server: None,
        elsewhere: |_, _, _| "at the ranks that lead them: their sums were lost on the way again and again".to_owned(),
        room: |options| options.count("descriptors") / options.count("partitions"),
    }),
    server: None,
    describe: wire::describe,
    tree_of: |_, _| None,
};
