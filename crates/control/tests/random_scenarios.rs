//! Random joins, leaves, deaths and silences: memory is never over its budget, nothing leaks, nothing hangs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::harness::{MIB, TestSwitch, request, secs};
use proptest::prelude::*;
use tributary_control::{JoinRequest, Limits, Plan, Quota, Ticket};

const NAMES: [&str; 3] = ["a", "b", "q"];
const MEMORY: u64 = MIB;

#[derive(Clone, Debug)]
enum Step {
    Join {
        name: usize,
        rank: u16,
        world_size: u16,
        incarnation: u64,
        slots: Option<u16>,
        elements: u16,
        patience_ms: u64,
    },
    /// All ranks of one incarnation at once.
    JoinAll {
        name: usize,
        world_size: u16,
        incarnation: u64,
    },
    Leave {
        plan: usize,
        rank: u16,
    },
    Withdraw {
        ticket: usize,
    },
    Pass {
        ms: u64,
        alive: Vec<(usize, u16)>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let join = (name.clone(), 0..4u16, 1..5u16, 1..4u64, prop::option::of(1..600u16), 1..2_000u16, 1..40_000u64);
    let pass = (1..20_000u64, prop::collection::vec((0..8usize, 0..4u16), 0..12));
    prop_oneof![
        4 => join.prop_map(|(name, rank, world_size, incarnation, slots, elements, patience_ms)| Step::Join {
            name, rank: rank.min(world_size), world_size, incarnation, slots, elements, patience_ms
        }),
        3 => (name, 1..5u16, 1..9u64).prop_map(|(name, world_size, incarnation)| Step::JoinAll { name, world_size, incarnation }),
        2 => (0..8usize, 0..4u16).prop_map(|(plan, rank)| Step::Leave { plan, rank }),
        1 => (0..64usize).prop_map(|ticket| Step::Withdraw { ticket }),
        3 => pass.prop_map(|(ms, alive)| Step::Pass { ms, alive }),
    ]
}

/// The switch, what joined it so far, and what it promised.
struct Run {
    switch: TestSwitch,
    tickets: Vec<Ticket>,
    withdrawn: BTreeSet<Ticket>,
}

impl Run {
    fn new() -> Run {
        let quota =
            Quota { jobs: "q*".into(), memory_bytes: Some(MEMORY / 4), max_slots: Some(64), max_world_size: Some(3) };
        let limits = Limits { max_jobs: 4, quotas: vec![quota], ..Limits::new(MEMORY, 2) };
        Run { switch: TestSwitch::with(limits), tickets: Vec::new(), withdrawn: BTreeSet::new() }
    }

    fn plan(&self, index: usize) -> Option<Arc<Plan>> {
        let count = self.switch.installed.len().max(1);
        self.switch.installed.values().nth(index % count).cloned()
    }

    fn join(&mut self, name: usize, request: JoinRequest) {
        let ticket = self.switch.join(NAMES[name], request);
        self.tickets.push(ticket);
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Join { name, rank, world_size, incarnation, slots, elements, patience_ms } => {
                let timeout = tributary_proto::contract::time::Span::from_millis(patience_ms);
                let base = request(rank, world_size, incarnation);
                self.join(name, JoinRequest { slots, max_elements_per_packet: elements, timeout, ..base });
            }
            Step::JoinAll { name, world_size, incarnation } => {
                for rank in 0..world_size {
                    self.join(name, request(rank, world_size, incarnation));
                }
            }
            Step::Leave { plan, rank } => {
                if let Some(plan) = self.plan(plan) {
                    self.switch.leave(&plan, rank % plan.config.world_size);
                }
            }
            Step::Withdraw { ticket } => {
                let Some(&ticket) = self.tickets.get(ticket % self.tickets.len().max(1)) else { return };
                self.switch.withdraw(ticket);
                self.withdrawn.insert(ticket);
            }
            Step::Pass { ms, ref alive } => {
                let living: Vec<(Arc<Plan>, [u16; 1])> =
                    alive.iter().filter_map(|&(plan, rank)| Some((self.plan(plan)?, [rank]))).collect();
                let living: Vec<(&Plan, &[u16])> = living.iter().map(|(plan, rank)| (&**plan, &rank[..])).collect();
                self.switch.pass(tributary_proto::contract::time::Span::from_millis(ms), &living);
            }
        }
    }

    fn check(&self) {
        let installed: u64 = self.switch.installed.values().map(|plan| plan.memory_bytes).sum();
        assert_eq!(installed, self.switch.control.memory_used(), "what is charged is what is installed");
        assert!(installed <= MEMORY, "{installed} of {MEMORY} bytes");
        let quota = self.switch.installed.values().filter(|plan| plan.name.as_str() == "q");
        assert!(quota.map(|plan| plan.memory_bytes).sum::<u64>() <= MEMORY / 4);
        for plan in self.switch.installed.values() {
            let config = &plan.config;
            assert_eq!(plan.workers.len(), usize::from(config.world_size));
            assert!((config.slots / config.trees).is_power_of_two() && config.slots % config.trees == 0);
        }
    }

    /// Nobody gives a sign of life any more: within timeouts, lease and grace everything must be over.
    fn fall_silent(&mut self) {
        self.switch.pass(secs(100.0), &[]);
        assert_eq!(self.switch.phases(), []);
        assert!(self.switch.installed.is_empty());
        assert_eq!(self.switch.control.poll_timeout(), None);
        for &ticket in &self.tickets {
            assert!(!self.switch.waits(ticket) || self.withdrawn.contains(&ticket), "{ticket:?} waits forever");
        }
        self.switch.start("a", 4, 1_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_members_do_memory_is_bounded_and_everything_ends(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            run.check();
        }
        run.fall_silent();
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(steps in prop::collection::vec(step(), 1..30)) {
        let run = || {
            let mut run = Run::new();
            steps.iter().for_each(|step| run.take(step));
            (run.switch.answers, run.switch.installed, run.switch.now)
        };
        prop_assert_eq!(run(), run());
    }
}
