//! The tables that an operator reads: jobs, members, missing ranks.

use std::net::SocketAddr;

use tributary_proto::contract::config::Below;
use tributary_proto::contract::custom_op::CustomOps;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use crate::large_sums::LargeSums;
use crate::levels::Child;
use crate::membership::MemberState;
use crate::membership::pending_job::PendingJob;
use crate::membership::running_job::RunningJob;
use crate::names::{Client, JobName};
use crate::servers::ServerAddr;

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

/// One member as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// The member's rank.
    pub rank: u16,
    /// The source address of its packets.
    pub addr: SocketAddr,
    /// The member's state.
    pub state: MemberState,
    /// When the member's last packet came.
    pub last_seen: Option<Time>,
}

/// A child switch as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchView {
    /// The switch's control API, if known.
    pub addr: Option<SocketAddr>,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
    /// The switch's state.
    pub state: MemberState,
    /// When the switch's last packet came.
    pub last_seen: Option<Time>,
}

/// The parent switch as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentView {
    /// The switch's state.
    pub state: MemberState,
    /// When the switch's last packet came.
    pub last_seen: Option<Time>,
}

/// One job as an operator sees it. The key is left out, since nobody may see it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// The job's name.
    pub name: JobName,
    /// The job's id; `None` while ranks are still coming.
    pub id: Option<JobId>,
    /// The client that is charged for the job, where that is known.
    pub client: Option<Client>,
    /// The job's phase.
    pub phase: Phase,
    /// The protocol that the switch runs for the job.
    pub protocol: &'static Protocol,
    /// The job's own operators.
    pub operators: CustomOps,
    /// The number of ranks of the complete job.
    pub world_size: u16,
    /// Slots over all shards; 0 while ranks are still coming.
    pub slots: u16,
    /// Elements per packet; 0 while ranks are still coming.
    pub elements_per_packet: u16,
    /// The bytes that the job is charged.
    pub memory_bytes: u64,
    /// When the job began: when its first rank came, or when its members were answered.
    pub since: Time,
    /// Workers that are or were there, by ascending rank.
    pub members: Vec<MemberView>,
    /// Child switches that are or were there, by ascending lowest rank.
    pub switches: Vec<SwitchView>,
    /// Servers that are processes of their own, by number.
    pub servers: Vec<JobServerView>,
    /// The parent switch, if there is one and the job is installed.
    pub parent: Option<ParentView>,
    /// The ranks of each child, by its `wid`.
    pub ranks_of: Vec<Vec<u16>>,
    /// Ranks that have not come yet, or are lost, ascending.
    pub missing: Vec<u16>,
    /// Where its large sums are made, if its workers have said so.
    pub large_sums: Option<LargeSums>,
}

/// A server as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// The address where the server receives packets.
    pub addr: SocketAddr,
    /// The server's state.
    pub state: MemberState,
    /// When the server last asked for work.
    pub last_seen: Time,
    /// The jobs that the server serves.
    pub jobs: Vec<JobName>,
}

/// A job's server as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobServerView {
    /// The server's number and address.
    pub server: ServerAddr,
    /// The server's state.
    pub state: MemberState,
}

/// A running job as an operator sees it.
pub(crate) fn running_view(job: &RunningJob) -> JobView {
    let state_of = |wid: usize| (job.members[wid].state, job.members[wid].last_seen);
    let (members, switches) = views(&job.plan.children, state_of);
    let gone = job.departed(None).members;
    let missing: Vec<u16> = gone.iter().filter(|gone| !gone.has_left()).map(|gone| gone.rank).collect();
    JobView {
        name: job.plan.name.clone(),
        id: Some(job.plan.config.job),
        client: Some(job.client.clone()),
        phase: phase(job, !missing.is_empty()),
        protocol: job.plan.protocol,
        operators: job.plan.config.options.operators(),
        world_size: job.plan.config.world_size,
        slots: job.slots(),
        elements_per_packet: job.plan.config.elements_per_packet,
        memory_bytes: job.memory_bytes(),
        since: job.started.unwrap_or_default(),
        missing,
        members,
        switches,
        servers: server_views(job),
        parent: job.parent.as_ref().map(|parent| ParentView { state: parent.state, last_seen: parent.last_seen }),
        ranks_of: job.plan.children.iter().map(ranks).collect(),
        large_sums: job.large_sums.clone(),
    }
}

fn phase(job: &RunningJob, has_missing: bool) -> Phase {
    let any = |state| job.members.iter().chain(&job.parent).any(|member| member.state == state);
    let server_gone = job.server_states().any(|(_, state)| state != MemberState::Present);
    match job.started {
        None => Phase::Installing,
        Some(_) if job.superseded => Phase::Superseded,
        Some(_) if any(MemberState::Lost) || server_gone || has_missing => Phase::Failed,
        Some(_) if any(MemberState::Left) => Phase::Ending,
        Some(_) => Phase::Running,
    }
}

/// A pending job as an operator sees it.
pub(crate) fn pending_view(name: &JobName, job: &PendingJob, shards: u16) -> JobView {
    let wish = job.wish(shards);
    let (members, switches) = views(&job.children(), |_| (MemberState::Present, None));
    JobView {
        name: name.clone(),
        id: None,
        client: Some(job.client.clone()),
        phase: Phase::Forming,
        protocol: wish.protocol,
        operators: wish.options.operators(),
        world_size: job.world_size(),
        slots: 0,
        elements_per_packet: 0,
        memory_bytes: 0,
        since: job.since,
        missing: job.missing(),
        members,
        switches,
        servers: Vec::new(),
        parent: None,
        ranks_of: Vec::new(),
        large_sums: None,
    }
}

/// The dedicated servers of a job, by number.
pub(crate) fn server_views(job: &RunningJob) -> Vec<JobServerView> {
    job.server_states().map(|(server, state)| JobServerView { server, state }).collect()
}

fn ranks(child: &Child) -> Vec<u16> {
    child.below.ranks().iter().map(|rank| rank.0).collect()
}

/// The workers and switches among children, each with its state and when its last packet came.
fn views(
    children: &[Child],
    state_of: impl Fn(usize) -> (MemberState, Option<Time>),
) -> (Vec<MemberView>, Vec<SwitchView>) {
    let (mut members, mut switches) = (Vec::new(), Vec::new());
    for (wid, child) in children.iter().enumerate() {
        let (state, last_seen) = state_of(wid);
        match (&child.below, child.addrs.first()) {
            (Below::Worker(rank), Some(&addr)) => members.push(MemberView { rank: rank.0, addr, state, last_seen }),
            _ => switches.push(SwitchView { addr: child.control, ranks: ranks(child), state, last_seen }),
        }
    }
    (members, switches)
}
