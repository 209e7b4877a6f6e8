//! A switch of a fabric: several ports with queues of their own, next hops by how long those are, one machine that the jobs
//! of a protocol share, and one for each tree of a job that has trees of its own. `docs/fabric.md` describes the whole.
//!
//! A packet's way: [`thread`] receives it and asks the pipeline, [`crossbar`] knows the ports and the ways, [`egress`] is
//! one port's queue, [`rooms`] what keeps it from overflowing in a lossless fabric. [`wire`] are the packets that switches send each other, [`own`] does what they ask.
//!
//! [`daemon`] is the whole process; jobs are formed at one switch, the [`seat`], which tells the others over HTTP
//! ([`api`], [`tree_body`]); the others pass workers' requests on to it ([`routes`]). [`planning`] says where trees run,
//! [`planted`] are their machines at one switch, [`job`] knows whether they stand, [`replant`] plants them anew,
//! and [`sharing`] gives them other room as jobs come and go.

mod api;
pub mod crossbar;
mod daemon;
pub(crate) mod egress;
mod handle;
mod job;
mod ledger;
mod onlooker;
pub mod own;
mod planning;
mod planted;
mod replant;
pub(crate) mod rooms;
mod routes;
mod seat;
mod sharing;
mod signs;
mod thread;
mod told;
mod tree_body;
mod view;
pub mod wire;

pub use daemon::{FabricSwitchOptions, RunningFabricSwitch};
