//! What a driver makes a machine from. It is the same for every protocol; each reads what it needs.

use std::sync::Arc;

use tributary_numeric::Scale;

use crate::contract::ids::{ChildId, GroupId, JobId, JobKey, NodeId, PortId, Rank, ServerId, TreeId};
use crate::contract::options::Options;
use crate::contract::time::Span;
use crate::contract::wire::Common;

/// What all members of a job and its switches agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobConfig {
    /// The job's id on its switch or fabric.
    pub job: JobId,
    /// The members' secret.
    pub key: JobKey,
    /// The code of the protocol that they speak.
    pub protocol: u8,
    /// Ranks of the whole job, 1 to [`JobConfig::MAX_WORLD_SIZE`]; a switch sums for as many children as it has
    /// `members`.
    pub world_size: u16,
    /// Pool size `s` over all trees (SwitchML, appendix C); a multiple of `trees`.
    pub slots: u16,
    /// Elements of four bytes in a packet `k`, at most 16,128.
    pub elements_per_packet: u16,
    /// Trees of the job, or shards of its one switch; tree `c` owns slots `[c * slots / trees, (c + 1) * slots /
    /// trees)`.
    pub trees: u16,
    /// Switches in levels sum for the job: partial results travel between them.
    pub levels: bool,
    /// The protocol's options, as the members chose them.
    pub options: Options,
}

impl JobConfig {
    /// Bytes of the vector in a full packet.
    pub fn payload_bytes(&self) -> usize {
        4 * usize::from(self.elements_per_packet)
    }

    /// The common header of the job's packets, without a kind.
    pub fn common(&self) -> Common {
        Common { protocol: self.protocol, kind: 0, job: self.job, key: self.key }
    }
}

impl JobConfig {
    /// Most ranks of a job, real or simulated: numeric's sums hold no more.
    pub const MAX_WORLD_SIZE: u16 = Scale::MAX_WORLD_SIZE;
}

/// What a host machine is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The job.
    pub job: JobConfig,
    /// This host's rank in the job.
    pub rank: Rank,
    /// The worker as a leaf of each tree of the job, by the tree's number; at least one.
    pub trees: Vec<TreeLeaf>,
    /// The server that this host is, besides or instead of a worker; only where the protocol has servers.
    pub serves: Option<ServerId>,
    /// The slots that the machine drives: all, unless the worker has a machine on each of several cores.
    pub slots: CoreSlots,
    /// Timers.
    pub timers: TimerConfig,
    /// Where members and roots are; empty for protocols that do not address nodes.
    pub fabric: FabricPlan,
}

/// The slots that one core of a worker drives (SwitchML, appendix B). Cores have no slot in common, and so no state. The
/// slots of each tree are cut into as many shares as the worker with the most cores has cores, and a worker's core drives
/// each share whose number is the core's, modulo the worker's cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoreSlots {
    /// The core, from 0.
    pub core: u16,
    /// The worker's cores.
    pub cores: u16,
    /// The shares of each tree's slots.
    pub shares: u16,
}

impl CoreSlots {
    /// The most cores of a worker.
    pub const MAX_CORES: u16 = 16;
    /// All slots, for the one core of a worker.
    pub const ALL: CoreSlots = CoreSlots { core: 0, cores: 1, shares: 1 };

    /// True if the core drives this slot of the job.
    pub fn has(&self, job: &JobConfig, slot: u16) -> bool {
        self.cores <= 1 || CoreSlots::share_of(job, self.shares, slot) % self.cores == self.core
    }

    /// Which of the shares of its tree's slots a slot is in.
    pub fn share_of(job: &JobConfig, shares: u16, slot: u16) -> u16 {
        let of_tree = u32::from(job.slots / job.trees.max(1)).max(1);
        (u32::from(slot) % of_tree * u32::from(shares) / of_tree) as u16
    }
}

/// A worker as a leaf of one of its job's trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeLeaf {
    /// The worker's number at its first switch: its rank, unless that switch is one of several in levels.
    pub child: ChildId,
}

impl TreeLeaf {
    /// The only leaf that a worker needs if one switch sums for all ranks.
    pub fn of_rank(rank: Rank) -> Vec<TreeLeaf> {
        vec![TreeLeaf { child: ChildId::of_rank(rank) }]
    }
}

impl HostConfig {
    /// A worker of a job that one switch sums for: no server, with the timers that every new worker has.
    pub fn worker(job: JobConfig, rank: Rank) -> HostConfig {
        let (slots, timers, fabric) = (CoreSlots::ALL, TimerConfig::default(), FabricPlan::default());
        HostConfig { job, rank, trees: TreeLeaf::of_rank(rank), serves: None, slots, timers, fabric }
    }

    /// The worker as a leaf of a tree. If all trees are shards of one switch, the worker's number is the same in all.
    pub fn leaf(&self, tree: TreeId) -> TreeLeaf {
        self.trees[tree.index().min(self.trees.len() - 1)]
    }
}

/// The plan of the fabric of switches between a job's members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FabricPlan {
    /// The node of each rank, then of each dedicated server.
    pub hosts: Arc<[NodeId]>,
    /// The switch that each of these hosts is connected to.
    pub switches: Arc<[NodeId]>,
    /// The switches in which sums are completed, if roots were chosen; otherwise the protocol chooses.
    pub roots: Arc<[NodeId]>,
}

impl FabricPlan {
    /// The one switch of a star.
    pub const STAR: NodeId = NodeId(0);

    /// A switch that stands alone, with all ranks of a job behind it. Hosts and switch make the same plan of the star.
    pub fn star(world_size: u16) -> FabricPlan {
        FabricPlan::star_with_servers(world_size, 0)
    }

    /// The plan of a star with this many dedicated servers.
    pub fn star_with_servers(world_size: u16, servers: u16) -> FabricPlan {
        let count = world_size.saturating_add(servers);
        let hosts = (0..count).map(|host| FabricPlan::in_star(Rank(host))).collect();
        FabricPlan { hosts, switches: vec![FabricPlan::STAR; count.into()].into(), roots: [].into() }
    }

    /// A rank's node in a star; dedicated servers are numbered after the ranks.
    pub fn in_star(rank: Rank) -> NodeId {
        NodeId(u32::from(rank.0) + 1)
    }

    /// The rank at a node of a star, if the node is a host.
    pub fn rank_in_star(node: NodeId) -> Option<Rank> {
        node.0.checked_sub(1).and_then(|rank| u16::try_from(rank).ok()).map(Rank)
    }
}

/// The timers of a host machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerConfig {
    /// Retransmission timeout before a round trip was measured.
    pub initial_rto: Span,
    /// The shortest retransmission timeout.
    pub min_rto: Span,
    /// The longest retransmission timeout, back-off included.
    pub max_rto: Span,
}

impl Default for TimerConfig {
    /// For hosts with an ordinary kernel between machine and wire, where scheduling alone takes a millisecond.
    fn default() -> TimerConfig {
        TimerConfig {
            initial_rto: Span::from_millis(20),
            min_rto: Span::from_millis(1),
            max_rto: Span::from_millis(200),
        }
    }
}

/// What a switch machine is made from: one job in one tree of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The job.
    pub job: JobConfig,
    /// The tree; the machine owns the tree's share of the slots.
    pub tree: TreeId,
    /// The port of each child, by its `wid` here.
    pub members: Vec<PortId>,
    /// The worker or switch behind each child, by its `wid` here.
    pub below: Vec<Below>,
    /// The multicast group of all children.
    pub group: GroupId,
    /// The way to the parent switch, if this switch is not the root.
    pub parent: Option<Parent>,
}

impl SwitchConfig {
    /// The only switch of a tree: all ranks are its children, rank `r` at port `r`, in multicast group 0.
    pub fn star(job: JobConfig, tree: TreeId) -> SwitchConfig {
        let (members, below) = ((0..job.world_size).map(PortId).collect(), Below::workers(job.world_size));
        SwitchConfig { job, tree, members, below, group: GroupId(0), parent: None }
    }
}

/// What is behind a child of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Below {
    /// A worker: its rank.
    Worker(Rank),
    /// A switch: the ranks below it, ascending; at least one.
    Switch(Vec<Rank>),
}

impl Below {
    /// The children of a switch that sums for all ranks itself. Each child is a worker, and its `wid` is its rank.
    pub fn workers(world_size: u16) -> Vec<Below> {
        (0..world_size).map(|rank| Below::Worker(Rank(rank))).collect()
    }

    /// The ranks behind the child, ascending.
    pub fn ranks(&self) -> &[Rank] {
        match self {
            Below::Worker(rank) => std::slice::from_ref(rank),
            Below::Switch(ranks) => ranks,
        }
    }
}

/// The way to the parent switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parent {
    /// The port towards the parent switch.
    pub port: PortId,
    /// The `wid` of this switch at its parent.
    pub child: ChildId,
}

/// What a machine is made from that all jobs of a protocol share in one switch of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSwitchConfig {
    /// The switch's own address.
    pub node: NodeId,
    /// Elements of four bytes in the longest packet that the machine sums: longer packets pass unsummed.
    pub elements_per_packet: u16,
    /// What the switch's operator has chosen: the protocol's [`Shared::options`](super::protocol::Shared::options).
    pub options: Options,
}

/// A job's plan, as far as one switch takes part in it: what a shared machine gets when the job begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedJob {
    /// The job.
    pub job: JobConfig,
    /// Where the job's members are.
    pub fabric: FabricPlan,
    /// By rank: the port towards the member, if its host is connected to this switch.
    pub ports: Vec<Option<PortId>>,
    /// This switch as a node of the trees that were planned for the job; empty if no roots were chosen.
    pub trees: Vec<TreeNode>,
    /// Bytes of the shared memory with which the job was admitted: the result of the protocol's `memory` for the job's
    /// shape. 0 if jobs take what is free.
    pub share_bytes: u64,
}

/// A switch as a node of one planned tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreeNode {
    /// The switch in which the tree ends.
    pub root: NodeId,
    /// The port of each child.
    pub children: Vec<PortId>,
    /// The worker or switch behind each child.
    pub below: Vec<Below>,
    /// The way to the parent switch, unless this switch is the root.
    pub parent: Option<Parent>,
}
