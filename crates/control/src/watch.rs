//! Members that keep a connection open while they live: its end is the first hint that a process is gone.
//!
//! A closed connection alone proves nothing; firewalls close them too. A member whose connection is gone *and* that is
//! silent for [`Timers::bereavement`](crate::Timers::bereavement) is lost, well before its lease ends.

use tributary_proto::ids::{JobId, JobKey};
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
        let member = job.members.get_mut(usize::from(rank)).ok_or(Refusal::BadRank { rank, world })?;
        member.watch = Watch { open: member.watch.open + 1, closed: None };
        Ok(())
    }

    /// Such a connection is closed, whoever closed it.
    pub fn unwatch(&mut self, now: Time, id: JobId, rank: u16) {
        let member = self.running.get_mut(&id).and_then(|job| job.members.get_mut(usize::from(rank)));
        if let Some(Watch { open, closed }) = member.map(|member| &mut member.watch) {
            *open = open.saturating_sub(1);
            *closed = (*open == 0).then_some(now);
        }
    }

    /// Which members of an installed job are gone, by ascending rank; `None` if there is no such job.
    pub fn gone(&self, id: JobId) -> Option<Vec<Gone>> {
        let members = self.running.get(&id)?.members.iter().enumerate();
        let gone = members.filter_map(|(rank, member)| match member.state {
            MemberState::Present => None,
            state => Some(Gone { rank: rank as u16, left: state == MemberState::Left }),
        });
        Some(gone.collect())
    }

    /// A number that changes whenever [`Control::gone`] does: cheaper to look at.
    pub fn departures(&self, id: JobId) -> Option<u32> {
        self.running.get(&id).map(|job| job.departures)
    }
}

impl Running {
    /// Calls every member lost whose connection is closed and that has been silent for `limit` since.
    pub(crate) fn lose_bereft(&mut self, now: Time, limit: Span) {
        let bereft: Vec<usize> = (0..self.members.len())
            .filter(|&rank| self.bereft_since(rank).is_some_and(|since| since + limit <= now))
            .collect();
        self.lose(now, &bereft);
    }

    /// The earliest time at which [`Running::lose_bereft`] has something to do.
    pub(crate) fn next_bereft(&self, limit: Span) -> Option<Time> {
        (0..self.members.len()).filter_map(|rank| self.bereft_since(rank)).map(|since| since + limit).min()
    }

    fn bereft_since(&self, rank: usize) -> Option<Time> {
        let member = &self.members[rank];
        Some(self.silent_since(member)?.max(member.watch.closed?))
    }
}
