//! A rendezvous as ranks come and go, and its end: all have come, some rank differs, or time is over.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::contract::time::{Span, Time};

use crate::admission::{Free, Limits, grant};
use crate::client::Client;
use crate::control::Control;
use crate::control::holding::{held, held_with};
use crate::control::shares::Division;
use crate::forming::{Forming, Party, Quarrel, WaitingRank};
use crate::levels::{Child, SwitchPlace, Uplink};
use crate::memory::JobShape;
use crate::name::JobName;
use crate::plan::{Plan, Ticket};
use crate::refusal::Refusal;
use crate::running::{Running, Sharing};
use crate::servers::Servers;
use crate::trees::DEFAULT_TREES;

impl Control {
    /// Takes the first rank of a new job. It is refused at once if the job could not be admitted anyway.
    pub(crate) fn found(&mut self, now: Time, name: &JobName, party: Party) -> Result<(), Refusal> {
        if let Some(quarrel) = self.quarrels.get_mut(name).filter(|quarrel| now < quarrel.until) {
            let before = quarrel.told.len();
            quarrel.told.extend(party.seats.iter().map(|seat| seat.request.rank));
            if quarrel.told.len() > before {
                return Err(quarrel.refusal.clone());
            }
            // A rank that was told and comes again begins a new attempt.
            self.quarrels.remove(name);
        }
        // Jobs of this name make way, unless their members are alive: hence the second bound.
        let most = self.limits.max_jobs.min(Limits::MAX_JOBS);
        let others = self.forming.len() + self.running.values().filter(|job| job.plan.name != *name).count();
        if others >= usize::from(most) || self.running.len() >= 2 * usize::from(most) {
            return Err(Refusal::TooManyJobs { most });
        }
        let client = party.client().clone();
        let of_client = |other: &&Client| **other == client;
        let forming = self.forming.values().map(|forming| &forming.client).filter(of_client).count();
        let of_others = self.running.values().filter(|job| job.plan.name != *name).map(|job| &job.client);
        if let Some(most) = self.limits.share_of(&client).jobs
            && forming + of_others.filter(of_client).count() >= usize::from(most)
        {
            let (allowed, needed) = (format!("{most} jobs at a time"), "one more".into());
            return Err(Refusal::OverShare { job: name.clone(), client, allowed, needed });
        }
        let mut forming = Forming::new(now, client.clone(), self.has_parent);
        forming.place(party);
        let check = match forming.contradiction(name) {
            Some(refusal) if !self.has_parent => Err(refusal),
            // Jobs of this name should have given their memory back by the time that all ranks have come.
            _ => self.grant(name, &client, self.wish(&forming), true).map(|_| ()),
        };
        check?;
        if let Some(old) = self.owners.remove(name).and_then(|id| self.running.get_mut(&id)) {
            old.superseded = true;
        }
        self.forming.insert(name.clone(), forming);
        self.try_complete(now, name);
        Ok(())
    }

    /// Takes one more party of a job that forms.
    pub(crate) fn enter(&mut self, now: Time, name: &JobName, party: Party) -> Result<(), Refusal> {
        let forming = self.forming.get_mut(name).expect("the caller has looked");
        if let Some(refusal) = forming.objection(name, &party) {
            return Err(refusal);
        }
        let rank = party.first_rank();
        let replaced = forming.place(party);
        let contradiction = forming.contradiction(name).filter(|_| !self.has_parent);
        for ticket in replaced {
            self.answer(ticket, Err(Refusal::AskedAgain { job: name.clone(), rank }));
        }
        match contradiction {
            Some(refusal) => self.fail_quarrel(now, name, refusal),
            None => self.try_complete(now, name),
        }
        Ok(())
    }

    fn fail_quarrel(&mut self, now: Time, name: &JobName, refusal: Refusal) {
        let told = self.fail_forming(name, &refusal);
        // The number is bounded: there are at most as many quarrels as jobs may form.
        if self.quarrels.len() < usize::from(self.limits.max_jobs) {
            self.quarrels.insert(name.clone(), Quarrel { refusal, told, until: now + Quarrel::MEMORY });
        }
    }

    /// Ends a rendezvous with the same refusal for all its ranks; returns the ranks that were told.
    pub(crate) fn fail_forming(&mut self, name: &JobName, refusal: &Refusal) -> BTreeSet<u16> {
        let Some(forming) = self.forming.remove(name) else { return BTreeSet::new() };
        self.forget_above(name, &forming);
        let tickets: BTreeSet<Ticket> = forming.seats.values().map(|seat| seat.ticket).collect();
        for ticket in tickets {
            self.answer(ticket, Err(refusal.clone()));
        }
        forming.seats.into_keys().collect()
    }

    /// Admits the job if all ranks are there and it has no predecessors: only the newest signs of life decide whether
    /// these are alive.
    fn try_complete(&mut self, now: Time, name: &JobName) {
        let Some(forming) = self.forming.get_mut(name) else { return };
        // A rank may have asked again, for a larger world.
        forming.full_since = None;
        if self.has_parent {
            return self.ask_above(now, name);
        }
        if !forming.is_full() {
            return;
        }
        if self.predecessors(name).next().is_some() {
            self.urgent = true;
            return;
        }
        self.complete(now, name);
    }

    /// Admits a job with all its ranks if its memory is free, or will not become free by waiting for predecessors.
    pub(super) fn complete(&mut self, now: Time, name: &JobName) {
        self.retire_predecessors(now, name);
        if self.has_parent {
            return self.complete_below(now, name);
        }
        let Some(forming) = self.forming.get_mut(name) else { return };
        let full_since = *forming.full_since.get_or_insert(now);
        let client = forming.client.clone();
        let wish = self.wish(&self.forming[name]);
        let ideal = self.grant(name, &client, wish.clone(), true);
        let granted = self.grant(name, &client, wish.clone(), false);
        // Where room is found later, predecessors may be in the way of all that one switch could be asked for.
        let at_one = |succeeding| {
            grant(&self.limits, name, &client, wish.clone(), self.free(name, &client, wish.protocol, succeeding))
        };
        let may_crowd = self.finds_room_later(wish.protocol) && at_one(false) != at_one(true);
        if (granted != ideal || may_crowd) && now < full_since + self.limits.timers.succession() {
            return;
        }
        match granted {
            Ok(shape) => self.admit(now, name, shape),
            Err(refusal) => {
                self.fail_forming(name, &refusal);
            }
        }
    }

    fn admit(&mut self, now: Time, name: &JobName, shape: JobShape) {
        let Some(forming) = self.forming.get(name) else { return };
        let division = self.divided(name, &forming.client, self.wish(forming));
        let Some(forming) = self.forming.remove(name) else { return };
        let key = forming.seats.values().next().expect("a seat").fresh_key;
        // Members agree on the most slots that the job may ever have.
        let agreed = division.as_ref().map_or(&shape, |division| &division.most);
        let config = agreed.config(self.next_id(), key);
        let workers = forming.seats.values().map(|seat| seat.request.addr).collect();
        let (servers, _) = self.servers_for(shape.protocol, &forming.client);
        self.install_formed(now, name, forming, (shape, division), config, workers, servers, None);
    }

    /// What a job gets that was granted just now, if jobs divide the memory with it.
    pub(super) fn divided(&self, name: &JobName, client: &Client, wish: JobShape) -> Option<Division> {
        if wish.resizes() { self.division(name, client, wish, false).ok() } else { None }
    }

    /// The shape that the ranks so far ask for, with the servers that are there now.
    pub(super) fn wish(&self, forming: &Forming) -> JobShape {
        let wish = forming.wish(self.limits.shards);
        let servers = match self.servers_for(wish.protocol, &forming.client).0 {
            Servers::None => 0,
            Servers::Colocated => wish.world,
            // If jobs share a memory, slots are blocks of a window, and no server owns a part of them.
            Servers::Dedicated(_) if wish.protocol.shared.is_some() => 0,
            Servers::Dedicated(servers) => servers.len() as u16,
        };
        JobShape { servers, trees: self.planned_trees(wish.protocol, forming.trees()), ..wish }
    }

    /// The most trees that will divide the slots of a job that asks for `asked` trees, in each part of the switch.
    fn planned_trees(&self, protocol: &Protocol, asked: Option<u16>) -> u16 {
        match self.limits.planned_trees.filter(|_| protocol.placement == Placement::Trees) {
            Some(most) => asked.unwrap_or(DEFAULT_TREES).clamp(1, most.max(1)),
            None => 1,
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn install_formed(
        &mut self,
        now: Time,
        name: &JobName,
        forming: Forming,
        (mut shape, division): (JobShape, Option<Division>),
        config: JobConfig,
        workers: Vec<SocketAddr>,
        servers: Servers,
        above: Option<(Uplink, Vec<SwitchPlace>)>,
    ) {
        let children = forming.children();
        let ticket = |child: &Child| forming.seats[&child.below.ranks()[0].0].ticket;
        let tickets = children.iter().map(ticket).collect();
        let (uplink, switches) = above.map_or((None, forming.places()), |(uplink, all)| (Some(uplink), all));
        let (others, slots) = match &division {
            Some(division) => (&division.others[..], division.slots),
            None => (&[][..], shape.slots),
        };
        let bytes = JobShape { slots, ..shape.clone() }.bytes();
        self.make_way(others, Some((shape.protocol, bytes)));
        // The memory that other jobs lose is freed before the newcomer takes it.
        let sharing = division.map(|Division { most, slots, others }| {
            self.resize(&others);
            shape.slots = slots;
            Sharing { most, slots }
        });
        let (protocol, slots, memory_bytes) = (shape.protocol, shape.slots, shape.bytes());
        let trees = forming.trees();
        let name = name.clone();
        let plan =
            Plan { name, protocol, config, children, trees, workers, servers, switches, uplink, slots, memory_bytes };
        self.install(Running { sharing, ..Running::new(now, Arc::new(plan), forming.client, tickets) });
    }

    /// The shape that a job of this name and client gets, or why it gets none; see [`Control::free`].
    pub(super) fn grant(
        &self,
        name: &JobName,
        client: &Client,
        wish: JobShape,
        succeeding: bool,
    ) -> Result<JobShape, Refusal> {
        if wish.resizes() {
            let Division { most, slots, .. } = self.division(name, client, wish, succeeding)?;
            return Ok(JobShape { slots, ..most });
        }
        let counted = |job: &Running| !(succeeding && job.plan.name == *name);
        let mut free = self.free(name, client, wish.protocol, succeeding);
        free.switch = self.left_beside_shared(name, wish.protocol, free, counted)?;
        if self.finds_room_later(wish.protocol) {
            free.switch = u64::MAX;
        }
        grant(&self.limits, name, client, wish, free)
    }

    /// Free memory for a job of this name, client and protocol. `succeeding`: as if the job's predecessors were gone
    /// already.
    pub(super) fn free(&self, name: &JobName, client: &Client, protocol: &Protocol, succeeding: bool) -> Free {
        let counted = |job: &&Running| !(succeeding && job.plan.name == *name);
        let (held_by_switch, shared) = (
            held_with(self.running.values().filter(counted), Running::memory_bytes),
            self.shared_by(|job| counted(&job)),
        );
        // A machine that jobs share is at every switch. Other jobs do without the small ones.
        let is_there = |(memory, _): &(u64, u64)| protocol.shared.is_some() || *memory >= self.limits.memory_bytes;
        let room = |(memory, held): (u64, u64)| (memory.saturating_sub(held.saturating_add(shared)), memory);
        let rooms = held_by_switch.by_switch(&self.limits).filter(is_there).map(room);
        let (switch, total) = rooms.min().expect("most switches are like most");
        let quota = self.limits.quota(name).and_then(|quota| {
            let same = self.running.values().filter(counted).filter(|job| job.plan.name.matches(&quota.jobs));
            Some(quota.memory_bytes?.saturating_sub(held(same)))
        });
        let share = self.limits.share_of(client).memory_bytes.map(|most| {
            let own = self.running.values().filter(counted).filter(|job| job.client == *client);
            most.saturating_sub(held(own))
        });
        Free { switch, total, quota, share }
    }

    /// Fails jobs that have waited too long, and admits jobs that waited for their predecessor's end.
    pub(crate) fn expire_rendezvous(&mut self, now: Time) {
        let names: Vec<JobName> = self.forming.keys().cloned().collect();
        for name in names {
            if self.succeeds_below(&name) {
                self.retire_predecessors(now, &name);
            }
            let forming = &self.forming[&name];
            if forming.is_full() {
                self.complete(now, &name);
            } else if let Some(waited) = self.most_impatient(forming, now) {
                let (missing, world, job) = (forming.missing(), forming.world(), name.clone());
                let refusal = match self.has_parent {
                    false => Refusal::NotComing { job, missing, world, waited },
                    true => Refusal::AboveSilent { job, waited },
                };
                self.fail_forming(&name, &refusal);
            }
        }
    }

    fn most_impatient(&self, forming: &Forming, now: Time) -> Option<Span> {
        let (max_wait, patience) = (self.limits.timers.max_wait, self.patience());
        let over = forming.seats.values().filter(|seat| seat.deadline(max_wait) + patience <= now);
        over.map(|seat| seat.request.timeout.min(max_wait)).min()
    }

    pub(crate) fn forming_due(&self, name: &JobName, forming: &Forming) -> Time {
        let timers = &self.limits.timers;
        let silent = || self.predecessors(name).filter_map(|job| job.next_silent(timers.succession()));
        match forming.full_since {
            None => {
                let silent = silent().filter(|_| self.succeeds_below(name));
                let deadlines = forming.seats.values().map(|seat| seat.deadline(timers.max_wait) + self.patience());
                silent.chain(deadlines).min().expect("a seat")
            }
            Some(full) => silent().chain([full + timers.succession()]).min().expect("at least one"),
        }
    }

    pub(crate) fn withdraw_forming(&mut self, now: Time, ticket: Ticket) {
        let names: Vec<JobName> = self
            .forming
            .iter()
            .filter(|(_, forming)| forming.has_ticket(ticket))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.vacate(now, &name, |seat| seat.ticket == ticket);
        }
    }

    /// A switch below withdraws its join.
    pub(crate) fn withdraw_switch(&mut self, now: Time, name: &JobName, incarnation: u64, question: u64) {
        let Some(forming) = self.forming.get(name) else { return };
        if forming.switches.get(&incarnation).is_some_and(|there| there.question > question) {
            return;
        }
        let of_it = forming.seats.values().find(|seat| seat.via == Some(incarnation));
        if let Some(ticket) = of_it.map(|seat| seat.ticket) {
            self.answer(ticket, Err(Refusal::AskedAgain { job: name.clone(), rank: 0 }));
            self.vacate(now, name, |seat| seat.ticket == ticket);
        }
    }

    fn vacate(&mut self, now: Time, name: &JobName, goes: impl Fn(&WaitingRank) -> bool) {
        let Some(forming) = self.forming.get_mut(name) else { return };
        forming.full_since = None;
        forming.seats.retain(|_, seat| !goes(seat));
        let seats = &forming.seats;
        forming.switches.retain(|incarnation, _| seats.values().any(|seat| seat.via == Some(*incarnation)));
        if !forming.seats.is_empty() {
            if self.has_parent {
                self.ask_above(now, name);
            }
        } else if let Some(forming) = self.forming.remove(name) {
            self.forget_above(name, &forming);
        }
    }
}
