//! Whom a job waits for while that rank is merely slow.

use serde::{Deserialize, Serialize};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::switch::Lag;

/// A rank that others are ahead of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LagStatus {
    /// Which.
    pub rank: u16,
    /// Blocks from the first rank to this one.
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
