//! Parameter servers as a value of the registry.

use super::{PsHost, farewell};
use crate::aggregation::slots::host::SendWindow;
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Description, Placement, Protocol};
use crate::contract::wire::kind;
use crate::reliability::recovery::Order;
use crate::switchml;

/// Parameter servers (SwitchML §6.1): hosts sum, slot by slot.
pub static PROTOCOL: Protocol = Protocol {
    code: 4,
    name: "ps",
    about: "parameter servers sum, on hosts of their own or one with each worker",
    header_len: switchml::wire::HEADER_LEN,
    placement: Placement::Hosts,
    passes_results_on: false,
    spares_others: false,
    options: OptionSet {
        simulated: &[SendWindow::SIMULATED],
        ..OptionSet::new("ps", &[Numbers::OPTION, NarrowBlocks::OPTION, SendWindow::OPTION, Order::OPTION])
    },
    numbers: Numbers::chosen,
    can: |spec, options| switchml::can("ps", spec, options),
    can_sparse: None,
    memory: |_| 0,
    host: |values, config| Box::new(PsHost::worker(values, config)),
    switch: None,
    resizes: false,
    replants: false,
    recompute: None,
    shared: None,
    server: Some(|values, config| Box::new(PsHost::server(values, config))),
    describe,
    tree_of: |_, _| None,
};

fn describe(bytes: &[u8]) -> Description {
    let kind = match bytes.get(kind::AT) {
        Some(&farewell::LEAVING) => "Leaving",
        Some(&farewell::PARTED) => "Parted",
        _ => return switchml::wire::describe(bytes),
    };
    Description { kind, slot: None, header_len: farewell::LEN, has_vector: false }
}
