//! What a driver tells a machine when it makes it. The same for every protocol; each reads what it needs.

use crate::ids::{GroupId, JobId, JobKey, PortId, ShardId, WorkerId};
use crate::time::Span;

/// What all members of a job and its switches agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobConfig {
    /// The job's id on its switch or fabric.
    pub job: JobId,
    /// The members' secret.
    pub key: JobKey,
    /// Number of workers, 1 to 1023.
    pub world: u16,
    /// Pool size `s` over all shards (SwitchML, appendix C); a multiple of `shards`.
    pub slots: u16,
    /// Elements per packet `k`, at most 16,128.
    pub elements_per_packet: u16,
    /// Independent parts of the switch; shard `c` owns slots `[c * slots / shards, (c + 1) * slots / shards)`.
    pub shards: u16,
}

/// What a host machine is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The job.
    pub job: JobConfig,
    /// This host's rank.
    pub worker: WorkerId,
    /// Timers.
    pub timers: TimerConfig,
}

/// The timers of a host machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerConfig {
    /// Retransmission timeout before a round trip was measured.
    pub initial_rto: Span,
    /// The retransmission timeout never falls below this ...
    pub min_rto: Span,
    /// ... nor rises above this, back-off included.
    pub max_rto: Span,
}

impl Default for TimerConfig {
    /// For hosts with an ordinary kernel between machine and wire, where scheduling alone takes a millisecond.
    fn default() -> TimerConfig {
        TimerConfig {
            initial_rto: Span::from_millis(20),
            min_rto: Span::from_millis(1),
            max_rto: Span::from_millis(200),
        }
    }
}

/// What a switch machine is made from: one job in one shard of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The job. `world` is the number of this switch's children, workers or switches below.
    pub job: JobConfig,
    /// Which part of the slots this machine owns.
    pub shard: ShardId,
    /// The port of each child, by its `wid` here.
    pub members: Vec<PortId>,
    /// The multicast group of all children.
    pub group: GroupId,
    /// The switch above, if this one is not the root.
    pub parent: Option<Parent>,
}

/// The way to the switch above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The port towards it.
    pub port: PortId,
    /// The `wid` of this switch there.
    pub worker: WorkerId,
}
