//! Switches in levels (SwitchML §7), as control planes see each other. A child switch joins its parent with the ranks that
//! have come to it, and the parent answers for the whole tree. `docs/control.md` has the rules.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::time::Span;

use crate::admission::JoinRequest;

/// A switch of a job's tree, and the ranks below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchRanks {
    /// The switch's control API, as its neighbours reach it.
    pub addr: SocketAddr,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
}

/// A child switch joins a job, for the ranks that have come to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchJoin {
    /// Drawn at random by each switch process when it starts.
    pub incarnation: u64,
    /// The address of the parent at which it joined. It takes packets from no other address.
    pub joined_at: IpAddr,
    /// Counts the joins of this process: an earlier join that comes late does not replace a later one.
    pub sequence: u64,
    /// The source address of each shard's packets.
    pub shards: Vec<SocketAddr>,
    /// The most slots for which the switch has memory.
    pub most_slots: u16,
    /// The ranks that have come to the switch, each with the time that it has waited already. If empty, the switch
    /// withdraws its join.
    pub ranks: Vec<(JoinRequest, Span)>,
    /// The switches of its subtree, beginning with itself.
    pub switches: Vec<SwitchRanks>,
}

/// The answer of the parent switch, once all ranks have come and it has installed the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentAnswer {
    /// The job's id, the same at all levels.
    pub job: JobId,
    /// The job's key, the same at all levels.
    pub key: JobKey,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// This switch's number among the children of its parent.
    pub wid: ChildId,
    /// The UDP address of each shard of the parent.
    pub shards: Vec<SocketAddr>,
    /// The UDP address of each worker of the whole job, by rank.
    pub workers: Vec<SocketAddr>,
    /// The addresses of the job's servers that are processes of their own, by number.
    pub servers: Vec<SocketAddr>,
    /// All switches of the tree.
    pub switches: Vec<SwitchRanks>,
}

/// A child of a switch: a worker, or a switch with all ranks below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The ranks that the child is, or that are below it.
    pub below: Below,
    /// The source address of its packets: one address for all shards, or one for each shard.
    pub addrs: Vec<SocketAddr>,
    /// The UDP ports of a worker's further cores.
    pub core_ports: Vec<u16>,
    /// The address of this switch at which the child joined. It takes packets from no other address.
    pub joined_at: IpAddr,
    /// The process of a switch.
    pub incarnation: Option<u64>,
    /// The number of the switch's join that counts; 0 for a worker.
    pub sequence: u64,
    /// The control API of a switch.
    pub control: Option<SocketAddr>,
}

impl Child {
    /// The source address of its packets to a shard.
    pub fn addr(&self, shard: usize) -> Option<SocketAddr> {
        self.addrs.get(shard).or(self.addrs.first()).copied()
    }
}

/// How an installed job reaches the parent switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// This switch's number among the children of its parent.
    pub wid: ChildId,
    /// The UDP address of each shard of the parent.
    pub shards: Vec<SocketAddr>,
}

/// A child switch in a pending job.
pub(crate) struct ChildSwitch {
    pub joined_at: IpAddr,
    pub sequence: u64,
    pub shards: Vec<SocketAddr>,
    pub most_slots: u16,
    pub switches: Vec<SwitchRanks>,
}

/// The children of a switch: workers and switches in the order of their lowest rank.
pub(crate) fn children<'a>(
    ranks: impl Iterator<Item = (&'a JoinRequest, Option<u64>)>,
    switches: &BTreeMap<u64, ChildSwitch>,
) -> Vec<Child> {
    let mut children: Vec<Child> = Vec::new();
    for (request, via) in ranks {
        let rank = Rank(request.rank);
        let known = children.iter_mut().find(|child| via.is_some() && child.incarnation == via);
        if let Some(Child { below: Below::Switch(below), .. }) = known {
            below.push(rank);
            continue;
        }
        let switch = via.and_then(|incarnation| switches.get(&incarnation));
        children.push(Child {
            below: if via.is_some() { Below::Switch(vec![rank]) } else { Below::Worker(rank) },
            addrs: switch.map_or_else(|| vec![request.addr], |switch| switch.shards.clone()),
            core_ports: if via.is_some() { Vec::new() } else { request.core_ports.clone() },
            joined_at: switch.map_or(request.joined_at, |switch| switch.joined_at),
            incarnation: via,
            sequence: switch.map_or(0, |switch| switch.sequence),
            control: switch.and_then(|switch| switch.switches.first()).map(|switch| switch.addr),
        });
    }
    children
}
