//! What a worker and its switch exchange before the first packet, as plain values.
//!
//! The control API carries them over HTTP (`client`); tests and embedded switches may do without.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

pub use tributary_control::levels::SwitchRanks;
pub use tributary_control::servers::ServerAddr;
pub use tributary_control::{Departed, Gone, LargeSums, SumShare};
use tributary_proto::contract::config::TreeLeaf;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, NodeId, ServerId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;

/// What a worker brings to the rendezvous of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The job's name; members of one job bring the same.
    pub job: String,
    /// This worker's rank, 0 to `world_size` - 1.
    pub rank: u16,
    /// Number of workers.
    pub world_size: u16,
    /// The protocol that all members speak.
    pub protocol: &'static Protocol,
    /// The source address of this worker's packets, where it also receives packets.
    pub udp: SocketAddr,
    /// The UDP ports of this worker's further cores, at the same IP address.
    pub core_ports: Vec<u16>,
    /// The `k` on which the caller insists, if it does. All members that insist must agree.
    pub elements_per_packet: Option<u16>,
    /// The largest `k` that this worker's path holds. The job's `k` is at most the smallest of all members'.
    pub max_elements_per_packet: u16,
    /// The pool size on which the caller insists, over all shards, if it does. All members that insist must agree.
    pub slots: Option<u16>,
    /// The pool size that suits this worker's link (appendix C). The job gets the largest of all members' sizes, if it
    /// fits.
    pub suggested_slots: u16,
    /// The protocol's options, as the caller chose them; all members choose alike.
    pub options: Options,
    /// The number of aggregation trees on which the caller insists, if it does. All members that insist must agree.
    pub trees: Option<u16>,
    /// How long the worker waits for the other members.
    pub timeout: Duration,
}

/// The switch's answer once all members are there and the job is installed in every shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinAnswer {
    /// The job's id in packets.
    pub job_id: JobId,
    /// The members' secret.
    pub key: JobKey,
    /// The UDP address of each shard.
    pub shards: Vec<SocketAddr>,
    /// Pool size over all shards; a multiple of their number.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The cores of the worker at this switch that has the most: the slots of each shard are divided into as many shares.
    pub most_cores: u16,
    /// The UDP address of each member, by rank.
    pub peers: Vec<SocketAddr>,
    /// The UDP address of each of the job's servers, by number; the members' addresses if each member is a server.
    /// Empty for protocols without servers.
    pub servers: Vec<SocketAddr>,
    /// The server that this worker also is.
    pub serves: Option<ServerId>,
    /// This worker's number at its switch: its rank, if all ranks have come to one switch.
    pub wid: ChildId,
    /// The switches that the job runs on, including this worker's.
    pub switches: Vec<SwitchRanks>,
    /// In a fabric of switches: where the members are.
    pub fabric: Option<FabricAnswer>,
}

/// Where the members are in a fabric of switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricAnswer {
    /// The host of each member, by rank, and then of each server on a host of its own.
    pub hosts: Vec<NodeId>,
    /// The switch that each of these hosts is connected to.
    pub leaves: Vec<NodeId>,
    /// The switches of the highest level.
    pub roots: Vec<NodeId>,
    /// This worker's position in each tree of the job; none for protocols without trees.
    pub trees: Vec<TreeLeaf>,
    /// True if switches of some tree send partial results to each other.
    pub levels: bool,
    /// In a lossless fabric: the rate of this worker's cable, which the worker must not exceed.
    pub lossless_bits_per_s: Option<u64>,
}

/// Why a join failed: one sentence for the person who started the worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// No control API answered at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The switch refused: unknown version, full, rank taken, members that differ, a rank that never came.
    #[error("{0}")]
    Refused(String),
}

/// A switch's answer when it is asked about a job that has gone silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The job is installed.
    Installed,
    /// The switch is there and has no such job: it restarted, or removed the job.
    Unknown,
    /// There is no answer at the switch's control address; the sentence says how the call failed.
    Unreachable(String),
}

/// A switch's report on the members of a job that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// What is gone; empty if nothing is.
    Gone(Departed),
    /// The switch has no such job: it restarted, or removed the job.
    Unknown,
    /// There is no answer at the switch's control address; the sentence says how the call failed.
    Unreachable(String),
    /// The switch is there, but the switch where the fabric's jobs are formed is not. Running jobs need that switch
    /// only for this report. The sentence names it.
    NoController(String),
    /// A tree of the job has lost a switch or a cable; the sentence says which, and what to do.
    Broken(String),
    /// This control plane does not watch members.
    Unwatched,
}

/// A watch under way. Many of them share a thread, so it must not block.
pub type Watching<'a> = Pin<Box<dyn Future<Output = Watched> + Send + 'a>>;

/// The control plane as a worker sees it.
pub trait Rendezvous: Send + Sync {
    /// Joins a job; returns when all members are there, or the request's timeout has passed.
    fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, JoinError>;
    /// The number in the switch's challenges to the socket of a join; `None` if this control plane sends none.
    fn incarnation(&self) -> Option<u64> {
        None
    }
    /// Leaves a job, of whose first collectives this member has completed this many; without a number as a member that others
    /// have lost, since it can no longer contribute to what they have begun. A caller could do nothing about an error, so
    /// there is none.
    fn leave(&self, job: JobId, key: JobKey, rank: u16, completed: Option<u64>);
    /// Asks about a job that has gone silent; answers within about a second.
    fn standing(&self, job: JobId, key: JobKey) -> Standing;
    /// Reports where the job's large sums are made; returns within about a second. It is for operators, so a report that
    /// gets lost is not an error.
    fn report_sums(&self, _job: JobId, _key: JobKey, _sums: &LargeSums) {}
    /// Returns when what is gone is no longer `known`, or after about half a minute. While the call lasts, the switch
    /// takes this member for alive as long as its connection stands.
    fn watch<'a>(&'a self, job: JobId, key: JobKey, rank: u16, known: &'a Departed) -> Watching<'a>;
}
