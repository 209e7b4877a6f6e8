//! Jobs and background traffic in the file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tributary_control::option_text::OptionTable;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use super::hosts::{Hosts, Placement};
use super::node::SwitchName;
use super::quantity::{Bytes, DataRate, Duration, Share};
use crate::driver::Data;
use crate::workload::FlowSizes;

/// `[[job]]`: ranks that reduce together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSection {
    /// The name in reports; "job 0" and so on if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How it reduces.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
    /// Where its ranks are.
    #[serde(default)]
    pub hosts: Hosts,
    /// Which hosts a number or a share of them means.
    #[serde(default)]
    pub placement: Placement,
    /// What they do together.
    #[serde(default)]
    pub collective: CollectiveKind,
    /// The rank that a reduce is for, or that a broadcast is from; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<u16>,
    /// The tensor of each collective.
    pub tensor: Bytes,
    /// The share of the tensor's elements that each rank brings, drawn for each: the tensors are sparse. All, of dense ones, if left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density: Option<Share>,
    /// The type of its elements.
    #[serde(default = "defaults::dtype", with = "dtype_name", rename = "type")]
    pub dtype: DType,
    /// The operator.
    #[serde(default = "defaults::op", with = "op_name")]
    pub op: ReduceOp,
    /// An operator of the job's own in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorSource>,
    /// What ranks bring, where the job has an operator of its own.
    #[serde(default, skip_serializing_if = "Data::is_fingerprints")]
    pub data: Data,
    /// Collectives, one after the other.
    #[serde(default = "defaults::one")]
    pub iterations: u32,
    /// When the ranks submit the first one.
    #[serde(default)]
    pub start: Duration,
    /// Time that each rank computes between two of them.
    #[serde(default)]
    pub compute: Duration,
    /// The protocol's options, by name; those left out have their defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: OptionTable,
    /// Elements of a packet.
    #[serde(default = "defaults::elements")]
    pub elements_per_packet: u16,
    /// Pool size over all trees; as many as the bandwidth-delay product needs if left out (SwitchML, appendix C).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    /// Aggregation trees, over which blocks are spread; one if left out, under a protocol that has them planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// The switches at the top of the trees; `root_choice` says which if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<SwitchName>>,
    /// How the roots are found that the file does not name.
    #[serde(default, skip_serializing_if = "RootChoice::is_random")]
    pub root_choice: RootChoice,
    /// Hosts that sum instead of switches, under a protocol with servers; one beside each rank if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<ParameterServers>,
    /// Ranks that are late for every collective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stragglers: Option<StragglerSection>,
    /// Retransmission timeouts.
    #[serde(default)]
    pub rto: Timeouts,
    /// A collective fails after so long; if left out, after a second, or 100 times what its tensor takes on the slowest
    /// link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

impl JobSection {
    /// The operator of a job that names none.
    pub const OP: ReduceOp = ReduceOp::Sum;
}

/// How the switches at the top of a job's trees are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootChoice {
    /// At random from the highest level, as papers do that say nothing else.
    #[default]
    Random,
    /// As a fabric's seat does: the lowest switches that connect all ranks, those with the least planned load first.
    LeastLoaded,
}

impl RootChoice {
    fn is_random(&self) -> bool {
        *self == RootChoice::Random
    }
}

/// Where an operator comes from that people have written.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected a file, the name of an operator that comes along, an expression, or { expression, element }"
)]
pub enum OperatorSource {
    /// A file, the name of one that comes along, or an expression over elements of the job's type.
    Text(String),
    /// An expression, and what its elements are.
    Expression(ExpressionSource),
}

/// `operator = { expression, element }`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpressionSource {
    /// A line for each field of the result, or one alone.
    pub expression: String,
    /// What the elements are, as in `v:f32,i:i32`.
    pub element: String,
}

/// Where parameter servers are.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected \"colocated\", or hosts: a number, a share, a list, \"all\" or \"rest\"")]
pub enum ParameterServers {
    /// By a word.
    Word(ServerWord),
    /// On hosts of their own.
    Dedicated(Hosts),
}

/// Words for where parameter servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerWord {
    /// One beside each rank.
    Colocated,
}

/// `stragglers`: ranks that are late for every collective.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StragglerSection {
    /// Which: a number of them, a share, or a list of ranks.
    pub ranks: Hosts,
    /// How late.
    pub late: Duration,
}

/// `collective`: what the ranks of a job do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// All sum, and all get the sum.
    #[default]
    Allreduce,
    /// All sum, and one gets the sum.
    Reduce,
    /// One's data for all.
    Broadcast,
    /// All wait for all.
    Barrier,
}

/// `rto`: the retransmission timeout before a round trip was measured, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Before a round trip was measured.
    pub initial: Duration,
    /// Never below this ...
    pub min: Duration,
    /// ... nor above this.
    pub max: Duration,
}

impl Default for Timeouts {
    /// SwitchML's 1 ms (§5.4), doubled at most seven times.
    fn default() -> Timeouts {
        let ms = |ms| Duration(Span::from_millis(ms));
        Timeouts { initial: ms(1), min: ms(1), max: ms(128) }
    }
}

impl Timeouts {
    /// As machines take them.
    pub fn timers(&self) -> TimerConfig {
        TimerConfig { initial_rto: self.initial.0, min_rto: self.min.0, max_rto: self.max.0 }
    }
}

/// `[[traffic]]`: what else is on the network.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficSection {
    /// What kind.
    pub pattern: Pattern,
    /// Who takes part.
    #[serde(default)]
    pub hosts: Hosts,
    /// Which hosts a number or a share of them means.
    #[serde(default)]
    pub placement: Placement,
    /// Who sends, where that is not all of `hosts`: for `poisson` and `stream`, instead of `hosts` ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Hosts>,
    /// ... and to whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Hosts>,
    /// What brings its packets there; flows that arrive at random always use DCTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Bytes of a message: on a link, framing included, or under DCTCP of data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Bytes>,
    /// How long flows that arrive at random are, instead of all as long as `message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<FlowSizes>,
    /// Flows of `sizes` are divided by this.
    #[serde(default = "defaults::one", skip_serializing_if = "defaults::is_one")]
    pub scale: u32,
    /// Of `sizes`, only flows of at least the one and of fewer than the other so many bytes, before they are divided: others are
    /// drawn and not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<[Bytes; 2]>,
    /// Bytes of a packet on a link, framing included; not under DCTCP.
    #[serde(default = "defaults::packet")]
    pub packet: Bytes,
    /// The share of its rate that a host sends, under DCTCP of data; only for patterns that go on.
    #[serde(default = "defaults::full")]
    pub load: Share,
    /// Of a `stream`: what each sender puts on its link. Of `poisson` with `from` and `to`: what `load` is a share
    /// of, for all senders together; the sum of their rates if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// A host begins its next message when it has received as many bytes as it has sent; only for `uniform` over
    /// lossless links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exchange: bool,
    /// When it begins.
    #[serde(default)]
    pub start: Duration,
    /// When no more packets are sent, or flows arrive; the run waits for the flows that arrived before. Never if left
    /// out. Only for patterns that go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
}

/// What brings packets to their destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Nothing: as fast as the NIC sends, never again.
    None,
    /// DCTCP.
    Dctcp,
}

/// `[transport]`: what all flows under DCTCP have in common.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSection {
    /// Bytes of data that a packet carries; 1,460 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
    /// Packets that a flow begins with; 10 if left out (RFC 6928).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// Retransmission timeouts; 10 ms at first and at least, as in the paper, if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto: Option<Timeouts>,
    /// A packet is lost once one that was sent so many later has arrived. If left out, 3 where a flow keeps its path and
    /// 64 where its packets take several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordering: Option<u16>,
}

/// The kinds of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Every host sends one message to another and receives one.
    Permutation,
    /// Without end: every host sends a message to one peer and receives from one, and then changes peers (random
    /// uniform injection, Canary §5.2).
    Uniform,
    /// Flows arrive as a Poisson process, each between two random hosts.
    Poisson,
    /// Each sender sends packets to one receiver at a fixed rate, whatever is lost.
    Stream,
}

mod defaults {
    use super::*;

    pub fn dtype() -> DType {
        DType::F32
    }
    pub fn op() -> ReduceOp {
        JobSection::OP
    }
    pub fn one() -> u32 {
        1
    }
    pub fn is_one(number: &u32) -> bool {
        *number == 1
    }
    pub fn elements() -> u16 {
        256
    }
    pub fn packet() -> Bytes {
        Bytes(1090)
    }
    pub fn full() -> Share {
        Share(1.0)
    }
}

macro_rules! named {
    ($($module:ident: $type:ident, $what:literal;)*) => {$(
        pub(super) mod $module {
            use super::*;

            pub fn serialize<S: Serializer>(value: &$type, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(value.name())
            }
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let name = String::deserialize(deserializer)?;
                $type::from_name(&name).ok_or_else(|| {
                    let names: Vec<&str> = $type::ALL.iter().map(|value| value.name()).collect();
                    let known = names.join(", ");
                    serde::de::Error::custom(format!("\"{name}\" is no {}: there are {known}", $what))
                })
            }
        }
    )*};
}

pub(super) mod protocol_name {
    use super::*;

    pub fn serialize<S: Serializer>(value: &&'static Protocol, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.name)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Protocol, D::Error> {
        let name = String::deserialize(deserializer)?;
        protocols::named(&name).ok_or_else(|| {
            let known = protocols::names().collect::<Vec<_>>().join(", ");
            serde::de::Error::custom(format!("\"{name}\" is no protocol: there are {known}"))
        })
    }
}

named! {
    dtype_name: DType, "element type";
    op_name: ReduceOp, "operator";
}
