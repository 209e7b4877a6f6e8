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
    /// When the member is lost because nothing has come from it for a lease; `None` if it is gone, or if its host must be
    /// probed before. `is_worker`: its socket is the job's own. A switch keeps its socket although the job has ended there.
    fn lost_at(&self, started: Option<Time>, is_worker: bool, timers: &Timers) -> Option<Time> {
        let end = self.lease_end(started, timers)?;
        if is_worker { self.probe.lost_at(end, timers) } else { Some(self.silent_since(started)? + timers.lease) }
    }

    /// When the lease of a silent worker ends; `None` if the worker is gone.
    fn lease_end(&self, started: Option<Time>, timers: &Timers) -> Option<Time> {
        Some((self.silent_since(started)? + timers.lease).max(self.probe.alive_until(timers)))
    }

    /// When the host is probed, or the member lost.
    fn lease_check(&self, started: Option<Time>, is_worker: bool, timers: &Timers) -> Option<Time> {
        let probe = self.probe.lease_probe_at(self.lease_end(started, timers)?, timers).filter(|_| is_worker);
        probe.or_else(|| self.lost_at(started, is_worker, timers))
    }
}

impl RunningJob {
    fn is_worker(&self, wid: ChildId) -> bool {
        self.plan.children[wid.index()].incarnation.is_none()
    }

    /// Calls every member lost whose lease has ended.
    pub(crate) fn expire_leases(&mut self, now: Time, timers: &Timers) {
        for wid in (0..self.members.len() as u16).map(ChildId) {
            let lost_at = self.members[wid.index()].lost_at(self.started, self.is_worker(wid), timers);
            if lost_at.is_some_and(|at| at <= now) {
                self.lose(now, wid);
            }
        }
        let parent = self.parent.as_ref().and_then(|parent| parent.lost_at(self.started, false, timers));
        if parent.is_some_and(|at| at <= now) {
            self.lose_parent(now);
        }
    }

    /// The workers whose hosts must be probed now.
    pub(crate) fn lease_probes(&mut self, now: Time, timers: &Timers) -> Vec<ProbeTarget> {
        let (job, started) = (self.plan.config.job, self.started);
        let mut targets = Vec::new();
        for wid in (0..self.members.len() as u16).map(ChildId).filter(|&wid| self.is_worker(wid)).collect::<Vec<_>>() {
            let member = &mut self.members[wid.index()];
            let Some(end) = member.lease_end(started, timers) else { continue };
            if member.probe.probes_lease(now, end, timers) {
                let addr = self.plan.children[wid.index()].addr(0);
                targets.extend(addr.map(|addr| ProbeTarget { job, child: Some(wid), addr }));
            }
        }
        targets
    }

    /// The earliest time at which [`RunningJob::expire_leases`] or [`RunningJob::lease_probes`] has something to do.
    pub(crate) fn next_lease_check(&self, timers: &Timers) -> Option<Time> {
        let members = (0..).map(ChildId).zip(&self.members);
        let members = members.filter_map(|(wid, member)| member.lease_check(self.started, self.is_worker(wid), timers));
        let parent = self.parent.as_ref().and_then(|parent| parent.lease_check(self.started, false, timers));
        members.chain(parent).min()
    }
}
