//! The tables that an operator reads: jobs, members, who is missing.

use std::net::SocketAddr;

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::operator::Operators;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use crate::name::JobName;
use crate::servers::ServerPlace;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Ranks still come.
    Forming,
    /// All have come; the shards take it in.
    Installing,
    /// All members are there.
    Running,
    /// Some members have left, none is lost.
    Ending,
    /// Some members are lost.
    Failed,
    /// Its name stands for a newer job.
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

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemberState {
    /// It has joined and, if the job runs, been heard lately.
    Present,
    /// It said that it has finished.
    Left,
    /// It fell silent without a word.
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
    /// Its rank.
    pub rank: u16,
    /// Where its packets come from.
    pub addr: SocketAddr,
    /// Where it stands.
    pub state: MemberState,
    /// Its newest sign of life.
    pub heard: Option<Time>,
}

/// A switch below as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchView {
    /// Its control API, as far as it is known.
    pub addr: Option<SocketAddr>,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
    /// Where it stands.
    pub state: MemberState,
    /// Its newest sign of life.
    pub heard: Option<Time>,
}

/// The switch above as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AboveView {
    /// Where it stands.
    pub state: MemberState,
    /// Its newest sign of life.
    pub heard: Option<Time>,
}

/// One job as an operator sees it. Without its key, which nobody is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its name.
    pub name: JobName,
    /// Its id; `None` while it forms.
    pub id: Option<JobId>,
    /// Where it stands.
    pub phase: Phase,
    /// What the switch runs for it.
    pub protocol: &'static Protocol,
    /// The operators of its own.
    pub operators: Operators,
    /// How many ranks it has when complete.
    pub world: u16,
    /// Slots over all shards; 0 while it forms.
    pub slots: u16,
    /// Elements per packet; 0 while it forms.
    pub elements_per_packet: u16,
    /// What it is charged, in bytes.
    pub memory_bytes: u64,
    /// When it began: its first rank came, or its members were told.
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
    /// Where it receives packets.
    pub addr: SocketAddr,
    /// Where it stands.
    pub state: MemberState,
    /// When it last asked for work.
    pub heard: Time,
    /// The jobs that it serves.
    pub jobs: Vec<JobName>,
}

/// A job's server as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobServerView {
    /// Its number and its address.
    pub place: ServerPlace,
    /// Where it stands.
    pub state: MemberState,
}
