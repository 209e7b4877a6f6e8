//! What the fuzzers feed: every parser of the wire, and what is behind it. Each function takes any bytes and panics only
//! if something is wrong.

mod fabric;
pub mod machines;

pub use self::fabric::{fabric_switch, fabric_wire};
