//! The tables that an operator reads: jobs, members, missing ranks.

use std::net::SocketAddr;

use tributary_proto::contract::custom_op::CustomOps;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use crate::name::JobName;
use crate::servers::ServerPlace;

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Ranks are still coming.
    Forming,
    /// All ranks have come; the shards install the job.
    Installing,
    /// All members are there.
    Running,
    /// Some members have left, and none is lost.
    Ending,
    /// Some members are lost.
    Failed,
    /// The job's name stands for a newer job.
    Superseded,
}

impl Phase {
    /// Every phase, in the order of a job's life.
    pub const ALL: [Phase; 6] =
        [Phase::Forming, Phase::Installing, Phase::Running, Phase::Ending, Phase::Failed, Phase::Superseded];

    /// The name in JSON, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Forming => "forming",
            Phase::Installing => "installing",
            Phase::Running => "running",
            Phase::Ending => "ending",
            Phase::Failed => "failed",
            Phase::Superseded => "superseded",
        }
    }
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// The member has joined and, if the job runs, was heard lately.
    Present,
    /// The member said that it has finished.
    Left,
    /// The member fell silent without a word.
    Lost,
}

impl MemberState {
    /// The name in JSON, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            MemberState::Present => "present",
            MemberState::Left => "left",
            MemberState::Lost => "lost",
        }
    }
}

/// One member as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member's rank.
    pub rank: u16,
    /// The source address of its packets.
    pub addr: SocketAddr,
    /// The member's state.
    pub state: MemberState,
    /// The member's newest sign of life.
    pub heard: Option<Time>,
}

/// A switch below as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchView {
    /// The switch's control API, if known.
    pub addr: Option<SocketAddr>,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
    /// The switch's state.
    pub state: MemberState,
    /// The switch's newest sign of life.
    pub heard: Option<Time>,
}

/// The switch above as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AboveView {
    /// The switch's state.
    pub state: MemberState,
    /// The switch's newest sign of life.
    pub heard: Option<Time>,
}

/// One job as an operator sees it. The key is left out, and is shown to no one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// The job's name.
    pub name: JobName,
    /// The job's id; `None` while the job forms.
    pub id: Option<JobId>,
    /// The job's phase.
    pub phase: Phase,
    /// The protocol that the switch runs for the job.
    pub protocol: &'static Protocol,
    /// The job's own operators.
    pub operators: CustomOps,
    /// The number of ranks of the complete job.
    pub world: u16,
    /// Slots over all shards; 0 while the job forms.
    pub slots: u16,
    /// Elements per packet; 0 while the job forms.
    pub elements_per_packet: u16,
    /// The bytes that the job is charged.
    pub memory_bytes: u64,
    /// When the job began: when its first rank came, or when its members were told.
    pub since: Time,
    /// Workers that are or were there, by ascending rank.
    pub members: Vec<MemberView>,
    /// Switches below that are or were there, by ascending lowest rank.
    pub switches: Vec<SwitchView>,
    /// Servers that are processes of their own, by number.
    pub servers: Vec<JobServerView>,
    /// The switch above, if there is one and the job is installed.
    pub above: Option<AboveView>,
    /// The ranks of each child, by its `wid`.
    pub ranks_of: Vec<Vec<u16>>,
    /// Ranks that have not come yet, or are lost, ascending.
    pub missing: Vec<u16>,
}

/// A server as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferView {
    /// The address where the server receives packets.
    pub addr: SocketAddr,
    /// The server's state.
    pub state: MemberState,
    /// When the server last asked for work.
    pub heard: Time,
    /// The jobs that the server serves.
    pub jobs: Vec<JobName>,
}

/// A job's server as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobServerView {
    /// The server's number and address.
    pub place: ServerPlace,
    /// The server's state.
    pub state: MemberState,
}
