//! Best-effort aggregation (ATP, NSDI 2021): one memory of aggregators in each switch for all jobs, and servers behind
//! it that sum the blocks that found no room.
//!
//! Block `b` of a job's stream has sequence number `b + 1` and server `b mod servers`, counted from the first one. The
//! switch next to the server sums the gradients that pass it on the way there, and the switch next to the workers may
//! do so, too. A sum that is complete goes on to the server, which answers all ranks. A gradient for which a switch has
//! no room goes on as it is.
//!
//! Start with [`wire`], then [`switch`] and [`host`]; the server is in [`server`]. Protocols differ in [`Rules`]: whether
//! switches acknowledge what they take in, and how far windows reach.

pub mod apart;
pub mod form;
pub mod host;
pub mod options;
pub mod plan;
pub mod seq;
pub mod server;
pub mod switch;
pub mod windows;
pub mod wire;

use self::windows::Windows;
use crate::contract::config::JobConfig;

/// What protocols of this family differ in.
#[derive(Clone, Copy, Hash)]
pub struct Rules {
    /// Switches and servers acknowledge a contribution at once (`GACK`), whatever the others do.
    pub acknowledges: bool,
    /// Makes a worker's windows, which never hold more packets than the job has slots.
    pub windows: fn(&JobConfig) -> Box<dyn Windows>,
}
