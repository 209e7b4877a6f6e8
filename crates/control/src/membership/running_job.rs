//! A job that uses memory: which of its members are alive, and when it ends.

use std::net::Ipv4Addr;
use std::sync::Arc;

use tributary_proto::contract::ids::ChildId;
use tributary_proto::contract::time::{Span, Time};

use crate::admission::Timers;
use crate::admission::ledger::{Account, Charge};
use crate::admission::{JobShape, TreeCharge};
use crate::effect::{Plan, Ticket};
use crate::large_sums::LargeSums;
use crate::membership::watch::{LivenessProbe, Watch};
use crate::membership::{Departed, MemberState, Outage};
use crate::names::Client;
use crate::servers::ServerAddr;

/// One child of a running job, or the parent switch.
pub(crate) struct Member {
    pub state: MemberState,
    /// When the state began.
    pub since: Time,
    /// How many of the job's first collectives it had completed when it left.
    pub completed: u64,
    /// When its last packet came; `None` before the first.
    pub last_seen: Option<Time>,
    /// The connections that the member keeps open while it is alive.
    pub watch: Watch,
    /// What its host says when the closed connection looks like the member's end.
    pub probe: LivenessProbe,
    /// Who is gone behind the member, as it has reported if it is a switch.
    pub reported: Departed,
    /// The join that is answered once the job is installed.
    ticket: Option<Ticket>,
    /// The child switch has begun the name's next job.
    dropped: bool,
    /// It stays lost, whatever comes from it: an operator has evicted it, or it has said so itself.
    stays_lost: bool,
}

impl Member {
    fn new(now: Time, ticket: Option<Ticket>) -> Member {
        Member {
            state: MemberState::Present,
            since: now,
            completed: 0,
            last_seen: None,
            watch: Watch::default(),
            probe: LivenessProbe::default(),
            reported: Departed::default(),
            ticket,
            dropped: false,
            stays_lost: false,
        }
    }

    /// A packet came from the member; true if it was lost until now.
    fn seen(&mut self, at: Time) -> bool {
        if self.last_seen.is_some_and(|last| last >= at) {
            return false;
        }
        self.last_seen = Some(at);
        self.state == MemberState::Lost && !self.stays_lost && self.enter(MemberState::Present, at)
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
        (self.state == MemberState::Present).then(|| self.last_seen.map_or(started, |last| last.max(started)))
    }
}

/// The state of a job's server.
#[derive(Clone, Copy)]
pub(crate) struct ServerStatus {
    pub state: MemberState,
    /// When the state began.
    pub since: Time,
}

/// A job's slots of the memory that resizable jobs divide.
pub(crate) struct DividedSlots {
    /// The job's shape, with the most slots that it may ever have.
    pub most: JobShape,
    /// The job's slots now.
    pub now: u16,
}

/// The members that are gone as operators saw them last.
#[derive(Default)]
pub(crate) struct Reported {
    /// The value of `departures` then.
    pub departures: u32,
    pub lost: Departed,
}

/// A job that uses memory.
pub(crate) struct RunningJob {
    pub plan: Arc<Plan>,
    /// The client that is charged for the job.
    pub client: Client,
    /// The job's slots if they change while it runs.
    pub divided: Option<DividedSlots>,
    /// What it is charged at each switch of a fabric, if it is charged by its trees and these are planned.
    pub tree_charge: Option<TreeCharge>,
    /// The members by `wid`.
    pub members: Vec<Member>,
    /// The parent switch, if there is one.
    pub parent: Option<Member>,
    /// When its members were answered; `None` until the job is installed.
    pub started: Option<Time>,
    /// The job's name stands for a newer job.
    pub superseded: bool,
    /// An operator ends the job.
    pub ended_by_operator: bool,
    /// The servers that are processes of their own, by number.
    pub servers: Vec<ServerStatus>,
    /// Switches of the fabric that cannot be reached.
    pub outages: Vec<Outage>,
    /// When losses were last checked, by everything that the driver knew then.
    pub checked: Time,
    /// A number that changes whenever a member, switch or server is known to be gone or back.
    pub departures: u32,
    /// What operators know of the job.
    pub reported: Reported,
    /// Where its large sums are made, as a member has reported last.
    pub large_sums: Option<LargeSums>,
}

impl RunningJob {
    pub fn new(now: Time, plan: Arc<Plan>, client: Client, tickets: Vec<Ticket>) -> RunningJob {
        let members = tickets.into_iter().map(|ticket| Member::new(now, Some(ticket))).collect();
        let parent = plan.uplink.as_ref().map(|_| Member::new(now, None));
        let status = ServerStatus { state: MemberState::Present, since: now };
        let servers = vec![status; plan.servers.dedicated().len()];
        RunningJob {
            plan,
            client,
            divided: None,
            tree_charge: None,
            members,
            parent,
            started: None,
            superseded: false,
            ended_by_operator: false,
            servers,
            outages: Vec::new(),
            checked: now,
            departures: 0,
            reported: Reported::default(),
            large_sums: None,
        }
    }

    /// A job that was installed before this control plane was started. Its members have one lease to send something.
    pub fn adopted(now: Time, plan: Arc<Plan>) -> RunningJob {
        let members = plan.children.iter().map(|_| Member::new(now, None)).collect();
        let client = Client::at(plan.workers.first().map_or(Ipv4Addr::UNSPECIFIED.into(), |first| first.ip()));
        RunningJob { members, started: Some(now), ..RunningJob::new(now, plan, client, Vec::new()) }
    }

    /// The job's slots over all shards of this switch now.
    pub fn slots(&self) -> u16 {
        let fixed = self.tree_charge.as_ref().map_or(self.plan.slots, |charge| charge.slots);
        self.divided.as_ref().map_or(fixed, |divided| divided.now)
    }

    /// The bytes that the job is charged now, at the switch where these are the most.
    pub fn memory_bytes(&self) -> u64 {
        self.charge().bytes()
    }

    fn charge(&self) -> Charge<'_> {
        match (&self.divided, &self.tree_charge) {
            (Some(DividedSlots { most, now }), _) => Charge::Divided { most, slots: *now },
            (None, Some(charge)) => Charge::Trees(charge),
            (None, None) => Charge::Fixed(self.plan.memory_bytes),
        }
    }

    /// The job as admission sees it.
    pub fn account(&self) -> Account<'_> {
        Account {
            id: self.plan.config.job,
            name: &self.plan.name,
            client: &self.client,
            protocol: self.plan.protocol,
            charge: self.charge(),
        }
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
        self.members.iter().chain(&self.parent)
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().chain(&mut self.parent)
    }

    /// True while every member is there.
    pub fn is_complete(&self) -> bool {
        let is_there = |server: &ServerStatus| server.state == MemberState::Present;
        self.all().all(|member| member.state == MemberState::Present && !member.dropped)
            && self.servers.iter().all(is_there)
    }

    /// How many of the job's first collectives all members had completed when they left; `None` unless all have left in
    /// good order.
    pub fn completed(&self) -> Option<u64> {
        let of = |member: &Member| (member.state == MemberState::Left).then_some(member.completed);
        self.members.iter().map(of).min().flatten()
    }

    /// A child switch has begun the name's next job.
    pub fn drop_child(&mut self, incarnation: u64) {
        for (member, child) in self.members.iter_mut().zip(&self.plan.children) {
            member.dropped |= child.incarnation == Some(incarnation);
        }
    }

    /// The child that a rank is, if it has come here and not to a child switch.
    pub fn worker(&self, rank: u16) -> Option<ChildId> {
        self.plan.child_of(rank).filter(|wid| self.plan.children[wid.index()].incarnation.is_none())
    }

    /// A member leaves that has completed this many collectives; without a number it can no longer contribute to what others
    /// have begun, so that they must not wait.
    pub fn leave(&mut self, now: Time, wid: ChildId, completed: Option<u64>) {
        let Some(completed) = completed else { return self.lose_permanently(now, wid) };
        if let Some(member) = self.members.get_mut(wid.index()) {
            member.completed = completed;
            self.departures += u32::from(member.enter(MemberState::Left, now));
        }
    }

    pub fn lose(&mut self, since: Time, wid: ChildId) {
        if let Some(member) = self.members.get_mut(wid.index()) {
            self.departures += u32::from(member.enter(MemberState::Lost, since));
        }
    }

    /// Calls a member lost from which packets may still come.
    pub fn lose_permanently(&mut self, now: Time, wid: ChildId) {
        self.lose(now, wid);
        if let Some(member) = self.members.get_mut(wid.index()) {
            member.stays_lost = true;
        }
    }

    pub fn withdraw(&mut self, now: Time, ticket: Ticket) {
        for member in self.members.iter_mut().filter(|member| member.ticket == Some(ticket)) {
            (member.state, member.since, member.ticket) = (MemberState::Left, now, None);
            self.departures += 1;
        }
    }

    pub fn member_seen(&mut self, wid: ChildId, at: Time) {
        if let Some(member) = self.members.get_mut(wid.index()) {
            self.departures += u32::from(member.seen(at));
        }
    }

    pub fn parent_seen(&mut self, at: Time) {
        if let Some(parent) = &mut self.parent {
            self.departures += u32::from(parent.seen(at));
        }
    }

    pub fn lose_parent(&mut self, since: Time) {
        if let Some(parent) = &mut self.parent {
            self.departures += u32::from(parent.enter(MemberState::Lost, since));
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
        let gone = self.servers.iter().filter(|server| server.state != MemberState::Present);
        let servers = gone.map(|server| (MemberState::Lost, server.since));
        members.chain(servers).filter(|&(state, _)| state == MemberState::Lost).map(|(_, since)| since).min()
    }

    /// The next time at which a lease or the grace period ends.
    pub fn due(&self, timers: &Timers) -> Option<Time> {
        let grace = self.first_loss().map(|loss| loss + timers.grace);
        let check = self.next_loss_check(timers);
        [grace, check, self.next_lease_check(timers)].into_iter().flatten().min()
    }

    pub fn is_over(&self, now: Time, timers: &Timers) -> bool {
        let all_gone = self.members.iter().all(|member| member.state != MemberState::Present);
        // Joins that wait for the installation are answered before the job is removed.
        let answered = self.started.is_some();
        let lost = self.first_loss();
        // Members in other racks may still want this switch's report on missing ranks.
        let is_there = |parent: &Member| parent.state == MemberState::Present;
        let parent_waits = self.parent.as_ref().is_some_and(is_there) && !self.superseded && lost.is_some();
        answered && (all_gone && !parent_waits || lost.is_some_and(|loss| loss + timers.grace <= now))
    }

    /// A server has changed its state.
    pub fn set_server_state(&mut self, now: Time, incarnation: u64, state: MemberState) {
        let servers = self.plan.servers.dedicated().iter().zip(&mut self.servers);
        for (_, server) in servers.filter(|(server, _)| server.incarnation == Some(incarnation)) {
            if server.state != state {
                *server = ServerStatus { state, since: now };
                self.departures += 1;
            }
        }
    }

    /// The dedicated servers and their states, by number.
    pub fn server_states(&self) -> impl Iterator<Item = (ServerAddr, MemberState)> + '_ {
        let servers = (0..).zip(self.plan.servers.dedicated()).zip(&self.servers);
        servers.map(|((server, of), status)| (ServerAddr { server, addr: of.addr }, status.state))
    }
}
