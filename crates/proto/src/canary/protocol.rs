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
    rooted_is_unicast: true,
    options: options::JOB,
    numbers: |_| Numbers::Fixed,
    check: |spec, _| match tributary_numeric::has_fixed_point(spec.dtype, spec.op) {
        true => Ok(()),
        false => {
            let (why, instead) = (
                ": its trees have no order, and its descriptors add 32-bit integers",
                "sum or average f32, f16, bf16 or i32, or take a protocol with planned trees",
            );
            Err(Refusal { protocol: "canary", spec: *spec, why, instead })
        }
    },
    host: |values, config| Box::new(CanaryHost::new(values, config)),
    shared: Some(Shared {
        machine: |values, config| Box::new(CanarySwitch::new(values, config)),
        memory: CanarySwitch::bytes_of,
        options: options::SWITCH,
        longest_wait: |options| options.time("timeout"),
        server: None,
        fallback_note: |_, _, _| {
            "at the ranks that lead them: their sums were lost on the way again and again".to_owned()
        },
        capacity: |options| options.count("descriptors") / options.count("partitions"),
    }),
    describe: wire::describe,
    ..Protocol::BASE
};
