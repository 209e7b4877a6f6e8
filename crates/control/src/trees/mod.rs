//! Static aggregation trees: which switches sum for a job, and which nodes each of them sums for. Pure planning, for
//! the simulator and for the controller of a fabric.
//!
//! [`TreePlanner`] knows the cables, the dead cables and switches, free memory, and the load on each cable.
//! [`TreePlanner::candidates`] names the switches in which a tree may end, [`TreePlanner::choose`] takes the least loaded
//! of them, and [`TreePlanner::tree`] builds the [`Tree`] under one of them; [`TreePlanner::plan`] does all of that for a
//! job. To plan again after a failure, mark what is dead and choose again.

mod build;
mod choose;
mod planner;
mod tree;

/// The number of trees of a job that asks for no number, if there are that many.
pub const DEFAULT_TREES: u16 = 4;

pub use choose::{JOB_RATE, TreeJob, TreeRequest};
pub use planner::TreePlanner;
pub use tree::{RankPosition, Tree, TreeChild, TreeError, TreeParent, TreeSwitch};
