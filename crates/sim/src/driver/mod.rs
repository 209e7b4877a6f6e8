//! Runs hosts and switches on the fabric: takes the next event, and lets whoever it concerns act.

mod flows;
mod host;
mod simulation;
mod switch;

pub use flows::{Flow, FlowId, Flows};
pub use simulation::{Settings, Simulation};
