//! A switch's control plane in virtual time: shards that install at once, members that live or are silent.
#![allow(dead_code)] // Each test file uses its own part.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_control::{
    Admitted, AdoptedJob, Client, Control, Effect, JobName, JoinRequest, Limits, Phase, Plan, Ticket, Timers,
};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::protocols;

pub const MIB: u64 = 1 << 20;

pub fn name(name: &str) -> JobName {
    JobName::new(name).unwrap()
}

pub fn secs(secs: f64) -> Span {
    Span::from_secs_f64(secs)
}

/// Sums in fixed point, whose memory does not depend on the number of ranks: what these tests count on.
pub fn in_fixed_point() -> Options {
    in_numbers("fixed")
}

/// The options with floats summed in this way.
pub fn in_numbers(kind: &str) -> Options {
    let given = [("numbers", kind), ("narrow_blocks", "half")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    protocols::named("switchml").unwrap().options.read(&given).unwrap()
}

/// What a rank asks for unless a test says otherwise. Each incarnation of a rank has an address of its own.
pub fn request(rank: u16, world_size: u16, incarnation: u64) -> JoinRequest {
    JoinRequest {
        rank,
        world_size,
        protocol: protocols::named("switchml").unwrap(),
        options: in_fixed_point(),
        slots: None,
        trees: None,
        suggested_slots: 64,
        elements_per_packet: None,
        max_elements_per_packet: 360,
        addr: format!("10.0.{}.{}:{}", rank / 250, rank % 250 + 1, 5_000 + incarnation % 50_000).parse().unwrap(),
        core_ports: Vec::new(),
        joined_at: "10.0.255.254".parse().unwrap(),
        incarnation,
        timeout: secs(30.0),
        client: Client::at([10, 0, 0, 1].into()),
    }
}

/// A job as a control plane finds it after a restart.
pub fn adopted(plan: &Plan) -> AdoptedJob {
    AdoptedJob {
        name: plan.name.clone(),
        protocol: plan.protocol,
        config: plan.config.clone(),
        most_slots: plan.config.slots,
        workers: plan.workers.clone(),
        servers: plan.servers.dedicated().to_vec(),
    }
}

pub struct TestSwitch {
    pub control: Control,
    pub now: Time,
    pub answers: BTreeMap<Ticket, Admitted>,
    pub installed: BTreeMap<JobId, Arc<Plan>>,
    /// The slots that each job has now.
    pub slots: BTreeMap<JobId, u16>,
    /// Protocols whose shared machines were removed, in that order.
    pub removed_shared: Vec<&'static str>,
    next_key: u64,
}

impl TestSwitch {
    pub fn new(memory_bytes: u64) -> TestSwitch {
        TestSwitch::with(Limits::new(memory_bytes, 2))
    }

    pub fn with(limits: Limits) -> TestSwitch {
        TestSwitch {
            control: Control::new(limits),
            now: Time::ZERO,
            answers: BTreeMap::new(),
            installed: BTreeMap::new(),
            slots: BTreeMap::new(),
            removed_shared: Vec::new(),
            next_key: 1,
        }
    }

    pub fn timers(&self) -> Timers {
        self.control.limits().timers
    }

    pub fn join(&mut self, job: &str, request: JoinRequest) -> Ticket {
        self.next_key += 1;
        let ticket = self.control.join(self.now, &name(job), request, JobKey(self.next_key));
        self.carry_out();
        ticket
    }

    /// Joins that must complete at once.
    pub fn start(&mut self, job: &str, world_size: u16, incarnation: u64) -> Arc<Plan> {
        let tickets: Vec<Ticket> =
            (0..world_size).map(|rank| self.join(job, request(rank, world_size, incarnation))).collect();
        let plans: Vec<Arc<Plan>> = tickets.iter().map(|&ticket| self.answer(ticket).unwrap()).collect();
        assert!(plans.iter().all(|plan| *plan == plans[0]), "all get the same answer");
        plans[0].clone()
    }

    pub fn leave(&mut self, plan: &Plan, rank: u16) {
        self.leave_after(plan, rank, Some(0));
    }

    /// The rank leaves, and has completed this many collectives; without a number it can no longer contribute.
    pub fn leave_after(&mut self, plan: &Plan, rank: u16, completed: Option<u64>) {
        self.control.leave(self.now, &plan.name, plan.config.job, rank, plan.config.key, completed).unwrap();
        self.carry_out();
    }

    pub fn withdraw(&mut self, ticket: Ticket) {
        self.control.withdraw(self.now, ticket);
        self.carry_out();
    }

    pub fn receive(&mut self, plan: &Plan, ranks: impl IntoIterator<Item = u16>) {
        for rank in ranks {
            let wid = plan.child_of(rank).unwrap_or(ChildId(rank));
            self.control.member_seen(plan.config.job, wid, self.now);
        }
    }

    /// Lets time pass; the members named by `alive` send their keepalives meanwhile.
    pub fn pass(&mut self, span: Span, alive: &[(&Plan, &[u16])]) {
        let end = self.now + span;
        let keepalive = self.timers().keepalive;
        let mut next_sign = self.now + keepalive;
        while self.now < end {
            let due = self.control.poll_timeout().unwrap_or(end);
            self.now = due.min(next_sign).min(end).max(self.now);
            if self.now == next_sign {
                for (plan, ranks) in alive {
                    self.receive(plan, ranks.iter().copied());
                }
                next_sign += keepalive;
            }
            self.tick();
        }
    }

    pub fn tick(&mut self) {
        self.control.handle_timeout(self.now);
        self.effects();
        if let Some(due) = self.control.poll_timeout() {
            assert!(due > self.now, "a timer that is due stays due: the driver would spin");
        }
    }

    fn is_due(&self) -> bool {
        self.control.poll_timeout().is_some_and(|due| due <= self.now)
    }

    pub fn carry_out(&mut self) {
        self.effects();
        if self.is_due() {
            self.tick();
        }
    }

    fn effects(&mut self) {
        while let Some(effect) = self.control.poll_effect() {
            match effect {
                Effect::Install(plan) => {
                    let id = plan.config.job;
                    self.slots.insert(id, plan.slots);
                    assert!(self.installed.insert(id, plan).is_none(), "id {id} is in use");
                    self.control.installed(self.now, id, Ok(()));
                }
                Effect::Resize(id, slots) => {
                    let before = self.slots.insert(id, slots);
                    assert!(before.is_some_and(|before| before != slots), "id {id} is resized for nothing");
                }
                Effect::Remove(id) => {
                    self.slots.remove(&id);
                    assert!(self.installed.remove(&id).is_some(), "id {id} is not installed");
                }
                Effect::RemoveShared(protocol) => {
                    let is_used = self.installed.values().any(|plan| plan.protocol == protocol);
                    assert!(!is_used, "{protocol} is in use");
                    self.removed_shared.push(protocol.name);
                }
                Effect::JoinParent { .. } | Effect::LeaveParent { .. } => panic!("there is no parent switch"),
                Effect::Answer { ticket, admitted } => {
                    assert!(self.answers.insert(ticket, admitted).is_none(), "{ticket:?} is answered twice");
                }
            }
        }
    }

    pub fn answer(&self, ticket: Ticket) -> Admitted {
        self.answers.get(&ticket).expect("an answer").clone()
    }

    pub fn waits(&self, ticket: Ticket) -> bool {
        !self.answers.contains_key(&ticket)
    }

    pub fn refusal(&self, ticket: Ticket) -> (String, String) {
        let refusal = self.answer(ticket).expect_err("a refusal");
        (refusal.code().to_string(), refusal.to_string())
    }

    pub fn phases(&self) -> Vec<(String, Phase)> {
        self.control.jobs().into_iter().map(|job| (job.name.to_string(), job.phase)).collect()
    }
}
