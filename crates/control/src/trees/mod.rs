//! Static aggregation trees: which switches sum for a job, and which nodes each of them sums for. Pure planning, for
//! the simulator and for the seat of a fabric.
//!
//! [`Network`] is what a planner knows: the cables, the dead cables and switches, free memory, and the load on each
//! cable. [`Network::candidates`] names the switches in which a tree may end, [`Network::choose`] takes the least
//! loaded of them, and [`Network::tree`] builds the [`Tree`] under one of them. To plan anew after a failure, mark what
//! is dead and choose again.

mod build;
mod choose;
mod error;
mod network;
mod tree;

/// The number of trees of a job that asks for no number, if there are so many.
pub const DEFAULT_TREES: u16 = 4;

pub use choose::Wish;
pub use error::TreeError;
pub use network::Network;
pub use tree::{Place, Tree, TreeChild, TreeParent, TreeSwitch};
