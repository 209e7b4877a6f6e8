//! The network's graph: hosts, switches and cables, and the shapes that the papers use.
//!
//! Hosts are the nodes `0..hosts`, switches follow. A host has one cable.

mod graph;
mod shapes;

pub use graph::{Edge, Graph, GraphError, LinkId, LinkSpec, MarkBytes, Rate, window_end};
pub use shapes::{Clos, dumbbell, leaf_spine, star};
