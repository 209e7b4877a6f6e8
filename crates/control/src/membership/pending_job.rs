//! A pending job: which ranks have come, and what they request. `machine/rendezvous.rs` is what happens to the job,
//! `machine/parent_switch.rs` its joins at the parent switch.

use std::collections::{BTreeMap, BTreeSet};

use tributary_proto::contract::ids::JobKey;
use tributary_proto::contract::time::{Span, Time};

use crate::admission::{JobShape, JoinRequest, Refusal, disagreement};
use crate::effect::Ticket;
use crate::levels::{self, Child, ChildSwitch, ParentAnswer, SwitchRanks};
use crate::names::{Client, JobName};

/// A rank that waits for the other ranks.
pub(crate) struct WaitingRank {
    pub ticket: Ticket,
    pub request: JoinRequest,
    pub fresh_key: JobKey,
    pub since: Time,
    /// The child switch to which the rank has come, by its incarnation; `None` if the rank has come here.
    pub via: Option<u64>,
}

impl WaitingRank {
    pub fn deadline(&self, max_wait: Span) -> Time {
        self.since + self.request.timeout.min(max_wait)
    }
}

/// One join: a worker's rank, or all ranks of a child switch. There is at least one, and all have one ticket.
pub(crate) struct PendingJoin {
    pub ranks: Vec<WaitingRank>,
    pub switch: Option<(u64, ChildSwitch)>,
}

impl PendingJoin {
    pub fn ticket(&self) -> Ticket {
        self.ranks[0].ticket
    }

    pub fn first_rank(&self) -> u16 {
        self.ranks[0].request.rank
    }

    pub fn deadline(&self, max_wait: Span) -> Time {
        self.ranks.iter().map(|rank| rank.deadline(max_wait)).min().expect("a rank")
    }

    pub fn client(&self) -> &Client {
        &self.ranks[0].request.client
    }

    pub fn via(&self) -> Option<u64> {
        self.switch.as_ref().map(|(incarnation, _)| *incarnation)
    }
}

/// A job whose ranks are still coming. It uses no memory yet.
pub(crate) struct PendingJob {
    /// The client that is charged for the job: the first that came.
    pub client: Client,
    pub ranks: BTreeMap<u16, WaitingRank>,
    /// The child switches to which some ranks have come.
    pub switches: BTreeMap<u64, ChildSwitch>,
    pub since: Time,
    /// Since when all ranks are there and a predecessor still uses memory.
    pub complete_since: Option<Time>,
    /// There is a parent switch, which alone knows when all ranks have come.
    pub has_parent: bool,
    /// The number of the last join at the parent switch.
    pub sequence: u64,
    /// The answer of the parent switch.
    pub answer: Option<ParentAnswer>,
    /// The ranks that the parent switch misses, as far as it has said.
    pub missing_at_parent: Option<Vec<u16>>,
}

impl PendingJob {
    pub fn new(now: Time, client: Client, has_parent: bool) -> PendingJob {
        PendingJob {
            client,
            ranks: BTreeMap::new(),
            switches: BTreeMap::new(),
            since: now,
            complete_since: None,
            has_parent,
            sequence: 0,
            answer: None,
            missing_at_parent: None,
        }
    }

    pub fn requests(&self) -> impl Iterator<Item = &JoinRequest> + Clone {
        self.ranks.values().map(|rank| &rank.request)
    }

    /// The number of ranks on which the ranks so far agree. A pending job has at least one rank.
    pub fn world_size(&self) -> u16 {
        self.requests().next().map_or(0, |request| request.world_size)
    }

    pub fn is_complete(&self) -> bool {
        if self.has_parent { self.answer.is_some() } else { self.ranks.len() >= usize::from(self.world_size()) }
    }

    pub fn has_ticket(&self, ticket: Ticket) -> bool {
        self.ranks.values().any(|rank| rank.ticket == ticket)
    }

    pub fn children(&self) -> Vec<Child> {
        levels::children(self.ranks.values().map(|rank| (&rank.request, rank.via)), &self.switches)
    }

    /// The switches of the tree below this one.
    pub fn switches_below(&self) -> Vec<SwitchRanks> {
        self.switches.values().flat_map(|switch| switch.switches.iter().cloned()).collect()
    }

    /// Why a join cannot have its ranks.
    pub fn objection(&self, name: &JobName, join: &PendingJoin) -> Option<Refusal> {
        let via = join.via();
        if let Some((incarnation, switch)) = &join.switch
            && self.switches.get(incarnation).is_some_and(|known| known.sequence > switch.sequence)
        {
            return Some(Refusal::NewerRequest { job: name.clone(), rank: join.first_rank() });
        }
        if let Some((own, switch)) = &join.switch {
            let others = self.switches.iter().filter(|(incarnation, _)| *incarnation != own);
            let mut same = others.flat_map(|(_, other)| &other.shards);
            if let Some(&addr) = same.find(|addr| switch.shards.contains(addr)) {
                return Some(Refusal::SwitchTwice { job: name.clone(), addr });
            }
        }
        join.ranks.iter().find_map(|waiting| {
            let JoinRequest { rank, incarnation, .. } = waiting.request;
            let rival = self.ranks.get(&rank).filter(|known| known.request.incarnation != incarnation);
            // A rank that its switch no longer brings is gone.
            if let Some(rival) = rival.filter(|rival| via.is_none() || rival.via != via) {
                return Some(Refusal::RankTaken { job: name.clone(), rank, holder: rival.request.addr });
            }
            // Racks may be networks of their own, in which an address means another host.
            let others = self.ranks.values().filter(|other| other.request.rank != rank && other.via == waiting.via);
            let mut others = others.map(|other| &other.request).filter(|_| via.is_none());
            others.find_map(|other| {
                let addr = other.addrs().find(|&addr| waiting.request.addrs().any(|own| own == addr))?;
                Some(Refusal::AddressTaken { job: name.clone(), a: other.rank, b: rank, addr })
            })
        })
    }

    /// Takes the ranks of a join, in place of its earlier ones; returns the joins that it has replaced.
    pub fn add(&mut self, join: PendingJoin) -> BTreeSet<Ticket> {
        let mut replaced = BTreeSet::new();
        if let Some(via) = join.via() {
            replaced.extend(self.remove_switch(via));
        }
        self.switches.extend(join.switch);
        for waiting in join.ranks {
            replaced.extend(self.ranks.insert(waiting.request.rank, waiting).map(|old| old.ticket));
        }
        replaced.retain(|&ticket| !self.has_ticket(ticket));
        replaced
    }

    pub fn remove_switch(&mut self, incarnation: u64) -> BTreeSet<Ticket> {
        self.switches.remove(&incarnation);
        let of_it = |rank: &WaitingRank| rank.via == Some(incarnation);
        let tickets = self.ranks.values().filter(|rank| of_it(rank)).map(|rank| rank.ticket).collect();
        self.ranks.retain(|_, rank| !of_it(rank));
        tickets
    }

    pub fn missing(&self) -> Vec<u16> {
        match &self.missing_at_parent {
            Some(missing) => missing.clone(),
            // Only the parent switch knows which ranks have come elsewhere.
            None if self.has_parent => Vec::new(),
            None => (0..self.world_size()).filter(|rank| !self.ranks.contains_key(rank)).collect(),
        }
    }

    /// The shape that the ranks so far request, for a job without servers.
    pub fn wish(&self, shards: u16) -> JobShape {
        let switches = self.switches.len() as u16;
        let workers = self.ranks.values().filter(|rank| rank.via.is_none()).count() as u16;
        let most = self.switches.values().map(|switch| switch.most_slots).min().unwrap_or(u16::MAX);
        let first = self.requests().next().expect("a pending job has a rank");
        let fit = self.requests().map(|request| request.max_elements_per_packet).min().expect("a rank");
        let slots = self.requests().find_map(|request| request.slots);
        let suggested = self.requests().map(|request| request.suggested_slots).max().expect("a rank");
        JobShape {
            protocol: first.protocol,
            slots: slots.unwrap_or(suggested).min(most),
            elements_per_packet: self.requests().find_map(|request| request.elements_per_packet).unwrap_or(fit),
            world_size: first.world_size,
            children: workers + switches,
            neighbours: switches + u16::from(self.has_parent),
            shards,
            trees: 1,
            servers: 0,
            options: first.options.clone(),
        }
    }

    /// The number of trees that the ranks so far request.
    pub fn trees(&self) -> Option<u16> {
        self.requests().find_map(|request| request.trees)
    }

    /// Why these ranks can never be one job.
    pub fn contradiction(&self, name: &JobName) -> Option<Refusal> {
        if let Some(what) = disagreement(self.requests()) {
            return Some(Refusal::Disagreement { job: name.clone(), what });
        }
        let requested = self.wish(1).elements_per_packet;
        let narrow = self.requests().find(|request| request.max_elements_per_packet < requested)?;
        let (rank, fit) = (narrow.rank, narrow.max_elements_per_packet);
        Some(Refusal::PathTooNarrow { job: name.clone(), rank, fit, requested })
    }
}

/// The refusal of a job whose ranks disagreed. Ranks that come late get the same refusal, each once.
pub(crate) struct RecentRefusal {
    pub refusal: Refusal,
    pub refused: BTreeSet<u16>,
    pub until: Time,
}

impl RecentRefusal {
    /// How long the refusal is remembered: ranks of one job start within a few seconds of each other.
    pub const MEMORY: Span = Span::from_millis(5_000);
}
