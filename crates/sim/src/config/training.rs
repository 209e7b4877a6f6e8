//! `[[training]]`: jobs that arrive at random, wait for hosts, train a model each, and leave.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_control::option_text::OptionTable;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::protocol::Protocol;

use super::hosts::{Hosts, Placement};
use super::quantity::{Bytes, Duration, Share};
use super::work::{CollectiveKind, JobSection, RootChoice, Timeouts, op_name, protocol_name};

/// Jobs of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSection {
    /// The name in reports; "training 0" and so on if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How they reduce.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
    /// Hosts that they may run on.
    #[serde(default = "all_hosts")]
    pub hosts: Hosts,
    /// So many workers of different jobs have room on one host.
    #[serde(default = "one")]
    pub workers_per_host: u16,
    /// The fewest and the most workers of a job; each number is as likely.
    pub workers: [u16; 2],
    /// Models by name, and how likely each is, in parts of the sum; all equally if left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, f64>,
    /// Models' bytes and times of computation are divided by this.
    #[serde(default = "one_whole")]
    pub scale: u32,
    /// Models that reduce in another way, as they are small.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_models: Option<SmallModels>,
    /// The operator.
    #[serde(default = "sum", with = "op_name")]
    pub op: ReduceOp,
    /// Steps of a job: each worker computes, and then all reduce the model's gradients.
    pub iterations: u32,
    /// The share of hosts' rate that jobs' gradients would fill in a ring: so often do jobs arrive.
    pub load: Share,
    /// The first may arrive from here on ...
    #[serde(default)]
    pub start: Duration,
    /// ... and none from here on; the run waits for those that have.
    pub until: Duration,
    /// The protocol's options, by name; those left out have their defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: OptionTable,
    /// Elements of a packet.
    #[serde(default = "elements")]
    pub elements_per_packet: u16,
    /// A job's pool over all trees, as in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    /// A job's aggregation trees; fewer where its hosts have fewer switches in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// Retransmission timeouts.
    #[serde(default)]
    pub rto: Timeouts,
    /// A collective fails after so long, as in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// `small_models`: those whose gradients are fewer than so many bytes reduce under another protocol.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SmallModels {
    /// Bytes of the whole model, before they are divided by `scale`.
    pub below: Bytes,
    /// How they reduce.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
}

impl TrainingSection {
    /// What a job that reduces so many bytes would be in the file; all that is not its name, its hosts and its start.
    pub(crate) fn job(&self, protocol: &'static Protocol, tensor: u64, compute: Duration) -> JobSection {
        let is_own = protocol == self.protocol;
        let trees = self.trees.filter(|_| is_own || protocol.switch.is_some());
        JobSection {
            name: None,
            protocol,
            hosts: Hosts::Rest,
            placement: Placement::Packed,
            collective: CollectiveKind::Allreduce,
            root: None,
            tensor: Bytes(tensor),
            density: None,
            operator: None,
            data: Default::default(),
            dtype: DType::F32,
            op: self.op,
            iterations: self.iterations,
            start: Duration::default(),
            compute,
            options: if is_own { self.options.clone() } else { OptionTable::new() },
            elements_per_packet: self.elements_per_packet,
            slots: self.slots.filter(|_| is_own),
            trees,
            roots: None,
            root_choice: if trees.is_some() { RootChoice::LeastLoaded } else { RootChoice::Random },
            servers: None,
            stragglers: None,
            rto: self.rto,
            timeout: self.timeout,
        }
    }
}

fn all_hosts() -> Hosts {
    Hosts::All
}

fn sum() -> ReduceOp {
    ReduceOp::Sum
}

fn one() -> u16 {
    1
}

fn one_whole() -> u32 {
    1
}

fn elements() -> u16 {
    256
}
