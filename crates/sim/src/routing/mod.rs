//! The path of a packet: shortest paths, and a choice among equally short ones.
//!
//! In a tree-like network (leaf-spine, fat tree, folded Clos) the shortest paths go up and then down: there is one way
//! down, and the way up may take any port that leads to a common ancestor.

mod choice;
mod table;

pub use choice::{Balancing, Chooser, default_divisors};
pub use table::{NextHops, Table};
