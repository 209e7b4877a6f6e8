//! What a leader has to send. A packet is written when it leaves, from the state at that time.

use super::steps::Step;
use crate::canary::wire::SHARD_PORTS;
use crate::contract::ids::{NodeId, PortId, Rank};

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outgoing {
    /// The sum, to the root, for the tree (§3.1.2).
    Tree(Step),
    /// The sum, to a switch, for some of its ports (§3.2.1).
    Restoration(Step, Ports),
    /// The sum, to one rank that asked (§3.3).
    Answer(Step, Rank),
    /// The block is issued again as `attempt`; along the tree of the issue that failed.
    FailedTree(Step, u8),
    /// The same, to a switch at which contributions collided.
    FailedRestoration(Step, u8, Ports),
    /// The same, to one rank.
    Failed(Step, Rank),
    /// Which ranks have been heard of, to one rank that asked.
    Report(Step, Rank),
    /// What this rank leads, to one rank that may not know it.
    Claim(Step, Rank),
    /// Ranks disagree, to one rank.
    Mismatch(Step, Rank),
}

/// Ports of one shard of one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// The switch.
    pub switch: NodeId,
    /// Which 32 ports of the switch.
    pub shard: u8,
    /// A bitmap of ports.
    pub children: u32,
}

/// Groups the ports of collisions by switch and shard.
pub fn group(collisions: &mut [(NodeId, PortId)]) -> Vec<Ports> {
    collisions.sort_unstable_by_key(|&(switch, port)| (switch, port));
    let mut groups: Vec<Ports> = Vec::new();
    for &(switch, port) in collisions.iter() {
        let (shard, bit) = ((port.0 / SHARD_PORTS) as u8, 1 << (port.0 % SHARD_PORTS));
        match groups.last_mut() {
            Some(last) if (last.switch, last.shard) == (switch, shard) => last.children |= bit,
            _ => groups.push(Ports { switch, shard, children: bit }),
        }
    }
    groups
}
