//! What the fuzzers feed: every parser of the wire, and what is behind it. Each function takes any bytes and panics only
//! if something is wrong.

mod fabric;
pub mod machines;
mod operators;

pub use self::fabric::{fabric_switch, fabric_wire};
pub use self::operators::{operator_changed, operator_expression, operator_module};
