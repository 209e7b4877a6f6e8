//! Switches of a fabric that cannot be reached. Ranks behind such a switch are cut off, perhaps not for long: the
//! switch may be started again. So they are lost later than ranks whose processes die, and the other ranks are told
//! which switch is gone.

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::Time;

use crate::levels::SwitchPlace;
use crate::report::MemberState;
use crate::running::{Member, Running};
use crate::timers::Timers;
use crate::watch::Departed;

/// A switch that cannot be reached, and the ranks that it connects.
pub(crate) struct Absence {
    pub place: SwitchPlace,
    pub since: Time,
}

impl Running {
    /// When a silent member whose connection is closed is lost; `None` if the connection stands.
    pub(crate) fn bereft_at(&self, wid: ChildId, timers: &Timers) -> Option<Time> {
        let member = &self.members[wid.index()];
        let closed = member.watch.closed()?;
        let since = member.silent_since(self.started)?.max(closed);
        let due = match self.absences.iter().find(|absence| absence.place.ranks.contains(&wid.0)) {
            None if member.suspicion.is_confirmed(closed) => return Some(since + timers.confirmation()),
            None => since + timers.bereavement(),
            Some(absence) => since.max(absence.since) + timers.cut_off(),
        };
        Some(due.max(member.suspicion.alibi_ends(timers)))
    }

    /// All ranks that a switch cuts off are lost together, so that the other ranks are told once.
    pub(crate) fn lose_companions(&mut self, now: Time, wid: ChildId) {
        let absence = self.absences.iter().find(|absence| absence.place.ranks.contains(&wid.0));
        let ranks = absence.map(|absence| absence.place.ranks.clone()).unwrap_or_default();
        for wid in ranks.into_iter().map(ChildId) {
            let is_cut_off = |member: &Member| member.state == MemberState::Present && member.watch.closed().is_some();
            if self.members.get(wid.index()).is_some_and(is_cut_off) {
                self.lose(now, wid);
            }
        }
    }

    /// Adds the switches with which ranks were lost.
    pub(crate) fn add_absences(&self, gone: &mut Departed) {
        let lost_with = |absence: &Absence, rank: u16| {
            let member = self.members.get(usize::from(rank));
            member.is_some_and(|member| member.state == MemberState::Lost && member.since >= absence.since)
        };
        for absence in &self.absences {
            let ranks: Vec<u16> =
                absence.place.ranks.iter().copied().filter(|&rank| lost_with(absence, rank)).collect();
            if !ranks.is_empty() {
                gone.switches.push(SwitchPlace { addr: absence.place.addr, ranks });
            }
        }
    }
}
