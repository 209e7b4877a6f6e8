//! ATP as a value of the registry.

use super::window::Window;
use crate::contract::numbers::Numbers;
use crate::contract::options::{Kind, OptionSet, OptionSpec};
use crate::contract::protocol::{Placement, Protocol, Shared};
use crate::contract::time::Span;
use crate::parts::best_effort::host::BestEffortHost;
use crate::parts::best_effort::options::{LEVELS_OPTION, SERVED_BY_OPTION, SIMULATED_SWITCH, SWITCH, can, elsewhere};
use crate::parts::best_effort::switch::BestEffortSwitch;
use crate::parts::best_effort::{Rules, wire};

const NAME: &str = "atp";

/// What is ATP's own: results are the only acknowledgements.
const RULES: Rules = Rules {
    acknowledges: false,
    windows: |options, places| Box::new(Window::new(options.count("initial_window"), places)),
};

/// ATP (Lao et al., NSDI 2021).
pub static PROTOCOL: Protocol = Protocol {
    code: 6,
    name: NAME,
    about: "switches sum in a memory that all jobs share, and servers what it has no room for",
    header_len: wire::HEADER_LEN,
    placement: Placement::EveryHop,
    passes_results_on: false,
    spares_others: false,
    options: OptionSet::new(
        NAME,
        &[
            LEVELS_OPTION,
            SERVED_BY_OPTION,
            OptionSpec {
                name: "initial_window",
                kind: Kind::Count { least: 1, most: u16::MAX as u64 },
                default: "200",
                help: "packets that a worker may have under way at first",
            },
        ],
    ),
    numbers: |_| Numbers::Fixed,
    can: |spec, _| can(NAME, spec),
    can_sparse: None,
    memory: |_| 0,
    host: |values, config| Box::new(BestEffortHost::new(values, RULES, config)),
    switch: None,
    resizes: false,
    recompute: None,
    shared: Some(Shared {
        machine: |values, config| Box::new(BestEffortSwitch::new(values, RULES, config)),
        options: OptionSet { simulated: SIMULATED_SWITCH, ..OptionSet::new(NAME, SWITCH) },
        longest_wait: |_| Span::ZERO,
        room: |options| options.count("aggregators"),
        elsewhere,
    }),
    server: None,
    describe: wire::describe,
    tree_of: |_, _| None,
};
