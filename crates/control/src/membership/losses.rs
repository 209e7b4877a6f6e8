//! Which members of a job are gone: lost because nothing comes from them any more, which this switch notices and whose hosts
//! it has probed before, or gone as neighbours have reported.
//!
//! In a fabric, ranks behind a switch that cannot be reached are cut off, perhaps not for long: the switch may be started
//! again. So they are lost later than ranks whose processes die, and all of them at once.

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::Time;

use crate::admission::Timers;
use crate::levels::SwitchRanks;
use crate::membership::running_job::{Member, RunningJob};
use crate::membership::watch::ProbeTarget;
use crate::membership::{Departed, Gone, MemberState, Neighbour, Outage};

impl Member {
    /// True if a member is lost by now whose connection is closed and whose silence is long enough at `due`.
    fn is_lost_by(&self, now: Time, due: Time, timers: &Timers) -> bool {
        let lost = |closed| self.probe.disconnected_at(closed, due, timers);
        self.watch.closed().and_then(lost).is_some_and(|at| at <= now)
    }
}

impl RunningJob {
    /// Calls every member lost whose connection is closed and that has been silent for long enough since then.
    pub(crate) fn lose_disconnected(&mut self, now: Time, timers: &Timers) {
        self.checked = now;
        for wid in (0..self.members.len() as u16).map(ChildId) {
            let due = self.loss_due(wid, timers);
            if due.is_some_and(|due| self.members[wid.index()].is_lost_by(now, due, timers)) {
                self.lose(now, wid);
                self.lose_with_switch(now, wid);
            }
        }
        let due = self.parent_loss_due(timers);
        if due.zip(self.parent.as_ref()).is_some_and(|(due, parent)| parent.is_lost_by(now, due, timers)) {
            self.lose_parent(now);
        }
    }

    /// The child to probe, if its connection stands and its host must be asked about it now.
    pub(crate) fn early_probe(&mut self, wid: ChildId) -> Option<ProbeTarget> {
        let addr = self.plan.children[wid.index()].addr(0)?;
        let member = &mut self.members[wid.index()];
        let probes = member.watch.is_open() && member.probe.probes_early();
        probes.then_some(ProbeTarget { job: self.plan.config.job, child: Some(wid), addr })
    }

    /// The members whose hosts must be probed now.
    pub(crate) fn due_probes(&mut self, now: Time, timers: &Timers) -> Vec<ProbeTarget> {
        let job = self.plan.config.job;
        let mut targets = Vec::new();
        for wid in (0..self.members.len() as u16).map(ChildId) {
            targets.extend(self.early_probe(wid));
            let Some(due) = self.loss_due(wid, timers) else { continue };
            let (addr, member) = (self.plan.children[wid.index()].addr(0), &mut self.members[wid.index()]);
            let Some(closed) = member.watch.closed() else { continue };
            let probes = member.probe.probes(now, closed, due, timers);
            targets.extend(addr.filter(|_| probes).map(|addr| ProbeTarget { job, child: Some(wid), addr }));
        }
        let addr = self.plan.uplink.as_ref().and_then(|uplink| uplink.shards.first().copied());
        if let (Some(due), Some(parent)) = (self.parent_loss_due(timers), &mut self.parent)
            && let Some(closed) = parent.watch.closed()
            && parent.probe.probes(now, closed, due, timers)
        {
            targets.extend(addr.map(|addr| ProbeTarget { job, child: None, addr }));
        }
        targets
    }

    /// The earliest time at which [`RunningJob::lose_disconnected`] or [`RunningJob::due_probes`] has something to do, or at which the
    /// driver must report: soon after a connection is closed it can tell whether the switch in between is gone.
    pub(crate) fn next_loss_check(&self, timers: &Timers) -> Option<Time> {
        let next = |member: &Member, due: Time| {
            let Some(closed) = member.watch.closed() else { return due };
            let report = Some(closed + timers.socket_teardown()).filter(|&at| self.checked < at);
            let probe = member.probe.probe_at(closed, due, timers);
            let lost = member.probe.disconnected_at(closed, due, timers);
            report.into_iter().chain(probe).min().or(lost).unwrap_or(due)
        };
        let members = (0..self.members.len() as u16).filter_map(|wid| {
            let due = self.loss_due(ChildId(wid), timers)?;
            Some(next(&self.members[usize::from(wid)], due))
        });
        let parent = || Some(next(self.parent.as_ref()?, self.parent_loss_due(timers)?));
        members.chain(parent()).min()
    }

    fn parent_loss_due(&self, timers: &Timers) -> Option<Time> {
        let parent = self.parent.as_ref()?;
        let due = parent.silent_since(self.started)?.max(parent.watch.closed()?) + timers.closed_silence();
        Some(due.max(parent.probe.alive_until(timers)))
    }

    /// When a silent member whose connection is closed is lost; `None` if the connection stands.
    pub(crate) fn loss_due(&self, wid: ChildId, timers: &Timers) -> Option<Time> {
        let member = &self.members[wid.index()];
        let closed = member.watch.closed()?;
        let since = member.silent_since(self.started)?.max(closed);
        let due = match self.outages.iter().find(|outage| outage.switch.ranks.contains(&wid.0)) {
            None if member.probe.is_confirmed(closed) => return Some(since + timers.confirmed_silence()),
            None => since + timers.closed_silence(),
            Some(outage) => since.max(outage.since) + timers.unreachable_silence(),
        };
        Some(due.max(member.probe.alive_until(timers)))
    }

    /// All ranks that a switch cuts off are lost together, so that the other ranks get one report.
    pub(crate) fn lose_with_switch(&mut self, now: Time, wid: ChildId) {
        let outage = self.outages.iter().find(|outage| outage.switch.ranks.contains(&wid.0));
        let ranks = outage.map(|outage| outage.switch.ranks.clone()).unwrap_or_default();
        for wid in ranks.into_iter().map(ChildId) {
            let is_cut_off = |member: &Member| member.state == MemberState::Present && member.watch.closed().is_some();
            if self.members.get(wid.index()).is_some_and(is_cut_off) {
                self.lose(now, wid);
            }
        }
    }

    /// Takes all switches that now cannot be reached and have ranks of the job behind them.
    pub(crate) fn set_outages(&mut self, now: Time, switches: &[SwitchRanks]) {
        let (stay, back): (Vec<Outage>, Vec<Outage>) =
            std::mem::take(&mut self.outages).into_iter().partition(|outage| switches.contains(&outage.switch));
        self.outages = stay;
        for switch in switches {
            if !self.outages.iter().any(|outage| outage.switch == *switch) {
                self.outages.push(Outage { switch: switch.clone(), since: now });
            }
        }
        // The ranks of a switch that can be reached again have their time again to send something through it.
        for rank in back.into_iter().flat_map(|outage| outage.switch.ranks) {
            if let Some(member) = self.members.get_mut(usize::from(rank)) {
                member.watch.restart(now);
            }
        }
    }
}

impl RunningJob {
    /// All members, switches and servers that are gone, except those that `asker` is or has reported itself.
    pub(crate) fn departed(&self, asker: Option<Neighbour>) -> Departed {
        let mut gone = Departed::default();
        for wid in (0..self.members.len() as u16).map(ChildId).filter(|&wid| asker != Some(Neighbour::Child(wid))) {
            self.add_child(wid, &mut gone);
        }
        if let Some(parent) = self.parent.as_ref().filter(|_| asker != Some(Neighbour::Parent)) {
            gone.extend(&parent.reported);
            // A switch's control API is at the address of its first shard.
            let addr = self.plan.uplink.as_ref().and_then(|uplink| uplink.shards.first());
            if let (MemberState::Lost, Some(&addr)) = (parent.state, addr) {
                gone.switches.push(SwitchRanks { addr, ranks: Vec::new() });
            }
        }
        self.add_outages(&mut gone);
        self.add_servers(&mut gone);
        gone.members.sort_unstable_by_key(|gone| gone.rank);
        gone
    }

    /// Adds what a child has reported, and all ranks behind it if the child itself is gone.
    fn add_child(&self, wid: ChildId, gone: &mut Departed) {
        let (member, child) = (&self.members[wid.index()], &self.plan.children[wid.index()]);
        if member.state == MemberState::Present {
            return gone.extend(&member.reported);
        }
        let reported = &member.reported.members;
        let completed = (member.state == MemberState::Left).then_some(member.completed);
        let ranks = || child.below.ranks().iter().map(|rank| rank.0);
        let unreported = ranks().filter(|&rank| !reported.iter().any(|gone| gone.rank == rank));
        gone.members.extend(reported);
        gone.members.extend(unreported.map(|rank| Gone { rank, completed }));
        // A switch that has reported a lost rank has left because of that loss.
        let is_explained = completed.is_some() || reported.iter().any(|gone| !gone.has_left());
        match child.control.filter(|_| !is_explained) {
            Some(addr) => gone.switches.push(SwitchRanks { addr, ranks: ranks().collect() }),
            None => gone.switches.extend(member.reported.switches.iter().cloned()),
        }
    }

    /// Adds the switches with which ranks were lost.
    pub(crate) fn add_outages(&self, gone: &mut Departed) {
        let lost_with = |outage: &Outage, rank: u16| {
            let member = self.members.get(usize::from(rank));
            member.is_some_and(|member| member.state == MemberState::Lost && member.since >= outage.since)
        };
        for outage in &self.outages {
            let ranks: Vec<u16> = outage.switch.ranks.iter().copied().filter(|&rank| lost_with(outage, rank)).collect();
            if !ranks.is_empty() {
                gone.switches.push(SwitchRanks { addr: outage.switch.addr, ranks });
            }
        }
    }

    /// Adds the servers that are gone.
    fn add_servers(&self, gone: &mut Departed) {
        let servers = self.server_states().filter(|(_, state)| *state != MemberState::Present);
        gone.servers.extend(servers.map(|(server, _)| server));
    }
}
