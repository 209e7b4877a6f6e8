//! Parameter servers as a value of the registry.

use super::{PsHost, shutdown};
use crate::aggregation::slots::host::SendWindow;
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Description, Protocol};
use crate::contract::wire::kind;
use crate::reliability::recovery::Order;
use crate::switchml;

/// Parameter servers (SwitchML §6.1): hosts sum, slot by slot.
pub static PROTOCOL: Protocol = Protocol {
    code: 4,
    name: "ps",
    about: "parameter servers sum, on hosts of their own or one with each worker",
    header_len: switchml::wire::HEADER_LEN,
    options: OptionSet {
        simulated: &[SendWindow::SIMULATED],
        ..OptionSet::new("ps", &[Numbers::OPTION, NarrowBlocks::OPTION, SendWindow::OPTION, Order::OPTION])
    },
    numbers: Numbers::chosen,
    check: |spec, options| switchml::check("ps", spec, options),
    host: |values, config| Box::new(PsHost::worker(values, config)),
    server: Some(|values, config| Box::new(PsHost::server(values, config))),
    describe,
    ..Protocol::BASE
};

fn describe(bytes: &[u8]) -> Description {
    let kind = match bytes.get(kind::AT) {
        Some(&shutdown::LEAVING) => "Leaving",
        Some(&shutdown::PARTED) => "Parted",
        _ => return switchml::wire::describe(bytes),
    };
    Description { kind, slot: None, header_len: shutdown::LEN, has_vector: false }
}
