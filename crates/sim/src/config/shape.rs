//! The shapes that a network may have in the file.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Span;

use super::names::NodeName;
use super::{Bytes, DataRate, Duration};
use super::{ConfigError, invalid};
use crate::topology::{Clos, Graph, LinkSpec, MarkBytes};

/// `[network.star]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StarShape {
    /// Hosts.
    pub hosts: u32,
}

/// `[network.dumbbell]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DumbbellShape {
    /// Hosts on one side, numbered from 0.
    pub left: u32,
    /// Hosts on the other side.
    pub right: u32,
}

/// `[network.leaf_spine]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LeafSpineShape {
    /// Switches with hosts.
    pub leaves: u32,
    /// Switches above them, each connected to every leaf.
    pub spines: u32,
    /// Hosts on each leaf.
    pub hosts_per_leaf: u32,
}

/// `[network.clos]`: `ports = k` for the fat tree of k-port switches, or all the numbers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClosShape {
    /// The fat tree of switches with this many ports (Al-Fares et al., 2008).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<u32>,
    /// Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<u32>,
    /// Edge switches of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges: Option<u32>,
    /// Aggregation switches of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregations: Option<u32>,
    /// Core switches above each aggregation switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Hosts on each edge switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts_per_edge: Option<u32>,
}

/// `[network.graph]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GraphShape {
    /// Hosts.
    pub hosts: u32,
    /// Switches.
    pub switches: u32,
    /// Cables.
    #[serde(rename = "link")]
    pub links: Vec<GraphLink>,
}

impl ClosShape {
    pub(super) fn dimensions(&self) -> Result<Clos, ConfigError> {
        match *self {
            ClosShape {
                ports: Some(k),
                pods: None,
                edges: None,
                aggregations: None,
                cores: None,
                hosts_per_edge: None,
            } => {
                if k < 2 || !k.is_multiple_of(2) {
                    return Err(invalid(format!(
                        "ports = {k}: a fat tree needs switches with an even number of ports"
                    )));
                }
                Ok(Clos::fat_tree(k))
            }
            ClosShape {
                ports: None,
                pods: Some(pods),
                edges: Some(edges),
                aggregations: Some(aggregations),
                cores: Some(cores),
                hosts_per_edge: Some(hosts_per_edge),
            } => Ok(Clos { pods, edges, aggregations, cores, hosts_per_edge }),
            _ => Err(invalid(
                "[network.clos] needs either ports, or pods, edges, aggregations, cores and hosts_per_edge",
            )),
        }
    }
}

impl GraphShape {
    pub(super) fn build(&self, host: LinkSpec, core: LinkSpec, latency: Span) -> Result<Graph, ConfigError> {
        let mut graph = Graph::new(self.hosts, vec![1; self.switches as usize], latency);
        for link in &self.links {
            let [a, b] = link.between;
            let base = if a.is_host() || b.is_host() { host } else { core };
            let GraphLink { rate, delay, queue, mark_above, .. } = *link;
            let spec = LinkOverride { rate, delay, queue, ..LinkOverride::default() }.over(base);
            let spec = LinkSpec { mark_bytes: mark_bytes(mark_above, None).or(spec.mark_bytes), ..spec };
            let (a, b) = (a.node(&graph)?, b.node(&graph)?);
            graph.connect(a, b, spec);
        }
        graph.set_levels_by_distance();
        Ok(graph)
    }
}

/// `[[network.graph.link]]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GraphLink {
    /// The ends: `["host 0", "switch 1"]`.
    pub between: [NodeName; 2],
    /// Rate, if not the network's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// Delay, if not the network's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Output queues, if not the network's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Bytes>,
    /// All packets that find more than this in its queues are marked; as the network says if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_above: Option<Bytes>,
}

/// Marking from some bytes on, and of all packets from others on, if they differ.
pub(super) fn mark_bytes(from: Option<Bytes>, all: Option<Bytes>) -> Option<MarkBytes> {
    from.map(|from| MarkBytes { mark_above: from.0, mark_all_above: all.unwrap_or(from).0 })
}

/// `[network.core]`: the properties in which links between switches differ from those of hosts.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkOverride {
    /// Rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// Propagation delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Output queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Bytes>,
    /// Where marks begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_above: Option<Bytes>,
    /// Where everything is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_all_above: Option<Bytes>,
}

impl LinkOverride {
    pub(super) fn is_empty(&self) -> bool {
        *self == LinkOverride::default()
    }

    /// A link with the properties of `base` that are not overridden; marks are set separately.
    pub(super) fn over(&self, base: LinkSpec) -> LinkSpec {
        LinkSpec {
            rate: self.rate.map_or(base.rate, |rate| rate.0),
            delay: self.delay.map_or(base.delay, |delay| delay.0),
            queue_bytes: self.queue.map_or(base.queue_bytes, |bytes| bytes.0),
            ..base
        }
    }
}
