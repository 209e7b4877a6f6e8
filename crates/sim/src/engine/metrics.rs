//! Measurements of switches: the memory that incomplete sums take, the work of cores, and the protocols' own metrics.

use tributary_proto::contract::ids::{JobId, Rank};
use tributary_proto::contract::metric::{self, Metric};

use super::job::Job;
use super::records::JobIndex;
use super::switch::SwitchNode;
use crate::cores::steps::Spent;

/// How much of one switch's memory is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Slots whose sums are not complete, and the held slots of memory that jobs share.
    pub slots: u64,
    /// Bytes that programs hold for these slots.
    pub bytes: u64,
    /// Packets that wait for a core, if programs run on cores.
    pub waiting: u64,
    /// Bytes of the packet memory in use.
    pub input_bytes: u64,
    /// Bytes of blocks in clusters.
    pub working_bytes: u64,
}

impl Occupancy {
    pub(super) fn add(&mut self, used: u32, all: u32, bytes: usize) {
        self.slots += u64::from(used);
        self.bytes += bytes as u64 * u64::from(used) / u64::from(all.max(1));
    }
}

/// What the cores of one switch have done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Bytes of packets whose handlers have ended.
    pub bytes: u64,
    /// Picoseconds in which cores waited for locks.
    pub lock_waiting: u64,
    /// Picoseconds of the cores' steps.
    pub spent: Spent,
}

/// A protocol's metrics in one switch.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchMetrics {
    /// The switch's number.
    pub switch: u32,
    /// The protocol.
    pub protocol: &'static str,
    /// The job; `None` for memory that all jobs share.
    pub job: Option<JobIndex>,
    /// The figures.
    pub metrics: Vec<Metric>,
}

/// A value of a job over time: what its switches hold for it, or a metric of one rank's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The job.
    pub job: JobIndex,
    /// The rank; `None` for all switches together.
    pub rank: Option<Rank>,
    /// The value's name.
    pub name: &'static str,
}

/// The name of the number of slots with incomplete sums that all switches together hold for a job.
pub const SLOTS_IN_USE: &str = "slots_in_use";

/// The metrics of a job's programs in one switch, if they have any.
pub(super) fn metrics_of(switch: &SwitchNode, job: &Job) -> Option<SwitchMetrics> {
    let mut metrics = Vec::new();
    let id = JobId(job.index.0 + 1);
    let reports = switch.pipelines.iter().filter_map(|pipeline| pipeline.report(id)?.machine);
    reports.for_each(|report| metric::combine(&mut metrics, &report.metrics));
    let (switch, protocol, job) = (switch.forwarding.index, job.plan.protocol.name, Some(job.index));
    (!metrics.is_empty()).then_some(SwitchMetrics { switch, protocol, job, metrics })
}
