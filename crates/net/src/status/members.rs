//! What belongs to a job: its workers, the switches around this one, and its own operators.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::custom_op::{CustomOp, CustomOps};

/// A custom operator of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorStatus {
    /// The operator's name.
    pub name: String,
    /// The hash of its module.
    pub sha256: String,
}

impl OperatorStatus {
    /// All operators of a job.
    pub(crate) fn all(operators: &CustomOps) -> Vec<OperatorStatus> {
        let of = |operator: &Arc<dyn CustomOp>| OperatorStatus {
            name: operator.name().to_owned(),
            sha256: operator.hash().to_string(),
        };
        operators.iter().map(of).collect()
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberStatus {
    /// The member's rank.
    pub rank: u16,
    /// The source address of its packets.
    pub addr: SocketAddr,
    /// `present`, `left` or `lost`.
    pub state: String,
    /// Seconds since its last packet; none if there was none yet.
    pub last_seen_s_ago: Option<f64>,
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
