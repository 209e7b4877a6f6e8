//! The lease: how long a member may be silent whose connection stands. A process that is stopped, by a debugger, with its
//! container or with its virtual machine, is silent and lives; its host has its socket and says so. So the host is probed
//! before the lease ends, and again as long as it says so. A host that has lost its power says nothing. If the switch itself
//! has stood still, as in the process of a rank that was stopped, members have sent packets that it has not read yet: no
//! member is lost before its host was probed.

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::Time;

use crate::admission::Timers;
use crate::membership::running_job::{Member, RunningJob};
use crate::membership::watch::ProbeTarget;

impl Member {
    /// When the lease of a silent member ends; `None` if the member is gone.
    fn lease_end(&self, started: Option<Time>, timers: &Timers) -> Option<Time> {
        Some((self.silent_since(started)? + timers.lease).max(self.probe.alive_until(timers)))
    }

    /// When the member is lost; `None` before its host was probed.
    fn lost_at(&self, started: Option<Time>, timers: &Timers) -> Option<Time> {
        self.probe.lost_at(self.lease_end(started, timers)?, timers)
    }

    /// When the host is probed, or the member lost.
    fn lease_check(&self, started: Option<Time>, timers: &Timers) -> Option<Time> {
        let end = self.lease_end(started, timers)?;
        self.probe.lease_probe_at(end, timers).or_else(|| self.probe.lost_at(end, timers))
    }
}

impl RunningJob {
    /// Calls every member lost whose lease has ended.
    pub(crate) fn expire_leases(&mut self, now: Time, timers: &Timers) {
        let started = self.started;
        let has_ended = |member: &Member| member.lost_at(started, timers).is_some_and(|end| end <= now);
        for wid in (0..self.members.len() as u16).map(ChildId) {
            if has_ended(&self.members[wid.index()]) {
                self.lose(now, wid);
            }
        }
        if self.parent.as_ref().is_some_and(has_ended) {
            self.lose_parent(now);
        }
    }

    /// The members, and the parent switch, whose hosts must be probed now.
    pub(crate) fn lease_probes(&mut self, now: Time, timers: &Timers) -> Vec<ProbeTarget> {
        let (job, started) = (self.plan.config.job, self.started);
        let asks = |member: &mut Member| {
            let end = member.lease_end(started, timers);
            end.is_some_and(|end| member.probe.probes_lease(now, end, timers))
        };
        let children =
            (0..).map(ChildId).zip(&mut self.members).filter_map(|(wid, member)| asks(member).then_some(wid));
        let children: Vec<ChildId> = children.collect();
        let parent = self.parent.as_mut().is_some_and(asks);
        let of_child =
            |wid: ChildId| Some(ProbeTarget { job, child: Some(wid), addr: self.plan.children[wid.index()].addr(0)? });
        let uplink = self.plan.uplink.as_ref().filter(|_| parent);
        let of_parent = uplink.and_then(|uplink| uplink.shards.first());
        let of_parent = of_parent.map(|&addr| ProbeTarget { job, child: None, addr });
        children.into_iter().filter_map(of_child).chain(of_parent).collect()
    }

    /// The earliest time at which [`RunningJob::expire_leases`] or [`RunningJob::lease_probes`] has something to do.
    pub(crate) fn next_lease_check(&self, timers: &Timers) -> Option<Time> {
        let members = self.members.iter().chain(&self.parent);
        members.filter_map(|member| member.lease_check(self.started, timers)).min()
    }
}
