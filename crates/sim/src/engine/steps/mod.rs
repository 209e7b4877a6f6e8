//! What a simulation does, by subject. Each file adds methods to [`Simulation`](super::Simulation), and nothing outside
//! imports them.

mod cores;
mod endpoints;
mod faults;
mod flows;
mod install;
mod jobs;
mod measure;
mod memory;
mod nics;
mod partition;
mod step_graph;

pub(crate) use install::PlannedTree;
pub use partition::assign_partitions;
