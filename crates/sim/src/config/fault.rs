//! Faults in the file.

use serde::{Deserialize, Serialize};

use super::node::NodeName;
use super::{DataRate, Duration, Share};

/// `[[fault]]`: a fault that begins at some time and may end at another.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSection {
    /// When it begins.
    pub at: Duration,
    /// When it ends; if left out, it never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
    /// The links that it affects, both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
    /// Each packet is lost with this probability.
    pub loss: Share,
    /// Each packet's bits flip with this probability, so that the frame check drops it.
    pub corruption: Share,
    /// Each packet arrives twice with this probability.
    pub duplication: Share,
    /// Each packet arrives late with this probability, so that others overtake it.
    pub reordering: Share,
    /// The most that it is late.
    pub delay: Duration,
    /// Packets that join the links' queues meanwhile leave at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// The links are dead.
    pub down: bool,
    /// The links die and come back in turn, after so much time each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flap: Option<Duration>,
    /// A node that dies. A switch comes back without its programs' state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<NodeName>,
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
