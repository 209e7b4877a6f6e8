//! `[[traffic]]` and `[transport]`: the traffic beside jobs in the file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::job::Timeouts;
use super::names::{Hosts, NodeName, Placement};
use super::{Bytes, DataRate, Duration, Share};
use crate::transport::{Recovery, Spray};
use crate::workload::FlowSizes;

/// `[[traffic]]`: other traffic on the network.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrafficSection {
    /// The kind of traffic.
    pub pattern: Pattern,
    /// The hosts that take part.
    #[serde(default)]
    pub hosts: Hosts,
    /// Which hosts a number or a share of them means.
    #[serde(default)]
    pub placement: Placement,
    /// The senders, if they are not all of `hosts`: for `poisson`, `incast` and `stream`, instead of `hosts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Hosts>,
    /// The receivers, with `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Hosts>,
    /// The transport; flows that arrive at random always use DCTCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// The transport's properties for this pattern's flows; what is left out is as in `[transport]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_settings: Option<TransportSection>,
    /// Bytes of a message: with framing or, under DCTCP, of data alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Bytes>,
    /// The distribution of sizes of flows that arrive at random; without it all have the size of `message`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
    /// The flows of a `list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Flows>,
    /// The senders that answer a query of an `incast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan_in: Option<u32>,
    /// The time from a query of an `incast` to the next; if left out, there is one query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// Sizes of flows from `sizes` are divided by this.
    #[serde(default = "defaults::one", skip_serializing_if = "defaults::is_one")]
    pub scale: u32,
    /// Flows of `sizes` are sent only if they have at least the first and fewer than the second number of bytes, before
    /// the division; others are drawn and not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<[Bytes; 2]>,
    /// Bytes of a packet on a link, with framing; not under DCTCP.
    #[serde(default = "defaults::packet")]
    pub packet: Bytes,
    /// The share of its rate that a host sends, under DCTCP of data; only for patterns without end.
    #[serde(default = "defaults::full")]
    pub load: Share,
    /// For `stream`, the rate of each sender on its link. For `poisson`, the total that `load` is a share of, as the
    /// rate of the links between racks; if left out, the sum of the senders' rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// A host begins its next message when it has received as many bytes as it has sent; only for `uniform` on lossless
    /// links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exchange: bool,
    /// A `stream` sends in bursts, and is silent between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstsSection>,
    /// Of the flows in a file, those with this in their column `class`; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// When it begins.
    #[serde(default)]
    pub start: Duration,
    /// When packets or flows end; the run waits for flows that arrived before. If left out, they never end. Only for
    /// patterns without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
}

impl TrafficSection {
    /// Traffic of this pattern, with the keys that the file may leave out left out.
    pub fn new(pattern: Pattern) -> TrafficSection {
        TrafficSection {
            pattern,
            hosts: Hosts::default(),
            placement: Placement::default(),
            from: None,
            to: None,
            transport: None,
            transport_settings: None,
            message: None,
            sizes: None,
            flows: None,
            fan_in: None,
            every: None,
            scale: defaults::one(),
            between: None,
            packet: defaults::packet(),
            load: defaults::full(),
            rate: None,
            exchange: false,
            bursts: None,
            class: None,
            start: Duration::default(),
            until: None,
        }
    }
}

/// `bursts`: how long a stream sends, and how long it is silent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BurstsSection {
    /// How long a burst lasts.
    pub on: Duration,
    /// From a burst to the next.
    pub off: Duration,
    /// What these times are.
    #[serde(default)]
    pub times: BurstTimes,
}

/// Whether bursts are all equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BurstTimes {
    /// Each time is drawn from an exponential distribution with this mean, for each sender by itself.
    #[default]
    Exponential,
    /// All times are equal, and those of all senders begin together.
    Fixed,
}

/// A distribution of flows' sizes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Sizes {
    /// A published one.
    Published(FlowSizes),
    /// A file of two columns: bytes, and the share of flows that have no more.
    File(PathBuf),
}

/// The flows of a `list`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected flows: a file, or a list of { from, to, bytes, at }")]
pub enum Flows {
    /// A file in CSV, as the table `flows` of a report.
    File(PathBuf),
    /// The flows themselves.
    Here(Vec<OneFlow>),
}

/// One flow of a `list`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OneFlow {
    /// The host that sends.
    pub from: NodeName,
    /// The host that receives.
    pub to: NodeName,
    /// Bytes of data.
    pub bytes: Bytes,
    /// When it begins.
    #[serde(default)]
    pub at: Duration,
}

/// The transport of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// None: packets are sent as fast as the NIC sends, and never again.
    None,
    /// DCTCP.
    Dctcp,
}

/// `[transport]`: the properties of flows under a transport.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSection {
    /// Bytes of data in a packet; 1,460 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
    /// The first window of a flow in packets; 10 if left out (RFC 6928).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_window: Option<u32>,
    /// The congestion controller of flows, or the rate controller; DCTCP if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// The round trip that delay-based controllers aim for; 50 us if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_delay: Option<Duration>,
    /// The longest round trip without queues, as hpcc needs it; computed if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_rtt: Option<Duration>,
    /// What flows do about losses; `selective` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// How packets of a flow are spread over equal-cost paths; `flow` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spray: Option<Spray>,
    /// Retransmission timeouts; if left out, 10 ms at first and at least, as in the paper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rto: Option<Timeouts>,
    /// Reordering threshold: a packet is lost once a packet sent this many later has arrived. If left out, 3 if a flow
    /// keeps its path, and 64 if its packets take several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reordering: Option<u16>,
    /// The class of flows' packets at switches with a [`service`](super::Network::service); 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
}

impl TransportSection {
    /// These properties, and those of `other` where they are left out.
    pub fn or(&self, other: &TransportSection) -> TransportSection {
        TransportSection {
            packet: self.packet.or(other.packet),
            initial_window: self.initial_window.or(other.initial_window),
            congestion_control: self.congestion_control.clone().or_else(|| other.congestion_control.clone()),
            target_delay: self.target_delay.or(other.target_delay),
            base_rtt: self.base_rtt.or(other.base_rtt),
            recovery: self.recovery.or(other.recovery),
            spray: self.spray.or(other.spray),
            rto: self.rto.or(other.rto),
            reordering: self.reordering.or(other.reordering),
            priority: self.priority.or(other.priority),
        }
    }
}

/// The kinds of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Every host sends one message to another and receives one.
    Permutation,
    /// Without end, every host sends a message to one peer and receives one from another, and then changes peers
    /// (random uniform injection, Canary §5.2).
    Uniform,
    /// Flows arrive as a Poisson process, each between two random hosts.
    Poisson,
    /// Each sender sends packets to one receiver at a fixed rate, whatever losses there are.
    Stream,
    /// Queries: random hosts send at one moment to one random host (DCTCP §2.1).
    Incast,
    /// Every host sends one message to every other.
    AllToAll,
    /// Flows that are listed one by one.
    List,
}

mod defaults {
    use super::*;

    pub fn one() -> u32 {
        1
    }
    pub fn is_one(number: &u32) -> bool {
        *number == 1
    }
    pub fn packet() -> Bytes {
        Bytes(1090)
    }
    pub fn full() -> Share {
        Share(1.0)
    }
}
