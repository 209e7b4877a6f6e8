//! Jobs whose machines can be resized divide the switch's memory again as they come and go.

use std::num::NonZeroU16;
use std::sync::Arc;

use crate::harness::{MIB, TestSwitch, adopted, name, request};
use tributary_control::{AdoptedJob, Client, ClientLimits, JoinRequest, Limits, Plan, Quota};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::JobId;
use tributary_proto::protocols;

/// A rank of a job that would take all the memory.
fn wish(rank: u16, world_size: u16, incarnation: u64) -> JoinRequest {
    let protocol = protocols::ALL.iter().find(|protocol| protocol.resizes).expect("one of them does");
    let options = protocol.options.defaults();
    JoinRequest { protocol, options, suggested_slots: 4_096, ..request(rank, world_size, incarnation) }
}

/// A job of two ranks, charged to the client with this number.
fn start(switch: &mut TestSwitch, job: &str, client: u8) -> Arc<Plan> {
    let client = Client::at([10, 1, 0, client].into());
    let incarnation = switch.installed.len() as u64 * 10 + 1;
    let tickets: Vec<_> = (0..2)
        .map(|rank| switch.join(job, JoinRequest { client: client.clone(), ..wish(rank, 2, incarnation) }))
        .collect();
    let plan = switch.answer(tickets[1]).unwrap();
    assert_eq!(switch.answer(tickets[0]).unwrap(), plan);
    plan
}

fn end(switch: &mut TestSwitch, plan: &Plan) {
    (0..2).for_each(|rank| switch.leave(plan, rank));
}

#[test]
fn every_newcomer_has_as_much_as_the_others_and_the_shares_add_up_to_the_memory() {
    let mut switch = TestSwitch::new(MIB);
    let mut plans = Vec::new();
    for count in 1..=8 {
        plans.push(start(&mut switch, &format!("job{count}"), count));
        let slots: Vec<u16> = switch.slots.values().copied().collect();
        assert!(slots.iter().all(|&own| own == slots[0]), "{slots:?}");
        assert!(switch.control.memory_used() <= MIB && switch.control.memory_used() > MIB * 9 / 10, "of {count}");
        let views = switch.control.jobs();
        assert_eq!(views.iter().map(|view| view.memory_bytes).sum::<u64>(), switch.control.memory_used());
    }
    assert!(
        plans.windows(2).all(|two| two[0].config.slots == two[1].config.slots),
        "all may have as much as the first"
    );
}

#[test]
fn who_stays_has_what_others_leave_where_that_is_half_as_much_again() {
    let mut switch = TestSwitch::new(MIB);
    let plans: Vec<Arc<Plan>> = (1..=4).map(|job| start(&mut switch, &format!("job{job}"), job)).collect();
    let own = |switch: &TestSwitch, plan: &Plan| switch.slots[&plan.config.job];
    let quarter = own(&switch, &plans[0]);
    end(&mut switch, &plans[3]);
    assert_eq!(own(&switch, &plans[0]), quarter, "a third instead of a quarter is not worth a new epoch");
    end(&mut switch, &plans[2]);
    assert!(own(&switch, &plans[0]) >= 2 * quarter - 2);
    assert_eq!(own(&switch, &plans[0]), own(&switch, &plans[1]));
    end(&mut switch, &plans[1]);
    assert!(own(&switch, &plans[0]) >= 3 * quarter);
}

#[test]
fn who_does_not_fit_beside_the_others_least_is_refused_with_a_sentence_and_nobody_loses_anything() {
    let mut switch = TestSwitch::new(64 << 10);
    let mut started = 0;
    let refusal = loop {
        let ticket = switch.join(&format!("job{started}"), wish(0, 1, started));
        if switch.answer(ticket).is_err() {
            break switch.refusal(ticket);
        }
        started += 1;
    };
    assert!(started >= 2, "{started} jobs");
    assert_eq!(refusal.0, "full");
    assert!(refusal.1.contains("64.0 KiB") && refusal.1.contains("wait until another job ends"), "{}", refusal.1);
    assert!(switch.slots.values().all(|&slots| slots >= 4), "two packets in each of two shards: {:?}", switch.slots);
    assert!(switch.control.memory_used() <= 64 << 10);
}

#[test]
fn a_client_s_jobs_divide_what_the_client_may_have() {
    let share = ClientLimits { memory_bytes: Some(MIB / 2), ..ClientLimits::default() };
    let mut switch = TestSwitch::with(Limits { each_client: share, ..Limits::new(MIB, 2) });
    for job in 0..4 {
        start(&mut switch, &format!("mine{job}"), 1);
    }
    assert!(switch.control.memory_used() <= MIB / 2);
    let mine = switch.slots.clone();
    start(&mut switch, "yours", 2);
    assert!(mine.iter().all(|(id, slots)| switch.slots[id] == *slots), "there is memory for another client");
    assert!(switch.slots.values().max() > mine.values().max());
}

/// Tenants with these weights, which may have nothing else than others.
fn weighed(memory: u64, weights: &[(&str, u16)]) -> Limits {
    let limits = |weight| ClientLimits { weight: NonZeroU16::new(weight), ..ClientLimits::default() };
    let tenants = weights.iter().map(|&(name, weight)| (name.into(), limits(weight))).collect();
    Limits { tenants, each_client: ClientLimits::half_of(256, memory), ..Limits::new(memory, 2) }
}

/// A job of one rank, charged to a tenant.
fn start_of(switch: &mut TestSwitch, job: &str, tenant: &str) -> u64 {
    let incarnation = switch.installed.len() as u64 * 10 + 1;
    let ticket = switch.join(job, JoinRequest { client: Client::Tenant(tenant.into()), ..wish(0, 1, incarnation) });
    switch.answer(ticket).expect("it fits").memory_bytes
}

/// The bytes of a tenant's jobs together; their names begin with that of the tenant.
fn bytes_of(switch: &TestSwitch, tenant: &str) -> u64 {
    let jobs = switch.control.jobs().into_iter();
    jobs.filter(|job| job.name.as_str().starts_with(tenant)).map(|job| job.memory_bytes).sum()
}

#[test]
fn tenants_divide_the_memory_by_their_weights_however_many_jobs_each_has() {
    let mut switch = TestSwitch::with(weighed(4 * MIB, &[("a", 3), ("b", 1)]));
    start_of(&mut switch, "a1", "a");
    assert!(bytes_of(&switch, "a") <= 3 * MIB, "a share of three quarters, and not a half");
    assert!(bytes_of(&switch, "a") > 4 * MIB / 2);
    for job in ["b1", "b2", "b3"] {
        start_of(&mut switch, job, "b");
        let (a, b) = (bytes_of(&switch, "a"), bytes_of(&switch, "b"));
        assert!(a.abs_diff(3 * b) < a / 10, "{a} and {b} bytes with {job}");
    }
    assert!(switch.control.memory_used() > 4 * MIB * 9 / 10);
}

#[test]
fn jobs_that_are_not_resized_leave_the_shares_of_other_tenants_free() {
    let mut switch = TestSwitch::with(weighed(MIB, &[("a", 3), ("b", 1)]));
    let of = |tenant: &str, incarnation| JoinRequest {
        client: Client::Tenant(tenant.into()),
        suggested_slots: 4_096,
        ..request(0, 1, incarnation)
    };
    let mut refused = None;
    for number in 0..1_000 {
        let ticket = switch.join(&format!("a{number}"), of("a", number));
        if switch.answer(ticket).is_err() {
            refused = Some(switch.refusal(ticket));
            break;
        }
    }
    assert_eq!(refused.expect("the share is finite").0, "over_client_limit");
    assert!(bytes_of(&switch, "a") <= MIB * 3 / 4);
    let ticket = switch.join("b0", of("b", 2_000));
    assert!(switch.answer(ticket).is_ok(), "its share is free");
    assert!(bytes_of(&switch, "b") <= MIB / 4);
}

#[test]
fn a_quota_is_divided_among_the_jobs_that_it_names() {
    let quota = Quota { jobs: "small*".into(), memory_bytes: Some(MIB / 8), max_slots: None, max_world_size: None };
    let mut switch = TestSwitch::with(Limits { quotas: vec![quota], ..Limits::new(MIB, 2) });
    let small: Vec<JobId> = (0..2).map(|job| start(&mut switch, &format!("small{job}"), 1).config.job).collect();
    let large = start(&mut switch, "large", 2).config.job;
    let used: u64 =
        switch.control.jobs().iter().filter(|job| job.name != name("large")).map(|job| job.memory_bytes).sum();
    assert!(used <= MIB / 8);
    assert!(small.iter().all(|id| switch.slots[id] < switch.slots[&large] / 2));
}

#[test]
fn jobs_over_planned_trees_divide_the_memory_and_each_tree_has_two_packets() {
    let mut switch = TestSwitch::with(Limits { planned_trees: Some(9), ..Limits::new(256 << 10, 1) });
    let mut plans = Vec::new();
    let refusal = loop {
        let count = plans.len() as u8;
        let ticket = switch.join(&format!("job{count}"), wish(0, 1, u64::from(count)));
        match switch.answer(ticket) {
            Ok(plan) => plans.push(plan),
            Err(_) => break switch.refusal(ticket),
        }
        assert!(switch.control.memory_used() <= 256 << 10);
        assert!(switch.slots.values().all(|&slots| slots >= 8), "four trees: {:?}", switch.slots);
    };
    assert!(plans.len() >= 3, "{} jobs", plans.len());
    assert!(refusal.1.contains("256.0 KiB"), "{}", refusal.1);
}

/// The control plane was started again: it knows what each has and what each may have.
#[test]
fn jobs_that_were_there_before_divide_the_memory_with_those_that_come() {
    let mut before = TestSwitch::with(Limits { planned_trees: Some(4), ..Limits::new(MIB, 1) });
    let old = start(&mut before, "old", 1);
    let mut switch = TestSwitch::with(Limits { planned_trees: Some(4), ..Limits::new(MIB, 1) });
    let config = JobConfig { trees: 4, slots: old.slots, ..old.config.clone() };
    switch.slots.insert(config.job, config.slots);
    switch.control.adopt(switch.now, AdoptedJob { config, ..adopted(&old) });
    let new = start(&mut switch, "new", 2);
    assert!(switch.control.memory_used() <= MIB && switch.control.memory_used() > MIB * 9 / 10);
    assert_eq!(switch.slots[&old.config.job], switch.slots[&new.config.job]);
}
