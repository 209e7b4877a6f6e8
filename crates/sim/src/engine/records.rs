//! The numbers and plain data that the engine's files share: jobs and endpoints by number, plans, errors.

use std::sync::Arc;

use tributary_proto::contract::config::{JobConfig, TimerConfig};
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::Verification;

use super::custom_op::{CustomOp, Magnitudes};
use crate::net::JOB_FLOW;
use tributary_control::trees::TreeError;

/// A job's number in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobIndex(pub u16);

impl JobIndex {
    /// The flow of the job's packets.
    pub fn flow(self) -> u32 {
        JOB_FLOW | u32::from(self.0)
    }

    /// The job of a flow, if the flow is a job's.
    pub fn of_flow(flow: u32) -> Option<JobIndex> {
        (flow & JOB_FLOW != 0).then_some(JobIndex(flow as u16))
    }
}

/// The number of an endpoint of [`super::Simulation`], and of its machine's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u32);

/// The buffer in which machines write their packets.
pub type Scratch = Vec<u8>;

/// The elements that ranks contribute of a sparse tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Sparse {
    /// About this many of a million, drawn at random in each collective.
    Drawn(u32),
    /// Those at each rank's indices, in all collectives.
    Recorded(Arc<[Vec<u32>]>),
}

/// The plan of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPlan {
    /// The name in reports.
    pub name: String,
    /// The protocol with which it reduces.
    pub protocol: &'static Protocol,
    /// The hosts, by rank.
    pub members: Vec<NodeId>,
    /// The tensor of each collective.
    pub spec: Spec,
    /// The elements that ranks contribute; `None` for dense tensors.
    pub sparse: Option<Sparse>,
    /// The job's custom operator, if it has one: its options name it.
    pub custom_op: Option<CustomOp>,
    /// The magnitudes of floats that fingerprints stand for.
    pub magnitudes: Magnitudes,
    /// What a training step submits as operations of the job, in this order and again in each iteration; empty if all
    /// collectives are `spec`, one after the other.
    pub operations: Arc<[Spec]>,
    /// How many collectives run.
    pub iterations: u32,
    /// When ranks submit the first one.
    pub start: Time,
    /// The time between a collective's end at a rank and the rank's next submission.
    pub compute: Span,
    /// The protocol's options.
    pub options: Options,
    /// Elements of a packet.
    pub elements_per_packet: u16,
    /// Pool size over all trees.
    pub slots: u16,
    /// The switches at the roots of its trees, by number; blocks go round robin over the trees.
    pub roots: Vec<u32>,
    /// Retransmission timers of its hosts.
    pub timers: TimerConfig,
    /// A collective fails after this time.
    pub timeout: Option<Span>,
}

/// Packets of this many elements of any type fit into 65,535 bytes with their headers.
const MAX_ELEMENTS: u16 = 16_000;
const MAX_TREES: usize = 255;

impl JobPlan {
    /// What a collective is.
    pub fn spec_of(&self, iteration: u32) -> Spec {
        match self.operations.len() {
            0 => self.spec,
            operations => self.operations[iteration as usize % operations],
        }
    }

    /// How its machines represent and combine values.
    pub fn values(&self) -> Values {
        self.custom_op.as_ref().map_or(Values::Fingerprint, CustomOp::values)
    }

    /// Checks what depends on the plan alone. `installed`: how many jobs there are already.
    pub(super) fn check(&self, installed: usize) -> Result<(), InstallError> {
        let name = || self.name.clone();
        if installed >= usize::from(u16::MAX) - 1 {
            return Err(InstallError::TooManyJobs(name()));
        }
        match self.members.len() {
            0 => return Err(InstallError::NoMembers(name())),
            members if members > usize::from(JobConfig::MAX_WORLD_SIZE) => {
                return Err(InstallError::TooManyMembers(name(), members));
            }
            _ => {}
        }
        let trees = if self.protocol.placement == Placement::EveryHop { 1 } else { self.roots.len() };
        if !(1..=MAX_TREES).contains(&trees) {
            return Err(InstallError::Trees(name(), trees));
        }
        if self.slots == 0 || !usize::from(self.slots).is_multiple_of(trees) {
            return Err(InstallError::Slots { name: name(), slots: self.slots, trees });
        }
        if !(1..=MAX_ELEMENTS).contains(&self.elements_per_packet) {
            return Err(InstallError::Elements(name(), self.elements_per_packet));
        }
        Ok(())
    }
}

/// One collective of a job.
#[derive(Clone, Debug, Default)]
pub struct Iteration {
    /// The first submission.
    pub start: Option<Time>,
    /// The last completion so far.
    pub end: Option<Time>,
    /// How many ranks have completed it.
    pub completed: u32,
    /// The first rank that has completed it and a hash of the rank's results, if results may lack ranks.
    pub first: Option<(Rank, u64)>,
}

/// The times of a job that comes and goes.
#[derive(Clone, Debug, PartialEq)]
pub struct JobLifetime {
    /// The model.
    pub model: String,
    /// When it arrived.
    pub arrived: Time,
    /// When it got its hosts.
    pub placed: Time,
    /// When it returned its hosts.
    pub left: Option<Time>,
}

/// The kind of an error.
#[derive(Clone, Debug, PartialEq)]
pub enum JobErrorKind {
    /// A sum that does not contain every contribution exactly once, or differs from the result of the custom operator.
    WrongSum(Verification),
    /// A result that may lack ranks differs from this rank's result.
    ResultsDiffer(Rank),
    /// A collective that failed.
    CollectiveFailed(CollectiveError),
    /// The job's custom operator has failed in a switch, so the job is over.
    OperatorFailed,
}

impl JobErrorKind {
    /// True for a result that does not contain every contribution exactly once.
    pub fn is_wrong_sum(&self) -> bool {
        matches!(self, JobErrorKind::WrongSum(_) | JobErrorKind::ResultsDiffer(_))
    }
}

/// An error of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct JobError {
    /// When.
    pub time: Time,
    /// The rank.
    pub rank: Rank,
    /// The number of the collective.
    pub iteration: u32,
    /// The error.
    pub kind: JobErrorKind,
}

/// Why a job cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// The job has no members.
    #[error("job \"{0}\" has no hosts")]
    NoMembers(String),
    /// The job has too many members.
    #[error("job \"{0}\" has {1} hosts; a job has at most {most} ranks", most = JobConfig::MAX_WORLD_SIZE)]
    TooManyMembers(String, usize),
    /// The job has more children than one switch sums for.
    #[error("job \"{0}\" has {1} hosts and switches below one switch, which sums for at most 1,024")]
    TooManyChildren(String, usize),
    /// A switch has more ports than a descriptor can distinguish.
    #[error("job \"{0}\" needs switches of at most 256 ports; one has {1}")]
    Ports(String, usize),
    /// Every switch handles the job's packets, which use the first cables of its hosts, and these do not meet.
    #[error(
        "job \"{name}\" under {protocol} uses the first cable of each host, and no path leads from that of host {from} to that \
         of host {to}"
    )]
    FirstCables {
        /// The job.
        name: String,
        /// Its protocol.
        protocol: &'static str,
        /// The host of rank 0.
        from: NodeId,
        /// Another rank's host.
        to: NodeId,
    },
    /// There are more jobs than numbers for them.
    #[error("job \"{0}\" is one too many: at most 65,534 jobs fit")]
    TooManyJobs(String),
    /// The pool does not divide among the trees.
    #[error("job \"{name}\" has {slots} slots and {trees} trees: slots must be a multiple of the trees, and not 0")]
    Slots {
        /// The job.
        name: String,
        /// Its slots.
        slots: u16,
        /// Its trees.
        trees: usize,
    },
    /// The job has servers, but its protocol uses none.
    #[error("job \"{name}\" has servers, and {protocol} has no use for any")]
    NoServers {
        /// The job.
        name: String,
        /// Its protocol.
        protocol: &'static str,
    },
    /// The job has more trees than a packet can distinguish, or none.
    #[error("job \"{0}\" has {1} trees; 1 to 255 are possible")]
    Trees(String, usize),
    /// A tree cannot be planned.
    #[error("job \"{0}\": {1}")]
    Tree(String, TreeError),
    /// Packets have no elements, or too many.
    #[error("job \"{0}\" has {1} elements in a packet; 1 to 16,000 are possible")]
    Elements(String, u16),
}

/// A switch that cannot hold all of its jobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the jobs at switch {switch} need at least {need} bytes of its memory, which is {memory}: give switches more, or jobs fewer \
     trees, slots or elements in a packet"
)]
pub struct TooLittleMemory {
    /// The switch, by number.
    pub switch: u32,
    /// How much memory all jobs need at least.
    pub need: u64,
    /// How much memory there is.
    pub memory: u64,
}

/// Why a job does not fit into a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoesNotFit {
    /// The job is invalid.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The other jobs leave too little memory.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
}
