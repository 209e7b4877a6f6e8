//! A job that forms: which ranks have come, and what they ask for. `control/rendezvous.rs` is what happens to the job,
//! `control/ascending.rs` its questions to the switch above.

use std::collections::{BTreeMap, BTreeSet};

use tributary_proto::contract::ids::JobKey;
use tributary_proto::contract::time::{Span, Time};

use crate::client::Client;
use crate::levels::{self, Ascent, Child, SwitchPlace, SwitchSeat};
use crate::memory::JobShape;
use crate::name::JobName;
use crate::plan::Ticket;
use crate::refusal::Refusal;
use crate::request::{JoinRequest, disagreement};

/// A rank that waits for the other ranks.
pub(crate) struct WaitingRank {
    pub ticket: Ticket,
    pub request: JoinRequest,
    pub fresh_key: JobKey,
    pub since: Time,
    /// The switch below to which the rank has come, by its incarnation; `None` if the rank has come here.
    pub via: Option<u64>,
}

impl WaitingRank {
    pub fn deadline(&self, max_wait: Span) -> Time {
        self.since + self.request.timeout.min(max_wait)
    }
}

/// The ranks that come with one join: a worker, or all ranks of a switch below. At least one seat; all have one ticket.
pub(crate) struct Party {
    pub seats: Vec<WaitingRank>,
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

    pub fn client(&self) -> &Client {
        &self.seats[0].request.client
    }

    pub fn via(&self) -> Option<u64> {
        self.switch.as_ref().map(|(incarnation, _)| *incarnation)
    }
}

/// A job whose ranks are still coming. It holds no memory yet.
pub(crate) struct Forming {
    /// The client to whom the job is charged: the first that came.
    pub client: Client,
    pub seats: BTreeMap<u16, WaitingRank>,
    /// The switches below to which some ranks have come.
    pub switches: BTreeMap<u64, SwitchSeat>,
    pub since: Time,
    /// Since when it is known that all ranks are there and a predecessor still holds memory.
    pub full_since: Option<Time>,
    /// There is a switch above, which alone knows when all ranks have come.
    pub has_parent: bool,
    /// The last question to the switch above.
    pub question: u64,
    /// The answer of the switch above.
    pub ascent: Option<Ascent>,
    /// The ranks that the switch above misses, as far as it has said.
    pub missing_above: Option<Vec<u16>>,
}

impl Forming {
    pub fn new(now: Time, client: Client, has_parent: bool) -> Forming {
        Forming {
            client,
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

    pub fn requests(&self) -> impl Iterator<Item = &JoinRequest> + Clone {
        self.seats.values().map(|seat| &seat.request)
    }

    /// The number of ranks on which the ranks so far agree. A forming job has at least one seat.
    pub fn world(&self) -> u16 {
        self.requests().next().map_or(0, |request| request.world)
    }

    pub fn is_full(&self) -> bool {
        if self.has_parent { self.ascent.is_some() } else { self.seats.len() >= usize::from(self.world()) }
    }

    pub fn has_ticket(&self, ticket: Ticket) -> bool {
        self.seats.values().any(|seat| seat.ticket == ticket)
    }

    pub fn children(&self) -> Vec<Child> {
        levels::children(self.seats.values().map(|seat| (&seat.request, seat.via)), &self.switches)
    }

    /// The switches of the tree below this one.
    pub fn places(&self) -> Vec<SwitchPlace> {
        self.switches.values().flat_map(|switch| switch.switches.iter().cloned()).collect()
    }

    /// Why a party cannot have its seats.
    pub fn objection(&self, name: &JobName, party: &Party) -> Option<Refusal> {
        let via = party.via();
        if let Some((incarnation, switch)) = &party.switch
            && self.switches.get(incarnation).is_some_and(|there| there.question > switch.question)
        {
            return Some(Refusal::AskedAgain { job: name.clone(), rank: party.first_rank() });
        }
        if let Some((own, switch)) = &party.switch {
            let others = self.switches.iter().filter(|(incarnation, _)| *incarnation != own);
            let mut same = others.flat_map(|(_, other)| &other.shards);
            if let Some(&addr) = same.find(|addr| switch.shards.contains(addr)) {
                return Some(Refusal::SwitchTwice { job: name.clone(), addr });
            }
        }
        party.seats.iter().find_map(|seat| {
            let JoinRequest { rank, addr, incarnation, .. } = seat.request;
            let rival = self.seats.get(&rank).filter(|there| there.request.incarnation != incarnation);
            // A rank that its switch no longer brings is gone.
            if let Some(rival) = rival.filter(|rival| via.is_none() || rival.via != via) {
                return Some(Refusal::RankTaken { job: name.clone(), rank, holder: rival.request.addr });
            }
            // Racks may be networks of their own, in which an address means another host.
            let others = self.seats.values().filter(|other| other.request.rank != rank && other.via == seat.via);
            let same = others.map(|other| &other.request).find(|other| via.is_none() && other.addr == addr)?;
            Some(Refusal::AddressTaken { job: name.clone(), a: same.rank, b: rank, addr })
        })
    }

    /// Gives a party its seats, in place of its earlier ones; returns the joins that it has replaced.
    pub fn place(&mut self, party: Party) -> BTreeSet<Ticket> {
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

    pub fn remove_switch(&mut self, incarnation: u64) -> BTreeSet<Ticket> {
        self.switches.remove(&incarnation);
        let of_it = |seat: &WaitingRank| seat.via == Some(incarnation);
        let tickets = self.seats.values().filter(|seat| of_it(seat)).map(|seat| seat.ticket).collect();
        self.seats.retain(|_, seat| !of_it(seat));
        tickets
    }

    pub fn missing(&self) -> Vec<u16> {
        match &self.missing_above {
            Some(missing) => missing.clone(),
            // Only the switch above knows which ranks have come elsewhere.
            None if self.has_parent => Vec::new(),
            None => (0..self.world()).filter(|rank| !self.seats.contains_key(rank)).collect(),
        }
    }

    /// The shape that the ranks so far ask for, for a job without servers.
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
            trees: 1,
            servers: 0,
            options: first.options.clone(),
        }
    }

    /// The number of trees that the ranks so far ask for.
    pub fn trees(&self) -> Option<u16> {
        self.requests().find_map(|request| request.trees)
    }

    /// Why these ranks can never be one job.
    pub fn contradiction(&self, name: &JobName) -> Option<Refusal> {
        if let Some(what) = disagreement(self.requests()) {
            return Some(Refusal::Disagreement { job: name.clone(), what });
        }
        let asked = self.wish(1).elements_per_packet;
        let narrow = self.requests().find(|request| request.max_elements_per_packet < asked)?;
        let (rank, fit) = (narrow.rank, narrow.max_elements_per_packet);
        Some(Refusal::PathTooNarrow { job: name.clone(), rank, fit, asked })
    }
}

/// A rendezvous that failed because ranks differ. Ranks that come late to it are told so, each once.
pub(crate) struct Quarrel {
    pub refusal: Refusal,
    pub told: BTreeSet<u16>,
    pub until: Time,
}

impl Quarrel {
    /// How long a quarrel is remembered: ranks of one job start within a few seconds of each other.
    pub const MEMORY: Span = Span::from_millis(5_000);
}
