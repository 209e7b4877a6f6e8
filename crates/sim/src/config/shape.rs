//! The shapes that a network may have in the file.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Span;

use super::names::NodeName;
use super::{Bytes, ConfigError, DataRate, Duration, Network, invalid};
use crate::topology::{
    Clos, Dragonfly, Graph, Grid, LinkSpec, MarkBytes, Rails, Specs, dumbbell, join_next_leaves, leaf_spine, star,
};

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
    /// Cables of each host: one to its leaf, the others to the next leaves of a group of as many.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nics: u32,
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
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

/// `[network.torus]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TorusShape {
    /// Switches in each dimension.
    pub size: Vec<u32>,
    /// Hosts of each switch.
    pub hosts_per_switch: u32,
    /// Whether rows close to rings; without it this is a mesh.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub wrap: bool,
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// `[network.hyperx]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GridShape {
    /// Switches in each dimension.
    pub size: Vec<u32>,
    /// Hosts of each switch.
    pub hosts_per_switch: u32,
}

/// `[network.dragonfly]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DragonflyShape {
    /// Groups.
    pub groups: u32,
    /// Switches of a group.
    pub switches: u32,
    /// Cables of each switch to other groups.
    pub global: u32,
    /// Hosts of each switch.
    pub hosts_per_switch: u32,
}

/// `[network.rails]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RailsShape {
    /// Pods.
    pub pods: u32,
    /// Servers of a pod.
    pub servers: u32,
    /// Hosts of a server: its accelerators, each with a NIC.
    pub rails: u32,
    /// Switches above the rails, each connected to every rail of every pod.
    pub spines: u32,
}

/// The shape that a file has chosen.
pub(super) enum Shape<'a> {
    Star(&'a StarShape),
    Dumbbell(&'a DumbbellShape),
    LeafSpine(&'a LeafSpineShape),
    Clos(Clos),
    Torus(&'a TorusShape),
    Hyperx(&'a GridShape),
    Dragonfly(Dragonfly),
    Rails(&'a RailsShape),
    Graph(&'a GraphShape),
}

impl Network {
    pub(super) fn shape(&self) -> Result<Shape<'_>, ConfigError> {
        let clos = self.clos.as_ref().map(ClosShape::dimensions).transpose()?;
        let dragonfly = self.dragonfly.as_ref().map(DragonflyShape::dimensions).transpose()?;
        let shapes = [
            self.star.as_ref().map(Shape::Star),
            self.dumbbell.as_ref().map(Shape::Dumbbell),
            self.leaf_spine.as_ref().map(Shape::LeafSpine),
            clos.map(Shape::Clos),
            self.torus.as_ref().map(Shape::Torus),
            self.hyperx.as_ref().map(Shape::Hyperx),
            dragonfly.map(Shape::Dragonfly),
            self.rails.as_ref().map(Shape::Rails),
            self.graph.as_ref().map(Shape::Graph),
        ];
        let mut chosen = shapes.into_iter().flatten();
        match (chosen.next(), chosen.next()) {
            (Some(shape), None) => Ok(shape),
            _ => Err(invalid(
                "the network needs exactly one shape: [network.star], [network.dumbbell], [network.leaf_spine], \
                 [network.clos], [network.torus], [network.hyperx], [network.dragonfly], [network.rails] or \
                 [network.graph]",
            )),
        }
    }
}

impl Shape<'_> {
    /// True if paths may be longer than the shortest ones and gain by it.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self, Shape::Torus(_) | Shape::Hyperx(_) | Shape::Dragonfly(_) | Shape::Graph(_))
    }

    /// Nodes and links, without building them; at most `u64::MAX`.
    pub(super) fn size(&self) -> Result<(u64, u64), ConfigError> {
        let product = |factors: &[u32]| factors.iter().fold(1u64, |product, &n| product.saturating_mul(n.into()));
        let sum = |terms: &[u64]| terms.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
        // Switches with hosts, and this many cables of a switch to others, each of which two switches share.
        let direct = |switches: u64, hosts_per_switch: u32, cables: u64| {
            let hosts = switches.saturating_mul(hosts_per_switch.into());
            (sum(&[hosts, switches]), sum(&[hosts, switches.saturating_mul(cables)]))
        };
        Ok(match *self {
            Shape::Star(shape) => (u64::from(shape.hosts), u64::from(shape.hosts)),
            Shape::Dumbbell(shape) => {
                let hosts = u64::from(shape.left) + u64::from(shape.right);
                (hosts, hosts)
            }
            Shape::LeafSpine(&LeafSpineShape { leaves, spines, hosts_per_leaf, nics }) => {
                if nics == 0 || !leaves.is_multiple_of(nics) {
                    return Err(invalid(format!(
                        "nics = {nics}: leaves = {leaves} must be a multiple, because a host is on that many leaves"
                    )));
                }
                let hosts = product(&[leaves, hosts_per_leaf]);
                let cables = [product(&[leaves, hosts_per_leaf, nics]), product(&[leaves, spines])];
                (sum(&[hosts, leaves.into(), spines.into()]), sum(&cables))
            }
            Shape::Clos(Clos { pods, edges, aggregations, cores, hosts_per_edge }) => {
                let hosts = product(&[pods, edges, hosts_per_edge]);
                let cables = [product(&[pods, edges, aggregations]), product(&[pods, aggregations, cores])];
                (hosts, sum(&[hosts, sum(&cables)]))
            }
            Shape::Torus(TorusShape { size, hosts_per_switch, .. }) => {
                direct(grid(size)?, *hosts_per_switch, size.len() as u64)
            }
            Shape::Hyperx(GridShape { size, hosts_per_switch }) => {
                direct(grid(size)?, *hosts_per_switch, size.iter().map(|&size| u64::from(size)).sum())
            }
            Shape::Dragonfly(Dragonfly { groups, switches, global, hosts_per_switch }) => {
                direct(product(&[groups, switches]), hosts_per_switch, sum(&[switches.into(), global.into()]))
            }
            Shape::Rails(&RailsShape { pods, servers, rails, spines }) => {
                let (hosts, leaves) = (product(&[pods, servers, rails]), product(&[pods, rails]));
                (sum(&[hosts, leaves, spines.into()]), sum(&[hosts, leaves.saturating_mul(spines.into())]))
            }
            Shape::Graph(shape) => (u64::from(shape.hosts) + u64::from(shape.switches), shape.links.len() as u64),
        })
    }

    /// The graph, whose size is known to be possible.
    pub(super) fn build(&self, specs: &Specs) -> Result<Graph, ConfigError> {
        let Specs { host, core, switch_latency: latency } = *specs;
        Ok(match *self {
            Shape::Star(shape) => star(shape.hosts, host, latency),
            Shape::Dumbbell(shape) => dumbbell(shape.left, shape.right, host, core, latency),
            Shape::LeafSpine(&LeafSpineShape { leaves, spines, hosts_per_leaf, nics }) => {
                let mut graph = leaf_spine(leaves, spines, hosts_per_leaf, host, core, latency);
                join_next_leaves(&mut graph, hosts_per_leaf, nics, host);
                graph
            }
            Shape::Clos(clos) => clos.graph(host, core, core, latency),
            Shape::Torus(shape) => Grid(&shape.size).torus(shape.hosts_per_switch, shape.wrap, specs),
            Shape::Hyperx(shape) => Grid(&shape.size).hyperx(shape.hosts_per_switch, specs),
            Shape::Dragonfly(dragonfly) => dragonfly.graph(specs),
            Shape::Rails(&RailsShape { pods, servers, rails, spines }) => {
                Rails { pods, servers, rails, spines }.graph(specs)
            }
            Shape::Graph(shape) => shape.build(host, core, latency)?,
        })
    }
}

/// The number of switches of a grid; an error if it has no dimension, or one of nothing.
fn grid(size: &[u32]) -> Result<u64, ConfigError> {
    if size.is_empty() || size.len() > 6 || size.contains(&0) {
        return Err(invalid(format!(
            "size = {size:?}: a torus or hyperx has 1 to 6 dimensions of at least one switch"
        )));
    }
    Ok(size.iter().fold(1, |product: u64, &n| product.saturating_mul(n.into())))
}

impl DragonflyShape {
    fn dimensions(&self) -> Result<Dragonfly, ConfigError> {
        let DragonflyShape { groups, switches, global, hosts_per_switch } = *self;
        let shape = Dragonfly { groups, switches, global, hosts_per_switch };
        match shape.cables_between_groups() {
            Some(_) => Ok(shape),
            None => Err(invalid(format!(
                "dragonfly: {switches} switches with {global} cables to other groups each cannot have the same number to each \
                 of the others of {groups} groups; {} groups have one cable between any two",
                u64::from(switches) * u64::from(global) + 1
            ))),
        }
    }
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
