//! A switch of a fabric: several ports with queues of their own, next hops by how long those are, one machine that the jobs
//! of a protocol share, and one for each tree of a job that has trees of its own. `docs/fabric.md` describes the whole.
//!
//! A packet's way: [`thread`] receives it and asks the pipeline, [`crossbar`] knows the ports and the ways, [`egress`] is
//! one port's queue. [`wire`] are the packets that switches send each other, [`own`] does what they ask.
//!
//! [`daemon`] is the whole process; jobs are formed at one switch, the [`seat`], which tells the others over HTTP
//! ([`api`], [`tree_body`]); the others pass workers' requests on to it ([`routes`]). [`planning`] says where trees run,
//! [`planted`] are their machines at one switch, and [`job`] knows whether they stand.

mod api;
pub mod crossbar;
mod daemon;
mod egress;
mod handle;
mod job;
mod ledger;
mod onlooker;
pub mod own;
mod planning;
mod planted;
mod routes;
mod seat;
mod thread;
mod tree_body;
mod view;
pub mod wire;

pub use daemon::{FabricSwitchOptions, RunningFabricSwitch};
