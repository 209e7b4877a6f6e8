//! What an operator must know of a switch's jobs as it happens: one is formed, has lost somebody, has ended.

use std::sync::Arc;

use crate::plan::Plan;
use crate::running::Running;
use crate::watch::Departed;

/// Something that has happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tiding {
    /// All ranks have come and it is installed.
    Formed(Arc<Plan>),
    /// It was there before this control plane.
    Adopted(Arc<Plan>),
    /// Members, switches or servers have fallen silent without a word.
    Lost {
        /// The job.
        plan: Arc<Plan>,
        /// Those that were there until now.
        lost: Departed,
    },
    /// Members that were lost are heard again.
    Back {
        /// The job.
        plan: Arc<Plan>,
        /// Who, ascending.
        ranks: Vec<u16>,
    },
    /// It holds no memory any more.
    Ended {
        /// The job.
        plan: Arc<Plan>,
        /// How that came.
        end: End,
    },
}

/// How a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// All members have said that they have finished.
    Left,
    /// Somebody was lost.
    Lost,
    /// The name stands for a newer job.
    Superseded,
    /// The switch was stopped.
    Stopped,
    /// It never began: some shard did not take it.
    NotInstalled,
}

impl End {
    /// Every end, the happiest first.
    pub const ALL: [End; 5] = [End::Left, End::Lost, End::Superseded, End::Stopped, End::NotInstalled];

    /// The name in metrics and in the log.
    pub const fn name(self) -> &'static str {
        match self {
            End::Left => "left",
            End::Lost => "lost",
            End::Superseded => "superseded",
            End::Stopped => "stopped",
            End::NotInstalled => "not_installed",
        }
    }
}

/// What was told of who is gone.
#[derive(Default)]
pub(crate) struct Told {
    /// The changes that were seen.
    departures: u32,
    lost: Departed,
}

impl Running {
    /// How it has ended, if it ends now.
    pub(crate) fn end(&self) -> End {
        match (self.started, self.has_ended_well()) {
            (None, _) => End::NotInstalled,
            (_, true) => End::Left,
            _ if self.superseded => End::Superseded,
            _ => End::Lost,
        }
    }

    /// Who is lost, or heard again, since the last call.
    pub(crate) fn tidings(&mut self) -> Vec<Tiding> {
        if self.told.departures == self.departures {
            return Vec::new();
        }
        let mut now = self.departed(None);
        now.members.retain(|gone| !gone.left);
        let before = std::mem::replace(&mut self.told, Told { departures: self.departures, lost: now.clone() }).lost;
        let is_back = |rank: &u16| !now.members.iter().any(|gone| gone.rank == *rank);
        let ranks: Vec<u16> = before.members.iter().map(|gone| gone.rank).filter(is_back).collect();
        now.members.retain(|gone| !before.members.contains(gone));
        now.switches.retain(|place| !before.switches.contains(place));
        now.servers.retain(|place| !before.servers.contains(place));
        let plan = || self.plan.clone();
        let lost = (!now.is_empty()).then(|| Tiding::Lost { plan: plan(), lost: now });
        lost.into_iter().chain((!ranks.is_empty()).then(|| Tiding::Back { plan: plan(), ranks })).collect()
    }
}
