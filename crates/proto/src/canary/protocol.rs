//! Canary as a value of the registry.

use super::{CanaryHost, CanarySwitch, wire};
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Placement, Protocol};

/// Canary (De Sensi et al., 2023): dynamic trees through all switches of a fabric.
pub static PROTOCOL: Protocol = Protocol {
    code: 3,
    name: "canary",
    about: "the switches of a fabric sum, wherever a block's packets meet",
    header_len: wire::HEADER_LEN,
    placement: Placement::EveryHop,
    options: OptionSet::none("canary"),
    can: |_, _| Ok(()),
    memory: |_| 0,
    host: |values, config| Box::new(CanaryHost::new(values, config)),
    switch: None,
    shared: Some(|values, config| Box::new(CanarySwitch::new(values, config))),
    server: None,
    describe: wire::describe,
};
