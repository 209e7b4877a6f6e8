//! Nodes, hosts and links by name: `"host 3"`, `"spine 0"`, `"50 %"` of the hosts, `"core"` links.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tributary_proto::contract::ids::NodeId;

use super::Share;
use super::{ConfigError, invalid};
use crate::topology::Graph;

/// Hosts in the file: a number, a share, a list, `"all"` or `"rest"`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Hosts {
    /// A number of hosts.
    Count(u32),
    /// A share of all hosts.
    Share(Share),
    /// These hosts.
    List(Vec<u32>),
    /// All hosts.
    All,
    /// All hosts that no earlier job or traffic uses.
    #[default]
    Rest,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "expected hosts: a number, a share as in \"50 %\", a list, \"all\" or \"rest\"")]
enum WrittenHosts {
    Count(u32),
    List(Vec<u32>),
    Text(String),
}

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Hosts, D::Error> {
        match WrittenHosts::deserialize(deserializer)? {
            WrittenHosts::Count(count) => Ok(Hosts::Count(count)),
            WrittenHosts::List(list) => Ok(Hosts::List(list)),
            WrittenHosts::Text(text) => match text.as_str() {
                "all" => Ok(Hosts::All),
                "rest" => Ok(Hosts::Rest),
                share => share.parse().map(Hosts::Share).map_err(|_| {
                    serde::de::Error::custom(format!(
                        "\"{share}\" names no hosts: write a number, a share as in \"50 %\", a list, \"all\" or \"rest\""
                    ))
                }),
            },
        }
    }
}

impl Serialize for Hosts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Hosts::Count(count) => WrittenHosts::Count(*count),
            Hosts::List(list) => WrittenHosts::List(list.clone()),
            Hosts::Share(share) => WrittenHosts::Text(share.to_string()),
            Hosts::All => WrittenHosts::Text("all".into()),
            Hosts::Rest => WrittenHosts::Text("rest".into()),
        }
        .serialize(serializer)
    }
}

/// Which hosts a number or a share means: hosts that no earlier section uses, or any hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Drawn at random; ranks in random order too.
    #[default]
    Random,
    /// The first hosts, which are side by side.
    Packed,
    /// Drawn at random from all hosts, also those that other sections use.
    Shared,
}

/// A node in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum NodeName {
    /// A host.
    Host(u32),
    /// A switch.
    Switch(u32),
    /// A switch of one tier, counted from 0 in the tier.
    Of(Tier, u32),
}

/// The switches of one level, in shapes whose levels have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// A switch with hosts, in a leaf-spine network.
    Leaf,
    /// A switch above the leaves.
    Spine,
    /// A switch with hosts, in a Clos network.
    Edge,
    /// A switch above a pod's edge switches.
    Aggregation,
    /// A switch at the top of a Clos network.
    Core,
}

impl Tier {
    const ALL: [Tier; 5] = [Tier::Leaf, Tier::Spine, Tier::Edge, Tier::Aggregation, Tier::Core];

    const fn name(self) -> &'static str {
        match self {
            Tier::Leaf => "leaf",
            Tier::Spine => "spine",
            Tier::Edge => "edge",
            Tier::Aggregation => "aggregation",
            Tier::Core => "core",
        }
    }

    /// The shape that has this tier.
    const fn shape(self) -> &'static str {
        match self {
            Tier::Leaf | Tier::Spine => "leaf_spine or rails",
            Tier::Edge | Tier::Aggregation | Tier::Core => "clos",
        }
    }
}

impl TryFrom<String> for NodeName {
    type Error = String;
    fn try_from(text: String) -> Result<NodeName, String> {
        let parsed = text.split_once(' ').and_then(|(kind, number)| {
            let number = number.trim().parse().ok()?;
            match kind {
                "host" => Some(NodeName::Host(number)),
                "switch" => Some(NodeName::Switch(number)),
                _ => Tier::ALL.into_iter().find(|tier| tier.name() == kind).map(|tier| NodeName::Of(tier, number)),
            }
        });
        parsed.ok_or_else(|| {
            let tiers = Tier::ALL.map(|tier| format!("\"{} 0\"", tier.name())).join(", ");
            format!("\"{text}\" is not a node: write \"host 3\", \"switch 0\", or where the shape has such {tiers}")
        })
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> String {
        match name {
            NodeName::Host(number) => format!("host {number}"),
            NodeName::Switch(number) => format!("switch {number}"),
            NodeName::Of(tier, number) => format!("{} {number}", tier.name()),
        }
    }
}

impl NodeName {
    /// True if it names a host.
    pub fn is_host(self) -> bool {
        matches!(self, NodeName::Host(_))
    }

    /// The node of a graph that it names.
    pub fn node(self, graph: &Graph) -> Result<NodeId, ConfigError> {
        let missing = |count: usize, kind: &str| {
            invalid(format!("{} does not exist: there are {count} {kind}, from 0", String::from(self)))
        };
        match self {
            NodeName::Host(number) if number < graph.hosts() => Ok(NodeId(number)),
            NodeName::Host(_) => Err(missing(graph.hosts() as usize, "hosts")),
            NodeName::Switch(number) if number < graph.switches() => Ok(graph.switch(number)),
            NodeName::Switch(_) => Err(missing(graph.switches() as usize, "switches")),
            NodeName::Of(tier, number) => {
                let switches = graph.tier(tier.name()).ok_or_else(|| {
                    let text = String::from(self);
                    invalid(format!("\"{text}\" is not a node here: only the shape {} has such switches", tier.shape()))
                })?;
                let found = switches.get(number as usize);
                found.copied().ok_or_else(|| missing(switches.len(), "of them"))
            }
        }
    }
}

/// A switch in the file: its number, or its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a switch: its number, or a name as in \"spine 0\"")]
pub enum SwitchName {
    /// A number, counted from 0 over all switches.
    Number(u32),
    /// A name.
    Name(NodeName),
}

impl SwitchName {
    /// Its number among the switches of a graph.
    pub fn switch(self, graph: &Graph) -> Result<u32, ConfigError> {
        let name = match self {
            SwitchName::Number(number) => NodeName::Switch(number),
            SwitchName::Name(name) => name,
        };
        let text = String::from(name);
        graph.switch_index(name.node(graph)?).ok_or_else(|| invalid(format!("{text} is not a switch")))
    }
}

/// Links in the file: all of them, those of hosts, those between switches, or some by their ends.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "expected links: \"all\", \"hosts\", \"core\", or pairs as in [[\"host 0\", \"switch 1\"]]"
)]
pub enum Links {
    /// A named set.
    Set(LinkSet),
    /// Links by their ends.
    Between(Vec<[NodeName; 2]>),
}

/// Sets of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSet {
    /// All links.
    All,
    /// Links that end at a host.
    Hosts,
    /// Links between switches.
    Core,
}
