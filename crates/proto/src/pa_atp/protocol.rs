//! PA-ATP as a value of the registry.

use crate::aggregation::best_effort::dedicated_server::ServerHost;
use crate::aggregation::best_effort::host::BestEffortHost;
use crate::aggregation::best_effort::options::{
    LEVELS_OPTION, SERVED_BY_OPTION, SIMULATED_SWITCH, SWITCH, can, elsewhere, increase, increase_option, packet_bytes,
};
use crate::aggregation::best_effort::switch::BestEffortSwitch;
use crate::aggregation::best_effort::switch::job::Job;
use crate::aggregation::best_effort::{Rules, wire};
use crate::congestion::lead_limit::LeadLimit;
use crate::congestion::progress_aware::CutRule;
use crate::congestion::{self, Algorithm, Limits, Settings};
use crate::contract::config::JobConfig;
use crate::contract::numbers::Numbers;
use crate::contract::options::{Kind, OptionSet, OptionSpec};
use crate::contract::protocol::{Placement, Protocol, Shared};
use crate::contract::time::Span;

const NAME: &str = "pa-atp";

/// PA-ATP's rules: gradients are acknowledged at once, CWD follows the acknowledgements, and AWD follows results.
pub const RULES: Rules = Rules {
    acknowledges: true,
    congestion: |job| (Algorithm::chosen(&job.options).make)(&settings(job)),
    lead_limit: |job| Some(lead_limit(job)),
};

/// Neither window is ever smaller (A15, A17).
const LEAST_WINDOW: u32 = 2;

/// PA-ATP (2024).
pub static PROTOCOL: Protocol = Protocol {
    code: 7,
    name: NAME,
    about: "ATP whose leading ranks go ahead of stragglers, and make way for them",
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
                congestion::option("progress_aware"),
                congestion::TARGET_DELAY,
                OptionSpec {
                    name: "progress",
                    kind: Kind::Choice(&["printed", "relative", "off"]),
                    default: "printed",
                    help: "how leaders cut their windows: as the paper prints it, by the average of all ranks, or as others do",
                },
                OptionSpec {
                    name: "limit",
                    kind: Kind::Flag,
                    default: "true",
                    help: "AECN marks bound how far a rank goes ahead (the paper's AWD)",
                },
                OptionSpec {
                    name: "initial_window",
                    kind: Kind::Count { least: 2, most: u16::MAX as u64 },
                    default: "10",
                    help: "packets that a worker may have unacknowledged at first (the paper's CWD)",
                },
                increase_option("1"),
                OptionSpec {
                    name: "doubles",
                    kind: Kind::Choice(&["at_first", "always"]),
                    default: "at_first",
                    help: "a window grows by a packet with each acknowledgement until the first mark, or always, as the paper prints it",
                },
                OptionSpec {
                    name: "initial_ahead",
                    kind: Kind::Count { least: 0, most: u16::MAX as u64 },
                    default: "0",
                    help: "blocks that a worker may be ahead at first (the paper's AWD); 0: as many as it has slots",
                },
                OptionSpec {
                    name: "aecn_weight_permille",
                    kind: Kind::Count { least: 1, most: 1000 },
                    default: "125",
                    help: "how much the newest round trip's AECN marks count for AWD's cuts (the paper's w)",
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
        cut_rule: match options.choice("progress") {
            "relative" => CutRule::Relative,
            "off" => CutRule::Plain,
            _ => CutRule::Printed,
        },
        always_doubles: options.choice("doubles") == "always",
        ..Settings::new(limits)
    }
}

fn lead_limit(job: &JobConfig) -> LeadLimit {
    let options = &job.options;
    let (initial, weight) = (options.count("initial_ahead"), options.count("aecn_weight_permille"));
    LeadLimit::new(initial, job.slots, weight, options.flag("limit"))
}
