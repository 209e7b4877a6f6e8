//! The state of a switch for people and programs, as `GET /status` answers and `tributary status` prints.

mod clients;
mod ended;
mod fabric;
pub mod operation;
mod trees;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tributary_control::LargeSums;
use tributary_proto::contract::custom_op::{CustomOp, CustomOps};
use tributary_proto::contract::metric::{Metric, MetricValue};

pub(crate) use self::clients::Refusals;
pub use self::clients::{ClientStatus, RefusalStatus};
pub(crate) use self::ended::EndedJobs;
pub use self::ended::{Ended, EndedJob};
pub use self::fabric::{CableStatus, FabricStatus, FabricSwitchStatus, PortStatus};
pub use self::trees::{
    ChildSwitchStatus, LagStatus, OrderStatus, ParentStatus, TreeChildStatus, TreeStatus, TreeSwitchStatus,
};

/// A switch and its jobs at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchStatus {
    /// The switch itself.
    pub switch: SwitchInfo,
    /// The switch's jobs: first the jobs that hold memory, by ascending id, then the jobs that form, by name.
    pub jobs: Vec<JobStatus>,
}

/// The switch itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchInfo {
    /// The version of the program.
    pub version: String,
    /// Seconds since the switch started.
    pub uptime_s: f64,
    /// UDP address of shard 0 and TCP address of the control API.
    pub listen: SocketAddr,
    /// The operators' own address.
    pub http: Option<SocketAddr>,
    /// The rate of the link by which the request came, if its driver reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bits_per_s: Option<u64>,
    /// The control API of the parent switch, if there is one.
    pub parent: Option<SocketAddr>,
    /// Why the parent switch is not healthy, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_failure: Option<String>,
    /// An operator lets no new job begin.
    #[serde(default)]
    pub cordoned: bool,
    /// Names of jobs that an earlier program of this switch still serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_jobs: Vec<String>,
    /// The clients whose joins an operator has forbidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub banned: Vec<String>,
    /// The clients that have jobs, or were refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientStatus>,
    /// Bytes for all jobs, and for what they share.
    pub memory_bytes: u64,
    /// Bytes that jobs are charged, and what they share; at a switch of a fabric that is not the controller, what machines hold.
    pub memory_used_bytes: u64,
    /// The most jobs at a time.
    pub max_jobs: u16,
    /// The shards.
    pub shards: Vec<ShardStatus>,
    /// Packets that belonged to no job, by reason; reasons that never occurred are left out.
    pub rejected_packets: BTreeMap<String, u64>,
    /// Servers that have offered themselves, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerStatus>,
    /// What jobs share at the switch, by protocol.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedStatus>,
    /// The switch as one of a fabric, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricStatus>,
}

/// A server that has offered itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerStatus {
    /// The address where the server receives packets.
    pub addr: SocketAddr,
    /// `present`, `left` or `lost`.
    pub state: String,
    /// Seconds since the server last asked for work.
    pub last_seen_s_ago: f64,
    /// The jobs that the server serves.
    pub jobs: Vec<String>,
}

/// A server of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobServerStatus {
    /// The server's number in the job.
    pub server: u16,
    /// The address where the server receives packets.
    pub addr: SocketAddr,
    /// `present`, `left` or `lost`.
    pub state: String,
}

/// What all jobs of a protocol share at a switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedStatus {
    /// The protocol.
    pub protocol: String,
    /// Slots, descriptors or aggregators in all.
    pub slots: u32,
    /// Slots, descriptors or aggregators in use.
    pub slots_in_use: u32,
    /// The most that were in use at once.
    pub slots_peak: u32,
    /// Bytes of the whole shared memory; 0 where it was freed for other jobs.
    pub bytes: u64,
    /// The protocol's own counters and gauges, all jobs together.
    pub metrics: Vec<MetricStatus>,
}

/// A protocol's own figure: `{"name": "collisions", "help": "...", "kind": "counter", "value": 3}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricStatus {
    /// The figure's name within its protocol.
    pub name: String,
    /// One sentence that says what the figure means.
    pub help: String,
    /// The kind of the figure, and its present value.
    #[serde(flatten)]
    pub value: MetricNumber,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "lowercase")]
pub enum MetricNumber {
    /// How often something has happened; it never falls.
    Counter(u64),
    /// How much there is of something now, or was at most.
    Gauge(f64),
}

impl MetricStatus {
    /// A machine's figures.
    pub fn all(metrics: &[Metric]) -> Vec<MetricStatus> {
        let status = |metric: &Metric| MetricStatus {
            name: metric.name.to_owned(),
            help: metric.help.to_owned(),
            value: match metric.value {
                MetricValue::Counter(count) => MetricNumber::Counter(count),
                MetricValue::Gauge(value) => MetricNumber::Gauge(value),
            },
        };
        metrics.iter().map(status).collect()
    }
}

impl From<MetricNumber> for MetricValue {
    fn from(number: MetricNumber) -> MetricValue {
        match number {
            MetricNumber::Counter(count) => MetricValue::Counter(count),
            MetricNumber::Gauge(value) => MetricValue::Gauge(value),
        }
    }
}

/// One shard of the switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardStatus {
    /// The shard's number.
    pub shard: u16,
    /// The address at which the shard receives.
    pub udp: SocketAddr,
    /// False if the shard's thread has ended; the other figures are then its last.
    pub alive: bool,
    /// Packets received.
    pub rx_packets: u64,
    /// UDP payload bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// UDP payload bytes sent.
    pub tx_bytes: u64,
    /// Packets received per second, lately.
    pub rx_packets_per_s: f64,
    /// UDP payload received, in Gbit/s, lately.
    pub rx_gbps: f64,
    /// UDP payload sent, in Gbit/s, lately.
    pub tx_gbps: f64,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub rx_overflows: u64,
    /// Packets that could not be sent, for any reason.
    pub tx_failures: u64,
    /// Packets that led to no port of this shard.
    pub unroutable: u64,
    /// Bytes of receive buffer, as the kernel counts them.
    pub receive_buffer_bytes: u64,
    /// True if the kernel takes runs of segments in one call.
    pub segmentation_offload: bool,
    /// True if the kernel hands over coalesced runs.
    pub receive_coalescing: bool,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobStatus {
    /// The job's name.
    pub name: String,
    /// The job's id in packets; none while the job forms.
    pub id: Option<u16>,
    /// The client that is charged for the job: a tenant, or an address. Only where jobs are formed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// `forming`, `installing`, `running`, `ending`, `failed` or `superseded`; `docs/control.md` says when.
    pub state: String,
    /// The protocol that the switch runs for the job.
    pub protocol: String,
    /// The job's custom operators, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorStatus>,
    /// Seconds since the job's first rank came (while the job forms) or since it was installed.
    pub age_s: f64,
    /// The number of ranks of the complete job.
    pub world_size: u16,
    /// Workers that are or were there, by ascending rank.
    pub members: Vec<MemberStatus>,
    /// Child switches that are or were there, by ascending lowest rank.
    pub switches: Vec<ChildSwitchStatus>,
    /// Servers that are processes of their own, by number; none if each worker is a server too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<JobServerStatus>,
    /// The parent switch, if there is one and the job is installed.
    pub parent: Option<ParentStatus>,
    /// Ranks that have not come, or fell silent without a leave, ascending. While a job forms below a parent switch,
    /// these are the ranks that the parent named last.
    pub missing: Vec<u16>,
    /// Slots over all shards.
    pub slots: u16,
    /// Slots with a sum that is not complete.
    pub slots_waiting: u32,
    /// Ranks that some incomplete sum waits for, ascending; for a child switch, all of its ranks.
    pub waiting_for: Vec<u16>,
    /// The rank that is furthest behind the first, if results wait for it and the protocol tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<LagStatus>,
    /// Collectives that are over on the rank that is furthest ahead.
    #[serde(default)]
    pub collectives: u64,
    /// The collective that ranks are in, if they are in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<operation::OperationStatus>,
    /// Where large sums are made, as the workers have planned it last, if they share them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_sums: Option<LargeSums>,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The bytes that the job is charged; at a switch of a fabric that is not the controller, what its own machines hold.
    pub memory_bytes: u64,
    /// Packets of its members.
    pub packets: u64,
    /// Packets of its members per second, lately.
    pub packets_per_s: f64,
    /// Sums completed.
    pub blocks: u64,
    /// Contributions added.
    pub contributions: u64,
    /// The protocol's own counters and gauges for the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricStatus>,
    /// Bytes of tensor summed: 4 for each element of each completed block; a tensor's short last block counts as full.
    pub goodput_bytes: u64,
    /// Goodput in Gbit/s, lately.
    pub goodput_gbps: f64,
    /// Aggregated tensor elements per second, lately.
    pub ate_per_s: f64,
    /// Packets with the job's id that were dropped, by reason; reasons that never occurred are left out.
    pub drops: BTreeMap<String, u64>,
    /// The job's trees by number: static trees through a fabric, or this switch's own node of trees whose packets are
    /// summed in their order; otherwise none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<TreeStatus>,
    /// The reason why the job has failed: a tree has lost a switch or a cable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// A custom operator of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorStatus {
    /// The operator's name.
    pub name: String,
    /// The hash of its module.
    pub sha256: String,
}

impl OperatorStatus {
    /// All operators of a job.
    pub(crate) fn all(operators: &CustomOps) -> Vec<OperatorStatus> {
        let of = |operator: &Arc<dyn CustomOp>| OperatorStatus {
            name: operator.name().to_owned(),
            sha256: operator.hash().to_string(),
        };
        operators.iter().map(of).collect()
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberStatus {
    /// The member's rank.
    pub rank: u16,
    /// The source address of its packets.
    pub addr: SocketAddr,
    /// `present`, `left` or `lost`.
    pub state: String,
    /// Seconds since its last packet; none if there was none yet.
    pub last_seen_s_ago: Option<f64>,
}
