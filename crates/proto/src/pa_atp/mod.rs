//! PA-ATP (2024): ATP whose congestion control does not wait for stragglers, and whose leaders make way for them.
//!
//! Only the control of congestion is asynchronous. As always, a sum contains the same block of every rank: nothing is
//! stale. The machines are those of [`crate::aggregation::best_effort`]; a worker's two windows are
//! [`crate::congestion::progress_aware`] (CWD) and [`crate::congestion::lead_limit`] (AWD).
//! `docs/protocols/pa-atp.md` goes through the paper section by section.

use crate::aggregation::best_effort::options::{LEVELS_OPTION, SERVED_BY_OPTION, increase_option};
use crate::aggregation::best_effort::{self, Rules, Variant};
use crate::congestion::lead_limit::LeadLimit;
use crate::congestion::progress_aware::CutRule;
use crate::congestion::{self, Algorithm, Settings};
use crate::contract::config::JobConfig;
use crate::contract::options::{Kind, OptionSet, OptionSpec};
use crate::contract::protocol::Protocol;

/// Gradients are acknowledged at once, CWD follows the acknowledgements, and AWD follows results.
pub const RULES: Rules = Rules {
    acknowledges: true,
    congestion: |job| (Algorithm::chosen(&job.options).make)(&settings(job)),
    lead_limit: |job| Some(lead_limit(job)),
};

struct PaAtp;

impl Variant for PaAtp {
    const NAME: &'static str = "pa-atp";
    const RULES: Rules = RULES;
}

/// Neither window is ever smaller (A15, A17).
const LEAST_WINDOW: u32 = 2;

/// PA-ATP (2024).
pub static PROTOCOL: Protocol = Protocol {
    code: 7,
    about: "ATP whose leading ranks go ahead of stragglers, and make way for them",
    options: OptionSet {
        simulated: congestion::SIMULATED,
        ..OptionSet::new(
            PaAtp::NAME,
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
                    name: "first_share_permille",
                    kind: Kind::Count { least: 0, most: 1000 },
                    default: "0",
                    help: "the share of marks with which both windows' averages begin (the paper's alpha and beta)",
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
    ..best_effort::protocol::<PaAtp>()
};

fn settings(job: &JobConfig) -> Settings {
    let options = &job.options;
    Settings {
        cut_rule: match options.choice("progress") {
            "relative" => CutRule::Relative,
            "off" => CutRule::Plain,
            _ => CutRule::Printed,
        },
        always_doubles: options.choice("doubles") == "always",
        first_alpha_permille: options.count("first_share_permille") as u16,
        ..best_effort::settings(job, LEAST_WINDOW)
    }
}

fn lead_limit(job: &JobConfig) -> LeadLimit {
    let options = &job.options;
    let (initial, weight) = (options.count("initial_ahead"), options.count("aecn_weight_permille"));
    let beta = options.count("first_share_permille") as f64 / 1000.0;
    LeadLimit::new(initial, job.slots, weight, options.flag("limit")).beginning_at(beta)
}
