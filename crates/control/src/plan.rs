//! The plan of a switch: the jobs that it installs, and the other effects that its driver carries out.

use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;

use crate::levels::{Child, SwitchPlace, Uplink};
use crate::name::JobName;
use crate::refusal::Refusal;
use crate::request::JoinRequest;
use crate::servers::Servers;

/// One pending join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A job as it is installed, with all that its members are told.
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
    pub switches: Vec<SwitchPlace>,
    /// The way to the switch above, if there is one.
    pub uplink: Option<Uplink>,
    /// The slots over all shards that this switch has for the job when it is installed: all slots of the job, or its
    /// share of them.
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

    /// True if a join of a switch below comes late: the job was formed from the same switch's join, or a later one.
    pub fn is_formed_from(&self, incarnation: u64, question: u64) -> bool {
        let mut children = self.children.iter();
        children.any(|child| child.incarnation == Some(incarnation) && child.question >= question)
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
    /// Give up what the jobs of a protocol share. None of them is there.
    Unshare(&'static Protocol),
    /// Ask the switch above, in place of any earlier question for this name, and bring its answer to
    /// [`Control::ascended`](crate::Control::ascended).
    Ascend {
        /// The job.
        name: JobName,
        /// The question's number, which differs from that of earlier questions.
        question: u64,
        /// The ranks that have come; the driver adds what it knows of this switch.
        ranks: Vec<(JoinRequest, Span)>,
        /// The most slots for which there is memory.
        most_slots: u16,
        /// The switches below this one.
        switches: Vec<SwitchPlace>,
    },
    /// Tell the switch above that this switch's part in a job is over.
    Descend {
        /// The job.
        name: JobName,
        /// The job's id.
        job: JobId,
        /// The job's key.
        key: JobKey,
        /// This switch's number at the switch above.
        wid: ChildId,
        /// The part did not end well: not all members had left.
        lost: bool,
    },
    /// Answer a join. No join is answered twice.
    Answer {
        /// The join's ticket.
        ticket: Ticket,
        /// The answer.
        admitted: Admitted,
    },
}
