//! Runs hosts and switches on the fabric: takes the next event, and lets the node of the event act.
//!
//! Start with [`Simulation`]. A host's machine in a job is a [`Endpoint`]; a switch's machines are in pipelines, one
//! for each tree of a job.

mod actions;
mod cluster;
mod collectives;
mod cores;
mod custom_op;
mod departure;
mod endpoint;
mod errors;
mod failed;
mod flows;
mod forwarding;
mod host;
mod install;
mod jobs;
mod losses;
mod noise;
mod occupancy;
mod partitions;
mod placement;
mod prefetch;
mod segments;
mod servers;
mod shared;
mod shares;
mod simulation;
mod switch;
mod timers;

pub use actions::Action;
pub use cluster::{Arrival, Cluster, HostLimits, JobLifetime};
pub use cores::{CoresSpec, SwitchCores};
pub use custom_op::{CustomOp, Data};
pub use endpoint::{Endpoint, EndpointId};
pub use errors::{JobError, JobErrorKind};
pub use failed::Failure;
pub use flows::{Flow, FlowId, Flows, Received};
pub use host::Background;
pub use install::InstallError;
pub use jobs::{Iteration, Job, JobIndex, JobPlan, Jobs};
pub use losses::Loss;
pub use noise::{Holds, Noise};
pub use occupancy::{Gauge, Handled, Occupancy, SLOTS_IN_USE, SwitchMetrics};
pub use partitions::{assign_partitions, lookahead, window_end};
pub use shared::SharedSettings;
pub use shares::TooLittleMemory;
pub use simulation::{Settings, Simulation, Traffic};
