//! What a switch is to do: the jobs that it installs, and what else its driver carries out.

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

/// A job as it is to be installed, and what its members are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The job's name.
    pub name: JobName,
    /// What the switch runs for it.
    pub protocol: &'static Protocol,
    /// Id, key, ranks of the whole job, slots, elements per packet, shards.
    pub config: JobConfig,
    /// Workers and switches directly below, by their `wid`.
    pub children: Vec<Child>,
    /// Aggregation trees, if some rank insists on a number.
    pub trees: Option<u16>,
    /// Where each worker's packets come from, by rank, of the whole job.
    pub workers: Vec<SocketAddr>,
    /// Who makes the sums, where servers do.
    pub servers: Servers,
    /// All switches of the tree but this one.
    pub switches: Vec<SwitchPlace>,
    /// The way to the switch above, if there is one.
    pub uplink: Option<Uplink>,
    /// Slots over all shards that this switch has for it when it is installed: those of the job, or its share of them.
    pub slots: u16,
    /// What it is charged for them, in bytes over all shards.
    pub memory_bytes: u64,
}

impl Plan {
    /// The child that a rank is, or is below.
    pub fn child_of(&self, rank: u16) -> Option<ChildId> {
        let holds = |child: &Child| child.below.ranks().binary_search(&Rank(rank)).is_ok();
        self.children.iter().position(holds).map(|wid| ChildId(wid as u16))
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

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Install the job in every shard, then call [`Control::installed`](crate::Control::installed).
    Install(Arc<Plan>),
    /// Give the job other slots, over all shards, in every shard.
    Resize(JobId, u16),
    /// Take the job out of every shard.
    Remove(JobId),
    /// Ask the switch above, in place of any earlier question for this name, and bring
    /// [`Control::ascended`](crate::Control::ascended) the answer.
    Ascend {
        /// The job.
        name: JobName,
        /// Tells this question from earlier ones.
        question: u64,
        /// The ranks that have come; the driver adds what it knows of this switch.
        ranks: Vec<(JoinRequest, Span)>,
        /// The most slots that there is memory for.
        most_slots: u16,
        /// The switches below this one.
        switches: Vec<SwitchPlace>,
    },
    /// Tell the switch above that this one's part in a job is over.
    Descend {
        /// The job.
        name: JobName,
        /// Its id.
        job: JobId,
        /// Its key.
        key: JobKey,
        /// This switch's number there.
        wid: ChildId,
        /// It did not end well: not all members had left.
        lost: bool,
    },
    /// Answer a join. Nothing is answered twice.
    Answer {
        /// Which join.
        ticket: Ticket,
        /// The answer.
        admitted: Admitted,
    },
}
