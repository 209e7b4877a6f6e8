//! Which way a packet goes: shortest paths, and a choice among those that are equally short.
//!
//! In a tree-like network (leaf-spine, fat tree, folded Clos) the shortest paths are the up/down paths: there is one
//! way down; the way up may take any port that leads to a common ancestor.

mod choice;
mod table;

pub use choice::{Balancing, Chooser, default_divisors};
pub use table::{NextHops, Table};
