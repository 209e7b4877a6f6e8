//! The rank that a job waits for while the rank is merely slow.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::switch::Lag;

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
