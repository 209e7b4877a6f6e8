//! Which members of a job are gone, as this switch sees it and its neighbours have reported, and which are lost because
//! nothing comes from them.

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::Time;

use crate::levels::SwitchPlace;
use crate::report::MemberState;
use crate::running::{Member, Running};
use crate::timers::Timers;
use crate::watch::{Departed, Gone, Neighbour, Suspect};

impl Running {
    /// All members, switches and servers that are gone, except those that `asker` is or has reported itself.
    pub(crate) fn departed(&self, asker: Option<Neighbour>) -> Departed {
        let mut gone = Departed::default();
        for wid in (0..self.members.len() as u16).map(ChildId).filter(|&wid| asker != Some(Neighbour::Below(wid))) {
            self.add_child(wid, &mut gone);
        }
        if let Some(above) = self.above.as_ref().filter(|_| asker != Some(Neighbour::Above)) {
            gone.extend(&above.said);
            // A switch's control API is at the address of its first shard.
            let addr = self.plan.uplink.as_ref().and_then(|uplink| uplink.shards.first());
            if let (MemberState::Lost, Some(&addr)) = (above.state, addr) {
                gone.switches.push(SwitchPlace { addr, ranks: Vec::new() });
            }
        }
        self.add_absences(&mut gone);
        self.add_servers(&mut gone);
        gone.members.sort_unstable_by_key(|gone| gone.rank);
        gone
    }

    /// Adds what a child has reported, and all ranks behind it if the child itself is gone.
    fn add_child(&self, wid: ChildId, gone: &mut Departed) {
        let (member, child) = (&self.members[wid.index()], &self.plan.children[wid.index()]);
        if member.state == MemberState::Present {
            return gone.extend(&member.said);
        }
        let (said, left) = (&member.said.members, member.state == MemberState::Left);
        let ranks = || child.below.ranks().iter().map(|rank| rank.0);
        let untold = ranks().filter(|&rank| !said.iter().any(|gone| gone.rank == rank));
        gone.members.extend(said);
        gone.members.extend(untold.map(|rank| Gone { rank, left }));
        // A switch that has reported a lost rank has ended its part because of that loss.
        let innocent = left || said.iter().any(|gone| !gone.left);
        match child.control.filter(|_| !innocent) {
            Some(addr) => gone.switches.push(SwitchPlace { addr, ranks: ranks().collect() }),
            None => gone.switches.extend(member.said.switches.iter().cloned()),
        }
    }

    /// Calls every member lost whose connection is closed and that has been silent for long enough since then.
    pub(crate) fn lose_bereft(&mut self, now: Time, timers: &Timers) {
        self.judged = now;
        for wid in (0..self.members.len() as u16).map(ChildId) {
            if self.bereft_at(wid, timers).is_some_and(|due| due <= now) {
                self.lose(now, wid);
                self.lose_companions(now, wid);
            }
        }
        if self.above_bereft_at(timers).is_some_and(|due| due <= now) {
            self.lose_above(now);
        }
    }

    /// The suspect for a child whose connection stands, if its host must be asked about it now.
    pub(crate) fn vet(&mut self, wid: ChildId) -> Option<Suspect> {
        let addr = self.plan.children[wid.index()].addr(0)?;
        let member = &mut self.members[wid.index()];
        let asks = member.watch.is_open() && member.suspicion.vets();
        asks.then_some(Suspect { job: self.plan.config.job, child: Some(wid), addr })
    }

    /// The suspects whose hosts must be asked now.
    pub(crate) fn suspects(&mut self, now: Time, timers: &Timers) -> Vec<Suspect> {
        let job = self.plan.config.job;
        let mut suspects = Vec::new();
        for wid in (0..self.members.len() as u16).map(ChildId) {
            suspects.extend(self.vet(wid));
            let Some(due) = self.bereft_at(wid, timers) else { continue };
            let (addr, member) = (self.plan.children[wid.index()].addr(0), &mut self.members[wid.index()]);
            let Some(closed) = member.watch.closed() else { continue };
            let asks = member.suspicion.asks(now, closed, due, timers);
            suspects.extend(addr.filter(|_| asks).map(|addr| Suspect { job, child: Some(wid), addr }));
        }
        let addr = self.plan.uplink.as_ref().and_then(|uplink| uplink.shards.first().copied());
        if let (Some(due), Some(above)) = (self.above_bereft_at(timers), &mut self.above)
            && let Some(closed) = above.watch.closed()
            && above.suspicion.asks(now, closed, due, timers)
        {
            suspects.extend(addr.map(|addr| Suspect { job, child: None, addr }));
        }
        suspects
    }

    /// The earliest time at which [`Running::lose_bereft`] or [`Running::suspects`] has something to do, or at which the
    /// driver must look: soon after a connection is closed it can tell whether the switch in between is gone.
    pub(crate) fn next_bereft(&self, timers: &Timers) -> Option<Time> {
        let next = |member: &Member, due: Time| {
            let Some(closed) = member.watch.closed() else { return due };
            let look = Some(closed + timers.parting()).filter(|&at| self.judged < at);
            let asks = member.suspicion.ask_at(closed, due, timers);
            look.into_iter().chain(asks).min().unwrap_or(due)
        };
        let members = (0..self.members.len() as u16).filter_map(|wid| {
            let due = self.bereft_at(ChildId(wid), timers)?;
            Some(next(&self.members[usize::from(wid)], due))
        });
        let above = || Some(next(self.above.as_ref()?, self.above_bereft_at(timers)?));
        members.chain(above()).min()
    }

    fn above_bereft_at(&self, timers: &Timers) -> Option<Time> {
        let above = self.above.as_ref()?;
        let due = above.silent_since(self.started)?.max(above.watch.closed()?) + timers.bereavement();
        Some(due.max(above.suspicion.alibi_ends(timers)))
    }
}
