//! Jobs whose machines can be resized divide the switch's memory anew as they come and go.

use std::sync::Arc;

use crate::harness::{MIB, World, found, name, request};
use tributary_control::{AdoptedJob, Client, ClientLimits, JoinRequest, Limits, Plan, Quota};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::JobId;
use tributary_proto::protocols;

/// A rank of a job that would take all the memory.
fn wish(rank: u16, world: u16, incarnation: u64) -> JoinRequest {
    let protocol = protocols::ALL.iter().find(|protocol| protocol.resizes).expect("one of them does");
    let options = protocol.options.defaults();
    JoinRequest { protocol, options, suggested_slots: 4_096, ..request(rank, world, incarnation) }
}

/// A job of two ranks, charged to the client with this number.
fn start(world: &mut World, job: &str, client: u8) -> Arc<Plan> {
    let client = Client::at([10, 1, 0, client].into());
    let incarnation = world.installed.len() as u64 * 10 + 1;
    let tickets: Vec<_> = (0..2)
        .map(|rank| world.join(job, JoinRequest { client: client.clone(), ..wish(rank, 2, incarnation) }))
        .collect();
    let plan = world.answer(tickets[1]).unwrap();
    assert_eq!(world.answer(tickets[0]).unwrap(), plan);
    plan
}

fn end(world: &mut World, plan: &Plan) {
    (0..2).for_each(|rank| world.leave(plan, rank));
}

#[test]
fn every_newcomer_has_as_much_as_the_others_and_the_shares_add_up_to_the_memory() {
    let mut world = World::new(MIB);
    let mut plans = Vec::new();
    for count in 1..=8 {
        plans.push(start(&mut world, &format!("job{count}"), count));
        let slots: Vec<u16> = world.slots.values().copied().collect();
        assert!(slots.iter().all(|&own| own == slots[0]), "{slots:?}");
        assert!(world.control.memory_used() <= MIB && world.control.memory_used() > MIB * 9 / 10, "of {count}");
        let views = world.control.jobs();
        assert_eq!(views.iter().map(|view| view.memory_bytes).sum::<u64>(), world.control.memory_used());
    }
    assert!(
        plans.windows(2).all(|two| two[0].config.slots == two[1].config.slots),
        "all may have as much as the first"
    );
}

#[test]
fn who_stays_has_what_others_leave_where_that_is_half_as_much_again() {
    let mut world = World::new(MIB);
    let plans: Vec<Arc<Plan>> = (1..=4).map(|job| start(&mut world, &format!("job{job}"), job)).collect();
    let own = |world: &World, plan: &Plan| world.slots[&plan.config.job];
    let quarter = own(&world, &plans[0]);
    end(&mut world, &plans[3]);
    assert_eq!(own(&world, &plans[0]), quarter, "a third instead of a quarter is not worth a new epoch");
    end(&mut world, &plans[2]);
    assert!(own(&world, &plans[0]) >= 2 * quarter - 2);
    assert_eq!(own(&world, &plans[0]), own(&world, &plans[1]));
    end(&mut world, &plans[1]);
    assert!(own(&world, &plans[0]) >= 3 * quarter);
}

#[test]
fn who_does_not_fit_beside_the_others_least_hears_it_in_a_sentence_and_nobody_loses_anything() {
    let mut world = World::new(64 << 10);
    let mut started = 0;
    let refusal = loop {
        let ticket = world.join(&format!("job{started}"), wish(0, 1, started));
        if world.answer(ticket).is_err() {
            break world.refusal(ticket);
        }
        started += 1;
    };
    assert!(started >= 2, "{started} jobs");
    assert_eq!(refusal.0, "full");
    assert!(refusal.1.contains("64.0 KiB") && refusal.1.contains("wait until another job ends"), "{}", refusal.1);
    assert!(world.slots.values().all(|&slots| slots >= 4), "two packets in each of two shards: {:?}", world.slots);
    assert!(world.control.memory_used() <= 64 << 10);
}

#[test]
fn a_client_s_jobs_divide_what_the_client_may_have() {
    let share = ClientLimits { memory_bytes: Some(MIB / 2), ..ClientLimits::default() };
    let mut world = World::with(Limits { each_client: share, ..Limits::new(MIB, 2) });
    for job in 0..4 {
        start(&mut world, &format!("mine{job}"), 1);
    }
    assert!(world.control.memory_used() <= MIB / 2);
    let mine = world.slots.clone();
    start(&mut world, "yours", 2);
    assert!(mine.iter().all(|(id, slots)| world.slots[id] == *slots), "there is room for another client");
    assert!(world.slots.values().max() > mine.values().max());
}

#[test]
fn a_quota_is_divided_among_the_jobs_that_it_names() {
    let quota = Quota { jobs: "small*".into(), memory_bytes: Some(MIB / 8), max_slots: None, max_world_size: None };
    let mut world = World::with(Limits { quotas: vec![quota], ..Limits::new(MIB, 2) });
    let small: Vec<JobId> = (0..2).map(|job| start(&mut world, &format!("small{job}"), 1).config.job).collect();
    let large = start(&mut world, "large", 2).config.job;
    let used: u64 =
        world.control.jobs().iter().filter(|job| job.name != name("large")).map(|job| job.memory_bytes).sum();
    assert!(used <= MIB / 8);
    assert!(small.iter().all(|id| world.slots[id] < world.slots[&large] / 2));
}

#[test]
fn jobs_over_planned_trees_divide_the_memory_and_each_tree_has_two_packets() {
    let mut world = World::with(Limits { planned_trees: Some(9), ..Limits::new(256 << 10, 1) });
    let mut plans = Vec::new();
    let refusal = loop {
        let count = plans.len() as u8;
        let ticket = world.join(&format!("job{count}"), wish(0, 1, u64::from(count)));
        match world.answer(ticket) {
            Ok(plan) => plans.push(plan),
            Err(_) => break world.refusal(ticket),
        }
        assert!(world.control.memory_used() <= 256 << 10);
        assert!(world.slots.values().all(|&slots| slots >= 8), "four trees: {:?}", world.slots);
    };
    assert!(plans.len() >= 3, "{} jobs", plans.len());
    assert!(refusal.1.contains("256.0 KiB"), "{}", refusal.1);
}

/// The control plane was started anew: it knows what each has and what each may have.
#[test]
fn jobs_that_were_there_before_divide_the_memory_with_those_that_come() {
    let mut before = World::with(Limits { planned_trees: Some(4), ..Limits::new(MIB, 1) });
    let old = start(&mut before, "old", 1);
    let mut world = World::with(Limits { planned_trees: Some(4), ..Limits::new(MIB, 1) });
    let config = JobConfig { trees: 4, slots: old.slots, ..old.config.clone() };
    world.slots.insert(config.job, config.slots);
    world.control.adopt(world.now, AdoptedJob { config, ..found(&old) });
    let new = start(&mut world, "new", 2);
    assert!(world.control.memory_used() <= MIB && world.control.memory_used() > MIB * 9 / 10);
    assert_eq!(world.slots[&old.config.job], world.slots[&new.config.job]);
}
