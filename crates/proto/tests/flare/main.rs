//! Flare's machines in virtual time: every type and operator in every design, one expression where one is promised, and
//! blocks that are sent apart.

#[path = "../harness/mod.rs"]
mod harness;

mod broadcasts;
mod golden;
mod own;
mod pace;
mod ranks;
mod reproducible;
mod setup;
mod sparse;
mod stagger;
mod strangers;
mod sums;
mod work;
