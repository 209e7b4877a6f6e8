//! Ring allreduce in virtual time: exact results whatever the network does, the published bytes, errors with names.

#[path = "../harness/mod.rs"]
mod harness;

mod bytes;
mod faults;
mod garbage;
mod golden;
mod results;
mod setup;
mod swarm;
