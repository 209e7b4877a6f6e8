//! A switch of a fabric. It has several ports with queues of their own, chooses next hops by the length of these queues, and
//! runs one machine that the jobs of a protocol share, and one machine for each static tree. `docs/fabric.md` describes the
//! whole.
//!
//! - The path of a packet: `forwarding` is what this kind of switch adds to a thread ([`crate::shard`]), `crossbar` has the
//!   ports and the routes, `egress` is one port's queue, and `ingress_buffers` keep queues from overflowing in a lossless
//!   fabric. `wire` has the packets that switches exchange.
//! - Jobs: they are formed at one switch, the `controller`, which syncs the other switches over HTTP (`peers`, `api`,
//!   `tree_body`) and is one shard to its control plane (`shard`). The others forward workers' requests to it
//!   (`http/fabric.rs`). `endpoints` locates members and servers.
//! - Trees: `planning` has them granted by `control`, `tree_switch` is their machines at one switch, `tree_watch` checks
//!   whether they are whole, and `tree_repair` repairs them.
//! - `switch` is what the daemon starts and the control API asks, and `view` what an operator sees.

pub(crate) mod api;
mod controller;
pub mod crossbar;
pub(crate) mod egress;
mod endpoints;
mod forwarding;
mod handle;
pub(crate) mod ingress_buffers;
mod job;
mod job_table;
mod peers;
mod planning;
mod shard;
mod shared_job;
mod switch;
#[cfg(test)]
mod testing;
mod tree_body;
mod tree_repair;
mod tree_switch;
mod tree_watch;
mod view;
pub mod wire;

pub(crate) use peers::STOP;
pub(crate) use switch::FabricSwitch;
pub(crate) use view::{FabricSnapshot, FormedElsewhere, PlannedJob};
