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

pub mod codec;
pub mod dedicated_server;
pub mod host;
pub mod options;
pub mod seq;
pub mod server;
pub mod switch;
pub mod topology;
pub mod wire;

use crate::congestion::Controller;
use crate::congestion::lead_limit::LeadLimit;
use crate::contract::config::JobConfig;

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
