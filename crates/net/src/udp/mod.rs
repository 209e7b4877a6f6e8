//! UDP as both sides of the driver use it: runs of equal segments in one call, each way.

mod counters;

pub use counters::SocketCounters;
