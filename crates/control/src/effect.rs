//! What the driver of the control plane carries out: the jobs that it installs, answers, and questions to the parent.

use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;

use crate::admission::{JoinRequest, Refusal};
use crate::levels::{Child, SwitchRanks, Uplink};
use crate::names::JobName;
use crate::servers::Servers;

/// One pending join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A job as it is installed, with everything that its members learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The job's name.
    pub name: JobName,
    /// The protocol that the switch runs for the job.
    pub protocol: &'static Protocol,
    /// Id, key, ranks of the whole job, slots, elements per packet, shards.
    pub config: JobConfig,
    /// The workers and switches directly below, by their `wid`.
    pub children: Vec<Child>,
    /// The number of aggregation trees, if some rank insists on a number.
    pub trees: Option<u16>,
    /// The source address of each worker's packets, by rank, for the whole job.
    pub workers: Vec<SocketAddr>,
    /// The servers that make the sums, if servers do.
    pub servers: Servers,
    /// All switches of the tree except this one.
    pub switches: Vec<SwitchRanks>,
    /// How to reach the parent switch, if there is one.
    pub uplink: Option<Uplink>,
    /// The slots over all shards that this switch has for the job when it is installed: all slots of the job, or fewer if
    /// jobs divide the memory.
    pub slots: u16,
    /// The bytes that the job is charged for them, over all shards.
    pub memory_bytes: u64,
}

impl Plan {
    /// The child that a rank is, or is below.
    pub fn child_of(&self, rank: u16) -> Option<ChildId> {
        let holds = |child: &Child| child.below.ranks().binary_search(&Rank(rank)).is_ok();
        self.children.iter().position(holds).map(|wid| ChildId(wid as u16))
    }

    /// The cores of the worker here that has the most: the slots of each shard are divided into as many shares.
    pub fn most_cores(&self) -> u16 {
        1 + self.children.iter().map(|child| child.core_ports.len()).max().unwrap_or(0) as u16
    }

    /// True if a join of a child switch comes late: the job was formed from the same switch's join, or a later one.
    pub fn is_formed_from(&self, incarnation: u64, sequence: u64) -> bool {
        let mut children = self.children.iter();
        children.any(|child| child.incarnation == Some(incarnation) && child.sequence >= sequence)
    }

    /// The ranks below this switch, ascending.
    pub fn ranks_below(&self) -> Vec<u16> {
        let mut ranks: Vec<u16> =
            self.children.iter().flat_map(|child| child.below.ranks()).map(|rank| rank.0).collect();
        ranks.sort_unstable();
        ranks
    }
}

/// The answer to a join.
pub type Admitted = Result<Arc<Plan>, Refusal>;

/// An effect that the driver has to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Install the job in every shard, then call [`Control::installed`](crate::Control::installed).
    Install(Arc<Plan>),
    /// Give the job another number of slots, over all shards, in every shard.
    Resize(JobId, u16),
    /// Remove the job from every shard.
    Remove(JobId),
    /// Remove the machine that the jobs of a protocol share. There are no such jobs.
    RemoveShared(&'static Protocol),
    /// Join the parent switch, in place of any earlier join for this name, and bring its answer to
    /// [`Control::parent_answered`](crate::Control::parent_answered). Without ranks: withdraw the join.
    JoinParent {
        /// The job.
        name: JobName,
        /// The join's number, which is higher than that of earlier joins.
        sequence: u64,
        /// The ranks that have come; the driver adds what it knows of this switch.
        ranks: Vec<(JoinRequest, Span)>,
        /// The most slots for which there is memory.
        most_slots: u16,
        /// The switches of the subtree below this one.
        switches: Vec<SwitchRanks>,
    },
    /// Leave a job at the parent switch.
    LeaveParent {
        /// The job.
        name: JobName,
        /// The job's id.
        job: JobId,
        /// The job's key.
        key: JobKey,
        /// This switch's number at its parent.
        wid: ChildId,
        /// How many of the job's first collectives all members had completed when they left; `None` if the job ended
        /// before all had left in good order.
        completed: Option<u64>,
    },
    /// Answer a join. No join is answered twice.
    Answer {
        /// The join's ticket.
        ticket: Ticket,
        /// The answer.
        admitted: Admitted,
    },
}
