//! The network's graph: hosts, switches and cables, and the shapes that the papers use.
//!
//! Hosts are the nodes `0..hosts`, switches follow. A host may have several cables, and forwards nothing.

mod direct;
mod graph;
mod shapes;

pub use direct::{Dragonfly, Grid, Rails, Specs};
pub(crate) use graph::window_end;
pub use graph::{Graph, LinkId, LinkSpec, MarkBytes};
pub use shapes::{Clos, dumbbell, join_next_leaves, leaf_spine, star};
pub use tributary_control::quantity::Rate;
