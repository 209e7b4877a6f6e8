//! Runs hosts and switches on the fabric: takes the next event, and lets the node of the event act.
//!
//! Start with [`Simulation`]. A host's machine in a job is a [`HostSeat`]; a switch's machines are in pipelines, one
//! for each tree of a job.

mod actions;
mod cluster;
mod collectives;
mod complaints;
mod cores;
mod departure;
mod exits;
mod failed;
mod flows;
mod host;
mod install;
mod jobs;
mod losses;
mod noise;
mod occupancy;
mod own;
mod parts;
mod placement;
mod prefetch;
mod seat;
mod segments;
mod servers;
mod shared;
mod shares;
mod simulation;
mod switch;
mod timers;

pub use actions::Action;
pub use cluster::{Arrival, Cluster, Stay, Tenants};
pub use complaints::{Complaint, Wrong};
pub use cores::{CoresSpec, SwitchCores};
pub use failed::Failure;
pub use flows::{Flow, FlowId, Flows, Received};
pub use host::Background;
pub use install::InstallError;
pub use jobs::{Iteration, Job, JobIndex, JobPlan, Jobs};
pub use losses::Loss;
pub use noise::{Holds, Noise};
pub use occupancy::{Gauge, HELD, Handled, Occupancy, SwitchMetrics};
pub use own::{Data, Own};
pub use parts::{deal_out, look_ahead, window_end};
pub use seat::{HostSeat, HostSeatId};
pub use shared::SharedSettings;
pub use shares::TooLittleMemory;
pub use simulation::{Settings, Simulation, Traffic};
