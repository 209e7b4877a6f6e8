//! A network on one machine: Linux network namespaces whose links have a rate, an MTU and faults.
//!
//! Start at [`Star`]: a switch box (a bridge in a namespace of its own, where the daemon runs) and N hosts, each behind
//! one veth pair. Links are shaped in both directions (`link.rs`); they can lose, double and reorder packets
//! (`faults.rs`). [`Network`] is any other network of hosts and of switches whose programs forward packets; `racks.rs`
//! has stars below a common box. Programs run inside with [`Namespace::command`]. Everything is private to the
//! namespaces, needs root, and is removed when the [`Star`] is dropped; the remains of a killed program are removed
//! when the next star is built.

mod bpf;
mod error;
mod faults;
mod link;
mod namespace;
mod network;
mod offload;
mod racks;
mod star;
mod tool;

pub use error::TestbedError;
pub use faults::Faults;
pub use link::Shaping;
pub use namespace::Namespace;
pub use network::{CablePlan, Network, NetworkPlan, NodePlan};
pub use racks::Racks;
pub use star::{Star, StarOptions, requirements};
