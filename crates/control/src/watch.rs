//! Members that keep a connection open while they live: its end is the first hint that a process is gone.
//!
//! A closed connection alone proves nothing; firewalls close them too. A member whose connection is gone *and* that is
//! silent for [`Timers::bereavement`](crate::Timers::bereavement) is lost, well before its lease ends.

use tributary_proto::ids::{JobId, JobKey, WorkerId};
use tributary_proto::time::{Span, Time};

use crate::control::Control;
use crate::name::JobName;
use crate::refusal::Refusal;
use crate::report::MemberState;
use crate::running::Running;

/// A member's open connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    open: u16,
    /// When the last one was closed; `None` while one is open, and for members that never had one.
    closed: Option<Time>,
}

/// A member that takes no part in the job any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone {
    /// Who.
    pub rank: u16,
    /// It said so; otherwise it fell silent without a word.
    pub left: bool,
}

impl Control {
    /// A member has opened a connection that it keeps while it lives.
    pub fn watch(&mut self, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let world = job.plan.config.world;
        let wid = job.worker(rank).ok_or(Refusal::BadRank { rank, world })?;
        let member = &mut job.members[wid.index()];
        member.watch = Watch { open: member.watch.open + 1, closed: None };
        Ok(())
    }

    /// Such a connection is closed, whoever closed it.
    pub fn unwatch(&mut self, now: Time, id: JobId, rank: u16) {
        let member = self.running.get_mut(&id).and_then(|job| {
            let wid = job.worker(rank)?;
            job.members.get_mut(wid.index())
        });
        if let Some(Watch { open, closed }) = member.map(|member| &mut member.watch) {
            *open = open.saturating_sub(1);
            *closed = (*open == 0).then_some(now);
        }
    }

    /// Which ranks below this switch are gone, ascending: all that are behind a child that is; `None` if there is no such job.
    pub fn gone(&self, id: JobId) -> Option<Vec<Gone>> {
        let job = self.running.get(&id)?;
        let gone =
            job.members.iter().zip(&job.plan.children).filter(|(member, _)| member.state != MemberState::Present);
        let ranks = gone.flat_map(|(member, child)| {
            let left = member.state == MemberState::Left;
            child.below.ranks().iter().map(move |rank| Gone { rank: rank.0, left })
        });
        let mut ranks: Vec<Gone> = ranks.collect();
        ranks.sort_unstable_by_key(|gone| gone.rank);
        Some(ranks)
    }

    /// A number that changes whenever [`Control::gone`] does: cheaper to look at.
    pub fn departures(&self, id: JobId) -> Option<u32> {
        self.running.get(&id).map(|job| job.departures)
    }
}

impl Running {
    /// Calls every member lost whose connection is closed and that has been silent for `limit` since.
    pub(crate) fn lose_bereft(&mut self, now: Time, limit: Span) {
        for wid in (0..self.members.len() as u16).map(WorkerId) {
            if self.bereft_since(wid).is_some_and(|since| since + limit <= now) {
                self.lose(now, wid);
            }
        }
    }

    /// The earliest time at which [`Running::lose_bereft`] has something to do.
    pub(crate) fn next_bereft(&self, limit: Span) -> Option<Time> {
        (0..self.members.len() as u16)
            .filter_map(|wid| self.bereft_since(WorkerId(wid)))
            .map(|since| since + limit)
            .min()
    }

    fn bereft_since(&self, wid: WorkerId) -> Option<Time> {
        let member = &self.members[wid.index()];
        Some(member.silent_since(self.started)?.max(member.watch.closed?))
    }
}
