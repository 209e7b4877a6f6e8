//! A fabric: several switches that work for one set of hosts, as a plan without sockets.
//!
//! [`FabricFile`] is what an operator writes. [`FabricLayout`] is what follows from it: node numbers, ports, addresses,
//! ways. [`LinkState`] is what a switch knows of dead cables anywhere in the fabric.

mod file;
mod limits;
mod link_state;
mod lossless;
mod marks;
mod memory;
mod plan;
mod served;

pub use file::{FabricFile, Graph, LeafSpine, LinkFile};
pub use link_state::{Advert, LinkState};
pub use lossless::Thresholds;
pub use marks::Marks;
pub use plan::{Balancing, Cable, FabricLayout, Node};
pub use served::FabricOperators;
