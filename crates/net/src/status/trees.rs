//! What a job waits for, for people and programs: the trees with what a switch holds of them, if packets are summed in their
//! order, and the rank that lags.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::switch::{Lag, OrderReport};

/// A static tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeStatus {
    /// The root of the tree.
    pub root: String,
    /// All switches of the tree.
    pub switches: Vec<TreeSwitchStatus>,
    /// The switches around which the job's trees are planned, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub around: Vec<String>,
}

/// A switch of a static tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeSwitchStatus {
    /// The switch's name.
    pub node: String,
    /// The switch's children in their order: workers by rank, switches by name.
    pub children: Vec<TreeChildStatus>,
    /// What the switch holds, if the tree's packets are summed in their order and this switch was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderStatus>,
}

/// What a switch holds of a tree whose packets are summed in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderStatus {
    /// The number of the packet that is summed next, modulo 2^32.
    pub expected_vid: u32,
    /// How often the tree went back, modulo 2^16.
    pub epoch: u16,
    /// Packets that the switch can hold at each child's port.
    pub wnd_cap: u16,
    /// Packets that wait, by child.
    pub queued: Vec<u16>,
    /// Children that the next packet waits for.
    pub waits_for: Vec<String>,
    /// The ranks behind these children.
    pub waits_for_ranks: Vec<u16>,
}

impl OrderStatus {
    /// Makes the status from a machine's report and from the names of its children.
    pub(crate) fn new(report: &OrderReport, children: &[TreeChildStatus]) -> OrderStatus {
        let waits_for = || report.waits_for.iter().filter_map(|child| children.get(child.index()));
        let mut waits_for_ranks: Vec<u16> = waits_for().flat_map(|child| child.ranks.iter().copied()).collect();
        waits_for_ranks.sort_unstable();
        OrderStatus {
            expected_vid: report.expected,
            epoch: report.epoch,
            wnd_cap: report.cap,
            queued: report.queued.clone(),
            waits_for: waits_for().map(|child| child.node.clone()).collect(),
            waits_for_ranks,
        }
    }
}

/// A child of a switch of a static tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeChildStatus {
    /// The host or the switch.
    pub node: String,
    /// The ranks that the child is, or that are below it.
    pub ranks: Vec<u16>,
}

/// A rank that is behind the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LagStatus {
    /// The rank.
    pub rank: u16,
    /// Blocks by which it is behind the first rank.
    pub blocks: u32,
}

impl From<Lag> for LagStatus {
    fn from(Lag { rank, blocks }: Lag) -> LagStatus {
        LagStatus { rank: rank.0, blocks }
    }
}

impl From<LagStatus> for Lag {
    fn from(LagStatus { rank, blocks }: LagStatus) -> Lag {
        Lag { rank: Rank(rank), blocks }
    }
}

/// A child switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChildSwitchStatus {
    /// Its control API.
    pub addr: Option<SocketAddr>,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
    /// `present`, `left` or `lost`.
    pub state: String,
    /// Seconds since its last packet; none if there was none yet.
    pub last_seen_s_ago: Option<f64>,
}

/// The parent switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentStatus {
    /// `present` or `lost`.
    pub state: String,
    /// Seconds since its last packet; none if there was none yet.
    pub last_seen_s_ago: Option<f64>,
}
