//! Best-effort aggregation (ATP, NSDI 2021): one memory of aggregators in each switch for all jobs, and servers that
//! sum the blocks that find no room in it.
//!
//! Block `b` of a job's stream has sequence number `b + 1` and server `b mod servers`, counted from the first server.
//! The switch next to the server sums the gradients that pass it on the way there; the switch next to the workers may
//! sum too. A complete sum goes on to the server, which answers all ranks. A gradient for which a switch has no room
//! goes on unsummed.
//!
//! Start with [`wire`], then [`switch`] and [`host`]; the server is in [`server`]. Protocols differ in [`Rules`]:
//! whether switches acknowledge gradients, and how far a worker may send ahead.

pub(crate) mod codec;
pub(crate) mod dedicated_server;
pub(crate) mod host;
pub(crate) mod options;
pub(crate) mod server;
pub(crate) mod switch;
pub(crate) mod topology;
pub mod wire;

use self::dedicated_server::ServerHost;
pub use self::host::BestEffortHost;
pub use self::options::{LEVELS_OPTION, Memory};
use self::options::{SIMULATED_SWITCH, SWITCH, check, fallback_note, increase, packet_bytes};
pub use self::switch::BestEffortSwitch;
use self::switch::job::Job;
use crate::congestion::lead_limit::LeadLimit;
use crate::congestion::{Controller, Limits, Settings, TARGET_DELAY};
use crate::contract::config::JobConfig;
use crate::contract::numbers::Numbers;
use crate::contract::options::OptionSet;
use crate::contract::protocol::{Placement, Protocol, Shared};
use crate::contract::time::Span;

/// How protocols of this family differ.
#[derive(Clone, Copy, Hash)]
pub struct Rules {
    /// Switches and servers acknowledge a contribution at once (`GACK`), whatever other ranks have sent.
    pub acknowledges: bool,
    /// Makes a worker's controller, whose window is never larger than the job has slots.
    pub congestion: fn(&JobConfig) -> Box<dyn Controller>,
    /// Makes the limit of how far a worker may be ahead of the last result. `None`: the controller's window limits
    /// that, too.
    pub lead_limit: fn(&JobConfig) -> Option<LeadLimit>,
}

/// A protocol of this family.
pub trait Variant: 'static {
    /// Its name.
    const NAME: &'static str;
    /// Its rules.
    const RULES: Rules;
}

/// What protocols of this family have in common: a protocol adds its code, its description and its options.
pub const fn protocol<V: Variant>() -> Protocol {
    Protocol {
        name: V::NAME,
        header_len: wire::HEADER_LEN,
        placement: Placement::EveryHop,
        numbers: |_| Numbers::Fixed,
        check: |spec, _| check(V::NAME, spec),
        memory: Job::bytes_of,
        host: |values, config| Box::new(BestEffortHost::new(values, V::RULES, config)),
        shared: Some(Shared {
            machine: |values, config| Box::new(BestEffortSwitch::new(values, V::RULES, config)),
            memory: BestEffortSwitch::bytes_of,
            options: OptionSet { simulated: SIMULATED_SWITCH, ..OptionSet::new(V::NAME, SWITCH) },
            longest_wait: |_| Span::ZERO,
            capacity: |options| options.count("aggregators"),
            server: Some(|values, config| Box::new(ServerHost::new(values, V::RULES, config))),
            fallback_note,
        }),
        describe: wire::describe,
        ..Protocol::BASE
    }
}

/// What a job's options say to any congestion controller; `least` is the smallest window.
pub fn settings(job: &JobConfig, least: u32) -> Settings {
    let max = u32::from(job.slots.max(1));
    let initial = (job.options.count("initial_window") as u32).min(max);
    Settings {
        increase: increase(job) as u32,
        packet_bytes: packet_bytes(job),
        target_delay: job.options.time(TARGET_DELAY.name),
        ..Settings::new(Limits { initial, min: least, max })
    }
}
