//! Control planes of switches in levels, in virtual time: two racks below one switch.

use crate::harness::{MIB, name, request, secs};
use crate::racks::{RACKS, Tree, incarnation};
use tributary_control::levels::SwitchJoin;
use tributary_control::{Control, Effect, JoinRequest, Limits, Phase};
use tributary_proto::contract::ids::{JobId, JobKey};
use tributary_proto::contract::time::Time;
use tributary_proto::protocols;

#[test]
fn any_partition_is_one_job_with_one_id_key_and_pool() {
    for racks in [&[0, 1][..], &[0, 0, 0], &[1, 0, 1, 0, 1], &[1, 1, 0]] {
        let mut tree = Tree::equal(64 * MIB);
        let plans = tree.start(racks, 1);
        for (rank, plan) in plans.iter().enumerate() {
            assert_eq!(plan.config, plans[0].config);
            assert_eq!(plan.workers, plans[0].workers, "hosts that sum by themselves need all addresses");
            let here: Vec<u16> = (0..racks.len()).filter(|&r| racks[r] == racks[rank]).map(|r| r as u16).collect();
            assert_eq!(plan.ranks_below(), here);
        }
    }
}

/// What a job's members agree on is what it may ever have; each switch gives it the part that it has for it now.
#[test]
fn jobs_that_divide_memory_divide_that_of_every_switch_by_itself() {
    let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.resizes).expect("one of them does");
    let wish = |rank, incarnation| JoinRequest {
        protocol,
        options: protocol.options.defaults(),
        suggested_slots: 1_024,
        ..request(rank, 2, incarnation)
    };
    let (large, small) = (Limits::new(64 * MIB, 1), Limits::new(MIB, 1));
    let mut tree = Tree::new(large.clone(), [large, small]);
    let ids: Vec<JobId> = (1..=4)
        .map(|job| {
            let first = tree.join_as(&format!("job{job}"), 0, wish(0, job));
            tree.join_as(&format!("job{job}"), 1, wish(1, job));
            let plan = tree.answers[&first].clone().unwrap();
            assert_eq!(plan.config.slots, 1_024, "job {job}");
            plan.config.job
        })
        .collect();
    let slots = |tree: &Tree, switch: usize| -> Vec<u16> { ids.iter().map(|id| tree.slots[switch][id]).collect() };
    assert_eq!([slots(&tree, RACKS), slots(&tree, 0)], [vec![1_024; 4], vec![1_024; 4]]);
    let divided = slots(&tree, 1);
    assert!(divided.iter().all(|&own| own == divided[0] && own > 8 && own < 512), "{divided:?}");
    assert!(tree.racks[1].memory_used() <= MIB && tree.racks[1].memory_used() > MIB * 9 / 10);
}

#[test]
fn the_least_of_all_switches_and_paths_bounds_the_pool_and_the_packets() {
    let small = Limits::new(64 << 10, 1);
    let many = Limits::new(64 * MIB, 1);
    let mut tree = Tree::new(many.clone(), [many, small]);
    let first = tree.join(0, request(0, 2, 1));
    tree.join(1, JoinRequest { max_elements_per_packet: 352, ..request(1, 2, 1) });
    let config = &tree.answers[&first].clone().unwrap().config;
    assert_eq!((config.elements_per_packet, config.slots), (352, 16), "64 slots are too many for the second rack");
}

#[test]
fn a_rank_of_another_rack_is_not_disturbed_by_its_double_and_neither_are_the_doubles_neighbours() {
    let mut tree = Tree::equal(64 * MIB);
    let first = tree.join(0, request(0, 3, 1));
    let neighbour = tree.join(1, request(1, 3, 1));
    let double = tree.join(1, request(0, 3, 2));
    assert!(tree.refusal(double).contains("rank 0 of job 'job' is taken"));
    let last = tree.join(0, request(2, 3, 1));
    assert!([first, neighbour, last].iter().all(|ticket| tree.answers[ticket].is_ok()));
}

#[test]
fn ranks_that_differ_are_refused_in_both_racks_and_so_are_those_that_come_late() {
    let mut tree = Tree::equal(64 * MIB);
    let first = tree.join(0, request(0, 3, 1));
    let odd = tree.join(1, request(1, 4, 1));
    let late = tree.join(0, request(2, 3, 1));
    for ticket in [first, odd, late] {
        assert!(tree.refusal(ticket).contains("the world size: rank 0 says 3; rank 1 says 4"));
    }
}

#[test]
fn who_did_not_come_is_said_in_both_racks_by_the_parent() {
    let mut tree = Tree::equal(64 * MIB);
    let waits = [tree.join(0, request(0, 4, 1)), tree.join(1, request(3, 4, 1))];
    tree.pass(secs(29.0), &[]);
    assert!(tree.answers.is_empty());
    tree.pass(secs(1.1), &[]);
    for ticket in waits {
        assert!(tree.refusal(ticket).starts_with("ranks 1, 2 of 4 did not come within 30 s"));
    }
}

#[test]
fn a_process_that_goes_away_while_it_waits_is_missed_at_the_parent_too() {
    let mut tree = Tree::equal(64 * MIB);
    let (rack, ticket) = tree.join(0, request(0, 2, 1));
    tree.racks[rack].withdraw(tree.now, ticket);
    tree.pump();
    assert!(tree.root.jobs().is_empty());
    let alone = tree.join(1, request(1, 2, 1));
    assert!(!tree.answers.contains_key(&alone));
    tree.join(0, request(0, 2, 2));
    assert!(tree.answers[&alone].is_ok());
}

#[test]
fn a_parent_that_never_answers_is_blamed() {
    let mut rack = Control::with_parent(Limits::new(64 * MIB, 1));
    let ticket = rack.join(Time::ZERO, &name("job"), request(0, 2, 1), JobKey(1));
    rack.handle_timeout(Time::ZERO + secs(32.1));
    let answer = std::iter::from_fn(|| rack.poll_effect()).find_map(|effect| match effect {
        Effect::Answer { ticket: of, admitted } if of == ticket => Some(admitted),
        _ => None,
    });
    assert_eq!(answer.unwrap().unwrap_err().code(), "parent_silent");
}

#[test]
fn slots_come_back_at_all_switches_when_all_have_left() {
    let mut tree = Tree::equal(64 * MIB);
    tree.run(&[0, 1, 1], 1);
    assert!(tree.is_empty());
}

#[test]
fn a_lost_rank_ends_the_job_in_both_racks() {
    let mut tree = Tree::equal(64 * MIB);
    tree.start(&[0, 1, 1], 1);
    tree.pass(secs(11.0), &[0, 2]);
    assert_eq!(tree.racks[1].jobs()[0].missing, [1]);
    assert!(!tree.installed[1].is_empty(), "ranks of the other rack may want to know who is missing");
    // A lease, and a grace period for each of three switches one after the other, and a second lease.
    tree.pass(secs(120.0), &[0, 2]);
    assert!(tree.is_empty());
}

#[test]
fn a_dead_switch_of_a_rack_is_lost_at_the_parent_and_its_job_ends() {
    let mut tree = Tree::equal(64 * MIB);
    tree.start(&[0, 1], 1);
    tree.dead.insert(1);
    tree.pass(secs(11.0), &[0]);
    let job = &tree.root.jobs()[0];
    assert_eq!((job.phase, job.missing.clone()), (Phase::Failed, vec![1]));
    tree.pass(secs(90.0), &[0]);
    assert!(tree.installed[0].is_empty() && tree.installed[RACKS].is_empty());
}

#[test]
fn killed_ranks_that_start_again_get_the_whole_pool_again_within_seconds() {
    let memory = 300 << 10;
    let mut tree = Tree::equal(memory);
    let before = tree.start(&[0, 1, 0], 1);
    let joins = [(0, 0), (1, 1), (0, 2)].map(|(rack, rank)| tree.join(rack, request(rank, 3, 2)));
    tree.pass(secs(5.0), &[]);
    for join in joins {
        let again = tree.answers.get(&join).expect("an answer").clone().unwrap();
        assert_ne!(again.config.job, before[0].config.job);
        assert_eq!(again.config.slots, before[0].config.slots);
    }
    assert!(tree.installed.iter().all(|installed| installed.len() == 1), "the former job is gone everywhere");
}

/// The calls of a switch take different connections, so that one may come after the answer to a later one.
#[test]
fn a_join_that_comes_after_the_job_began_neither_ends_the_job_nor_begins_another() {
    let mut tree = Tree::equal(64 * MIB);
    tree.start(&[0, 0, 1], 1);
    let late: Vec<SwitchJoin> =
        tree.all_joins.iter().filter(|join| join.incarnation == incarnation(0)).cloned().collect();
    assert_eq!(late.iter().map(|join| join.ranks.len()).collect::<Vec<_>>(), [1, 2]);
    for join in late {
        tree.root.join_switch(tree.now, &name("job"), join, JobKey(99));
        tree.pump();
        let jobs = tree.root.jobs();
        assert_eq!(jobs.iter().map(|job| job.phase).collect::<Vec<_>>(), [Phase::Running]);
    }
    tree.pass(secs(60.0), &[0, 1, 2]);
    assert_eq!(tree.root.jobs()[0].phase, Phase::Running);
}

#[test]
fn a_join_that_comes_after_the_job_ended_begins_no_other_and_the_next_job_begins_as_the_first_did() {
    let mut tree = Tree::equal(64 * MIB);
    for incarnation in 1..10 {
        tree.run(&[0, 0, 1], incarnation);
        for late in std::mem::take(&mut tree.all_joins) {
            tree.root.join_switch(tree.now, &name("job"), late, JobKey(99));
            tree.pump();
            assert!(tree.root.jobs().is_empty());
        }
    }
}
