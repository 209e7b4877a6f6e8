//! How jobs end, and who may take their names: leaves, leases, restarts.

use crate::harness::{MIB, TestSwitch, request, secs};
use tributary_control::{JoinRequest, Limits, MemberState, Phase, Plan};
use tributary_proto::contract::time::Span;

const ALL: [u16; 3] = [0, 1, 2];

fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn job_state(switch: &TestSwitch, plan: &Plan) -> Option<(Phase, Vec<MemberState>)> {
    let job = switch.control.jobs().into_iter().find(|job| job.id == Some(plan.config.job))?;
    Some((job.phase, job.members.iter().map(|member| member.state).collect()))
}

#[test]
fn slots_come_back_when_the_last_member_leaves() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    for rank in [2, 0] {
        switch.leave(&plan, rank);
        assert_eq!(job_state(&switch, &plan).unwrap().0, Phase::Ending);
        assert!(switch.installed.contains_key(&plan.config.job), "rank 1 may still need a result again");
    }
    switch.leave(&plan, 1);
    assert!(switch.installed.is_empty() && switch.control.memory_used() == 0);
}

/// The first rank of a host whose other rank has died: packets that it sent before are counted after it has left.
#[test]
fn a_member_that_says_it_is_lost_stays_lost_whatever_still_comes_from_it() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    switch.leave_after(&plan, 1, None);
    assert_eq!(switch.control.jobs()[0].missing, [1]);
    switch.receive(&plan, ALL);
    let (phase, members) = job_state(&switch, &plan).unwrap();
    assert_eq!((phase, members), (Phase::Failed, vec![MemberState::Present, MemberState::Lost, MemberState::Present]));
    [0, 2].into_iter().for_each(|rank| switch.leave(&plan, rank));
    assert!(switch.installed.is_empty(), "nobody is there who could want to know");
}

#[test]
fn a_long_compute_with_keepalives_is_not_silence() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    switch.pass(secs(3_600.0), &[(&plan, &ALL)]);
    assert_eq!(job_state(&switch, &plan).unwrap().0, Phase::Running);
}

#[test]
fn a_silent_member_is_lost_after_its_lease_and_its_job_after_the_grace_period() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    let others: &[u16] = &[0, 2];
    switch.pass(secs(9.9), &[(&plan, others)]);
    assert_eq!(job_state(&switch, &plan).unwrap().0, Phase::Running);
    switch.pass(secs(0.2), &[(&plan, others)]);
    let (phase, members) = job_state(&switch, &plan).unwrap();
    assert_eq!((phase, members[1]), (Phase::Failed, MemberState::Lost));
    assert_eq!(switch.control.jobs()[0].missing, [1]);
    switch.pass(secs(29.8), &[(&plan, others)]);
    assert!(!switch.installed.is_empty(), "the others may still want to know who is missing");
    switch.pass(secs(0.2), &[(&plan, others)]);
    assert!(switch.installed.is_empty());
}

#[test]
fn a_job_whose_members_all_vanish_goes_with_the_last_lease() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    switch.leave(&plan, 0);
    switch.pass(secs(9.9), &[]);
    assert!(!switch.installed.is_empty());
    switch.pass(secs(0.2), &[]);
    assert!(switch.installed.is_empty());
    assert_eq!(switch.control.poll_timeout(), None);
}

#[test]
fn a_member_that_sends_again_within_the_grace_period_is_back() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    switch.pass(secs(20.0), &[(&plan, &[0, 1])]);
    assert_eq!(job_state(&switch, &plan).unwrap().0, Phase::Failed);
    switch.pass(secs(60.0), &[(&plan, &ALL)]);
    assert_eq!(job_state(&switch, &plan).unwrap().0, Phase::Running);
}

#[test]
fn a_second_process_for_a_live_rank_is_refused_and_the_job_undisturbed() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    switch.pass(secs(5.0), &[(&plan, &ALL)]);
    let second = switch.join("a", request(1, 3, 2));
    assert!(switch.control.awaits_reports(), "it hangs on a sign of life of rank 1");
    switch.pass(secs(1.0), &[(&plan, &ALL)]);
    let (code, sentence) = switch.refusal(second);
    assert_eq!(code, "rank_taken");
    assert!(sentence.contains("rank 1 of job 'a' is taken by a live process at 10.0.0.2:5001"), "{sentence}");
    assert_eq!(job_state(&switch, &plan).unwrap().0, Phase::Running);
    assert!(!switch.control.awaits_reports());
}

#[test]
fn a_rank_outside_a_live_job_is_refused() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    let newcomer = switch.join("a", request(3, 4, 2));
    switch.pass(secs(1.0), &[(&plan, &ALL)]);
    assert_eq!(switch.refusal(newcomer).0, "job_busy");
}

#[test]
fn a_packet_that_was_under_way_when_its_sender_died_does_not_count_as_life() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 1, 1);
    switch.pass(secs(5.0), &[(&plan, &[0])]);
    let successor = switch.join("a", request(0, 1, 2));
    switch.pass(millis(100), &[]);
    switch.receive(&plan, [0]);
    switch.pass(switch.timers().takeover_silence(), &[]);
    assert!(switch.answer(successor).is_ok());
}

#[test]
fn old_news_of_a_live_member_do_not_give_its_name_away() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 1, 1);
    // The shards were last asked long ago; what they know now is reported before anything is decided.
    switch.now += secs(5.0);
    let ticket =
        switch.control.join(switch.now, &plan.name, request(0, 1, 2), tributary_proto::contract::ids::JobKey(9));
    assert_eq!(switch.control.poll_effect(), None, "not decided yet");
    assert!(switch.control.poll_timeout().is_some_and(|due| due <= switch.now), "the driver is to look at once");
    switch.receive(&plan, [0]);
    switch.tick();
    assert!(switch.waits(ticket));
    switch.pass(secs(1.0), &[(&plan, &[0])]);
    assert_eq!(switch.refusal(ticket).0, "rank_taken");
}

/// All ranks are killed without a word and start again at once, as launchers do after a failure.
#[test]
fn killed_ranks_that_start_again_at_once_are_a_new_job_within_three_keepalives() {
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let mut switch = TestSwitch::new(64 * MIB);
        let old = switch.start("a", 3, 1);
        switch.pass(secs(7.3), &[(&old, &ALL)]);
        let tickets = order.map(|rank| switch.join("a", request(rank, 3, 2)));
        assert!(tickets.iter().all(|&ticket| switch.waits(ticket)));
        switch.pass(switch.timers().takeover_silence(), &[]);
        let new = switch.answer(tickets[0]).unwrap();
        assert!(tickets.iter().all(|&ticket| switch.answer(ticket).as_ref() == Ok(&new)));
        assert_ne!(new.config.job, old.config.job);
        assert_ne!(new.config.key, old.config.key, "what the dead knew is of no use to anyone");
        assert_eq!(switch.installed.keys().copied().collect::<Vec<_>>(), [new.config.job], "the old slots are back");
    }
}

#[test]
fn a_restart_does_not_get_fewer_slots_because_the_dead_still_hold_theirs() {
    let wish = |rank, incarnation| JoinRequest { slots: Some(256), ..request(rank, 2, incarnation) };
    let mut switch = TestSwitch::new(MIB);
    let first = [0, 1].map(|rank| switch.join("a", wish(rank, 1)));
    let old = switch.answer(first[0]).unwrap();
    assert_eq!(old.config.slots, 256);
    // Rank 1 lived a little longer than rank 0, so it is silent for less when both are back.
    switch.pass(millis(1_300), &[(&old, &[0, 1])]);
    switch.pass(millis(400), &[]);
    switch.receive(&old, [1]);
    let again = [0, 1].map(|rank| switch.join("a", wish(rank, 2)));
    switch.pass(secs(2.0), &[]);
    assert_eq!(switch.answer(again[0]).unwrap().config.slots, 256);
    assert!(switch.control.memory_used() <= MIB);
}

#[test]
fn a_restart_with_another_world_size_works_too() {
    for new_size in [1, 2, 5] {
        let mut switch = TestSwitch::new(64 * MIB);
        let old = switch.start("a", 3, 1);
        switch.pass(secs(5.0), &[(&old, &ALL)]);
        let tickets: Vec<_> = (0..new_size).map(|rank| switch.join("a", request(rank, new_size, 2))).collect();
        switch.pass(secs(2.0), &[]);
        assert!(tickets.iter().all(|&ticket| switch.answer(ticket).is_ok()));
    }
}

#[test]
fn a_rank_that_has_left_may_start_the_next_job_of_the_name_while_the_others_finish() {
    let mut switch = TestSwitch::new(64 * MIB);
    let old = switch.start("a", 3, 1);
    switch.leave(&old, 0);
    // The same process, and so the same incarnation: it runs one job after the other.
    let first = switch.join("a", JoinRequest { addr: request(0, 3, 9).addr, ..request(0, 3, 1) });
    assert!(switch.waits(first) && !switch.control.awaits_reports(), "no contest: the old job ends");
    assert_eq!(job_state(&switch, &old).unwrap().0, Phase::Superseded);
    switch.leave(&old, 1);
    switch.leave(&old, 2);
    assert_eq!(job_state(&switch, &old), None);
    switch.join("a", request(1, 3, 2));
    switch.join("a", request(2, 3, 2));
    assert!(switch.answer(first).is_ok());
}

#[test]
fn a_superseded_job_loses_its_name_and_nothing_else_while_its_members_live() {
    let mut switch = TestSwitch::new(64 * MIB);
    let old = switch.start("a", 3, 1);
    switch.pass(secs(5.0), &[(&old, &ALL)]);
    // Only rank 1 is restarted: its claim is believed because the old rank 1 is silent.
    let alone = switch.join("a", request(1, 3, 2));
    switch.pass(secs(2.0), &[(&old, &[0, 2])]);
    assert_eq!(switch.phases(), [("a".into(), Phase::Superseded), ("a".into(), Phase::Forming)]);
    assert_eq!(job_state(&switch, &old).unwrap().1[1], MemberState::Lost);
    // The survivors learn of the loss, and come too.
    switch.leave(&old, 0);
    switch.leave(&old, 2);
    assert!(switch.installed.is_empty());
    switch.join("a", request(0, 3, 2));
    switch.join("a", request(2, 3, 2));
    assert!(switch.answer(alone).is_ok());
}

#[test]
fn a_name_is_free_again_as_soon_as_its_job_is_over() {
    let mut switch = TestSwitch::new(64 * MIB);
    let lost = switch.start("a", 1, 1);
    switch.pass(secs(10.1), &[]);
    assert!(!switch.installed.contains_key(&lost.config.job));
    let other_protocol =
        JoinRequest { protocol: tributary_proto::protocols::named("ring").unwrap(), ..request(0, 1, 2) };
    let ticket = switch.join("a", other_protocol);
    assert!(switch.answer(ticket).is_ok());
}

#[test]
fn a_conflict_ends_with_the_newcomers_patience_at_the_latest() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 1, 1);
    switch.pass(secs(1.0), &[(&plan, &[0])]);
    let hasty = switch.join("a", JoinRequest { timeout: millis(100), ..request(0, 1, 2) });
    switch.pass(millis(100), &[]);
    assert_eq!(switch.refusal(hasty).0, "rank_taken");
    let gone = switch.join("a", request(0, 1, 3));
    switch.withdraw(gone);
    assert!(!switch.control.awaits_reports());
}

#[test]
fn a_full_table_of_jobs_does_not_hinder_a_restart() {
    let mut switch = TestSwitch::with(Limits { max_jobs: 1, ..Limits::new(64 * MIB, 1) });
    switch.start("a", 2, 1);
    switch.pass(secs(1.0), &[]);
    let tickets = [0, 1].map(|rank| switch.join("a", request(rank, 2, 2)));
    switch.pass(secs(2.0), &[]);
    assert!(switch.answer(tickets[0]).is_ok() && switch.answer(tickets[1]).is_ok());
}

#[test]
fn a_control_plane_that_was_started_again_takes_running_jobs_over() {
    let mut before = TestSwitch::new(64 * MIB);
    let (other, plan) = (before.start("b", 1, 1), before.start("a", 3, 1));
    let mut switch = TestSwitch::new(64 * MIB);
    for plan in [&plan, &other] {
        switch.control.adopt(switch.now, crate::harness::adopted(plan));
        switch.installed.insert(plan.config.job, plan.clone());
    }
    assert_eq!(switch.control.memory_used(), before.control.memory_used());
    for rank in 0..3 {
        switch.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    switch.pass(secs(9.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(switch.phases().len(), 2);
    // Nobody is left of the other job: a lease later its slots come back.
    switch.pass(secs(2.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(switch.phases(), [("a".to_string(), Phase::Running)]);
    // Names and ids are taken.
    let double = switch.join("a", request(0, 3, 2));
    switch.pass(secs(2.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(switch.refusal(double).0, "rank_taken");
    assert!(switch.start("c", 1, 1).config.job > plan.config.job);
    (0..3).for_each(|rank| switch.leave(&plan, rank));
    assert!(!switch.installed.contains_key(&plan.config.job));
}
