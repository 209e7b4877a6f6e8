//! The tables that an operator reads: jobs, members, who is missing.

use std::net::SocketAddr;

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Time;

use crate::control::Control;
use crate::levels::Child;
use crate::name::JobName;
use crate::servers::JobServerView;

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

impl Control {
    /// Every job: those that hold memory by ascending id, then those that form by name.
    pub fn jobs(&self) -> Vec<JobView> {
        self.running_views().chain(self.forming_views()).collect()
    }

    fn running_views(&self) -> impl Iterator<Item = JobView> + '_ {
        self.running.values().map(|job| {
            let state_of = |wid: usize| (job.members[wid].state, job.members[wid].heard);
            let (members, switches) = views(&job.plan.children, state_of);
            let any = |state| {
                let mut all = job.members.iter().chain(&job.above);
                all.any(|member| member.state == state)
            };
            let gone = job.departed(None).members;
            let missing: Vec<u16> = gone.iter().filter(|gone| !gone.left).map(|gone| gone.rank).collect();
            let servers = job.server_views();
            let server_gone = servers.iter().any(|server| server.state != MemberState::Present);
            let phase = match job.started {
                None => Phase::Installing,
                Some(_) if job.superseded => Phase::Superseded,
                Some(_) if any(MemberState::Lost) || server_gone || !missing.is_empty() => Phase::Failed,
                Some(_) if any(MemberState::Left) => Phase::Ending,
                Some(_) => Phase::Running,
            };
            JobView {
                name: job.plan.name.clone(),
                id: Some(job.plan.config.job),
                phase,
                protocol: job.plan.protocol,
                world: job.plan.config.world,
                slots: job.plan.config.slots,
                elements_per_packet: job.plan.config.elements_per_packet,
                memory_bytes: job.plan.memory_bytes,
                since: job.started.unwrap_or_default(),
                missing,
                members,
                switches,
                servers,
                above: job.above.as_ref().map(|above| AboveView { state: above.state, heard: above.heard }),
                ranks_of: job.plan.children.iter().map(ranks).collect(),
            }
        })
    }

    fn forming_views(&self) -> impl Iterator<Item = JobView> + '_ {
        self.forming.iter().map(|(name, forming)| {
            let (members, switches) = views(&forming.children(), |_| (MemberState::Present, None));
            JobView {
                name: name.clone(),
                id: None,
                phase: Phase::Forming,
                protocol: forming.wish(self.limits.shards).protocol,
                world: forming.world(),
                slots: 0,
                elements_per_packet: 0,
                memory_bytes: 0,
                since: forming.since,
                missing: forming.missing(),
                members,
                switches,
                servers: Vec::new(),
                above: None,
                ranks_of: Vec::new(),
            }
        })
    }
}

fn ranks(child: &Child) -> Vec<u16> {
    child.below.ranks().iter().map(|rank| rank.0).collect()
}

/// Workers and switches among children, each with its state and its newest sign of life.
fn views(
    children: &[Child],
    state_of: impl Fn(usize) -> (MemberState, Option<Time>),
) -> (Vec<MemberView>, Vec<SwitchView>) {
    let (mut members, mut switches) = (Vec::new(), Vec::new());
    for (wid, child) in children.iter().enumerate() {
        let (state, heard) = state_of(wid);
        match (&child.below, child.addrs.first()) {
            (Below::Worker(rank), Some(&addr)) => members.push(MemberView { rank: rank.0, addr, state, heard }),
            _ => switches.push(SwitchView { addr: child.control, ranks: ranks(child), state, heard }),
        }
    }
    (members, switches)
}
