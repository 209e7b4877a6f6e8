//! What a worker and its switch tell each other before the first packet, as plain values.
//!
//! The control API carries them over HTTP (`client`); tests and embedded switches may do without.

use std::net::SocketAddr;
use std::time::Duration;

pub use tributary_control::{Departed, Gone, ServerPlace, SwitchPlace};
use tributary_proto::contract::config::WorkerPlace;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, NodeId, ServerId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;

/// What a worker brings to the rendezvous of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The job's name; members of one job bring the same.
    pub job: String,
    /// This worker's rank, 0 to `world` - 1.
    pub rank: u16,
    /// Number of workers.
    pub world: u16,
    /// The protocol that all members speak.
    pub protocol: &'static Protocol,
    /// Where this worker's packets come from, and where it wants its own.
    pub udp: SocketAddr,
    /// The `k` that the caller insists on. Members that insist agree.
    pub elements_per_packet: Option<u16>,
    /// The largest `k` that this worker's path holds. The job's `k` is at most the smallest of all members'.
    pub max_elements_per_packet: u16,
    /// The pool size that the caller insists on, over all shards. Members that insist agree.
    pub slots: Option<u16>,
    /// The pool size that suits this worker's link (appendix C). The job gets the largest of all members' if it fits.
    pub suggested_slots: u16,
    /// The protocol's options, as the caller chose them; all members choose alike.
    pub options: Options,
    /// The number of aggregation trees that the caller insists on. Members that insist agree.
    pub trees: Option<u16>,
    /// How long the worker waits for the other members.
    pub timeout: Duration,
}

/// What the switch answers when all members are there and the job is installed in every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinAnswer {
    /// The job's id in packets.
    pub job_id: JobId,
    /// What members know and strangers do not.
    pub key: JobKey,
    /// The UDP address of each shard.
    pub shards: Vec<SocketAddr>,
    /// Pool size over all shards; a multiple of their number.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The UDP address of each member, by rank.
    pub peers: Vec<SocketAddr>,
    /// The UDP address of each of the job's servers, by number; those of the members where each is one. Empty for protocols
    /// without servers.
    pub servers: Vec<SocketAddr>,
    /// The server that this worker is besides.
    pub serves: Option<ServerId>,
    /// This worker's number at its switch; its rank, where all ranks have come to one switch.
    pub wid: ChildId,
    /// The switches that the job runs on, this worker's among them.
    pub switches: Vec<SwitchPlace>,
    /// In a fabric of switches: who is where.
    pub fabric: Option<FabricAnswer>,
}

/// Who is where in a fabric of switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricAnswer {
    /// The host of each member, by rank.
    pub hosts: Vec<NodeId>,
    /// The switch that each of them is connected to, by rank.
    pub leaves: Vec<NodeId>,
    /// The switches of the highest level.
    pub roots: Vec<NodeId>,
    /// This worker's place in each tree of the job; none for protocols without trees.
    pub trees: Vec<WorkerPlace>,
    /// Switches of some tree pass partial results on to each other.
    pub levels: bool,
    /// Where nothing may be lost: the rate of this worker's cable, which it keeps to.
    pub lossless_bits_per_s: Option<u64>,
}

/// Why a join failed: one sentence for the person who started the worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No control API answered at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The switch said no: unknown version, full, rank taken, members that differ, a rank that never came.
    #[error("{0}")]
    Refused(String),
}

/// What a switch says when asked after a job that has gone silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The job is installed.
    Installed,
    /// The switch is there and has no such job: it restarted, or took the job's slots back.
    Unknown,
    /// Nobody answers at the switch's control address: the sentence says how.
    Unreachable(String),
}

/// What a switch says of the members of a job while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// These are gone; nobody, if it is empty.
    Gone(Departed),
    /// The switch has no such job: it restarted, or took the job's slots back.
    Unknown,
    /// Nobody answers at the switch's control address: the sentence says how.
    Unreachable(String),
    /// The switch is there, but the one where the fabric's jobs are formed is not: running jobs need it for nothing but
    /// this. The sentence says which it is.
    NoSeat(String),
    /// A tree of the job has lost a switch or a cable: the sentence says which, and what to do.
    Broken(String),
    /// This control plane keeps no watch over members.
    Unwatched,
}

/// The control plane as a worker sees it.
pub trait Rendezvous: Send + Sync {
    /// Joins a job; returns when all members are there, or the request's timeout has passed.
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError>;
    /// What the switch's questions to the socket of a join carry while it lasts; `None` if this control plane asks nothing.
    fn incarnation(&self) -> Option<u64> {
        None
    }
    /// Leaves a job. Errors are of no use to anyone then, so there are none.
    fn leave(&self, job: JobId, key: JobKey, rank: u16);
    /// Asks after a job that has gone silent; answers within about a second.
    fn standing(&self, job: JobId, key: JobKey) -> Standing;
    /// Returns when others are gone than `known`, or after half a minute or so. While the call lasts, the switch
    /// takes this member for alive as long as its connection stands.
    fn watch(&self, job: JobId, key: JobKey, rank: u16, known: &Departed) -> Watched;
}
