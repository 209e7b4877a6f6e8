//! What of a job is news to operators: members that are lost or heard again, and the job's end.

use crate::running::Running;
use crate::tidings::{End, Tiding};
use crate::watch::Departed;

/// What operators were told of members that are gone.
#[derive(Default)]
pub(crate) struct Told {
    /// The value of `departures` at the last call.
    departures: u32,
    lost: Departed,
}

impl Running {
    /// How the job has ended, if it ends now.
    pub(crate) fn end(&self) -> End {
        match (self.started, self.has_ended_well()) {
            (None, _) => End::NotInstalled,
            (_, true) => End::Left,
            _ if self.superseded => End::Superseded,
            _ => End::Lost,
        }
    }

    /// Members that were lost, or heard again, since the last call.
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
