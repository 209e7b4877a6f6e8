//! The network's graph: hosts, switches and cables, and the shapes that the papers use.
//!
//! Hosts are the nodes `0..hosts`, switches follow. A host has one cable.

mod graph;
mod link;
mod shapes;

pub use graph::{Edge, Graph, GraphError, window_end};
pub use link::{LinkId, LinkSpec, MarkBytes, Rate};
pub use shapes::{Clos, dumbbell, leaf_spine, star};
