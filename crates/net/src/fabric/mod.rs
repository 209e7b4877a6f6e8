//! A switch of a fabric: several ports with queues of their own, next hops by how long those are, and one machine that
//! the jobs of a protocol share. `docs/fabric.md` describes the whole.
//!
//! A packet's way: [`thread`] receives it and asks the pipeline, [`crossbar`] knows the ports and the ways, [`egress`] is
//! one port's queue. [`wire`] are the packets that switches send each other, [`own`] does what they ask.
//!
//! [`daemon`] is the whole process; jobs are formed at one switch, the [`seat`], which tells the others over HTTP
//! ([`api`]); the others pass workers' requests on to it ([`routes`]).

mod api;
pub mod crossbar;
mod daemon;
mod egress;
mod handle;
pub mod own;
mod routes;
mod seat;
mod thread;
mod view;
pub mod wire;

pub use daemon::{FabricSwitchOptions, RunningFabricSwitch};
