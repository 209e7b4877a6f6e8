//! ATP (Lao et al., NSDI 2021): one memory of aggregators for all jobs, and servers for blocks that find no room in it.
//!
//! The machines are those of [`crate::aggregation::best_effort`], where results are the only acknowledgements; the
//! controller is [`crate::congestion::aimd`]. `docs/protocols/atp.md` goes through what is public of the protocol.

use crate::aggregation::best_effort::options::{LEVELS_OPTION, SERVED_BY_OPTION, increase_option};
use crate::aggregation::best_effort::{self, Rules, Variant};
use crate::congestion::aimd::HalveOn;
use crate::congestion::{self, Algorithm, Settings};
use crate::contract::config::JobConfig;
use crate::contract::options::{Kind, OptionSet, OptionSpec};
use crate::contract::protocol::Protocol;

struct Atp;

impl Variant for Atp {
    const NAME: &'static str = "atp";
    /// Results are the only acknowledgements.
    const RULES: Rules = Rules {
        acknowledges: false,
        congestion: |job| (Algorithm::chosen(&job.options).make)(&settings(job)),
        lead_limit: |_| None,
    };
}

/// The smallest window: a worker never stops altogether.
const LEAST_WINDOW: u32 = 1;

/// ATP (Lao et al., NSDI 2021).
pub static PROTOCOL: Protocol = Protocol {
    code: 6,
    about: "switches sum in a memory that all jobs share, and servers what it has no room for",
    options: OptionSet {
        simulated: congestion::SIMULATED,
        ..OptionSet::new(
            Atp::NAME,
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
    ..best_effort::protocol::<Atp>()
};

fn settings(job: &JobConfig) -> Settings {
    let halve_on = if job.options.choice("marks") == "any" { HalveOn::Any } else { HalveOn::OneInRound };
    Settings { halve_on, ..best_effort::settings(job, LEAST_WINDOW) }
}
