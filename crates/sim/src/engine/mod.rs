//! Runs hosts and switches on the fabric: takes the next event, and lets the node of the event act.
//!
//! Start with [`Simulation`]. A host's machine in a job is an [`Endpoint`](endpoint::Endpoint); a switch's machines are in
//! pipelines, one for each tree of a job. The files here hold data and what needs no more than that; what a simulation does
//! with all of it is in `steps`.

mod accelerator;
mod cluster;
mod cores;
mod custom_op;
mod endpoint;
mod faults;
mod host;
mod host_delays;
mod host_memory;
mod job;
mod nics;
mod program;
mod records;
mod simulation;
mod step_graph;
mod steps;
mod switch;
mod traffic;

pub(crate) use accelerator::Accelerator;
pub(crate) use cluster::{Arrival, HostLimits};
pub(crate) use cores::{CoresSpec, SwitchCores};
pub use custom_op::{CustomOp, Data, Magnitudes};
pub use faults::Action;
pub(crate) use faults::Failure;
pub(crate) use host::Background;
pub use host_delays::{Holds, HostCosts, Noise};
pub(crate) use host_memory::HostRanks;
pub(crate) use job::Job;
pub(crate) use program::{Gauge, Handled, Occupancy, SLOTS_IN_USE, SharedSettings, SwitchMetrics};
pub use records::{
    EndpointId, InstallError, Iteration, JobError, JobErrorKind, JobIndex, JobLifetime, JobPlan, Sparse,
    TooLittleMemory,
};
pub use simulation::{Settings, Simulation};
pub(crate) use step_graph::{
    Exchange, RankStream, Round, StepGraph, StepNode, StepRank, StepSpan, StepWork, Transfer, Way,
};
pub(crate) use steps::{PlannedTree, assign_partitions};
