//! SwitchML's machines in virtual time: what must hold without faults, with them, and when something is broken.

#[path = "../harness/mod.rs"]
mod harness;

mod appendix_a;
mod broadcasts;
mod codes;
mod failure;
mod faults;
mod floats;
mod golden;
mod guess;
mod integrity;
mod late;
mod levels;
mod loss_cost;
mod lost_results;
mod reduces;
mod rejected_packets;
mod setup;
mod sixteen_bits;
mod thc4;
mod traces;
mod window;
