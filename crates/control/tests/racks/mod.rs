//! Control planes of two racks below one switch, in virtual time: calls between them take no time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tributary_control::levels::{ParentAnswer, SwitchJoin, SwitchRanks};
use tributary_control::{Admitted, Control, Effect, JobName, JoinRequest, Limits, Plan, Refusal, Ticket};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::time::{Span, Time};

use crate::harness::{name, request};

pub const RACKS: usize = 2;

/// The root switch and those of the racks, with calls between them that take no time.
pub struct Tree {
    pub root: Control,
    pub racks: Vec<Control>,
    pub now: Time,
    pub answers: BTreeMap<(usize, Ticket), Admitted>,
    /// Joins of racks that wait at the root.
    waiting: BTreeMap<Ticket, (usize, JobName, u64)>,
    pub installed: Vec<BTreeMap<JobId, Arc<Plan>>>,
    /// The slots that each job has now, switch by switch.
    pub slots: Vec<BTreeMap<JobId, u16>>,
    /// All joins of racks, in their order.
    pub all_joins: Vec<SwitchJoin>,
    /// Racks whose switch is dead.
    pub dead: BTreeSet<usize>,
}

pub fn incarnation(rack: usize) -> u64 {
    1_000 + rack as u64
}

impl Tree {
    pub fn new(root: Limits, racks: [Limits; RACKS]) -> Tree {
        Tree {
            root: Control::new(root),
            racks: racks.into_iter().map(Control::with_parent).collect(),
            now: Time::ZERO,
            answers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            installed: vec![BTreeMap::new(); RACKS + 1],
            slots: vec![BTreeMap::new(); RACKS + 1],
            all_joins: Vec::new(),
            dead: BTreeSet::new(),
        }
    }

    pub fn equal(memory_bytes: u64) -> Tree {
        let limits = Limits::new(memory_bytes, 1);
        Tree::new(limits.clone(), [limits.clone(), limits])
    }

    pub fn join(&mut self, rack: usize, request: JoinRequest) -> (usize, Ticket) {
        self.join_as("job", rack, request)
    }

    pub fn join_as(&mut self, job: &str, rack: usize, request: JoinRequest) -> (usize, Ticket) {
        let key = JobKey(self.now.0 + u64::from(request.rank) + 1);
        let ticket = self.racks[rack].join(self.now, &name(job), request, key);
        self.pump();
        (rack, ticket)
    }

    /// All ranks join, each at `racks[rank]`, and must be admitted.
    pub fn start(&mut self, racks: &[usize], incarnation: u64) -> Vec<Arc<Plan>> {
        let world_size = racks.len() as u16;
        let joins = racks.iter().enumerate().map(|(rank, &rack)| (rack, request(rank as u16, world_size, incarnation)));
        let tickets: Vec<_> = joins.collect::<Vec<_>>().into_iter().map(|(rack, join)| self.join(rack, join)).collect();
        tickets.iter().map(|ticket| self.answers[ticket].clone().unwrap()).collect()
    }

    /// A job begins, and all its ranks leave it.
    pub fn run(&mut self, racks: &[usize], incarnation: u64) {
        for (rank, plan) in self.start(racks, incarnation).into_iter().enumerate() {
            let (id, key) = (plan.config.job, plan.config.key);
            self.racks[racks[rank]].leave(self.now, &plan.name, id, rank as u16, key, Some(0)).unwrap();
            self.pump();
        }
    }

    pub fn refusal(&self, ticket: (usize, Ticket)) -> String {
        self.answers[&ticket].clone().unwrap_err().to_string()
    }

    /// Carries out what all switches want, until nobody wants anything.
    pub fn pump(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(effect) = self.root.poll_effect() {
                quiet = false;
                match effect {
                    Effect::Install(plan) => {
                        let id = plan.config.job;
                        self.slots[RACKS].insert(id, plan.slots);
                        self.installed[RACKS].insert(id, plan);
                        self.root.installed(self.now, id, Ok(()));
                    }
                    Effect::Resize(id, slots) => drop(self.slots[RACKS].insert(id, slots)),
                    Effect::Remove(id) => self.forget(RACKS, id),
                    Effect::Answer { ticket, admitted } => self.answer_below(ticket, admitted),
                    Effect::JoinParent { .. } | Effect::LeaveParent { .. } => panic!("the root has no parent"),
                    Effect::RemoveShared(_) => panic!("nothing is shared in levels"),
                }
            }
            for rack in (0..RACKS).filter(|rack| !self.dead.contains(rack)).collect::<Vec<_>>() {
                while let Some(effect) = self.racks[rack].poll_effect() {
                    quiet = false;
                    self.carry_out_below(rack, effect);
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn carry_out_below(&mut self, rack: usize, effect: Effect) {
        match effect {
            Effect::Install(plan) => {
                let id = plan.config.job;
                self.slots[rack].insert(id, plan.slots);
                assert!(self.installed[rack].insert(id, plan).is_none(), "id {id} is in use");
                self.racks[rack].installed(self.now, id, Ok(()));
            }
            Effect::Resize(id, slots) => drop(self.slots[rack].insert(id, slots)),
            Effect::Remove(id) => self.forget(rack, id),
            Effect::RemoveShared(_) => panic!("nothing is shared in levels"),
            Effect::Answer { ticket, admitted } => drop(self.answers.insert((rack, ticket), admitted)),
            Effect::JoinParent { name, sequence, ranks, most_slots, switches } => {
                let addr = format!("10.9.0.{}:17777", rack + 1).parse().unwrap();
                let own = SwitchRanks { addr, ranks: ranks.iter().map(|(join, _)| join.rank).collect() };
                let join = SwitchJoin {
                    incarnation: incarnation(rack),
                    joined_at: "10.9.0.9".parse().unwrap(),
                    sequence,
                    shards: vec![addr],
                    most_slots,
                    ranks,
                    switches: std::iter::once(own).chain(switches).collect(),
                };
                let key = JobKey(self.now.0 + 77 + sequence);
                self.all_joins.push(join.clone());
                let ticket = self.root.join_switch(self.now, &name, join, key);
                self.waiting.insert(ticket, (rack, name, sequence));
            }
            Effect::LeaveParent { name, job, key, wid, completed } => {
                // The job may be over there.
                let _ = self.root.leave_switch(self.now, &name, job, key, wid, completed);
            }
        }
    }

    fn forget(&mut self, switch: usize, id: JobId) {
        self.installed[switch].remove(&id);
        self.slots[switch].remove(&id);
    }

    fn answer_below(&mut self, ticket: Ticket, admitted: Admitted) {
        let Some((rack, name, sequence)) = self.waiting.remove(&ticket) else { return };
        let outcome = match admitted {
            Ok(plan) => {
                let wid = plan.children.iter().position(|child| child.incarnation == Some(incarnation(rack))).unwrap();
                Ok(ParentAnswer {
                    job: plan.config.job,
                    key: plan.config.key,
                    slots: plan.config.slots,
                    elements_per_packet: plan.config.elements_per_packet,
                    wid: ChildId(wid as u16),
                    shards: vec!["10.9.0.9:17777".parse().unwrap()],
                    workers: plan.workers.clone(),
                    servers: plan.servers.dedicated().iter().map(|server| server.addr).collect(),
                    switches: plan.switches.clone(),
                })
            }
            Err(refusal) => {
                let (code, rank) = (refusal.code().to_string(), refusal.rank());
                Err(Refusal::Parent { sentence: refusal.to_string(), code, rank })
            }
        };
        self.racks[rack].parent_answered(self.now, &name, sequence, outcome);
    }

    /// Lets time pass. Workers in `alive` and all switches but the dead ones show that they live.
    pub fn pass(&mut self, span: Span, alive: &[u16]) {
        let end = self.now + span;
        while self.now < end {
            self.now = (self.now + Span::from_millis(100)).min(end);
            for rack in (0..RACKS).filter(|rack| !self.dead.contains(rack)) {
                for (&id, plan) in &self.installed[rack] {
                    for wid in alive.iter().filter_map(|&rank| plan.child_of(rank)) {
                        self.racks[rack].member_seen(id, wid, self.now);
                    }
                    if self.installed[RACKS].contains_key(&id) {
                        self.racks[rack].parent_seen(id, self.now);
                        self.root.member_seen(id, plan.uplink.as_ref().unwrap().wid, self.now);
                    }
                }
            }
            self.root.handle_timeout(self.now);
            self.racks.iter_mut().for_each(|rack| rack.handle_timeout(self.now));
            self.pump();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.installed.iter().all(BTreeMap::is_empty)
    }
}
