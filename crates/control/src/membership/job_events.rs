//! Events of jobs, for operators: a job is formed, has lost members or has them back, has ended.

use std::sync::Arc;

use crate::effect::Plan;
use crate::membership::Departed;
use crate::membership::running_job::{Reported, RunningJob};
use crate::names::Client;

/// Something that has happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// All ranks have come, and the job is installed.
    Formed(Arc<Plan>),
    /// The job was there before this control plane.
    Adopted(Arc<Plan>),
    /// Members, switches or servers have fallen silent.
    Lost {
        /// The job.
        plan: Arc<Plan>,
        /// The members, switches and servers that are lost now.
        lost: Departed,
    },
    /// Packets come again from members that were lost.
    Back {
        /// The job.
        plan: Arc<Plan>,
        /// The members' ranks, ascending.
        ranks: Vec<u16>,
    },
    /// The job uses no memory any more.
    Ended {
        /// The job.
        plan: Arc<Plan>,
        /// How the job ended.
        end: End,
        /// The client that was charged for it.
        client: Client,
    },
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// All members have left in good order.
    Left,
    /// Some member was lost.
    Lost,
    /// The job's name stands for a newer job.
    Superseded,
    /// An operator has ended it.
    Operator,
    /// The switch was stopped.
    Stopped,
    /// The job never began: some shard did not take it.
    NotInstalled,
}

impl End {
    /// Every end, the best first.
    pub const ALL: [End; 6] = [End::Left, End::Lost, End::Superseded, End::Operator, End::Stopped, End::NotInstalled];

    /// The name in metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            End::Left => "left",
            End::Lost => "lost",
            End::Superseded => "superseded",
            End::Operator => "operator",
            End::Stopped => "stopped",
            End::NotInstalled => "not_installed",
        }
    }
}

impl RunningJob {
    /// How the job has ended, if it ends now.
    pub(crate) fn end(&self) -> End {
        match (self.started, self.completed().is_some()) {
            _ if self.ended_by_operator => End::Operator,
            (None, _) => End::NotInstalled,
            (_, true) => End::Left,
            _ if self.superseded => End::Superseded,
            _ => End::Lost,
        }
    }

    /// What has happened to members since the last call.
    pub(crate) fn events(&mut self) -> Vec<JobEvent> {
        if self.reported.departures == self.departures {
            return Vec::new();
        }
        let mut now = self.departed(None);
        now.members.retain(|gone| !gone.has_left());
        let before =
            std::mem::replace(&mut self.reported, Reported { departures: self.departures, lost: now.clone() }).lost;
        let is_back = |rank: &u16| !now.members.iter().any(|gone| gone.rank == *rank);
        let ranks: Vec<u16> = before.members.iter().map(|gone| gone.rank).filter(is_back).collect();
        now.members.retain(|gone| !before.members.contains(gone));
        now.switches.retain(|switch| !before.switches.contains(switch));
        now.servers.retain(|server| !before.servers.contains(server));
        let plan = || self.plan.clone();
        let lost = (!now.is_empty()).then(|| JobEvent::Lost { plan: plan(), lost: now });
        lost.into_iter().chain((!ranks.is_empty()).then(|| JobEvent::Back { plan: plan(), ranks })).collect()
    }
}
