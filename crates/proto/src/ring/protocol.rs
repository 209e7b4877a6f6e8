//! The ring as a value of the registry.

use super::{RingHost, wire};
use crate::contract::numbers::Numbers;
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Placement, Protocol, Refusal};

/// Host-based ring allreduce, with which in-network aggregation is compared.
pub static PROTOCOL: Protocol = Protocol {
    code: 2,
    name: "ring",
    about: "the hosts sum, each for its neighbour",
    header_len: wire::DATA_LEN,
    placement: Placement::Hosts,
    passes_results_on: true,
    spares_others: false,
    options: OptionSet::none("ring"),
    numbers: |_| Numbers::Float,
    can: |spec, _| match tributary_numeric::native(spec.dtype, spec.op) {
        Some(_) => Ok(()),
        None => {
            let instead = "band, bor and bxor are for integers";
            Err(Refusal { protocol: "ring", spec: *spec, why: "", instead })
        }
    },
    can_sparse: None,
    memory: |_| 0,
    host: |_, config| Box::new(RingHost::new(config)),
    switch: None,
    resizes: false,
    replants: false,
    recompute: None,
    shared: None,
    server: None,
    describe: wire::describe,
    tree_of: |_, _| None,
};
