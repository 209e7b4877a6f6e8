//! SwitchML as a value of the registry.

use super::{SwitchMl, SwitchMlHost, switch, wire};
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Placement, Protocol};

/// SwitchML (Sapio et al., NSDI 2021): self-clocked slots in one switch, or in levels of switches.
pub static PROTOCOL: Protocol = Protocol {
    code: 1,
    name: "switchml",
    about: "the switch sums, or a tree of switches",
    header_len: wire::HEADER_LEN,
    placement: Placement::Trees,
    options: OptionSet::none("switchml"),
    can: |_, _| Ok(()),
    memory: switch::memory,
    host: |_, config| Box::new(SwitchMlHost::new(config)),
    switch: Some(|values, config| Box::new(SwitchMl::new(values, config))),
    shared: None,
    server: None,
    describe: wire::describe,
};
