//! `[[step]]`: a training step as a graph of computations and collectives, which ranks repeat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tributary_control::config::OptionTable;
use tributary_numeric::DType;
use tributary_proto::contract::protocol::Protocol;

use super::job::{CollectiveKind, JobSection, ParameterServers, Timeouts, dtype_name, protocol_name};
use super::names::{Hosts, Placement};
use super::{Bytes, Duration};

/// A training step of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StepSection {
    /// The name in reports; "step 0" and so on if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How the step is made.
    pub kind: StepKind,
    /// The protocol of its reductions.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
    /// The hosts of its ranks; of a number or a share, the first that no other section has.
    #[serde(default)]
    pub hosts: Hosts,
    /// How many steps each rank makes.
    #[serde(default = "one")]
    pub iterations: u32,
    /// The model's layers, from input to output.
    #[serde(default, rename = "layer", skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerSection>,
    /// The type of parameters and gradients.
    #[serde(default = "f32", with = "dtype_name", rename = "type")]
    pub dtype: DType,
    /// DDP: a bucket is reduced once its gradients have this many bytes.
    #[serde(default = "bucket")]
    pub bucket: Bytes,
    /// DDP: the same of the first bucket, whose gradients are ready first.
    #[serde(default = "first_bucket")]
    pub first_bucket: Bytes,
    /// True if collectives run while the rank computes; otherwise they begin when it has computed all gradients.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub overlap: bool,
    /// Gradients are reduced once for this many forward and backward passes.
    #[serde(default = "one")]
    pub accumulate: u32,
    /// HSDP: the ranks that share a model's parameters among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u16>,
    /// What the optimizer computes when all gradients are there.
    #[serde(default)]
    pub optimizer: Duration,
    /// Groups of ranks by name, each a list of lists: for a graph.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, Vec<Vec<u16>>>,
    /// The nodes of a graph.
    #[serde(default, rename = "node", skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeSection>,
    /// The protocol's options by name; options left out have their defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: OptionTable,
    /// True if no protocol sums: hosts send flows to each other, sums go around a ring, as Gloo's over TCP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_path: bool,
    /// Elements of a packet.
    #[serde(default = "elements")]
    pub elements_per_packet: u16,
    /// Retransmission timeouts.
    #[serde(default)]
    pub rto: Timeouts,
    /// The pool of each group's job, as in `[[job]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    /// The aggregation trees of each group's job, as in `[[job]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// Hosts that sum instead of switches, as in `[[job]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<ParameterServers>,
    /// A collective fails after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// `kind`: how a step is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// PyTorch's DistributedDataParallel: gradients in buckets, last layer first.
    Ddp,
    /// FSDP2: parameters are gathered layer by layer, gradients scattered.
    Fsdp,
    /// FSDP2 in groups, whose gradients are summed across the groups.
    Hsdp,
    /// The nodes of the file.
    Graph,
}

/// `[[step.layer]]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSection {
    /// Its name in timelines; its number if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its parameters.
    pub parameters: u64,
    /// What a rank computes for its gradients.
    pub backward: Duration,
    /// What a rank computes for its output; half of that if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<Duration>,
    /// How many equal layers this is.
    #[serde(default = "one")]
    pub count: u32,
}

/// `[[step.node]]`: a computation or a collective.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSection {
    /// Its name, by which others wait for it.
    pub name: String,
    /// How long ranks compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute: Option<Duration>,
    /// The collective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<StepCollective>,
    /// The bytes of its whole tensor; of a send, those of each pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// The group that takes part; all ranks if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The position in its group that a broadcast is from or a reduce is for; 0 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u16>,
    /// The ranks that compute; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Vec<u16>>,
    /// The pairs of a send: sender and receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<Vec<[u16; 2]>>,
    /// The nodes that must be complete at a rank before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// `collective`: what ranks exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepCollective {
    /// All ranks get the sum.
    AllReduce,
    /// Each rank gets the sum of its share.
    ReduceScatter,
    /// All ranks get all ranks' shares.
    AllGather,
    /// One rank gets the sum.
    Reduce,
    /// All ranks get one rank's data.
    Broadcast,
    /// All ranks wait for all others.
    Barrier,
    /// Each rank gets its share from each other.
    AllToAll,
    /// Ranks send to others.
    Send,
}

impl StepSection {
    /// The section of a job whose longest collective has this many bytes.
    pub(crate) fn job(&self, protocol: &'static Protocol, name: String, hosts: Vec<u32>, tensor: u64) -> JobSection {
        let is_chosen = protocol == self.protocol;
        JobSection {
            name: Some(name),
            count: 1,
            protocol,
            priority: 0,
            hosts: Hosts::List(hosts),
            placement: Placement::Packed,
            collective: CollectiveKind::Allreduce,
            root: None,
            tensor: Bytes(tensor),
            density: None,
            indices: None,
            operator: None,
            data: Default::default(),
            magnitudes: Default::default(),
            dtype: self.dtype,
            op: JobSection::OP,
            iterations: self.iterations,
            start: Duration::default(),
            compute: Duration::default(),
            options: if is_chosen { self.options.clone() } else { OptionTable::new() },
            elements_per_packet: self.elements_per_packet,
            slots: self.slots.filter(|_| is_chosen),
            trees: self.trees.filter(|_| is_chosen),
            roots: None,
            root_choice: Default::default(),
            servers: self.servers.clone().filter(|_| is_chosen),
            ranks_per_host: 1,
            shares: None,
            stragglers: None,
            rto: self.rto,
            timeout: self.timeout,
        }
    }
}

fn elements() -> u16 {
    256
}

fn one() -> u32 {
    1
}

fn f32() -> DType {
    DType::F32
}

fn bucket() -> Bytes {
    Bytes(25 << 20)
}

fn first_bucket() -> Bytes {
    Bytes(1 << 20)
}

fn yes() -> bool {
    true
}

fn is_yes(overlap: &bool) -> bool {
    *overlap
}
