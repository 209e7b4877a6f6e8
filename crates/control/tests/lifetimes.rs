//! How jobs end, and who may take their names: leaves, leases, restarts.

use crate::harness::{MIB, World, request, secs};
use tributary_control::{JoinRequest, Limits, MemberState, Phase, Plan};
use tributary_proto::contract::time::Span;

const ALL: [u16; 3] = [0, 1, 2];

fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn job_state(world: &World, plan: &Plan) -> Option<(Phase, Vec<MemberState>)> {
    let job = world.control.jobs().into_iter().find(|job| job.id == Some(plan.config.job))?;
    Some((job.phase, job.members.iter().map(|member| member.state).collect()))
}

#[test]
fn slots_come_back_when_the_last_member_leaves() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    for rank in [2, 0] {
        world.leave(&plan, rank);
        assert_eq!(job_state(&world, &plan).unwrap().0, Phase::Ending);
        assert!(world.installed.contains_key(&plan.config.job), "rank 1 may still need a result again");
    }
    world.leave(&plan, 1);
    assert!(world.installed.is_empty() && world.control.memory_used() == 0);
}

#[test]
fn a_long_compute_with_keepalives_is_no_silence() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    world.pass(secs(3_600.0), &[(&plan, &ALL)]);
    assert_eq!(job_state(&world, &plan).unwrap().0, Phase::Running);
}

#[test]
fn a_silent_member_is_lost_after_its_lease_and_its_job_after_the_grace_period() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    let others: &[u16] = &[0, 2];
    world.pass(secs(9.9), &[(&plan, others)]);
    assert_eq!(job_state(&world, &plan).unwrap().0, Phase::Running);
    world.pass(secs(0.2), &[(&plan, others)]);
    let (phase, members) = job_state(&world, &plan).unwrap();
    assert_eq!((phase, members[1]), (Phase::Failed, MemberState::Lost));
    assert_eq!(world.control.jobs()[0].missing, [1]);
    world.pass(secs(29.8), &[(&plan, others)]);
    assert!(!world.installed.is_empty(), "the others may still want to hear who is missing");
    world.pass(secs(0.2), &[(&plan, others)]);
    assert!(world.installed.is_empty());
}

#[test]
fn a_job_whose_members_all_vanish_goes_with_the_last_lease() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    world.leave(&plan, 0);
    world.pass(secs(9.9), &[]);
    assert!(!world.installed.is_empty());
    world.pass(secs(0.2), &[]);
    assert!(world.installed.is_empty());
    assert_eq!(world.control.poll_timeout(), None);
}

#[test]
fn a_member_that_is_heard_again_within_the_grace_period_is_back() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    world.pass(secs(20.0), &[(&plan, &[0, 1])]);
    assert_eq!(job_state(&world, &plan).unwrap().0, Phase::Failed);
    world.pass(secs(60.0), &[(&plan, &ALL)]);
    assert_eq!(job_state(&world, &plan).unwrap().0, Phase::Running);
}

#[test]
fn a_second_process_for_a_live_rank_is_refused_and_the_job_undisturbed() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    world.pass(secs(5.0), &[(&plan, &ALL)]);
    let second = world.join("a", request(1, 3, 2));
    assert!(world.control.awaits_reports(), "it hangs on a sign of life of rank 1");
    world.pass(secs(1.0), &[(&plan, &ALL)]);
    let (code, sentence) = world.refusal(second);
    assert_eq!(code, "rank_taken");
    assert!(sentence.contains("rank 1 of job 'a' is taken by a live process at 10.0.0.2:5001"), "{sentence}");
    assert_eq!(job_state(&world, &plan).unwrap().0, Phase::Running);
    assert!(!world.control.awaits_reports());
}

#[test]
fn a_rank_outside_a_live_job_is_refused() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    let stranger = world.join("a", request(3, 4, 2));
    world.pass(secs(1.0), &[(&plan, &ALL)]);
    assert_eq!(world.refusal(stranger).0, "job_busy");
}

#[test]
fn a_packet_that_was_under_way_when_its_sender_died_does_not_count_as_life() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 1, 1);
    world.pass(secs(5.0), &[(&plan, &[0])]);
    let successor = world.join("a", request(0, 1, 2));
    world.pass(millis(100), &[]);
    world.hear(&plan, [0]);
    world.pass(world.timers().takeover_silence(), &[]);
    assert!(world.answer(successor).is_ok());
}

#[test]
fn old_news_of_a_live_member_do_not_give_its_name_away() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 1, 1);
    // The shards were last asked long ago; what they know now is told before anything is decided.
    world.now += secs(5.0);
    let ticket = world.control.join(world.now, &plan.name, request(0, 1, 2), tributary_proto::contract::ids::JobKey(9));
    assert_eq!(world.control.poll_effect(), None, "not decided yet");
    assert!(world.control.poll_timeout().is_some_and(|due| due <= world.now), "the driver is to look at once");
    world.hear(&plan, [0]);
    world.tick();
    assert!(world.waits(ticket));
    world.pass(secs(1.0), &[(&plan, &[0])]);
    assert_eq!(world.refusal(ticket).0, "rank_taken");
}

/// All ranks are killed without a word and start again at once, as launchers do after a failure.
#[test]
fn killed_ranks_that_start_again_at_once_are_a_new_job_within_three_keepalives() {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut world = World::new(64 * MIB);
        let old = world.start("a", 3, 1);
        world.pass(secs(7.3), &[(&old, &ALL)]);
        let tickets = order.map(|rank| world.join("a", request(rank, 3, 2)));
        assert!(tickets.iter().all(|&ticket| world.waits(ticket)));
        world.pass(world.timers().takeover_silence(), &[]);
        let new = world.answer(tickets[0]).unwrap();
        assert!(tickets.iter().all(|&ticket| world.answer(ticket).as_ref() == Ok(&new)));
        assert_ne!(new.config.job, old.config.job);
        assert_ne!(new.config.key, old.config.key, "what the dead knew is of no use to anyone");
        assert_eq!(world.installed.keys().copied().collect::<Vec<_>>(), [new.config.job], "the old slots are back");
    }
}

#[test]
fn a_restart_does_not_get_fewer_slots_because_the_dead_still_hold_theirs() {
    let wish = |rank, incarnation| JoinRequest { slots: Some(256), ..request(rank, 2, incarnation) };
    let mut world = World::new(MIB);
    let first = [0, 1].map(|rank| world.join("a", wish(rank, 1)));
    let old = world.answer(first[0]).unwrap();
    assert_eq!(old.config.slots, 256);
    // Rank 1 lived a little longer than rank 0, so it is silent for less when both are back.
    world.pass(millis(1_300), &[(&old, &[0, 1])]);
    world.pass(millis(400), &[]);
    world.hear(&old, [1]);
    let again = [0, 1].map(|rank| world.join("a", wish(rank, 2)));
    world.pass(secs(2.0), &[]);
    assert_eq!(world.answer(again[0]).unwrap().config.slots, 256);
    assert!(world.control.memory_used() <= MIB);
}

#[test]
fn a_restart_with_another_world_size_works_too() {
    for new_world in [1, 2, 5] {
        let mut world = World::new(64 * MIB);
        let old = world.start("a", 3, 1);
        world.pass(secs(5.0), &[(&old, &ALL)]);
        let tickets: Vec<_> = (0..new_world).map(|rank| world.join("a", request(rank, new_world, 2))).collect();
        world.pass(secs(2.0), &[]);
        assert!(tickets.iter().all(|&ticket| world.answer(ticket).is_ok()));
    }
}

#[test]
fn a_rank_that_has_left_may_start_the_next_job_of_the_name_while_the_others_finish() {
    let mut world = World::new(64 * MIB);
    let old = world.start("a", 3, 1);
    world.leave(&old, 0);
    // The same process, and so the same incarnation: it runs one job after the other.
    let first = world.join("a", JoinRequest { addr: request(0, 3, 9).addr, ..request(0, 3, 1) });
    assert!(world.waits(first) && !world.control.awaits_reports(), "no contest: the old job ends");
    assert_eq!(job_state(&world, &old).unwrap().0, Phase::Superseded);
    world.leave(&old, 1);
    world.leave(&old, 2);
    assert_eq!(job_state(&world, &old), None);
    world.join("a", request(1, 3, 2));
    world.join("a", request(2, 3, 2));
    assert!(world.answer(first).is_ok());
}

#[test]
fn a_superseded_job_loses_its_name_and_nothing_else_while_its_members_live() {
    let mut world = World::new(64 * MIB);
    let old = world.start("a", 3, 1);
    world.pass(secs(5.0), &[(&old, &ALL)]);
    // Only rank 1 is restarted: its claim is believed because the old rank 1 is silent.
    let alone = world.join("a", request(1, 3, 2));
    world.pass(secs(2.0), &[(&old, &[0, 2])]);
    assert_eq!(world.phases(), [("a".into(), Phase::Superseded), ("a".into(), Phase::Forming)]);
    assert_eq!(job_state(&world, &old).unwrap().1[1], MemberState::Lost);
    // The survivors hear of the loss, and come too.
    world.leave(&old, 0);
    world.leave(&old, 2);
    assert!(world.installed.is_empty());
    world.join("a", request(0, 3, 2));
    world.join("a", request(2, 3, 2));
    assert!(world.answer(alone).is_ok());
}

#[test]
fn a_name_is_free_again_as_soon_as_its_job_is_over() {
    let mut world = World::new(64 * MIB);
    let lost = world.start("a", 1, 1);
    world.pass(secs(10.1), &[]);
    assert!(!world.installed.contains_key(&lost.config.job));
    let other_protocol =
        JoinRequest { protocol: tributary_proto::protocols::named("ring").unwrap(), ..request(0, 1, 2) };
    let ticket = world.join("a", other_protocol);
    assert!(world.answer(ticket).is_ok());
}

#[test]
fn a_contest_ends_with_the_newcomers_patience_at_the_latest() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 1, 1);
    world.pass(secs(1.0), &[(&plan, &[0])]);
    let hasty = world.join("a", JoinRequest { timeout: millis(100), ..request(0, 1, 2) });
    world.pass(millis(100), &[]);
    assert_eq!(world.refusal(hasty).0, "rank_taken");
    let gone = world.join("a", request(0, 1, 3));
    world.withdraw(gone);
    assert!(!world.control.awaits_reports());
}

#[test]
fn a_full_table_of_jobs_does_not_hinder_a_restart() {
    let mut world = World::with(Limits { max_jobs: 1, ..Limits::new(64 * MIB, 1) });
    world.start("a", 2, 1);
    world.pass(secs(1.0), &[]);
    let tickets = [0, 1].map(|rank| world.join("a", request(rank, 2, 2)));
    world.pass(secs(2.0), &[]);
    assert!(world.answer(tickets[0]).is_ok() && world.answer(tickets[1]).is_ok());
}

#[test]
fn a_control_plane_that_was_started_anew_takes_running_jobs_over() {
    let mut before = World::new(64 * MIB);
    let (other, plan) = (before.start("b", 1, 1), before.start("a", 3, 1));
    let mut world = World::new(64 * MIB);
    for plan in [&plan, &other] {
        world.control.adopt(world.now, crate::harness::found(plan));
        world.installed.insert(plan.config.job, plan.clone());
    }
    assert_eq!(world.control.memory_used(), before.control.memory_used());
    for rank in 0..3 {
        world.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    world.pass(secs(9.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(world.phases().len(), 2);
    // Nobody is left of the other job: a lease later its slots come back.
    world.pass(secs(2.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(world.phases(), [("a".to_string(), Phase::Running)]);
    // Names and ids are taken.
    let double = world.join("a", request(0, 3, 2));
    world.pass(secs(2.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(world.refusal(double).0, "rank_taken");
    assert!(world.start("c", 1, 1).config.job > plan.config.job);
    (0..3).for_each(|rank| world.leave(&plan, rank));
    assert!(!world.installed.contains_key(&plan.config.job));
}
