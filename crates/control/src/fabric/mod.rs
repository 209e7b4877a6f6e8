//! A fabric: several switches that work for one set of hosts, as a plan without sockets.
//!
//! [`FabricFile`] is what an operator writes (`file`). [`FabricLayout`] is what follows from it (`layout`): nodes and
//! cables (`topology`), queues (`queues`), ports, the limits of admission. [`LinkState`] is what a switch knows of dead
//! cables anywhere in the fabric.

mod file;
mod layout;
mod link_state;
mod queues;
mod topology;

pub use file::{Balancing, FabricFile, FabricOperators, Graph, LeafSpine, LinkFile};
pub use layout::FabricLayout;
pub use link_state::{Advert, LinkState};
pub use queues::{Cable, Marks, Thresholds};
pub use topology::Node;
