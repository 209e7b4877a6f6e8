//! Ring allreduce: host-based reduce-scatter and all-gather in `2(n-1)` steps, over UDP that loses packets.
//!
//! Start with `RingHost`, the machine. [`Layout`] cuts the tensor, `running` is the algorithm on one
//! collective, `reliability::link` is the reliable link between neighbours, `watch` finds the rank
//! that is silent, and [`wire`] has the headers. `docs/protocols/ring.md` states steps, bytes and every field.

mod host;
mod layout;
mod running;
mod watch;
pub mod wire;

use crate::congestion;
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Protocol, check_meaning};
use host::RingHost;
pub use layout::Layout;

/// Host-based ring allreduce, with which in-network aggregation is compared.
pub static PROTOCOL: Protocol = Protocol {
    code: 2,
    name: "ring",
    about: "the hosts sum, each for its neighbour",
    header_len: wire::DATA_LEN,
    hosts_forward_results: true,
    options: OptionSet {
        simulated: congestion::SIMULATED,
        ..OptionSet::new("ring", &[congestion::option("dctcp"), congestion::TARGET_DELAY])
    },
    check: |spec, _| check_meaning("ring", spec),
    host: |_, config| Box::new(RingHost::new(config)),
    describe: wire::describe,
    ..Protocol::BASE
};
