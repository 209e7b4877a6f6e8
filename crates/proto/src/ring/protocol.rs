//! The ring as a value of the registry.

use super::{RingHost, wire};
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Placement, Protocol};

/// Host-based ring allreduce: the peer that in-network aggregation is measured against.
pub static PROTOCOL: Protocol = Protocol {
    code: 2,
    name: "ring",
    about: "the hosts sum, each for its neighbour",
    header_len: wire::HEADER_LEN,
    placement: Placement::Hosts,
    options: OptionSet::none("ring"),
    can: |_, _| Ok(()),
    memory: |_| 0,
    host: |_, config| Box::new(RingHost::new(config)),
    switch: None,
    shared: None,
    server: None,
    describe: wire::describe,
};
