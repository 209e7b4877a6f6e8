//! `[[job]]`: jobs in the file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tributary_control::config::OptionTable;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::TimerConfig;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;
use tributary_proto::protocols;

use super::names::{Hosts, Placement, SwitchName};
use super::{Bytes, Duration, Share};
use crate::engine::{Data, Magnitudes};

/// `[[job]]`: ranks that reduce together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSection {
    /// The name in reports; "job 0" and so on if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many equal jobs this is, each on hosts of its own.
    #[serde(default = "defaults::one", skip_serializing_if = "defaults::is_one")]
    pub count: u32,
    /// The protocol with which it reduces.
    #[serde(with = "protocol_name")]
    pub protocol: &'static Protocol,
    /// The class of its packets at switches with a [`service`](super::Network::service).
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub priority: u8,
    /// The hosts of its ranks.
    #[serde(default)]
    pub hosts: Hosts,
    /// Which hosts a number or a share of them means.
    #[serde(default)]
    pub placement: Placement,
    /// How many of its ranks each of its hosts has; they sum in the host's memory.
    #[serde(default = "defaults::one_rank", skip_serializing_if = "defaults::is_one_rank")]
    pub ranks_per_host: u16,
    /// The kind of its collectives.
    #[serde(default)]
    pub collective: CollectiveKind,
    /// The rank that a reduce is for or a broadcast is from; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<u16>,
    /// The tensor of each collective.
    pub tensor: Bytes,
    /// The share of the tensor's elements that each rank contributes, drawn for each rank: the tensors are sparse. If
    /// left out, tensors are dense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density: Option<Share>,
    /// A file with the indices of each rank's elements, which are then not drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indices: Option<PathBuf>,
    /// The type of its elements.
    #[serde(default = "defaults::dtype", with = "dtype_name", rename = "type")]
    pub dtype: DType,
    /// The operator.
    #[serde(default = "defaults::op", with = "op_name")]
    pub op: ReduceOp,
    /// A custom operator, instead of `op`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorSource>,
    /// The data of ranks, in a job with a custom operator.
    #[serde(default, skip_serializing_if = "Data::is_fingerprints")]
    pub data: Data,
    /// The magnitudes of floats, in a job without a custom operator.
    #[serde(default, skip_serializing_if = "Magnitudes::is_steady")]
    pub magnitudes: Magnitudes,
    /// How many collectives run, one after the other.
    #[serde(default = "defaults::one")]
    pub iterations: u32,
    /// When the ranks submit the first one.
    #[serde(default)]
    pub start: Duration,
    /// How long each rank computes between two collectives.
    #[serde(default)]
    pub compute: Duration,
    /// The protocol's options by name; options left out have their defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: OptionTable,
    /// Elements of a packet.
    #[serde(default = "defaults::elements")]
    pub elements_per_packet: u16,
    /// The pool over all trees; if left out, as large as the bandwidth-delay product needs (SwitchML, appendix C).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    /// The aggregation trees over which blocks are spread; one if left out, for a protocol with planned trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// The switches at the roots of the trees; if left out, `root_choice` decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<SwitchName>>,
    /// How roots are chosen that the file does not name.
    #[serde(default, skip_serializing_if = "RootChoice::is_random")]
    pub root_choice: RootChoice,
    /// Hosts that sum instead of switches, for a protocol with servers; one beside each rank if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<ParameterServers>,
    /// How the ranks' own hosts sum beside the servers; servers sum all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Ranks that are late for every collective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stragglers: Option<StragglerSection>,
    /// Retransmission timeouts.
    #[serde(default)]
    pub rto: Timeouts,
    /// A collective fails after this time; if left out, after a second, or after 100 times what its tensor takes on
    /// the slowest link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

impl JobSection {
    /// The operator of a job that names none.
    pub const OP: ReduceOp = ReduceOp::Sum;

    /// Each of its equal jobs. If it has a name, each has that with its number.
    pub(super) fn each(self) -> impl Iterator<Item = JobSection> {
        let count = self.count;
        (0..count).map(move |number| {
            let name = self.name.clone().map(|name| if count == 1 { name } else { format!("{name} {number}") });
            JobSection { name, count: 1, ..self.clone() }
        })
    }
}

/// How the roots of a job's trees are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RootChoice {
    /// At random from the highest level, as in papers that do not say how.
    #[default]
    Random,
    /// As a fabric's controller chooses: the lowest switches that connect all ranks, and of these the least loaded first.
    LeastLoaded,
}

impl RootChoice {
    fn is_random(&self) -> bool {
        *self == RootChoice::Random
    }
}

/// The source of a custom operator.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected a file, the name of an operator that comes along, an expression, or { expression, element }"
)]
pub enum OperatorSource {
    /// A file, the name of a ready-made operator, or an expression over elements of the job's type.
    Text(String),
    /// An expression, and the kind of its elements.
    Expression(ExpressionSource),
}

/// `operator = { expression, element }`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpressionSource {
    /// A line for each field of the result, or a single expression.
    pub expression: String,
    /// The kind of elements, as in `v:f32,i:i32`.
    pub element: String,
}

/// The hosts of parameter servers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected \"colocated\", or hosts: a number, a share, a list, \"all\" or \"rest\"")]
pub enum ParameterServers {
    /// A word.
    Word(ServerWord),
    /// Servers on dedicated hosts.
    Dedicated(Hosts),
}

/// Words for the hosts of parameter servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerWord {
    /// One server beside each rank.
    Colocated,
}

/// `shares`: how the ranks' own hosts sum beside the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shares {
    /// Each host sums the share that its link allows.
    Planned,
}

/// `stragglers`: ranks that are late for every collective.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StragglerSection {
    /// The late ranks: a number of them, a share, or a list.
    pub ranks: Hosts,
    /// How late they are.
    pub late: Duration,
}

/// `collective`: the kind of a job's collectives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveKind {
    /// All ranks contribute, and all get the sum.
    #[default]
    Allreduce,
    /// All ranks contribute, and one gets the sum.
    Reduce,
    /// All ranks get one rank's data.
    Broadcast,
    /// All ranks wait for all others.
    Barrier,
}

/// `rto`: the retransmission timeout before a round trip was measured, and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// The timeout before a round trip was measured.
    pub initial: Duration,
    /// The least timeout.
    pub min: Duration,
    /// The greatest timeout.
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
    /// The timers in the form that machines take.
    pub fn timers(&self) -> TimerConfig {
        TimerConfig { initial_rto: self.initial.0, min_rto: self.min.0, max_rto: self.max.0 }
    }
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
    pub fn is_zero(priority: &u8) -> bool {
        *priority == 0
    }
    pub fn one_rank() -> u16 {
        1
    }
    pub fn is_one_rank(number: &u16) -> bool {
        *number == 1
    }
    pub fn elements() -> u16 {
        256
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
                    serde::de::Error::custom(format!("\"{name}\" is not an {}: there are {known}", $what))
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
            serde::de::Error::custom(format!("\"{name}\" is not a protocol: there are {known}"))
        })
    }
}

named! {
    dtype_name: DType, "element type";
    op_name: ReduceOp, "operator";
}
