//! Members whose processes die: what a closed connection proves, and what it does not.

use crate::harness::{MIB, World, secs};
use tributary_control::{Gone, Plan, ProbeResult, ProbeTarget, Refusal};
use tributary_proto::contract::ids::{ChildId, JobKey};

fn watched(world: &mut World, ranks: u16) -> std::sync::Arc<Plan> {
    let plan = world.start("a", ranks, 1);
    for rank in 0..ranks {
        world.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    plan
}

fn gone(world: &World, plan: &Plan) -> Option<Vec<Gone>> {
    world.control.gone(plan.config.job).map(|gone| gone.members)
}

#[test]
fn a_member_whose_connection_closes_and_that_falls_silent_is_lost_within_two_keepalives() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 3);
    world.pass(secs(2.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()));
    let before = world.control.departures(plan.config.job);

    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.pass(secs(0.9), &[(&plan, &[0, 2])]);
    assert_eq!(world.control.departures(plan.config.job), before);
    world.pass(secs(0.1), &[(&plan, &[0, 2])]);
    assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 1, left: false }]));
    assert_ne!(world.control.departures(plan.config.job), before);
}

#[test]
fn a_member_that_goes_on_sending_is_not_lost_with_its_connection() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.pass(secs(60.0), &[(&plan, &[0, 1])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()));
}

#[test]
fn a_member_that_has_stalled_is_not_lost_while_its_host_says_that_its_socket_is_there() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    world.pass(secs(2.0), &[(&plan, &[0, 1])]);
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    let suspect = ProbeTarget { job: plan.config.job, child: Some(ChildId(1)), addr: plan.workers[1] };
    while world.control.poll_probe().is_some() {}
    // Its host is asked in time, and once for each time that it would be lost.
    for stalled in [1.0, 2.9, 2.9] {
        world.pass(secs(stalled - 0.1), &[(&plan, &[0])]);
        assert_eq!(world.control.poll_probe(), Some(suspect));
        assert_eq!(world.control.poll_probe(), None);
        world.control.probe_answered(world.now, suspect, ProbeResult::SocketOpen);
        world.pass(secs(0.1), &[(&plan, &[0])]);
        assert_eq!(gone(&world, &plan), Some(Vec::new()));
    }
    // Now it dies: nobody says that it lives.
    world.pass(secs(2.9), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 1, left: false }]));
}

/// A job of two whose rank 1 is about to lose its connection; its host has said this while the connection stood.
fn doubtful(said: ProbeResult) -> (World, std::sync::Arc<Plan>, ProbeTarget) {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    world.pass(secs(1.0), &[(&plan, &[0, 1])]);
    let suspect = ProbeTarget { job: plan.config.job, child: Some(ChildId(1)), addr: plan.workers[1] };
    let asked: Vec<ProbeTarget> = std::iter::from_fn(|| world.control.poll_probe()).collect();
    assert_eq!(asked.iter().filter(|asked| **asked == suspect).count(), 1, "one question is under way at a time");
    world.control.probe_answered(world.now, suspect, said);
    (world, plan, suspect)
}

#[test]
fn a_member_whose_host_says_that_its_socket_is_gone_is_lost_at_once() {
    let (mut world, plan, suspect) = doubtful(ProbeResult::SocketOpen);
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.pass(secs(0.02), &[(&plan, &[0])]);
    assert_eq!(world.control.poll_probe(), Some(suspect), "its host is asked as soon as all its sockets are closed");
    world.control.probe_answered(world.now, suspect, ProbeResult::SocketClosed);
    world.pass(secs(0.07), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()), "what it sent last may still be in queues");
    world.pass(secs(0.01), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 1, left: false }]));
}

#[test]
fn that_a_socket_is_refused_counts_only_of_a_closed_connection_and_a_host_that_has_told_the_difference() {
    // The connection stands.
    let (mut world, plan, suspect) = doubtful(ProbeResult::SocketOpen);
    world.control.probe_answered(world.now, suspect, ProbeResult::SocketClosed);
    world.pass(secs(3.0), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()));
    for said in [ProbeResult::SocketClosed, ProbeResult::Inconclusive] {
        // A firewall refuses everything, or swallows it.
        let (mut world, plan, suspect) = doubtful(said);
        world.control.unwatch(world.now, plan.config.job, ChildId(1));
        world.control.probe_answered(world.now, suspect, ProbeResult::SocketClosed);
        world.pass(secs(0.9), &[(&plan, &[0])]);
        assert_eq!(gone(&world, &plan), Some(Vec::new()), "{said:?}");
        world.pass(secs(0.1), &[(&plan, &[0])]);
        assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 1, left: false }]), "{said:?}");
    }
}

#[test]
fn a_member_that_is_heard_lives_whatever_is_said_of_it() {
    let (mut world, plan, suspect) = doubtful(ProbeResult::SocketOpen);
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.control.probe_answered(world.now, suspect, ProbeResult::SocketClosed);
    for _ in 0..40 {
        world.pass(secs(0.05), &[(&plan, &[0])]);
        world.hear(&plan, [1]);
    }
    assert_eq!(gone(&world, &plan), Some(Vec::new()));
    // It connects again, and closes that connection: what was said of the first does not count for the second.
    world.control.watch(&plan.name, plan.config.job, 1, plan.config.key).unwrap();
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.pass(secs(0.9), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()));
}

#[test]
fn a_host_that_says_nothing_useful_is_asked_again_and_not_for_ever() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    let mut asked = 0;
    for _ in 0..20 {
        world.pass(secs(1.0), &[(&plan, &[0, 1])]);
        while let Some(suspect) = world.control.poll_probe() {
            asked += usize::from(suspect.child == Some(ChildId(1)));
            world.control.probe_answered(world.now, suspect, ProbeResult::Inconclusive);
        }
    }
    assert_eq!(asked, 8);
}

#[test]
fn that_a_socket_is_there_right_after_its_connection_closed_is_no_alibi() {
    let (mut world, plan, suspect) = doubtful(ProbeResult::SocketOpen);
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.pass(secs(0.02), &[(&plan, &[0])]);
    assert_eq!(world.control.poll_probe(), Some(suspect));
    world.control.probe_answered(world.now, suspect, ProbeResult::SocketOpen);
    world.pass(secs(0.5), &[(&plan, &[0])]);
    assert_eq!(world.control.poll_probe(), Some(suspect), "it is asked again before it is called lost");
    world.pass(secs(0.48), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 1, left: false }]));
}

#[test]
fn a_silent_member_with_an_open_connection_has_its_whole_lease() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    // A second connection replaces the first, which the kernel gives up later.
    world.control.watch(&plan.name, plan.config.job, 1, plan.config.key).unwrap();
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
    world.pass(secs(9.9), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()));
    world.pass(secs(0.2), &[(&plan, &[0])]);
    assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 1, left: false }]));
    world.pass(secs(1.0), &[(&plan, &[0, 1])]);
    assert_eq!(gone(&world, &plan), Some(Vec::new()), "it is heard again");
}

#[test]
fn who_has_left_is_gone_too_and_not_lost() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    world.leave(&plan, 0);
    world.control.unwatch(world.now, plan.config.job, ChildId(0));
    world.pass(secs(5.0), &[(&plan, &[1])]);
    assert_eq!(gone(&world, &plan), Some(vec![Gone { rank: 0, left: true }]));
    world.leave(&plan, 1);
    assert_eq!(gone(&world, &plan), None);
    // The connection outlives the job.
    world.control.unwatch(world.now, plan.config.job, ChildId(1));
}

#[test]
fn only_members_may_watch() {
    let mut world = World::new(64 * MIB);
    let plan = watched(&mut world, 2);
    let id = plan.config.job;
    let wrong_key = world.control.watch(&plan.name, id, 0, JobKey(0));
    assert!(matches!(wrong_key, Err(Refusal::WrongKey { .. })), "{wrong_key:?}");
    let outside = world.control.watch(&plan.name, id, 2, plan.config.key);
    assert!(matches!(outside, Err(Refusal::BadRank { rank: 2, world_size: 2 })), "{outside:?}");
}
