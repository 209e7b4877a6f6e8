//! The rendezvous: ranks come one by one until the job is complete, someone differs, or time is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tributary_proto::ids::JobKey;
use tributary_proto::time::{Span, Time};

use crate::admission::{Free, Limits, grant};
use crate::control::{Control, Plan, Ticket};
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
}

impl Seat {
    pub fn deadline(&self, max_wait: Span) -> Time {
        self.since + self.request.timeout.min(max_wait)
    }
}

/// A job whose ranks still come. It holds no memory yet.
pub(crate) struct Forming {
    pub seats: BTreeMap<u16, Seat>,
    pub since: Time,
    /// Since when it has been known that all ranks are there and a predecessor still holds memory.
    pub full_since: Option<Time>,
}

impl Forming {
    fn requests(&self) -> impl Iterator<Item = &JoinRequest> + Clone {
        self.seats.values().map(|seat| &seat.request)
    }

    /// What the ranks so far agree on. A forming job has at least one seat.
    pub fn world(&self) -> u16 {
        self.requests().next().map_or(0, |request| request.world)
    }

    pub fn is_full(&self) -> bool {
        self.seats.len() >= usize::from(self.world())
    }

    pub fn missing(&self) -> Vec<u16> {
        (0..self.world()).filter(|rank| !self.seats.contains_key(rank)).collect()
    }

    /// The shape that the ranks so far ask for.
    pub fn wish(&self, shards: u16) -> JobShape {
        let first = self.requests().next().expect("a forming job has a seat");
        let fit = self.requests().map(|request| request.max_elements_per_packet).min().expect("a seat");
        let slots = self.requests().find_map(|request| request.slots);
        let suggested = self.requests().map(|request| request.suggested_slots).max().expect("a seat");
        JobShape {
            protocol: first.protocol,
            slots: slots.unwrap_or(suggested),
            elements_per_packet: self.requests().find_map(|request| request.elements_per_packet).unwrap_or(fit),
            world: first.world,
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
    pub(crate) fn found(&mut self, now: Time, name: &JobName, seat: Seat) -> Result<(), Refusal> {
        if let Some(quarrel) = self.quarrels.get_mut(name).filter(|quarrel| now < quarrel.until) {
            if quarrel.told.insert(seat.request.rank) {
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
        let mut forming = Forming { seats: BTreeMap::new(), since: now, full_since: None };
        let rank = seat.request.rank;
        forming.seats.insert(rank, seat);
        let check = match forming.contradiction(name) {
            Some(refusal) => Err(refusal),
            // What jobs of this name hold is theirs to give back by the time that all ranks have come.
            None => grant(&self.limits, name, forming.wish(self.limits.shards), self.free(name, true)).map(|_| ()),
        };
        check?;
        if let Some(old) = self.owners.remove(name).and_then(|id| self.running.get_mut(&id)) {
            old.superseded = true;
        }
        self.forming.insert(name.clone(), forming);
        self.try_complete(now, name);
        Ok(())
    }

    /// One more rank of a job that forms.
    pub(crate) fn enter(&mut self, now: Time, name: &JobName, seat: Seat) -> Result<(), Refusal> {
        let forming = self.forming.get_mut(name).expect("the caller has looked");
        let request = &seat.request;
        let (rank, addr) = (request.rank, request.addr);
        let rival = forming.seats.get(&rank).filter(|there| there.request.incarnation != request.incarnation);
        if let Some(rival) = rival {
            return Err(Refusal::RankTaken { job: name.clone(), rank, holder: rival.request.addr });
        }
        let others = forming.seats.values().filter(|other| other.request.rank != rank);
        if let Some(same) = others.map(|other| &other.request).find(|other| other.addr == addr) {
            return Err(Refusal::AddressTaken { job: name.clone(), a: same.rank, b: rank, addr });
        }
        let replaced = forming.seats.insert(rank, seat);
        let contradiction = forming.contradiction(name);
        if let Some(old) = replaced {
            self.answer(old.ticket, Err(Refusal::AskedAgain { job: name.clone(), rank }));
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
    fn fail_forming(&mut self, name: &JobName, refusal: &Refusal) -> BTreeSet<u16> {
        let seats = self.forming.remove(name).map(|forming| forming.seats).unwrap_or_default();
        for seat in seats.values() {
            self.answer(seat.ticket, Err(refusal.clone()));
        }
        seats.into_keys().collect()
    }

    /// Admits the job if all ranks are there, unless it has predecessors: whether they live is judged on the newest
    /// signs of life only.
    fn try_complete(&mut self, now: Time, name: &JobName) {
        let Some(forming) = self.forming.get_mut(name) else { return };
        // A rank may have asked again, for a larger world.
        forming.full_since = None;
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
        let id = self.next_id();
        let tickets = forming.seats.values().map(|seat| seat.ticket).collect();
        let key = forming.seats.values().next().expect("a seat").fresh_key;
        let plan = Arc::new(Plan::new(name.clone(), id, key, shape, forming.requests()));
        self.install(Running::new(now, plan, tickets));
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
            let forming = &self.forming[&name];
            if forming.is_full() {
                self.complete(now, &name);
            } else if let Some(waited) = self.most_impatient(forming, now) {
                let (missing, world) = (forming.missing(), forming.world());
                self.fail_forming(&name, &Refusal::NotComing { job: name.clone(), missing, world, waited });
            }
        }
    }

    fn most_impatient(&self, forming: &Forming, now: Time) -> Option<Span> {
        let max_wait = self.limits.timers.max_wait;
        let over = forming.seats.values().filter(|seat| seat.deadline(max_wait) <= now);
        over.map(|seat| seat.request.timeout.min(max_wait)).min()
    }

    pub(crate) fn forming_due(&self, name: &JobName, forming: &Forming) -> Time {
        let timers = &self.limits.timers;
        match forming.full_since {
            None => forming.seats.values().map(|seat| seat.deadline(timers.max_wait)).min().expect("a seat"),
            Some(full) => {
                let settled = self.predecessors(name).filter_map(|job| job.next_silent(timers.succession()));
                settled.chain([full + timers.succession()]).min().expect("at least one")
            }
        }
    }

    pub(crate) fn withdraw_forming(&mut self, ticket: Ticket) {
        for forming in self.forming.values_mut() {
            let before = forming.seats.len();
            forming.seats.retain(|_, seat| seat.ticket != ticket);
            if forming.seats.len() < before {
                forming.full_since = None;
            }
        }
        self.forming.retain(|_, forming| !forming.seats.is_empty());
    }
}
