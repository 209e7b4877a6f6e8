//! The network in the file.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::Span;

use super::lossless::{FULL_PACKET, LosslessKind, LosslessSection};
use super::shape::{
    ClosShape, DragonflyShape, DumbbellShape, GraphShape, GridShape, LeafSpineShape, LinkOverride, RailsShape, Shape,
    StarShape, TorusShape, mark_bytes,
};
use super::{Bytes, DataRate, Duration, Share};
use super::{ConfigError, invalid};
use crate::deadlock;
use crate::engine::Holds;
use crate::net::{CLASSES, Framing, LosslessSpec, Service, SharedBuffer};
use crate::routing::{Balancing, Table};
use crate::topology::{Graph, LinkSpec, Rate, Specs};

/// `[network]`: one shape, and the properties of all links and switches.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Hosts around one switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub star: Option<StarShape>,
    /// Two switches with a link between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dumbbell: Option<DumbbellShape>,
    /// A two-level fat tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf_spine: Option<LeafSpineShape>,
    /// A folded Clos network of three levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clos: Option<ClosShape>,
    /// A torus or a mesh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torus: Option<TorusShape>,
    /// Rows of switches that are all connected to each other, in every dimension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperx: Option<GridShape>,
    /// Groups of switches that are all connected to each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dragonfly: Option<DragonflyShape>,
    /// Pods in which accelerators of one number have a leaf of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rails: Option<RailsShape>,
    /// Any graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphShape>,
    /// Every link's rate.
    #[serde(default = "defaults::rate")]
    pub rate: DataRate,
    /// Every link's propagation delay.
    #[serde(default = "defaults::delay")]
    pub delay: Duration,
    /// The size of each output queue of a switch.
    #[serde(default = "defaults::queue")]
    pub queue: Bytes,
    /// The buffer that all output queues of a switch share, with dynamic thresholds; if left out, each queue has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_buffer: Option<Bytes>,
    /// How long a queue may be in a shared buffer, in times of what is free; 1 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_alpha: Option<f64>,
    /// Which class of packets an output port of a switch sends first; if left out, packets leave in the order in which they
    /// came. Each class has a queue of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Of a transport's packet that finds its queue full a switch sends the header on, in the highest class.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trim: bool,
    /// Switches begin to forward a packet when its head has come in, and not when all of it has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_through: bool,
    /// A packet is marked if it finds more than this in a queue; if left out, no packet is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_above: Option<Bytes>,
    /// All packets that find more than this are marked, and of those that find less a share that rises from `mark_above`
    /// on; as `mark_above` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_all_above: Option<Bytes>,
    /// Links between switches, where they differ.
    #[serde(default, skip_serializing_if = "LinkOverride::is_empty")]
    pub core: LinkOverride,
    /// How long a packet is in a switch before it reaches an output queue.
    #[serde(default)]
    pub switch_latency: Duration,
    /// The memory of each switch for jobs' machines; if left out, as much as they ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_memory: Option<Bytes>,
    /// How switches choose among equally short paths for packets of no job; as `routing` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_routing: Option<Routing>,
    /// How switches choose among equally short paths.
    #[serde(default)]
    pub routing: Routing,
    /// The pause that ends a flowlet.
    #[serde(default = "defaults::flowlet_gap")]
    pub flowlet_gap: Duration,
    /// Bytes that a packet has on a link besides its UDP payload.
    #[serde(default = "defaults::overhead")]
    pub overhead: Bytes,
    /// The least bytes of a packet on a link.
    #[serde(default = "defaults::shortest")]
    pub shortest: Bytes,
    /// How much a host's NIC takes in advance.
    #[serde(default = "defaults::nic_queue")]
    pub nic_queue: Bytes,
    /// PAUSE, which keeps queues from overflowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless: Option<LosslessSection>,
    /// Delays of packets at hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<NoiseSection>,
}

/// `noise`: operating system noise (Canary §5.2.5).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseSection {
    /// The probability for each packet that a host sends.
    pub probability: Share,
    /// How long a delay is.
    pub delay: Duration,
    /// What is delayed.
    #[serde(default, skip_serializing_if = "Holds::is_default")]
    pub holds: Holds,
}

/// How switches choose among equally short paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// By a hash of source, destination and flow.
    #[default]
    Ecmp,
    /// In turn, packet by packet.
    RoundRobin,
    /// At random, packet by packet.
    Random,
    /// At random, for each flowlet.
    Flowlet,
    /// The shortest queue, packet by packet.
    LeastQueued,
    /// The destination's own port unless its queue is more than half full, then the shortest (Canary §5.2).
    DefaultUnlessHalfFull,
    /// Dimension by dimension, the first one first.
    DimensionOrder,
    /// By a switch drawn at random, packet by packet (Valiant, 1982).
    Valiant,
}

pub(super) mod defaults {
    use super::*;

    pub fn rate() -> DataRate {
        DataRate(Rate(100_000_000_000))
    }
    pub fn delay() -> Duration {
        Duration(Span::from_micros(1))
    }
    pub fn queue() -> Bytes {
        Bytes(1 << 20)
    }
    pub fn flowlet_gap() -> Duration {
        Duration(Span::from_micros(50))
    }
    pub fn overhead() -> Bytes {
        Bytes(u64::from(Framing::ETHERNET.overhead))
    }
    pub fn shortest() -> Bytes {
        Bytes(u64::from(Framing::ETHERNET.minimum))
    }
    pub fn nic_queue() -> Bytes {
        Bytes(16 << 10)
    }
}

/// More nodes or links than this are probably a mistake.
const MAX_NODES: u64 = 1 << 21;
const MAX_LINKS: u64 = 1 << 24;

impl Network {
    /// The graph, checked.
    pub fn build(&self) -> Result<Graph, ConfigError> {
        let shape = self.shape()?;
        check_size(&shape)?;
        self.check_marks()?;
        self.check_routing(&shape)?;
        let specs = Specs { host: self.host_link(), core: self.core_link(), switch_latency: self.switch_latency.0 };
        let graph = shape.build(&specs)?;
        graph.check().map_err(|error| invalid(error.to_string()))?;
        self.check_deadlock(&shape, &graph)?;
        Ok(graph)
    }

    /// The bytes of a packet on a link besides its UDP payload.
    pub fn framing(&self) -> Result<Framing, ConfigError> {
        let fits = |bytes: Bytes, what: &str| match u16::try_from(bytes.0) {
            Ok(bytes) if bytes <= 1000 => Ok(bytes),
            _ => Err(invalid(format!("{what} = {} is too much framing: at most 1,000 bytes", bytes.0))),
        };
        Ok(Framing { overhead: fits(self.overhead, "overhead")?, minimum: fits(self.shortest, "shortest")? })
    }

    /// What keeps queues from overflowing.
    pub fn lossless(&self, graph: &Graph) -> Result<Option<LosslessSpec>, ConfigError> {
        self.lossless.as_ref().map(|section| section.spec(graph, self.switch_latency.0)).transpose()
    }

    /// True if PAUSE keeps queues from overflowing, and not credits.
    pub fn has_pause(&self) -> bool {
        self.lossless.is_some_and(|section| section.kind == LosslessKind::Pause)
    }

    /// The buffer that a switch's queues share.
    pub fn shared_buffer(&self) -> Result<Option<SharedBuffer>, ConfigError> {
        let Some(Bytes(bytes)) = self.shared_buffer else {
            return match self.shared_alpha {
                None => Ok(None),
                Some(_) => Err(invalid("shared_alpha is for switches with a shared_buffer")),
            };
        };
        let alpha = self.shared_alpha.unwrap_or(1.0);
        if self.lossless.is_some() {
            return Err(invalid(
                "shared_buffer drops what is beyond its thresholds, and lossless switches drop nothing: leave one of the \
                 two out",
            ));
        }
        if bytes < FULL_PACKET || !(alpha > 0.0 && alpha <= 1e6) {
            return Err(invalid(format!(
                "shared_buffer holds at least a packet of {FULL_PACKET} bytes, and shared_alpha is above 0 and at most \
                 1,000,000"
            )));
        }
        Ok(Some(SharedBuffer { bytes, alpha }))
    }

    /// Whether switches trim packets.
    pub fn trim(&self) -> Result<bool, ConfigError> {
        match self.trim && self.service != Some(Service::Strict) {
            _ if self.trim && self.lossless.is_some() => {
                Err(invalid("trim: lossless switches drop nothing: leave it out"))
            }
            true => Err(invalid("trim: the headers of trimmed packets overtake data: set service = \"strict\"")),
            false => Ok(self.trim),
        }
    }

    /// Whether switches cut through.
    pub fn cut_through(&self) -> Result<bool, ConfigError> {
        match self.cut_through && self.lossless.is_some() {
            true => Err(invalid(
                "cut_through: PAUSE and credits count packets that have come in as a whole: leave cut_through or lossless out",
            )),
            false => Ok(self.cut_through),
        }
    }

    /// Which class of packets switches send first.
    pub fn service(&self) -> Result<Option<Service>, ConfigError> {
        if let Some(Service::Weights(weights)) = &self.service
            && (!(2..=CLASSES).contains(&weights.len()) || weights.iter().any(|weight| !(1..=1000).contains(weight)))
        {
            return Err(invalid(format!("service: weights are 2 to {CLASSES} numbers of 1 to 1,000, class 0 first")));
        }
        if self.service.is_some() && self.lossless.is_some_and(|section| section.kind == LosslessKind::Credits) {
            return Err(invalid("service: channels have credits, and no classes: leave service out, or take PAUSE"));
        }
        Ok(self.service.clone())
    }

    /// How switches choose among paths: for jobs' packets, and for others'.
    pub fn balancing(&self) -> [Balancing; 2] {
        [self.routing, self.background_routing.unwrap_or(self.routing)].map(|routing| match routing {
            Routing::Ecmp => Balancing::Ecmp,
            Routing::RoundRobin => Balancing::RoundRobin,
            Routing::Random => Balancing::Random,
            Routing::Flowlet => Balancing::Flowlet { gap: self.flowlet_gap.0 },
            Routing::LeastQueued => Balancing::LeastQueued,
            Routing::DefaultUnlessHalfFull => Balancing::DefaultUnlessHalfFull,
            Routing::DimensionOrder => Balancing::DimensionOrder,
            Routing::Valiant => Balancing::Valiant,
        })
    }

    fn host_link(&self) -> LinkSpec {
        LinkSpec {
            rate: self.rate.0,
            delay: self.delay.0,
            queue_bytes: self.queue.0,
            mark_bytes: mark_bytes(self.mark_above, self.mark_all_above),
        }
    }

    fn core_link(&self) -> LinkSpec {
        let (mark_above, mark_all_above) = self.core_marks();
        LinkSpec { mark_bytes: mark_bytes(mark_above, mark_all_above), ..self.core.over(self.host_link()) }
    }

    fn core_marks(&self) -> (Option<Bytes>, Option<Bytes>) {
        (self.core.mark_above.or(self.mark_above), self.core.mark_all_above.or(self.mark_all_above))
    }

    fn check_marks(&self) -> Result<(), ConfigError> {
        for (least, all) in [(self.mark_above, self.mark_all_above), self.core_marks()] {
            match (least, all) {
                (None, Some(_)) => return Err(invalid("mark_all_above is for queues with mark_above")),
                (Some(least), Some(all)) if all.0 < least.0 => {
                    return Err(invalid(format!(
                        "mark_all_above = {all}: it is at least mark_above, which is {least}"
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses what a shape has no use for.
    fn check_routing(&self, shape: &Shape) -> Result<(), ConfigError> {
        for routing in [self.routing, self.background_routing.unwrap_or(self.routing)] {
            match routing {
                Routing::DimensionOrder if !matches!(shape, Shape::Torus(_) | Shape::Hyperx(_)) => {
                    return Err(invalid(
                        "routing = \"dimension_order\" is for torus and hyperx, which have dimensions",
                    ));
                }
                Routing::Valiant if !shape.is_direct() => {
                    return Err(invalid(
                        "routing = \"valiant\" is for torus, hyperx, dragonfly and graph: in other shapes a detour by a random \
                         switch leads nowhere that shortest paths do not",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses PAUSE where ports could wait for each other in a circle. An arbitrary graph is its author's own.
    fn check_deadlock(&self, shape: &Shape, graph: &Graph) -> Result<(), ConfigError> {
        if self.lossless.is_none() || matches!(shape, Shape::Graph(_)) || !shape.is_direct() {
            return Ok(());
        }
        let table = Table::new(graph, |_| true);
        let Some(cycle) = deadlock::cycle(graph, &table, &self.balancing()) else { return Ok(()) };
        let shown: Vec<String> = cycle.iter().take(4).map(|&link| graph.name(graph.ends(link).0)).collect();
        let more = if cycle.len() > shown.len() { ", ..." } else { "" };
        Err(invalid(format!(
            "lossless: links can PAUSE each other in a circle ({}{more}) and stand still for good; under PAUSE take a mesh (torus \
             with wrap = false) or a hyperx, with routing = \"dimension_order\"",
            shown.join(", ")
        )))
    }
}

/// Refuses a network that would take all memory, before it is built.
fn check_size(shape: &Shape) -> Result<(), ConfigError> {
    let (nodes, links) = shape.size()?;
    if nodes > MAX_NODES || links > MAX_LINKS {
        return Err(invalid(format!(
            "a network of {nodes} nodes and {links} links is more than this program takes: at most {MAX_NODES} and \
             {MAX_LINKS}"
        )));
    }
    Ok(())
}
