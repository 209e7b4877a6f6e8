//! Connections that members keep open while they are alive, what neighbours report on members that are gone, and what
//! the hosts of members answer to probes.

use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::time::Time;

use super::Control;
use crate::admission::Refusal;
use crate::effect::Plan;
use crate::levels::SwitchRanks;
use crate::membership::watch::{ProbeResult, ProbeTarget};
use crate::membership::{Departed, Neighbour};
use crate::names::JobName;

impl Control {
    /// A member has opened the connection that it keeps while it is alive. Returns the member's number as a child.
    pub fn watch(&mut self, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<ChildId, Refusal> {
        let job = self.member_of(name, id, key)?;
        let world_size = job.plan.config.world_size;
        let wid = job.worker(rank).ok_or(Refusal::BadRank { rank, world_size })?;
        if !job.members[wid.index()].watch.open() {
            return Err(Refusal::WatchedAlready { job: name.clone(), rank });
        }
        self.probe_early(id, wid);
        Ok(wid)
    }

    /// Has a child's host probed while the child is alive.
    fn probe_early(&mut self, id: JobId, wid: ChildId) {
        self.probes.extend(self.running.get_mut(&id).and_then(|job| job.early_probe(wid)));
    }

    /// An error unless the caller is the child switch of this number. All members have the job's key; the incarnation is
    /// known to that switch alone.
    pub fn check_child(
        &mut self,
        name: &JobName,
        id: JobId,
        key: JobKey,
        wid: ChildId,
        incarnation: u64,
    ) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let child = job.plan.children.get(wid.index());
        match child.is_some_and(|child| child.incarnation == Some(incarnation)) {
            true => Ok(()),
            false => Err(Refusal::NotASwitch { job: name.clone(), wid: wid.0 }),
        }
    }

    /// A child switch has opened such a connection, and reports who is gone below it.
    pub fn watch_from_child(
        &mut self,
        name: &JobName,
        id: JobId,
        wid: ChildId,
        key: JobKey,
        reported: Departed,
    ) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let child = job.plan.children.get(wid.index()).filter(|child| child.incarnation.is_some());
        let (Some(member), Some(child)) = (job.members.get_mut(wid.index()), child) else {
            return Err(Refusal::NotASwitch { job: name.clone(), wid: wid.0 });
        };
        if !member.watch.open() {
            return Err(Refusal::WatchedAlready { job: name.clone(), rank: wid.0 });
        }
        // The switch speaks for its own ranks only.
        let is_below = |rank: u16| child.below.ranks().binary_search(&Rank(rank)).is_ok();
        let mut reported = Departed { servers: Vec::new(), ..reported };
        reported.members.retain(|gone| is_below(gone.rank));
        reported.switches.retain(|switch| !switch.ranks.is_empty() && switch.ranks.iter().all(|&rank| is_below(rank)));
        if member.reported != reported {
            member.reported = reported;
            job.departures += 1;
        }
        self.probe_early(id, wid);
        Ok(())
    }

    /// A child's connection is closed, by either end.
    pub fn unwatch(&mut self, now: Time, id: JobId, wid: ChildId) {
        let member = self.running.get_mut(&id).and_then(|job| job.members.get_mut(wid.index()));
        if let Some(member) = member {
            member.watch.close(now);
        }
    }

    /// The jobs that the parent switch runs too, each with a number. If the number differs from before, the parent needs a
    /// report, see [`Control::gone_below`].
    pub fn jobs_at_parent(&self) -> impl Iterator<Item = (&Plan, u32)> {
        self.running.values().filter(|job| job.parent.is_some()).map(|job| (&*job.plan, job.departures))
    }

    /// Our connection to the parent switch is open or not. Over it the parent reports who is gone elsewhere.
    pub fn watch_at_parent(&mut self, now: Time, id: JobId, open: bool) {
        let Some(parent) = self.running.get_mut(&id).and_then(|job| job.parent.as_mut()) else { return };
        parent.watch.set_open(now, open);
    }

    /// The parent switch reports who is gone elsewhere.
    pub fn parent_reports(&mut self, id: JobId, reported: Departed) {
        let Some(job) = self.running.get_mut(&id) else { return };
        if let Some(parent) = job.parent.as_mut().filter(|parent| parent.reported != reported) {
            parent.reported = reported;
            job.departures += 1;
        }
    }

    /// The parent switch no longer has this job.
    pub fn gone_at_parent(&mut self, now: Time, id: JobId) {
        let Some(job) = self.running.get_mut(&id) else { return };
        job.lose_parent(now);
        self.urgent |= self.awaits_reports();
        self.remove_finished(now);
    }

    /// The next member or neighbour whose host must be probed.
    pub fn poll_probe(&mut self) -> Option<ProbeTarget> {
        self.probes.pop_front()
    }

    /// Takes what a host says of the socket.
    pub fn probe_answered(&mut self, now: Time, ProbeTarget { job, child, .. }: ProbeTarget, result: ProbeResult) {
        let Some(job) = self.running.get_mut(&job) else { return };
        let member = match child {
            Some(wid) => job.members.get_mut(wid.index()),
            None => job.parent.as_mut(),
        };
        if let Some(member) = member {
            member.probe.answered(now, member.watch.closed(), result);
        }
    }

    /// The members, switches and servers of a job that are gone, wherever they were; `None` if there is no such job.
    pub fn gone(&self, id: JobId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(None))
    }

    /// What of a job is gone that was not below this child switch.
    pub fn gone_beside(&self, id: JobId, wid: ChildId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(Some(Neighbour::Child(wid))))
    }

    /// What of a job is gone that was below this switch.
    pub fn gone_below(&self, id: JobId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(Some(Neighbour::Parent)))
    }

    /// A number that changes whenever [`Control::gone`] changes: cheaper to compare.
    pub fn departures(&self, id: JobId) -> Option<u32> {
        self.running.get(&id).map(|job| job.departures)
    }

    /// The driver's report on switches of the fabric: all that now cannot be reached and have ranks of the job behind them.
    /// The driver asked these switches since the last call, in vain.
    pub fn unreachable(&mut self, now: Time, id: JobId, switches: &[SwitchRanks]) {
        if let Some(job) = self.running.get_mut(&id) {
            job.set_outages(now, switches);
        }
    }
}
