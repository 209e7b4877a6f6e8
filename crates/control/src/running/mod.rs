//! Jobs that hold memory: who of their members lives, when they end, and who may take their names.

mod absence;
mod departed;
mod news;
mod servers;

use std::net::Ipv4Addr;
use std::sync::Arc;

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::{Span, Time};

pub(crate) use self::absence::Absence;
use self::news::Told;
use crate::admission::Timers;
use crate::client::Client;
use crate::memory::JobShape;
use crate::plan::{Plan, Ticket};
use crate::report::MemberState;
use crate::watch::{Departed, Suspicion, Watch};

/// One child of a running job, or the switch above.
pub(crate) struct Member {
    pub state: MemberState,
    /// When the state began.
    pub since: Time,
    /// The newest sign of life; `None` before the first.
    pub heard: Option<Time>,
    /// The connections that it keeps open while it lives.
    pub watch: Watch,
    /// What its host was asked when that looked like its end.
    pub suspicion: Suspicion,
    /// Who is gone behind it, as a switch has said.
    pub said: Departed,
    /// The join that is answered once the job is installed.
    ticket: Option<Ticket>,
    /// A switch below has begun the name's next job.
    renounced: bool,
}

impl Member {
    fn new(now: Time, ticket: Option<Ticket>) -> Member {
        Member {
            state: MemberState::Present,
            since: now,
            heard: None,
            watch: Watch::default(),
            suspicion: Suspicion::default(),
            said: Departed::default(),
            ticket,
            renounced: false,
        }
    }

    /// True if it was lost until now.
    fn hear(&mut self, at: Time) -> bool {
        if self.heard.is_some_and(|heard| heard >= at) {
            return false;
        }
        self.heard = Some(at);
        self.state == MemberState::Lost && self.enter(MemberState::Present, at)
    }

    /// True if the state has changed.
    fn enter(&mut self, state: MemberState, since: Time) -> bool {
        let changes = self.state != state;
        if changes {
            (self.state, self.since) = (state, since);
        }
        changes
    }

    /// Since when nothing came from a member that should be there; `None` for those that are gone.
    pub fn silent_since(&self, started: Option<Time>) -> Option<Time> {
        let started = started?;
        (self.state == MemberState::Present).then(|| self.heard.map_or(started, |heard| heard.max(started)))
    }
}

/// Where a job's server stands.
#[derive(Clone, Copy)]
pub(crate) struct ServerSeat {
    pub state: MemberState,
    /// When the state began.
    pub since: Time,
}

/// What a job has of the memory that jobs divide.
pub(crate) struct Sharing {
    /// The job with the most slots that it may ever have.
    pub most: JobShape,
    /// What it has now.
    pub slots: u16,
}

/// A job that holds memory.
pub(crate) struct Running {
    pub plan: Arc<Plan>,
    /// Whom it is charged to.
    pub client: Client,
    /// What it has now of the memory that jobs divide; `None` if its slots never change.
    pub sharing: Option<Sharing>,
    /// By `wid`.
    pub members: Vec<Member>,
    /// The switch above, if there is one.
    pub above: Option<Member>,
    /// When its members were told; `None` until it is installed.
    pub started: Option<Time>,
    /// Its name stands for a newer job.
    pub superseded: bool,
    /// The servers that are processes of their own, by number.
    pub servers: Vec<ServerSeat>,
    /// Switches of the fabric that cannot be reached.
    pub absences: Vec<Absence>,
    /// Changes of what is known of who is gone.
    pub departures: u32,
    /// What of it operators were told.
    pub(crate) told: Told,
}

impl Running {
    pub fn new(now: Time, plan: Arc<Plan>, client: Client, tickets: Vec<Ticket>) -> Running {
        let members = tickets.into_iter().map(|ticket| Member::new(now, Some(ticket))).collect();
        let above = plan.uplink.as_ref().map(|_| Member::new(now, None));
        let seat = ServerSeat { state: MemberState::Present, since: now };
        let servers = vec![seat; plan.servers.dedicated().len()];
        let (absences, departures) = (Vec::new(), 0);
        let sharing = None;
        Running {
            plan,
            client,
            sharing,
            members,
            above,
            started: None,
            superseded: false,
            servers,
            absences,
            departures,
            told: Told::default(),
        }
    }

    /// A job that was installed before this control plane was started; its members have their lease to be heard.
    pub fn adopted(now: Time, plan: Arc<Plan>) -> Running {
        let members = plan.children.iter().map(|_| Member::new(now, None)).collect();
        let client = Client::at(plan.workers.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |first| first.ip()));
        Running { members, started: Some(now), ..Running::new(now, plan, client, Vec::new()) }
    }

    /// Slots over all shards that it has here now.
    pub fn slots(&self) -> u16 {
        self.sharing.as_ref().map_or(self.plan.slots, |sharing| sharing.slots)
    }

    /// What it is charged now.
    pub fn memory_bytes(&self) -> u64 {
        let of_share = |sharing: &Sharing| JobShape { slots: sharing.slots, ..sharing.most.clone() }.bytes();
        self.sharing.as_ref().map_or(self.plan.memory_bytes, of_share)
    }

    /// The job is installed: leases begin. Returns the joins to answer.
    pub fn start(&mut self, now: Time) -> Vec<Ticket> {
        self.started = Some(now);
        self.members.iter_mut().filter_map(|member| member.ticket.take()).collect()
    }

    pub fn into_waiting(self) -> Vec<Ticket> {
        self.members.into_iter().filter_map(|member| member.ticket).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().chain(&self.above)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().chain(&mut self.above)
    }

    /// True while every member is there.
    pub fn is_whole(&self) -> bool {
        let is_there = |seat: &ServerSeat| seat.state == MemberState::Present;
        self.all().all(|member| member.state == MemberState::Present && !member.renounced)
            && self.servers.iter().all(is_there)
    }

    /// True if all members have said that they have finished.
    pub fn has_ended_well(&self) -> bool {
        self.members.iter().all(|member| member.state == MemberState::Left)
    }

    /// A switch below has begun the name's next job.
    pub fn renounce(&mut self, incarnation: u64) {
        for (member, child) in self.members.iter_mut().zip(&self.plan.children) {
            member.renounced |= child.incarnation == Some(incarnation);
        }
    }

    /// The child that a rank is, if it has come here and not to a switch below.
    pub fn worker(&self, rank: u16) -> Option<ChildId> {
        self.plan.child_of(rank).filter(|wid| self.plan.children[wid.index()].incarnation.is_none())
    }

    pub fn leave(&mut self, now: Time, wid: ChildId) {
        if let Some(member) = self.members.get_mut(wid.index()) {
            self.departures += u32::from(member.enter(MemberState::Left, now));
        }
    }

    pub fn lose(&mut self, since: Time, wid: ChildId) {
        if let Some(member) = self.members.get_mut(wid.index()) {
            self.departures += u32::from(member.enter(MemberState::Lost, since));
        }
    }

    pub fn withdraw(&mut self, now: Time, ticket: Ticket) {
        for member in self.members.iter_mut().filter(|member| member.ticket == Some(ticket)) {
            (member.state, member.since, member.ticket) = (MemberState::Left, now, None);
            self.departures += 1;
        }
    }

    pub fn heard(&mut self, wid: ChildId, at: Time) {
        if let Some(member) = self.members.get_mut(wid.index()) {
            self.departures += u32::from(member.hear(at));
        }
    }

    pub fn heard_above(&mut self, at: Time) {
        if let Some(above) = &mut self.above {
            self.departures += u32::from(above.hear(at));
        }
    }

    pub fn lose_above(&mut self, since: Time) {
        if let Some(above) = &mut self.above {
            self.departures += u32::from(above.enter(MemberState::Lost, since));
        }
    }

    /// Calls every member lost that has been silent for `limit`; true if there was one.
    pub fn lose_silent(&mut self, now: Time, limit: Span) -> bool {
        let started = self.started;
        let mut lost = 0;
        for member in self.all_mut() {
            if member.silent_since(started).is_some_and(|since| since + limit <= now) {
                lost += u32::from(member.enter(MemberState::Lost, now));
            }
        }
        self.departures += lost;
        lost > 0
    }

    /// The earliest time at which a member will have been silent for `limit`.
    pub fn next_silent(&self, limit: Span) -> Option<Time> {
        self.all().filter_map(|member| member.silent_since(self.started)).map(|since| since + limit).min()
    }

    fn first_loss(&self) -> Option<Time> {
        let members = self.all().map(|member| (member.state, member.since));
        // A server's work cannot be done without it, however it went.
        let gone = self.servers.iter().filter(|seat| seat.state != MemberState::Present);
        let servers = gone.map(|seat| (MemberState::Lost, seat.since));
        members.chain(servers).filter(|&(state, _)| state == MemberState::Lost).map(|(_, since)| since).min()
    }

    /// The next time at which a lease or the grace period ends.
    pub fn due(&self, timers: &Timers) -> Option<Time> {
        let grace = self.first_loss().map(|loss| loss + timers.grace);
        let bereft = self.next_bereft(timers);
        [grace, bereft, self.next_silent(timers.lease)].into_iter().flatten().min()
    }

    pub fn is_over(&self, now: Time, timers: &Timers) -> bool {
        let all_gone = self.members.iter().all(|member| member.state != MemberState::Present);
        // Joins that wait for the installation are answered before the job goes.
        let answered = self.started.is_some();
        let lost = self.first_loss();
        // In other racks there may be members that still want to hear from this switch who is missing.
        let is_asked = |above: &Member| above.state == MemberState::Present;
        let asked_from_above = self.above.as_ref().is_some_and(is_asked) && !self.superseded && lost.is_some();
        answered && (all_gone && !asked_from_above || lost.is_some_and(|loss| loss + timers.grace <= now))
    }
}
