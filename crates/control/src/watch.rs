//! Members that keep a connection open while they live: its end is the first hint that a process is gone.
//!
//! A closed connection alone proves nothing; firewalls close them too. A member whose connection is gone *and* that is
//! silent for [`Timers::bereavement`](crate::Timers::bereavement) is lost, well before its lease ends. Not so if its host
//! says that the member's socket is there still ([`Suspect`]): then its process has only stalled.
//!
//! Switches in levels watch each other in the same way, and pass on who is gone: up what is gone below, down what is gone
//! elsewhere. So every switch of a job knows of everybody.

use std::net::SocketAddr;

use tributary_proto::contract::ids::{ChildId, JobId, JobKey, Rank};
use tributary_proto::contract::time::Time;

use crate::admission::Timers;
use crate::control::Control;
use crate::levels::SwitchPlace;
use crate::name::JobName;
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::report::MemberState;
use crate::running::{Member, Running};
use crate::servers::ServerPlace;

/// A member's open connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watch {
    open: u16,
    /// When the last one was closed; `None` while one is open, and for members that never had one.
    closed: Option<Time>,
}

/// Someone whose connection is closed and that is silent. Before it is called lost, the driver asks its host whether it
/// still has the socket at this address; if so, it calls [`Control::has_alibi`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The job.
    pub job: JobId,
    /// A child of this switch; `None`: the switch above.
    pub child: Option<ChildId>,
    /// Where its packets come from.
    pub addr: SocketAddr,
}

/// What is asked and known of a suspect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Suspicion {
    /// For which end of its time its host was asked last.
    asked_for: Option<Time>,
    /// When its host last said that the socket is there.
    alibi: Option<Time>,
}

impl Suspicion {
    pub fn alibi_ends(&self, timers: &Timers) -> Time {
        self.alibi.map_or(Time::ZERO, |at| at + timers.alibi())
    }

    /// When to ask about someone that is lost at `due` unless it has an alibi; `None` if that was done.
    fn ask_at(&self, due: Time, timers: &Timers) -> Option<Time> {
        (self.asked_for != Some(due)).then(|| Time(due.0.saturating_sub(timers.keepalive.0)))
    }

    /// True if its host is to be asked now.
    fn asks(&mut self, now: Time, due: Time, timers: &Timers) -> bool {
        let asks = self.ask_at(due, timers).is_some_and(|at| at <= now);
        if asks {
            self.asked_for = Some(due);
        }
        asks
    }
}

/// A member that takes no part in the job any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gone {
    /// Who.
    pub rank: u16,
    /// It said so; otherwise it fell silent without a word.
    pub left: bool,
}

/// Who of a job is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Members, by ascending rank.
    pub members: Vec<Gone>,
    /// Switches that are lost, each with the ranks below it, which are gone with it; one without ranks is above.
    pub switches: Vec<SwitchPlace>,
    /// Servers, by ascending number.
    pub servers: Vec<ServerPlace>,
}

impl Departed {
    /// True if nobody is gone.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.switches.is_empty() && self.servers.is_empty()
    }

    fn extend(&mut self, other: &Departed) {
        self.members.extend(&other.members);
        self.switches.extend(other.switches.iter().cloned());
        self.servers.extend(&other.servers);
    }
}

/// A switch next to this one, which is told what the others said and not what it said itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbour {
    Below(ChildId),
    Above,
}

impl Control {
    /// A member has opened a connection that it keeps while it lives. Returns which child it is.
    pub fn watch(&mut self, name: &JobName, id: JobId, rank: u16, key: JobKey) -> Result<ChildId, Refusal> {
        let job = self.member_of(name, id, key)?;
        let world = job.plan.config.world;
        let wid = job.worker(rank).ok_or(Refusal::BadRank { rank, world })?;
        match job.members[wid.index()].watch.open() {
            true => Ok(wid),
            false => Err(Refusal::WatchedAlready { job: name.clone(), rank }),
        }
    }

    /// A switch below has opened such a connection, and says who is gone below it.
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
            return Err(Refusal::BadRank { rank: wid.0, world: job.plan.config.world });
        };
        if !member.watch.open() {
            return Err(Refusal::WatchedAlready { job: name.clone(), rank: wid.0 });
        }
        // It speaks for its own ranks alone.
        let is_there = |rank: u16| child.below.ranks().binary_search(&Rank(rank)).is_ok();
        let mut said = Departed { servers: Vec::new(), ..said };
        said.members.retain(|gone| is_there(gone.rank));
        said.switches.retain(|place| !place.ranks.is_empty() && place.ranks.iter().all(|&rank| is_there(rank)));
        if member.said != said {
            member.said = said;
            job.departures += 1;
        }
        Ok(())
    }

    /// A child's connection is closed, whoever closed it.
    pub fn unwatch(&mut self, now: Time, id: JobId, wid: ChildId) {
        let member = self.running.get_mut(&id).and_then(|job| job.members.get_mut(wid.index()));
        if let Some(member) = member {
            member.watch.close(now);
        }
    }

    /// The jobs that the switch above runs too: what it must be told when the number is another than before, see
    /// [`Control::gone_below`].
    pub fn watches_above(&self) -> impl Iterator<Item = (&Plan, u32)> {
        self.running.values().filter(|job| job.above.is_some()).map(|job| (&*job.plan, job.departures))
    }

    /// Our connection to the switch above, over which it says who is gone elsewhere, stands or does not.
    pub fn watching_above(&mut self, now: Time, id: JobId, stands: bool) {
        let Some(above) = self.running.get_mut(&id).and_then(|job| job.above.as_mut()) else { return };
        above.watch =
            if stands { Watch::default() } else { Watch { open: 0, closed: above.watch.closed.or(Some(now)) } };
    }

    /// The switch above says who is gone elsewhere.
    pub fn told_above(&mut self, id: JobId, said: Departed) {
        let Some(job) = self.running.get_mut(&id) else { return };
        if let Some(above) = job.above.as_mut().filter(|above| above.said != said) {
            above.said = said;
            job.departures += 1;
        }
    }

    /// The switch above has no such job any more.
    pub fn forgotten_above(&mut self, now: Time, id: JobId) {
        let Some(job) = self.running.get_mut(&id) else { return };
        job.lose_above(now);
        self.urgent |= self.awaits_signs();
        self.reap(now);
    }

    /// The next host to ask, after [`Control::handle_timeout`].
    pub fn poll_suspect(&mut self) -> Option<Suspect> {
        self.suspects.pop_front()
    }

    /// A suspect's host says that the socket is there, and that it would say so if it were not.
    pub fn has_alibi(&mut self, now: Time, Suspect { job, child, .. }: Suspect) {
        let Some(job) = self.running.get_mut(&job) else { return };
        let suspect = match child {
            Some(wid) => job.members.get_mut(wid.index()),
            None => job.above.as_mut(),
        };
        if let Some(suspect) = suspect {
            suspect.suspicion.alibi = Some(now);
        }
    }

    /// Who of a job is gone, wherever it was; `None` if there is no such job.
    pub fn gone(&self, id: JobId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(None))
    }

    /// Who is gone that is not below this switch below.
    pub fn gone_beside(&self, id: JobId, wid: ChildId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(Some(Neighbour::Below(wid))))
    }

    /// Who is gone below this switch.
    pub fn gone_below(&self, id: JobId) -> Option<Departed> {
        self.running.get(&id).map(|job| job.departed(Some(Neighbour::Above)))
    }

    /// A number that changes whenever [`Control::gone`] does: cheaper to look at.
    pub fn departures(&self, id: JobId) -> Option<u32> {
        self.running.get(&id).map(|job| job.departures)
    }
}

impl Watch {
    /// The kernel may give up an old connection long after the member has opened the next.
    const MOST: u16 = 4;

    /// False if there are as many as a member may have.
    pub fn open(&mut self) -> bool {
        let may = self.open < Watch::MOST;
        if may {
            *self = Watch { open: self.open + 1, closed: None };
        }
        may
    }

    pub fn close(&mut self, now: Time) {
        self.open = self.open.saturating_sub(1);
        self.closed = (self.open == 0).then_some(now);
    }

    /// When the last connection was closed, if none is open.
    pub fn closed(&self) -> Option<Time> {
        self.closed
    }

    /// As if it had been closed only now.
    pub fn forgive(&mut self, now: Time) {
        self.closed = self.closed.map(|_| now);
    }
}

impl Running {
    /// All that this switch sees and its neighbours have said, but for what `asker` has said or is.
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

    /// What a child has said, and all that was behind it if it is gone itself.
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
        // One that has told of a lost rank has ended its part because of that.
        let innocent = left || said.iter().any(|gone| !gone.left);
        match child.control.filter(|_| !innocent) {
            Some(addr) => gone.switches.push(SwitchPlace { addr, ranks: ranks().collect() }),
            None => gone.switches.extend(member.said.switches.iter().cloned()),
        }
    }

    /// Calls everyone lost whose connection is closed and that has been silent for long enough since.
    pub(crate) fn lose_bereft(&mut self, now: Time, timers: &Timers) {
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

    /// Those whose hosts are to be asked now.
    pub(crate) fn suspects(&mut self, now: Time, timers: &Timers) -> Vec<Suspect> {
        let job = self.plan.config.job;
        let mut suspects = Vec::new();
        for wid in (0..self.members.len() as u16).map(ChildId) {
            let Some(due) = self.bereft_at(wid, timers) else { continue };
            let addr = self.plan.children[wid.index()].addr(0);
            let asks = self.members[wid.index()].suspicion.asks(now, due, timers);
            suspects.extend(addr.filter(|_| asks).map(|addr| Suspect { job, child: Some(wid), addr }));
        }
        let addr = self.plan.uplink.as_ref().and_then(|uplink| uplink.shards.first().copied());
        if let (Some(due), Some(above)) = (self.above_bereft_at(timers), &mut self.above)
            && above.suspicion.asks(now, due, timers)
        {
            suspects.extend(addr.map(|addr| Suspect { job, child: None, addr }));
        }
        suspects
    }

    /// The earliest time at which [`Running::lose_bereft`] or [`Running::suspects`] has something to do.
    pub(crate) fn next_bereft(&self, timers: &Timers) -> Option<Time> {
        let next = |member: &Member, due: Time| member.suspicion.ask_at(due, timers).unwrap_or(due);
        let members = (0..self.members.len() as u16).filter_map(|wid| {
            let due = self.bereft_at(ChildId(wid), timers)?;
            Some(next(&self.members[usize::from(wid)], due))
        });
        let above = || Some(next(self.above.as_ref()?, self.above_bereft_at(timers)?));
        members.chain(above()).min()
    }

    fn above_bereft_at(&self, timers: &Timers) -> Option<Time> {
        let above = self.above.as_ref()?;
        let due = above.silent_since(self.started)?.max(above.watch.closed?) + timers.bereavement();
        Some(due.max(above.suspicion.alibi_ends(timers)))
    }
}
