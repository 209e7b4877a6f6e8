//! Connections that members keep open while they are alive, and what neighbours report on members that are gone.

use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::time::Time;

use crate::control::Control;
use crate::name::JobName;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::watch::{Departed, Neighbour, Suspect, Testimony};

impl Control {
    /// A member has opened the connection that it keeps while it is alive. Returns the member's number as a child.
    pub fn watch(&mut self, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<ChildId, Refusal> {
        let job = self.member_of(name, id, key)?;
        let world = job.plan.config.world_size;
        let wid = job.worker(rank).ok_or(Refusal::BadRank { rank, world })?;
        if !job.members[wid.index()].watch.open() {
            return Err(Refusal::WatchedAlready { job: name.clone(), rank });
        }
        self.vet(id, wid);
        Ok(wid)
    }

    /// Lets the driver ask a child's host while the child is alive.
    fn vet(&mut self, id: JobId, wid: ChildId) {
        self.suspects.extend(self.running.get_mut(&id).and_then(|job| job.vet(wid)));
    }

    /// A switch below has opened such a connection, and reports who is gone below it.
    pub fn watch_from_below(
        &mut self,
        name: &JobName,
        id: JobId,
        wid: ChildId,
        key: JobKey,
        said: Departed,
    ) -> Result<(), Refusal> {
        let job = self.member_of(name, id, key)?;
        let (Some(member), Some(child)) = (job.members.get_mut(wid.index()), job.plan.children.get(wid.index())) else {
            return Err(Refusal::BadRank { rank: wid.0, world: job.plan.config.world_size });
        };
        if !member.watch.open() {
            return Err(Refusal::WatchedAlready { job: name.clone(), rank: wid.0 });
        }
        // The switch speaks for its own ranks only.
        let is_there = |rank: u16| child.below.ranks().binary_search(&Rank(rank)).is_ok();
        let mut said = Departed { servers: Vec::new(), ..said };
        said.members.retain(|gone| is_there(gone.rank));
        said.switches.retain(|place| !place.ranks.is_empty() && place.ranks.iter().all(|&rank| is_there(rank)));
        if member.said != said {
            member.said = said;
            job.departures += 1;
        }
        self.vet(id, wid);
        Ok(())
    }

    /// A child's connection is closed, by either end.
    pub fn unwatch(&mut self, now: Time, id: JobId, wid: ChildId) {
        let member = self.running.get_mut(&id).and_then(|job| job.members.get_mut(wid.index()));
        if let Some(member) = member {
            member.watch.close(now);
        }
    }

    /// The jobs that the switch above runs too, each with a number. If the number differs from before, the switch above
    /// must be told, see [`Control::gone_below`].
    pub fn watches_above(&self) -> impl Iterator<Item = (&Plan, u32)> {
        self.running.values().filter(|job| job.above.is_some()).map(|job| (&*job.plan, job.departures))
    }

    /// Our connection to the switch above stands or not. Over it the switch above reports who is gone elsewhere.
    pub fn watching_above(&mut self, now: Time, id: JobId, stands: bool) {
        let Some(above) = self.running.get_mut(&id).and_then(|job| job.above.as_mut()) else { return };
        above.watch.stands(now, stands);
    }

    /// The switch above reports who is gone elsewhere.
    pub fn told_above(&mut self, id: JobId, said: Departed) {
        let Some(job) = self.running.get_mut(&id) else { return };
        if let Some(above) = job.above.as_mut().filter(|above| above.said != said) {
            above.said = said;
            job.departures += 1;
        }
    }

    /// The switch above no longer has this job.
    pub fn forgotten_above(&mut self, now: Time, id: JobId) {
        let Some(job) = self.running.get_mut(&id) else { return };
        job.lose_above(now);
        self.urgent |= self.awaits_signs();
        self.reap(now);
    }

    /// The next suspect whose host must be asked.
    pub fn poll_suspect(&mut self) -> Option<Suspect> {
        self.suspects.pop_front()
    }

    /// Takes what a suspect's host says of the socket.
    pub fn testify(&mut self, now: Time, Suspect { job, child, .. }: Suspect, said: Testimony) {
        let Some(job) = self.running.get_mut(&job) else { return };
        let suspect = match child {
            Some(wid) => job.members.get_mut(wid.index()),
            None => job.above.as_mut(),
        };
        if let Some(suspect) = suspect {
            suspect.suspicion.testify(now, suspect.watch.closed(), said);
        }
    }

    /// The members, switches and servers of a job that are gone, wherever they were; `None` if there is no such job.
    pub fn gone(&self, id: JobId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(None))
    }

    /// What of a job is gone that was not below this switch below.
    pub fn gone_beside(&self, id: JobId, wid: ChildId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(Some(Neighbour::Below(wid))))
    }

    /// What of a job is gone that was below this switch.
    pub fn gone_below(&self, id: JobId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(Some(Neighbour::Above)))
    }

    /// A number that changes whenever [`Control::gone`] changes: cheaper to compare.
    pub fn departures(&self, id: JobId) -> Option<u32> {
        self.running.get(&id).map(|job| job.departures)
    }
}
