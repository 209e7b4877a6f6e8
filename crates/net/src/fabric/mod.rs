//! A switch of a fabric. It has several ports with queues of their own, chooses next hops by the length of these
//! queues, and has one machine that the jobs of a protocol share, and one machine for each tree of a job with trees of
//! its own. `docs/fabric.md` describes the whole.
//!
//! A packet's way: [`thread`] receives the packet and gives it to the pipeline, [`crossbar`] has the ports and the
//! ways, [`egress`] is one port's queue, and [`rooms`] keeps queues from overflowing in a lossless fabric. [`wire`] has
//! the packets that switches send each other, and [`own`] handles them.
//!
//! [`daemon`] is the whole process. Jobs are formed at one switch, the [`seat`], which tells the other switches over
//! HTTP ([`api`], [`tree_body`]), and is one shard to its control plane ([`seated`]). These pass workers' requests on to
//! it ([`routes`], [`servers`]). [`places`] finds members and servers, [`planning`] has trees granted, [`planted`] is the trees' machines at one switch, [`job`] checks whether trees stand,
//! [`replant`] plants them anew, [`sharing`] gives jobs other room as jobs come and go, and [`shared`] has the machines
//! that all jobs of a protocol use.

mod api;
pub mod crossbar;
mod daemon;
pub(crate) mod egress;
mod handle;
mod job;
mod ledger;
mod onlooker;
pub mod own;
mod places;
mod planning;
mod planted;
mod replant;
pub(crate) mod rooms;
mod routes;
mod seat;
mod seated;
mod servers;
mod shared;
mod sharing;
mod signs;
mod thread;
mod told;
mod tree_body;
mod view;
pub mod wire;

pub use daemon::{FabricSwitchOptions, RunningFabricSwitch};
