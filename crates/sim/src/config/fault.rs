//! Faults in the file.

use serde::{Deserialize, Serialize};

use super::node::NodeName;
use super::quantity::{DataRate, Duration, Share};

/// `[[fault]]`: something that goes wrong, from some time until some other.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSection {
    /// When it begins.
    pub at: Duration,
    /// When it ends; never if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
    /// The links that it troubles, both ways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<Links>,
    /// Each packet is lost with this probability ...
    pub loss: Share,
    /// ... or its bits flip and the frame check drops it ...
    pub corruption: Share,
    /// ... or it arrives twice ...
    pub duplication: Share,
    /// ... or late, so that others overtake it.
    pub reordering: Share,
    /// How late at most.
    pub delay: Duration,
    /// What joins the links' queues meanwhile leaves at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<DataRate>,
    /// The links are dead.
    pub down: bool,
    /// The links die and come back in turn, each for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flap: Option<Duration>,
    /// A host that dies, or a switch: a switch comes back with its programs' state lost.
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
    /// A set by name.
    Set(LinkSet),
    /// By their ends.
    Between(Vec<[NodeName; 2]>),
}

/// Sets of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSet {
    /// All of them.
    All,
    /// Those that end at a host.
    Hosts,
    /// Those between switches.
    Core,
}
