//! Flare's machines in virtual time: every type and operator in every design, one expression where one is promised, and
//! blocks that are sent apart.

#[path = "../harness/mod.rs"]
mod harness;

mod broadcasts;
mod codes;
mod custom_op;
mod golden;
mod ranks;
mod rate_limit;
mod rejected_packets;
mod reproducible;
mod setup;
mod sparse;
mod stagger;
mod sums;
mod work;
