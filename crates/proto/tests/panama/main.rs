//! PANAMA's machines in virtual time: what must hold without faults, with them, and when something is broken.

#[path = "../harness/mod.rs"]
mod harness;

mod accelerator;
mod failure;
mod faults;
mod golden;
mod leaving;
mod partial;
mod rooms;
mod setup;
mod strangers;
mod sums;
mod trains;
mod windows;
mod worker;
