//! SwitchML's machines in virtual time: what must hold without faults, with them, and when something is broken.

#[path = "../harness/mod.rs"]
mod harness;

mod faults;
mod setup;
mod tensor;
