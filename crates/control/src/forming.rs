//! The rendezvous: ranks come one by one until the job is complete, someone differs, or time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_proto::config::JobConfig;
use tributary_proto::ids::JobKey;
use tributary_proto::time::{Span, Time};

use crate::admission::{Free, Limits, grant};
use crate::control::{Control, Effect, Plan, Ticket};
use crate::levels::{self, Ascent, Child, SwitchPlace, SwitchSeat, Uplink};
use crate::memory::JobShape;
use crate::name::JobName;
use crate::refusal::Refusal;
use crate::request::{JoinRequest, disagreement};
use crate::running::Running;

/// A rank that waits for the others.
pub(crate) struct Seat {
    pub ticket: Ticket,
    pub request: JoinRequest,
    pub fresh_key: JobKey,
    pub since: Time,
    /// The switch below that it has come to, by its incarnation; `None` if it has come here.
    pub via: Option<u64>,
}

impl Seat {
    pub fn deadline(&self, max_wait: Span) -> Time {
        self.since + self.request.timeout.min(max_wait)
    }
}

/// Who comes with one join: a worker, or all the ranks of a switch below. At least one seat, all with one ticket.
pub(crate) struct Party {
    pub seats: Vec<Seat>,
    pub switch: Option<(u64, SwitchSeat)>,
}

impl Party {
    pub fn ticket(&self) -> Ticket {
        self.seats[0].ticket
    }

    pub fn first_rank(&self) -> u16 {
        self.seats[0].request.rank
    }

    pub fn deadline(&self, max_wait: Span) -> Time {
        self.seats.iter().map(|seat| seat.deadline(max_wait)).min().expect("a seat")
    }

    fn via(&self) -> Option<u64> {
        self.switch.as_ref().map(|(incarnation, _)| *incarnation)
    }
}

/// A job whose ranks still come. It holds no memory yet.
pub(crate) struct Forming {
    pub seats: BTreeMap<u16, Seat>,
    /// The switches below that some ranks have come to.
    pub switches: BTreeMap<u64, SwitchSeat>,
    pub since: Time,
    /// Since when it has been known that all ranks are there and a predecessor still holds memory.
    pub full_since: Option<Time>,
    /// There is a switch above, which alone knows when all have come.
    has_parent: bool,
    /// The last question to it ...
    question: u64,
    /// ... and its answer.
    ascent: Option<Ascent>,
    /// The ranks that it misses, as far as it has said.
    pub missing_above: Option<Vec<u16>>,
}

impl Forming {
    fn new(now: Time, has_parent: bool) -> Forming {
        Forming {
            seats: BTreeMap::new(),
            switches: BTreeMap::new(),
            since: now,
            full_since: None,
            has_parent,
            question: 0,
            ascent: None,
            missing_above: None,
        }
    }

    fn requests(&self) -> impl Iterator<Item = &JoinRequest> + Clone {
        self.seats.values().map(|seat| &seat.request)
    }

    /// What the ranks so far agree on. A forming job has at least one seat.
    pub fn world(&self) -> u16 {
        self.requests().next().map_or(0, |request| request.world)
    }

    pub fn is_full(&self) -> bool {
        if self.has_parent { self.ascent.is_some() } else { self.seats.len() >= usize::from(self.world()) }
    }

    fn has_ticket(&self, ticket: Ticket) -> bool {
        self.seats.values().any(|seat| seat.ticket == ticket)
    }

    pub fn children(&self) -> Vec<Child> {
        levels::children(self.seats.values().map(|seat| (&seat.request, seat.via)), &self.switches)
    }

    /// The switches of the tree below this one.
    fn places(&self) -> Vec<SwitchPlace> {
        self.switches.values().flat_map(|switch| switch.switches.iter().cloned()).collect()
    }

    /// Why a party cannot have its seats.
    fn objection(&self, name: &JobName, party: &Party) -> Option<Refusal> {
        let via = party.via();
        if let Some((incarnation, switch)) = &party.switch
            && self.switches.get(incarnation).is_some_and(|there| there.question > switch.question)
        {
            return Some(Refusal::AskedAgain { job: name.clone(), rank: party.first_rank() });
        }
        party.seats.iter().find_map(|seat| {
            let JoinRequest { rank, addr, incarnation, .. } = seat.request;
            let rival = self.seats.get(&rank).filter(|there| there.request.incarnation != incarnation);
            // Whom a switch no longer brings is gone.
            if let Some(rival) = rival.filter(|rival| via.is_none() || rival.via != via) {
                return Some(Refusal::RankTaken { job: name.clone(), rank, holder: rival.request.addr });
            }
            // Racks may be networks of their own, in which an address means something else.
            let others = self.seats.values().filter(|other| other.request.rank != rank && other.via == seat.via);
            let same = others.map(|other| &other.request).find(|other| via.is_none() && other.addr == addr)?;
            Some(Refusal::AddressTaken { job: name.clone(), a: same.rank, b: rank, addr })
        })
    }

    /// Gives a party its seats, in place of those that it had before; gives the joins that it has replaced.
    fn place(&mut self, party: Party) -> BTreeSet<Ticket> {
        let mut replaced = BTreeSet::new();
        if let Some(via) = party.via() {
            replaced.extend(self.remove_switch(via));
        }
        self.switches.extend(party.switch);
        for seat in party.seats {
            replaced.extend(self.seats.insert(seat.request.rank, seat).map(|old| old.ticket));
        }
        replaced.retain(|&ticket| !self.has_ticket(ticket));
        replaced
    }

    fn remove_switch(&mut self, incarnation: u64) -> BTreeSet<Ticket> {
        self.switches.remove(&incarnation);
        let of_it = |seat: &Seat| seat.via == Some(incarnation);
        let tickets = self.seats.values().filter(|seat| of_it(seat)).map(|seat| seat.ticket).collect();
        self.seats.retain(|_, seat| !of_it(seat));
        tickets
    }

    pub fn missing(&self) -> Vec<u16> {
        match &self.missing_above {
            Some(missing) => missing.clone(),
            // Only the switch above knows who has come elsewhere.
            None if self.has_parent => Vec::new(),
            None => (0..self.world()).filter(|rank| !self.seats.contains_key(rank)).collect(),
        }
    }

    /// The shape that the ranks so far ask for.
    pub fn wish(&self, shards: u16) -> JobShape {
        let below = self.switches.len() as u16;
        let workers = self.seats.values().filter(|seat| seat.via.is_none()).count() as u16;
        let most = self.switches.values().map(|switch| switch.most_slots).min().unwrap_or(u16::MAX);
        let first = self.requests().next().expect("a forming job has a seat");
        let fit = self.requests().map(|request| request.max_elements_per_packet).min().expect("a seat");
        let slots = self.requests().find_map(|request| request.slots);
        let suggested = self.requests().map(|request| request.suggested_slots).max().expect("a seat");
        JobShape {
            protocol: first.protocol,
            slots: slots.unwrap_or(suggested).min(most),
            elements_per_packet: self.requests().find_map(|request| request.elements_per_packet).unwrap_or(fit),
            world: first.world,
            children: workers + below,
            neighbours: below + u16::from(self.has_parent),
            shards,
        }
    }

    /// Why these ranks can never be one job.
    fn contradiction(&self, name: &JobName) -> Option<Refusal> {
        if let Some(what) = disagreement(self.requests()) {
            return Some(Refusal::Disagreement { job: name.clone(), what });
        }
        let asked = self.wish(1).elements_per_packet;
        let narrow = self.requests().find(|request| request.max_elements_per_packet < asked)?;
        let (rank, fit) = (narrow.rank, narrow.max_elements_per_packet);
        Some(Refusal::PathTooNarrow { job: name.clone(), rank, fit, asked })
    }
}

/// A rendezvous that failed because ranks differ: told to the ranks that come late to it, once to each.
pub(crate) struct Quarrel {
    refusal: Refusal,
    told: BTreeSet<u16>,
    pub until: Time,
}

impl Quarrel {
    /// Ranks of one job start within a few seconds of each other.
    const MEMORY: Span = Span::from_millis(5_000);
}

impl Control {
    /// The first rank of a new job. It is refused at once where the job could not be admitted anyway.
    pub(crate) fn found(&mut self, now: Time, name: &JobName, party: Party) -> Result<(), Refusal> {
        if let Some(quarrel) = self.quarrels.get_mut(name).filter(|quarrel| now < quarrel.until) {
            let before = quarrel.told.len();
            quarrel.told.extend(party.seats.iter().map(|seat| seat.request.rank));
            if quarrel.told.len() > before {
                return Err(quarrel.refusal.clone());
            }
            // Who was told and comes again is a new attempt.
            self.quarrels.remove(name);
        }
        // What runs under this name makes way, unless its members live on: hence the second bound.
        let most = self.limits.max_jobs.min(Limits::MAX_JOBS);
        let others = self.forming.len() + self.running.values().filter(|job| job.plan.name != *name).count();
        if others >= usize::from(most) || self.running.len() >= 2 * usize::from(most) {
            return Err(Refusal::TooManyJobs { most });
        }
        let mut forming = Forming::new(now, self.has_parent);
        forming.place(party);
        let check = match forming.contradiction(name) {
            Some(refusal) if !self.has_parent => Err(refusal),
            // What jobs of this name hold is theirs to give back by the time that all ranks have come.
            _ => grant(&self.limits, name, forming.wish(self.limits.shards), self.free(name, true)).map(|_| ()),
        };
        check?;
        if let Some(old) = self.owners.remove(name).and_then(|id| self.running.get_mut(&id)) {
            old.superseded = true;
        }
        self.forming.insert(name.clone(), forming);
        self.try_complete(now, name);
        Ok(())
    }

    /// One more party of a job that forms.
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
        // Bounded: at most as many quarrels as jobs may form.
        if self.quarrels.len() < usize::from(self.limits.max_jobs) {
            self.quarrels.insert(name.clone(), Quarrel { refusal, told, until: now + Quarrel::MEMORY });
        }
    }

    /// Ends a rendezvous with the same sentence for everyone; returns who was told.
    pub(crate) fn fail_forming(&mut self, name: &JobName, refusal: &Refusal) -> BTreeSet<u16> {
        let Some(forming) = self.forming.remove(name) else { return BTreeSet::new() };
        self.forget_above(name, &forming);
        let tickets: BTreeSet<Ticket> = forming.seats.values().map(|seat| seat.ticket).collect();
        for ticket in tickets {
            self.answer(ticket, Err(refusal.clone()));
        }
        forming.seats.into_keys().collect()
    }

    /// Admits the job if all ranks are there, unless it has predecessors: whether they live is judged on the newest
    /// signs of life only.
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
    fn complete(&mut self, now: Time, name: &JobName) {
        self.retire_predecessors(now, name);
        if self.has_parent {
            return self.complete_below(now, name);
        }
        let Some(forming) = self.forming.get_mut(name) else { return };
        let full_since = *forming.full_since.get_or_insert(now);
        let wish = forming.wish(self.limits.shards);
        let ideal = grant(&self.limits, name, wish, self.free(name, true));
        let granted = grant(&self.limits, name, wish, self.free(name, false));
        if granted != ideal && now < full_since + self.limits.timers.succession() {
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
        let Some(forming) = self.forming.remove(name) else { return };
        let key = forming.seats.values().next().expect("a seat").fresh_key;
        let config = shape.config(self.next_id(), key);
        let workers = forming.seats.values().map(|seat| seat.request.addr).collect();
        self.install_formed(now, name, forming, shape, config, workers, None);
    }

    #[allow(clippy::too_many_arguments)]
    fn install_formed(
        &mut self,
        now: Time,
        name: &JobName,
        forming: Forming,
        shape: JobShape,
        config: JobConfig,
        workers: Vec<SocketAddr>,
        above: Option<(Uplink, Vec<SwitchPlace>)>,
    ) {
        let children = forming.children();
        let ticket = |child: &Child| forming.seats[&child.below.ranks()[0].0].ticket;
        let tickets = children.iter().map(ticket).collect();
        let (uplink, switches) = above.map_or((None, forming.places()), |(uplink, all)| (Some(uplink), all));
        let (protocol, memory_bytes) = (shape.protocol, shape.bytes());
        let plan = Plan { name: name.clone(), protocol, config, children, workers, switches, uplink, memory_bytes };
        self.install(Running::new(now, Arc::new(plan), tickets));
    }

    /// Tells the switch above who has come here.
    fn ask_above(&mut self, now: Time, name: &JobName) {
        let Some(forming) = self.forming.get(name) else { return };
        let most_slots = match grant(&self.limits, name, forming.wish(self.limits.shards), self.free(name, true)) {
            Ok(shape) => shape.slots,
            Err(refusal) => {
                self.fail_forming(name, &refusal);
                return;
            }
        };
        let ranks = forming.seats.values().map(|seat| (seat.request.clone(), now.since(seat.since))).collect();
        let switches = forming.places();
        self.last_question += 1;
        let question = self.last_question;
        let forming = self.forming.get_mut(name).expect("looked up above");
        (forming.question, forming.ascent) = (question, None);
        self.effect(Effect::Ascend { name: name.clone(), question, ranks, most_slots, switches });
    }

    /// Takes the question to the switch above back.
    fn forget_above(&mut self, name: &JobName, forming: &Forming) {
        if let Some(ascent) = &forming.ascent {
            self.descend(name, ascent);
        } else if self.has_parent {
            let (ranks, switches) = (Vec::new(), Vec::new());
            let question = forming.question;
            self.effect(Effect::Ascend { name: name.clone(), question, ranks, most_slots: 0, switches });
        }
    }

    fn descend(&mut self, name: &JobName, ascent: &Ascent) {
        let Ascent { job, key, wid, .. } = *ascent;
        self.effect(Effect::Descend { name: name.clone(), job, key, wid, lost: true });
    }

    /// The answer of the switch above to a question.
    pub fn ascended(&mut self, now: Time, name: &JobName, question: u64, outcome: Result<Ascent, Refusal>) {
        let waits = self.forming.get_mut(name).filter(|forming| forming.question == question);
        match (waits, outcome) {
            (None, Ok(ascent)) => self.descend(name, &ascent),
            (None, Err(_)) => {}
            (Some(forming), Ok(ascent)) => {
                forming.ascent = Some(ascent);
                self.complete(now, name);
            }
            (Some(forming), Err(refusal)) => {
                let only = refusal.rank().and_then(|rank| forming.seats.get(&rank)).map(|seat| seat.ticket);
                match only {
                    Some(ticket) => {
                        self.answer(ticket, Err(refusal));
                        self.withdraw_forming(now, ticket);
                    }
                    None => drop(self.fail_forming(name, &refusal)),
                }
            }
        }
    }

    /// What the switch above misses, for people.
    pub fn missing_above(&mut self, name: &JobName, missing: Vec<u16>) {
        if let Some(forming) = self.forming.get_mut(name) {
            forming.missing_above = Some(missing);
        }
    }

    /// Installs what the switch above has admitted, as soon as there is memory for it.
    fn complete_below(&mut self, now: Time, name: &JobName) {
        let shards = self.limits.shards;
        let Some(forming) = self.forming.get_mut(name) else { return };
        let full_since = *forming.full_since.get_or_insert(now);
        let Some(ascent) = &forming.ascent else { return };
        let (slots, elements_per_packet) = (ascent.slots, ascent.elements_per_packet);
        let shape = JobShape { slots, elements_per_packet, ..forming.wish(shards) };
        // The pool that the switch above has granted, or nothing.
        let fits = |granted: Result<JobShape, Refusal>| match granted {
            Ok(granted) if granted.slots == slots => Ok(()),
            Ok(_) => Err(None),
            Err(refusal) => Err(Some(refusal)),
        };
        let later = fits(grant(&self.limits, name, shape, self.free(name, true)));
        let Err(refusal) = fits(grant(&self.limits, name, shape, self.free(name, false))) else {
            let forming = self.forming.remove(name).expect("looked up above");
            return self.install_below(now, name, forming, shape);
        };
        if later.is_ok() && now < full_since + self.limits.timers.succession() {
            return;
        }
        let refusal = refusal.unwrap_or_else(|| Refusal::Full {
            job: name.clone(),
            free: self.free(name, false).switch,
            total: self.limits.memory_bytes,
            need: shape.bytes(),
            slots,
            elements: elements_per_packet,
            world: shape.world,
        });
        self.fail_forming(name, &refusal);
    }

    fn install_below(&mut self, now: Time, name: &JobName, mut forming: Forming, shape: JobShape) {
        let Some(Ascent { job, key, wid, shards, workers, switches, .. }) = forming.ascent.take() else { return };
        // The switch above has given the id anew, so whatever has it here ended there long ago.
        let orphans = self.remove(job);
        for ticket in orphans {
            self.answer(ticket, Err(Refusal::UnknownJob { job: name.clone() }));
        }
        let above = (Uplink { wid, shards }, switches);
        self.install_formed(now, name, forming, shape, shape.config(job, key), workers, Some(above));
    }

    /// Free memory for a job of this name; with `succeeding` as if its predecessors were gone already.
    fn free(&self, name: &JobName, succeeding: bool) -> Free {
        let counted = |job: &&Running| !(succeeding && job.plan.name == *name);
        let used: u64 = self.running.values().filter(counted).map(|job| job.plan.memory_bytes).sum();
        let quota = self.limits.quota(name).and_then(|quota| {
            let same = self.running.values().filter(counted).filter(|job| job.plan.name.matches(&quota.jobs));
            Some(quota.memory_bytes?.saturating_sub(same.map(|job| job.plan.memory_bytes).sum()))
        });
        Free { switch: self.limits.memory_bytes.saturating_sub(used), quota }
    }

    /// Fails what has waited too long, and admits what waited for its predecessor's end.
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

    /// True if all ranks below this switch that the name's former jobs had have come anew: the switch above waits for
    /// their end.
    fn succeeds_below(&self, name: &JobName) -> bool {
        let anew = |forming: &Forming| {
            let mut former = self.predecessors(name).flat_map(|job| job.plan.ranks_below());
            former.all(|rank| forming.seats.contains_key(&rank))
        };
        self.has_parent && self.forming.get(name).is_some_and(anew)
    }

    /// How much longer than its ranks a job waits here: the switch above is the one to say who did not come.
    fn patience(&self) -> Span {
        const FOR_THE_SWITCH_ABOVE: Span = Span::from_millis(2_000);
        if self.has_parent { FOR_THE_SWITCH_ABOVE } else { Span::ZERO }
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

    /// A switch below takes its join back.
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

    fn vacate(&mut self, now: Time, name: &JobName, goes: impl Fn(&Seat) -> bool) {
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
