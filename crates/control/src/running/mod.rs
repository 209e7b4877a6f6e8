//! Jobs that hold memory: which of their members are alive, when the jobs end, and which jobs may take their names.

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
use crate::client::Client;
use crate::holding::Holding;
use crate::memory::JobShape;
use crate::plan::{Plan, Ticket};
use crate::report::MemberState;
use crate::timers::Timers;
use crate::watch::{Departed, Suspicion, Watch};

/// One child of a running job, or the switch above.
pub(crate) struct Member {
    pub state: MemberState,
    /// When the state began.
    pub since: Time,
    /// The newest sign of life; `None` before the first.
    pub heard: Option<Time>,
    /// The connections that the member keeps open while it is alive.
    pub watch: Watch,
    /// What its host was asked when the closed connection looked like the member's end.
    pub suspicion: Suspicion,
    /// Who is gone behind the member, as it has reported if it is a switch.
    pub said: Departed,
    /// The join that is answered once the job is installed.
    ticket: Option<Ticket>,
    /// The switch below has begun the name's next job.
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

    /// Takes a sign of life; true if the member was lost until now.
    fn hear(&mut self, at: Time) -> bool {
        if self.heard.is_some_and(|heard| heard >= at) {
            return false;
        }
        self.heard = Some(at);
        self.state == MemberState::Lost && self.enter(MemberState::Present, at)
    }

    /// Sets the state; true if it has changed.
    fn enter(&mut self, state: MemberState, since: Time) -> bool {
        let changes = self.state != state;
        if changes {
            (self.state, self.since) = (state, since);
        }
        changes
    }

    /// Since when nothing has come from a member that should be there; `None` for members that are gone.
    pub fn silent_since(&self, started: Option<Time>) -> Option<Time> {
        let started = started?;
        (self.state == MemberState::Present).then(|| self.heard.map_or(started, |heard| heard.max(started)))
    }
}

/// The state of a job's server.
#[derive(Clone, Copy)]
pub(crate) struct ServerSeat {
    pub state: MemberState,
    /// When the state began.
    pub since: Time,
}

/// A job's part of the memory that jobs divide.
pub(crate) struct Sharing {
    /// The job's shape, with the most slots that it may ever have.
    pub most: JobShape,
    /// The job's slots now.
    pub slots: u16,
}

/// A job that holds memory.
pub(crate) struct Running {
    pub plan: Arc<Plan>,
    /// The client to whom the job is charged.
    pub client: Client,
    /// The job's part now of the memory that jobs divide; `None` if its slots never change.
    pub sharing: Option<Sharing>,
    /// What it holds of each switch of a fabric, if it is charged by its trees and these are planned.
    pub holding: Option<Holding>,
    /// The members by `wid`.
    pub members: Vec<Member>,
    /// The switch above, if there is one.
    pub above: Option<Member>,
    /// When its members were told; `None` until the job is installed.
    pub started: Option<Time>,
    /// The job's name stands for a newer job.
    pub superseded: bool,
    /// The servers that are processes of their own, by number.
    pub servers: Vec<ServerSeat>,
    /// Switches of the fabric that cannot be reached.
    pub absences: Vec<Absence>,
    /// When members were last judged, by all that the driver knew then.
    pub judged: Time,
    /// A number that changes whenever a member, switch or server is known to be gone or back.
    pub departures: u32,
    /// What operators were told of the job.
    pub(crate) told: Told,
}

impl Running {
    pub fn new(now: Time, plan: Arc<Plan>, client: Client, tickets: Vec<Ticket>) -> Running {
        let members = tickets.into_iter().map(|ticket| Member::new(now, Some(ticket))).collect();
        let above = plan.uplink.as_ref().map(|_| Member::new(now, None));
        let seat = ServerSeat { state: MemberState::Present, since: now };
        let servers = vec![seat; plan.servers.dedicated().len()];
        let (absences, departures) = (Vec::new(), 0);
        let (sharing, holding) = (None, None);
        Running {
            plan,
            client,
            sharing,
            holding,
            members,
            above,
            started: None,
            superseded: false,
            servers,
            absences,
            judged: now,
            departures,
            told: Told::default(),
        }
    }

    /// A job that was installed before this control plane was started. Its members have one lease to be heard.
    pub fn adopted(now: Time, plan: Arc<Plan>) -> Running {
        let members = plan.children.iter().map(|_| Member::new(now, None)).collect();
        let client = Client::at(plan.workers.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |first| first.ip()));
        Running { members, started: Some(now), ..Running::new(now, plan, client, Vec::new()) }
    }

    /// The job's slots over all shards of this switch now.
    pub fn slots(&self) -> u16 {
        let held = self.holding.as_ref().map_or(self.plan.slots, |holding| holding.slots);
        self.sharing.as_ref().map_or(held, |sharing| sharing.slots)
    }

    /// The bytes that the job is charged now, at the switch where these are the most.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes_with(None)
    }

    /// The bytes that the job is charged if it has so many slots of the memory that jobs divide, or as many as now.
    pub fn memory_bytes_with(&self, slots: Option<u16>) -> u64 {
        let of_share =
            |sharing: &Sharing| JobShape { slots: slots.unwrap_or(sharing.slots), ..sharing.most.clone() }.bytes();
        let held = self.holding.as_ref().map_or(self.plan.memory_bytes, Holding::most_bytes);
        self.sharing.as_ref().map_or(held, of_share)
    }

    /// The job is installed and its leases begin. Returns the joins to answer.
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
        // A job cannot go on without a server, however the server ended.
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
        // Joins that wait for the installation are answered before the job is removed.
        let answered = self.started.is_some();
        let lost = self.first_loss();
        // Members in other racks may still want this switch's report on missing ranks.
        let is_asked = |above: &Member| above.state == MemberState::Present;
        let asked_from_above = self.above.as_ref().is_some_and(is_asked) && !self.superseded && lost.is_some();
        answered && (all_gone && !asked_from_above || lost.is_some_and(|loss| loss + timers.grace <= now))
    }
}
