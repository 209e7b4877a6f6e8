//! What all jobs of a protocol share is part of the switch's memory from the first of these jobs on, until others need it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::harness::{MIB, TestSwitch, request};
use tributary_control::admission::{SharedMemory, TreeCharge, is_charged_by_tree};
use tributary_control::{JoinRequest, Limits, Plan};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::options::Defaults;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;
use tributary_proto::switch_options::{Given, SwitchOptions, add};

/// Elements of the longest packet that is summed.
const ELEMENTS: u16 = 352;

fn sharing() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.shared.is_some())
}

fn shared() -> SharedMemory {
    SharedMemory::of(&SwitchOptions::defaults(Defaults::Real), |_| ELEMENTS)
}

fn one_switch(memory_bytes: u64) -> TestSwitch {
    TestSwitch::with(Limits { shared: shared(), ..Limits::new(memory_bytes, 1) })
}

fn of(protocol: &'static Protocol, rank: u16, incarnation: u64) -> JoinRequest {
    JoinRequest { protocol, options: protocol.options.defaults(), ..request(rank, 2, incarnation) }
}

/// A job of two ranks.
fn start(switch: &mut TestSwitch, protocol: &'static Protocol, job: &str, incarnation: u64) -> Arc<Plan> {
    let tickets = [0, 1].map(|rank| switch.join(job, of(protocol, rank, incarnation)));
    switch.answer(tickets[1]).unwrap()
}

fn end(switch: &mut TestSwitch, plan: &Plan) {
    [0, 1].iter().for_each(|&rank| switch.leave(plan, rank));
}

#[test]
fn the_first_job_of_a_protocol_is_charged_with_what_all_of_them_share_and_the_next_is_not() {
    for protocol in sharing() {
        let mut switch = one_switch(64 * MIB);
        assert_eq!(switch.control.memory_used(), 0);
        let (first, machine) = (start(&mut switch, protocol, "first", 1), shared().bytes(protocol));
        assert!(machine > MIB, "{protocol}: {machine}");
        assert_eq!(switch.control.memory_used(), machine + first.memory_bytes, "{protocol}");
        let second = start(&mut switch, protocol, "second", 2);
        let jobs = first.memory_bytes + second.memory_bytes;
        assert_eq!(switch.control.memory_used(), machine + jobs, "{protocol}");
        end(&mut switch, &first);
        end(&mut switch, &second);
        assert_eq!(switch.control.memory_used(), machine, "{protocol}: it stays");
        assert!(switch.removed_shared.is_empty());
    }
}

#[test]
fn what_no_job_shares_any_more_gives_way_to_another_protocols_jobs() {
    for protocol in sharing() {
        let machine = shared().bytes(protocol);
        for other in protocols::ALL.iter().copied().filter(|other| *other != protocol && other.server.is_none()) {
            // What the other one takes, once more than the memory has beside the idle machine.
            let mut alone = one_switch(64 * MIB);
            start(&mut alone, other, "other", 1);
            let memory = machine.max(alone.control.memory_used());
            let mut switch = one_switch(memory + MIB);
            let former = start(&mut switch, protocol, "former", 1);
            end(&mut switch, &former);
            start(&mut switch, other, "newer", 2);
            assert!(switch.control.memory_used() <= memory + MIB, "{other} after {protocol}");
            let gave_way = alone.control.memory_used() + machine > memory + MIB;
            let expected = if gave_way { vec![protocol.name] } else { Vec::new() };
            assert_eq!(switch.removed_shared, expected, "{other} after {protocol}");
        }
    }
}

#[test]
fn what_jobs_share_never_gives_way_while_one_of_them_runs() {
    for protocol in sharing() {
        let machine = shared().bytes(protocol);
        let mut switch = one_switch(machine + MIB);
        let first = start(&mut switch, protocol, "first", 1);
        let greedy = protocols::ALL.iter().copied().find(|other| other.switch.is_some() && !other.resizes).unwrap();
        let wish = |rank| JoinRequest { slots: Some(1 << 14), ..of(greedy, rank, 2) };
        let tickets = [0, 1].map(|rank| switch.join("greedy", wish(rank)));
        let plan = switch.answer(tickets[1]).unwrap();
        assert!(plan.slots < 1 << 14, "it gets what is left: {}", plan.slots);
        assert!(switch.control.memory_used() <= machine + MIB && switch.removed_shared.is_empty());
        end(&mut switch, &plan);
        end(&mut switch, &first);
        // Now nobody uses it, and the same wish gets all.
        let tickets = [0, 1].map(|rank| switch.join("greedy", JoinRequest { incarnation: 3, ..wish(rank) }));
        assert!(switch.answer(tickets[1]).unwrap().slots > plan.slots);
        assert_eq!(switch.removed_shared, [protocol.name]);
    }
}

#[test]
fn a_protocol_whose_jobs_would_share_more_than_is_free_is_refused_with_a_sentence_at_once() {
    for protocol in sharing() {
        let machine = shared().bytes(protocol);
        let mut switch = one_switch(machine - 1);
        let first = switch.join("first", of(protocol, 0, 1));
        let (code, sentence) = switch.refusal(first);
        assert_eq!(code, "full");
        let named = format!("job 'first' would be the first of {protocol}, whose jobs share ");
        assert!(sentence.contains(&named) && sentence.contains("MiB are free"), "{sentence}");
        assert_eq!(switch.control.memory_used(), 0);
        // Others have the memory for themselves.
        switch.start("other", 2, 2);
    }
}

/// The controller of a fabric where one switch has other memory.
fn fabric(memory_bytes: u64, other: u64) -> TestSwitch {
    let memory_at = BTreeMap::from([(OTHER, other)]);
    TestSwitch::with(Limits { shared: shared(), memory_at, planned_trees: Some(2), ..Limits::new(memory_bytes, 1) })
}

const OTHER: NodeId = NodeId(7);

#[test]
fn in_a_fabric_what_jobs_share_is_at_the_smallest_switch_too() {
    for protocol in sharing() {
        let machine = shared().bytes(protocol);
        let mut switch = fabric(2 * machine, machine - 1);
        let first = switch.join("first", of(protocol, 0, 1));
        let (code, sentence) = switch.refusal(first);
        assert_eq!(code, "full", "{protocol}");
        let small = sentence.contains(&format!("{:.1} MiB of {0:.1} MiB are free", (machine - 1) as f64 / MIB as f64));
        assert!(small, "{sentence}");
        assert_eq!(switch.control.memory_used(), 0);
        // Trees go around it.
        for other in protocols::ALL.iter().copied().filter(|other| other.placement == Placement::Trees) {
            start(&mut switch, other, other.name, 2);
        }
        let mut switch = fabric(2 * machine, machine + MIB);
        let plan = start(&mut switch, protocol, "fits", 1);
        assert!(plan.memory_bytes <= MIB, "{protocol}: {} bytes beside the machine", plan.memory_bytes);
    }
}

#[test]
fn what_jobs_share_has_the_memory_that_trees_leave_at_each_switch() {
    let with_trees = protocols::ALL.iter().copied().find(|protocol| is_charged_by_tree(protocol)).unwrap();
    let dividing = protocols::ALL.iter().copied().find(|protocol| protocol.resizes).unwrap();
    for protocol in sharing() {
        let machine = shared().bytes(protocol);
        // Where the trees are, what they use, and whether the machine fits beside them.
        let small = machine + MIB;
        for (other, node, used, fits) in [
            (small, OTHER, MIB / 2, true),
            (small, OTHER, 2 * MIB, false),
            (small, NodeId(3), machine, true),
            (4 * machine, OTHER, 3 * machine / 2, true),
            (4 * machine, NodeId(3), 3 * machine / 2, false),
        ] {
            let mut switch = fabric(2 * machine + MIB, other);
            let job = start(&mut switch, with_trees, "trees", 1).config.job;
            switch.control.trees_planned(job, TreeCharge { slots: 64, bytes: BTreeMap::from([(node, used)]) });
            let tickets = [0, 1].map(|rank| switch.join("shares", of(protocol, rank, 2)));
            let answered = tickets.map(|ticket| switch.answers.contains_key(&ticket));
            assert_eq!(answered[0] && switch.answer(tickets[0]).is_err(), !fits, "{protocol}: {used} at {node:?}");
        }
        // Jobs that divide the memory go around small switches, so that they leave all of it.
        let mut switch = fabric(64 * machine, machine + MIB);
        let wish = |rank| JoinRequest { slots: Some(4_096), ..of(dividing, rank, 1) };
        let tickets = [0, 1].map(|rank| switch.join("divides", wish(rank)));
        assert!(switch.answer(tickets[1]).unwrap().memory_bytes > 2 * MIB);
        start(&mut switch, protocol, "shares", 2);
    }
}

#[test]
fn a_choice_of_more_than_the_switch_has_is_an_error_and_a_default_is_none() {
    for protocol in sharing() {
        let specs = protocol.shared.as_ref().unwrap().options.specs;
        // The first of its options is the number of entries.
        let most = format!("{}.{}={}", protocol.name, specs[0].name, 1 << 20);
        let mut given = Given::new();
        add(&mut given, &most).unwrap();
        let chosen = SwitchOptions::read(&given, Defaults::Real).unwrap();
        let shared = SharedMemory::of(&chosen, |_| 2_220);
        let error = shared.check(&chosen, 64 * MIB).unwrap_err().to_string();
        assert!(
            error.contains(&format!("the jobs of {protocol} would share ")) && error.contains("64.0 MiB"),
            "{error}"
        );
        assert!(error.contains(" GiB here"), "{error}");
        assert_eq!(shared.check(&chosen, 1 << 40), Ok(()));
    }
    let defaults = SwitchOptions::defaults(Defaults::Real);
    assert_eq!(SharedMemory::of(&defaults, |_| 2_220).check(&defaults, MIB), Ok(()));
}
