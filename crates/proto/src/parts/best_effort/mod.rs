//! Best-effort aggregation (ATP, NSDI 2021): one memory of aggregators in each switch for all jobs, and servers behind it
//! that sum what found no room.
//!
//! Block `b` of a job's stream has sequence number `b + 1` and server `b mod servers`, counted from the first one.
//! The switch next to the server sums what passes it on the way there, and so may the switch next to the workers; a
//! sum that is complete goes on to the server, which answers all ranks. What a switch has no room for goes on as it
//! is.
//!
//! Start with [`wire`], then [`switch`] and [`host`]; the server is in [`server`]. Protocols differ in [`Rules`]: whether
//! switches acknowledge what they take in, and how far windows reach.

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
use crate::contract::options::Options;

/// What protocols of this family differ in.
#[derive(Clone, Copy, Hash)]
pub struct Rules {
    /// Switches and servers acknowledge a contribution at once (`GACK`), whatever the others do.
    pub acknowledges: bool,
    /// Makes a worker's windows from the job's options and its places.
    pub windows: fn(&Options, u16) -> Box<dyn Windows>,
}
