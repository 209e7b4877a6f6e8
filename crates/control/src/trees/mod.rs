//! Static aggregation trees: which switches sum for a job, and who sums for whom. Pure planning, for the simulator and for
//! the seat of a fabric alike.
//!
//! [`Network`] is what a planner knows: the cables, who is dead, how much memory is free, what runs over which cable
//! already. [`Network::candidates`] names the switches that a tree may end in, [`Network::choose`] takes the least loaded
//! of them, [`Network::tree`] builds the [`Tree`] under one of them. To plan anew after a death, mark what is dead and
//! choose again.

mod build;
mod choose;
mod error;
mod network;
mod tree;

/// Trees of a job that asks for no number, where there are so many.
pub const DEFAULT_TREES: u16 = 4;

pub use choose::Wish;
pub use error::TreeError;
pub use network::Network;
pub use tree::{Place, Tree, TreeChild, TreeParent, TreeSwitch};
