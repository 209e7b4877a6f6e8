//! A switch of a fabric. It has several ports with queues of their own, chooses next hops by the length of these queues, and
//! runs one machine that the jobs of a protocol share, and one machine for each static tree. `docs/fabric.md` describes the
//! whole.
//!
//! - The path of a packet: `thread` receives it and gives it to the pipeline, `crossbar` has the ports and the routes,
//!   `egress` is one port's queue, and `ingress_buffers` keep queues from overflowing in a lossless fabric. `wire` has
//!   the packets that switches exchange.
//! - Jobs: they are formed at one switch, the `controller`, which syncs the other switches over HTTP (`peers`, `api`,
//!   `tree_body`) and is one shard to its control plane (`shard`). The others forward workers' requests to it
//!   (`routes`, `servers`). `endpoints` locates members and servers.
//! - Trees: `planning` has them granted by `control`, `tree_switch` is their machines at one switch, `tree_watch` checks
//!   whether they are whole, and `tree_repair` repairs them.
//! - `daemon` is the whole process.

mod api;
mod controller;
pub mod crossbar;
mod daemon;
pub(crate) mod egress;
mod endpoints;
mod handle;
pub(crate) mod ingress_buffers;
mod job;
mod job_table;
mod peers;
mod planning;
mod routes;
mod servers;
mod shard;
mod shared_machines;
mod thread;
mod tree_body;
mod tree_repair;
mod tree_switch;
mod tree_watch;
mod view;
pub mod wire;

pub use daemon::{FabricSwitchOptions, RunningFabricSwitch};
