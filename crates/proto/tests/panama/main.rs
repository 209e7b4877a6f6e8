//! PANAMA's machines in virtual time: what must hold without faults, with them, and when something is broken.

#[path = "../harness/mod.rs"]
mod harness;

mod accelerator;
mod capacities;
mod failure;
mod faults;
mod golden;
mod leaving;
mod partial;
mod rejected_packets;
mod setup;
mod sums;
mod trains;
mod windows;
mod worker;
