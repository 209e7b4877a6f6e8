//! `[[training]]`: jobs that arrive at random, wait for hosts, train a model each, and leave.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_control::config::OptionTable;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::protocol::Protocol;

use super::job::{CollectiveKind, JobSection, RootChoice, Timeouts, op_name, protocol_name};
use super::names::{Hosts, Placement};
use super::{Bytes, Duration, Share};
use crate::engine::Magnitudes;

/// Jobs of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSection {
    /// The name in reports; "training 0" and so on if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The protocol with which they reduce.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
    /// Hosts that they may run on.
    #[serde(default = "all_hosts")]
    pub hosts: Hosts,
    /// How many workers of different jobs one host takes.
    #[serde(default = "one")]
    pub workers_per_host: u16,
    /// The fewest and the most workers of a job; all numbers are equally likely.
    pub workers: [u16; 2],
    /// Models by name, with their weights; equally likely if left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, f64>,
    /// Models' bytes and computation times are divided by this.
    #[serde(default = "one_whole")]
    pub scale: u32,
    /// Small models, which reduce with another protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_models: Option<SmallModels>,
    /// The operator.
    #[serde(default = "sum", with = "op_name")]
    pub op: ReduceOp,
    /// How many steps a job has: in each, all workers compute and then reduce the model's gradients.
    pub iterations: u32,
    /// How often jobs arrive: the share of hosts' rate that jobs' gradients would fill in a ring.
    pub load: Share,
    /// When the first job may arrive.
    #[serde(default)]
    pub start: Duration,
    /// When no more jobs arrive; the run waits for those that have arrived.
    pub until: Duration,
    /// The protocol's options by name; options left out have their defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: OptionTable,
    /// Elements of a packet.
    #[serde(default = "elements")]
    pub elements_per_packet: u16,
    /// The pool of a job over all trees, as in `[[job]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    /// The aggregation trees of a job; fewer if its hosts have fewer switches in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// The magnitudes of gradients, as in `[[job]]`.
    #[serde(default, skip_serializing_if = "Magnitudes::is_steady")]
    pub magnitudes: Magnitudes,
    /// Retransmission timeouts.
    #[serde(default)]
    pub rto: Timeouts,
    /// A collective fails after this time, as in `[[job]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// `small_models`: models with fewer bytes of gradients than `below` reduce with another protocol.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SmallModels {
    /// Bytes of the whole model, before they are divided by `scale`.
    pub below: Bytes,
    /// The protocol with which they reduce.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
}

impl TrainingSection {
    /// The section of a job that reduces `tensor` bytes, without its name, hosts and start.
    pub(crate) fn job(&self, protocol: &'static Protocol, tensor: u64, compute: Duration) -> JobSection {
        let is_main = protocol == self.protocol;
        let trees = self.trees.filter(|_| is_main || protocol.switch.is_some());
        JobSection {
            name: None,
            count: 1,
            protocol,
            priority: 0,
            hosts: Hosts::Rest,
            placement: Placement::Packed,
            ranks_per_host: 1,
            collective: CollectiveKind::Allreduce,
            root: None,
            tensor: Bytes(tensor),
            density: None,
            indices: None,
            operator: None,
            data: Default::default(),
            magnitudes: self.magnitudes,
            dtype: DType::F32,
            op: self.op,
            iterations: self.iterations,
            start: Duration::default(),
            compute,
            options: if is_main { self.options.clone() } else { OptionTable::new() },
            elements_per_packet: self.elements_per_packet,
            slots: self.slots.filter(|_| is_main),
            trees,
            roots: None,
            root_choice: if trees.is_some() { RootChoice::LeastLoaded } else { RootChoice::Random },
            servers: None,
            shares: None,
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
