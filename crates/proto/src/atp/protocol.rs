//! ATP as a value of the registry.

use crate::aggregation::best_effort::dedicated_server::ServerHost;
use crate::aggregation::best_effort::host::BestEffortHost;
use crate::aggregation::best_effort::options::{
    LEVELS_OPTION, SERVED_BY_OPTION, SIMULATED_SWITCH, SWITCH, can, elsewhere, increase, increase_option, packet_bytes,
};
use crate::aggregation::best_effort::switch::BestEffortSwitch;
use crate::aggregation::best_effort::switch::job::Job;
use crate::aggregation::best_effort::{Rules, wire};
use crate::congestion::aimd::HalveOn;
use crate::congestion::{self, Algorithm, Limits, Settings};
use crate::contract::config::JobConfig;
use crate::contract::numbers::Numbers;
use crate::contract::options::{Kind, OptionSet, OptionSpec};
use crate::contract::protocol::{Placement, Protocol, Shared};
use crate::contract::time::Span;

const NAME: &str = "atp";

/// ATP's rule: results are the only acknowledgements.
const RULES: Rules = Rules {
    acknowledges: false,
    congestion: |job| (Algorithm::chosen(&job.options).make)(&settings(job)),
    lead_limit: |_| None,
};

/// The smallest window: a worker never stops altogether.
const LEAST_WINDOW: u32 = 1;

/// ATP (Lao et al., NSDI 2021).
pub static PROTOCOL: Protocol = Protocol {
    code: 6,
    name: NAME,
    about: "switches sum in a memory that all jobs share, and servers what it has no room for",
    header_len: wire::HEADER_LEN,
    placement: Placement::EveryHop,
    passes_results_on: false,
    spares_others: false,
    options: OptionSet {
        simulated: congestion::SIMULATED,
        ..OptionSet::new(
            NAME,
            &[
                LEVELS_OPTION,
                SERVED_BY_OPTION,
                congestion::option("aimd"),
                congestion::TARGET_DELAY,
                OptionSpec {
                    name: "initial_window",
                    kind: Kind::Count { least: 1, most: u16::MAX as u64 },
                    default: "200",
                    help: "packets that a worker may have under way at first",
                },
                increase_option("0"),
                OptionSpec {
                    name: "marks",
                    kind: Kind::Choice(&["one", "any"]),
                    default: "one",
                    help: "aimd halves the window at the mark of one result in a round trip, as in the public program, or of any",
                },
            ],
        )
    },
    numbers: |_| Numbers::Fixed,
    can: |spec, _| can(NAME, spec),
    can_sparse: None,
    memory: Job::bytes_of,
    host: |values, config| Box::new(BestEffortHost::new(values, RULES, config)),
    switch: None,
    resizes: false,
    replants: false,
    recompute: None,
    shared: Some(Shared {
        machine: |values, config| Box::new(BestEffortSwitch::new(values, RULES, config)),
        memory: BestEffortSwitch::bytes_of,
        options: OptionSet { simulated: SIMULATED_SWITCH, ..OptionSet::new(NAME, SWITCH) },
        longest_wait: |_| Span::ZERO,
        room: |options| options.count("aggregators"),
        server: Some(|values, config| Box::new(ServerHost::new(values, RULES, config))),
        elsewhere,
    }),
    server: None,
    describe: wire::describe,
    tree_of: |_, _| None,
};

fn settings(job: &JobConfig) -> Settings {
    let options = &job.options;
    let max = u32::from(job.slots.max(1));
    let limits = Limits { initial: (options.count("initial_window") as u32).min(max), min: LEAST_WINDOW, max };
    Settings {
        increase: increase(job) as u32,
        packet_bytes: packet_bytes(job),
        target_delay: options.time(congestion::TARGET_DELAY.name),
        halve_on: if options.choice("marks") == "any" { HalveOn::Any } else { HalveOn::OneInRound },
        ..Settings::new(limits)
    }
}
