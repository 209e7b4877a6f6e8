//! SparCML in virtual time: exact results of sparse and dense tensors whatever the network does, errors with names.

#[path = "../harness/mod.rs"]
mod harness;

mod bytes;
mod faults;
mod garbage;
mod golden;
mod results;
mod setup;
mod swarm;
mod work;
