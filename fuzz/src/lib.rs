//! What the fuzzers feed: every parser of the wire, and what is behind it. Each function takes any bytes and panics only
//! if something is wrong.

mod fabric;
mod machines;

pub use self::fabric::{fabric_switch, fabric_wire};
pub use self::machines::{
    canary_host, canary_switch, canary_wire, common_header, ring_host, ring_wire, switchml_host, switchml_pipeline,
    switchml_wire,
};
