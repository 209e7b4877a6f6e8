//! The ring as a value of the registry.

use super::{RingHost, wire};
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Protocol, check_meaning};

/// Host-based ring allreduce, with which in-network aggregation is compared.
pub static PROTOCOL: Protocol = Protocol {
    code: 2,
    name: "ring",
    about: "the hosts sum, each for its neighbour",
    header_len: wire::DATA_LEN,
    hosts_forward_results: true,
    options: OptionSet::none("ring"),
    check: |spec, _| check_meaning("ring", spec),
    host: |_, config| Box::new(RingHost::new(config)),
    describe: wire::describe,
    ..Protocol::BASE
};
