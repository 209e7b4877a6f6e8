//! Members whose processes die: what a closed connection proves, and what it does not.

use crate::harness::{MIB, TestSwitch, secs};
use tributary_control::{Gone, Plan, ProbeResult, ProbeTarget, Refusal};
use tributary_proto::contract::ids::{ChildId, JobKey};

fn watched(switch: &mut TestSwitch, ranks: u16) -> std::sync::Arc<Plan> {
    let plan = switch.start("a", ranks, 1);
    for rank in 0..ranks {
        switch.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    plan
}

fn gone(switch: &TestSwitch, plan: &Plan) -> Option<Vec<Gone>> {
    switch.control.gone(plan.config.job).map(|gone| gone.members)
}

#[test]
fn a_member_whose_connection_closes_and_that_falls_silent_is_lost_within_two_keepalives() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 3);
    switch.pass(secs(2.0), &[(&plan, &[0, 1, 2])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    let before = switch.control.departures(plan.config.job);

    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.pass(secs(0.9), &[(&plan, &[0, 2])]);
    assert_eq!(switch.control.departures(plan.config.job), before);
    switch.pass(secs(0.1), &[(&plan, &[0, 2])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
    assert_ne!(switch.control.departures(plan.config.job), before);
}

#[test]
fn a_member_that_goes_on_sending_is_not_lost_with_its_connection() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.pass(secs(60.0), &[(&plan, &[0, 1])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
}

#[test]
fn a_member_that_has_stalled_is_not_lost_while_its_host_says_that_its_socket_is_there() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    switch.pass(secs(2.0), &[(&plan, &[0, 1])]);
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    let target = ProbeTarget { job: plan.config.job, child: Some(ChildId(1)), addr: plan.workers[1] };
    while switch.control.poll_probe().is_some() {}
    // Its host is probes in time, and once for each time that it would be lost.
    for stalled in [1.0, 2.9, 2.9] {
        switch.pass(secs(stalled - 0.1), &[(&plan, &[0])]);
        assert_eq!(switch.control.poll_probe(), Some(target));
        assert_eq!(switch.control.poll_probe(), None);
        switch.control.probe_answered(switch.now, target, ProbeResult::SocketOpen);
        switch.pass(secs(0.1), &[(&plan, &[0])]);
        assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    }
    // Now it dies: nobody says that it lives.
    switch.pass(secs(2.9), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
}

/// A job of two whose rank 1 is about to lose its connection; its host has said this while the connection stood.
fn doubtful(said: ProbeResult) -> (TestSwitch, std::sync::Arc<Plan>, ProbeTarget) {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    switch.pass(secs(1.0), &[(&plan, &[0, 1])]);
    let target = ProbeTarget { job: plan.config.job, child: Some(ChildId(1)), addr: plan.workers[1] };
    let targets: Vec<ProbeTarget> = std::iter::from_fn(|| switch.control.poll_probe()).collect();
    assert_eq!(targets.iter().filter(|other| **other == target).count(), 1, "one probe is under way at a time");
    switch.control.probe_answered(switch.now, target, said);
    (switch, plan, target)
}

#[test]
fn a_member_whose_host_says_that_its_socket_is_gone_is_lost_at_once() {
    let (mut switch, plan, target) = doubtful(ProbeResult::SocketOpen);
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.pass(secs(0.02), &[(&plan, &[0])]);
    assert_eq!(switch.control.poll_probe(), Some(target), "its host is probed as soon as all its sockets are closed");
    switch.control.probe_answered(switch.now, target, ProbeResult::SocketClosed);
    switch.pass(secs(0.07), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()), "what it sent last may still be in queues");
    switch.pass(secs(0.01), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
}

#[test]
fn that_a_socket_is_refused_counts_only_of_a_closed_connection_and_a_host_that_has_shown_the_difference() {
    // The connection stands.
    let (mut switch, plan, target) = doubtful(ProbeResult::SocketOpen);
    switch.control.probe_answered(switch.now, target, ProbeResult::SocketClosed);
    switch.pass(secs(3.0), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    for said in [ProbeResult::SocketClosed, ProbeResult::Inconclusive] {
        // A firewall refuses everything, or swallows it.
        let (mut switch, plan, target) = doubtful(said);
        switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
        switch.control.probe_answered(switch.now, target, ProbeResult::SocketClosed);
        switch.pass(secs(0.9), &[(&plan, &[0])]);
        assert_eq!(gone(&switch, &plan), Some(Vec::new()), "{said:?}");
        switch.pass(secs(0.1), &[(&plan, &[0])]);
        assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]), "{said:?}");
    }
}

#[test]
fn a_member_that_sends_packets_lives_whatever_its_host_says() {
    let (mut switch, plan, target) = doubtful(ProbeResult::SocketOpen);
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.control.probe_answered(switch.now, target, ProbeResult::SocketClosed);
    for _ in 0..40 {
        switch.pass(secs(0.05), &[(&plan, &[0])]);
        switch.receive(&plan, [1]);
    }
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    // It connects again, and closes that connection: what was said of the first does not count for the second.
    switch.control.watch(&plan.name, plan.config.job, 1, plan.config.key).unwrap();
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.pass(secs(0.9), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
}

#[test]
fn a_host_that_says_nothing_useful_is_probed_again_but_not_permanently() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    let mut probes = 0;
    for _ in 0..20 {
        switch.pass(secs(1.0), &[(&plan, &[0, 1])]);
        while let Some(target) = switch.control.poll_probe() {
            probes += usize::from(target.child == Some(ChildId(1)));
            switch.control.probe_answered(switch.now, target, ProbeResult::Inconclusive);
        }
    }
    assert_eq!(probes, 8);
}

#[test]
fn that_a_socket_is_there_right_after_its_connection_closed_does_not_prove_a_live_process() {
    let (mut switch, plan, target) = doubtful(ProbeResult::SocketOpen);
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.pass(secs(0.02), &[(&plan, &[0])]);
    assert_eq!(switch.control.poll_probe(), Some(target));
    switch.control.probe_answered(switch.now, target, ProbeResult::SocketOpen);
    switch.pass(secs(0.5), &[(&plan, &[0])]);
    assert_eq!(switch.control.poll_probe(), Some(target), "it is probed again before it is called lost");
    switch.pass(secs(0.48), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
}

#[test]
fn a_silent_member_with_an_open_connection_has_its_whole_lease() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    // A second connection replaces the first, which the kernel gives up later.
    switch.control.watch(&plan.name, plan.config.job, 1, plan.config.key).unwrap();
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
    switch.pass(secs(9.9), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    switch.pass(secs(0.2), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
    switch.pass(secs(1.0), &[(&plan, &[0, 1])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()), "packets come from it again");
}

#[test]
fn who_has_left_is_gone_too_and_not_lost() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    switch.leave(&plan, 0);
    switch.control.unwatch(switch.now, plan.config.job, ChildId(0));
    switch.pass(secs(5.0), &[(&plan, &[1])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 0, completed: Some(0) }]));
    switch.leave(&plan, 1);
    assert_eq!(gone(&switch, &plan), None);
    // The connection outlives the job.
    switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
}

#[test]
fn only_members_may_watch() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    let id = plan.config.job;
    let wrong_key = switch.control.watch(&plan.name, id, 0, JobKey(0));
    assert!(matches!(wrong_key, Err(Refusal::WrongKey { .. })), "{wrong_key:?}");
    let outside = switch.control.watch(&plan.name, id, 2, plan.config.key);
    assert!(matches!(outside, Err(Refusal::BadRank { rank: 2, world_size: 2 })), "{outside:?}");
}

#[test]
fn a_stopped_member_whose_connection_stands_is_present_for_as_long_as_its_host_has_its_socket() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    let target = ProbeTarget { job: plan.config.job, child: Some(ChildId(1)), addr: plan.workers[1] };
    switch.pass(secs(2.0), &[(&plan, &[0, 1])]);
    while switch.control.poll_probe().is_some() {}
    // The lease is 10 s. Its host is probed half a second before it would be lost, and once for each of these times.
    let mut probes = 0;
    for _ in 0..120 {
        switch.pass(secs(0.5), &[(&plan, &[0])]);
        while let Some(probe) = switch.control.poll_probe() {
            assert_eq!(probe, target);
            probes += 1;
            switch.control.probe_answered(switch.now, target, ProbeResult::SocketOpen);
        }
        assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    }
    assert!((10..=30).contains(&probes), "once in about three seconds: {probes}");
    // The host loses its power: nothing answers.
    switch.pass(secs(4.0), &[(&plan, &[0])]);
    assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
    // It was the network that was cut, and the process goes on.
    switch.pass(secs(0.5), &[(&plan, &[0, 1])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
}

#[test]
fn a_silent_member_whose_host_says_nothing_is_lost_at_the_end_of_its_lease() {
    for said in [ProbeResult::Inconclusive, ProbeResult::SocketClosed] {
        let mut switch = TestSwitch::new(64 * MIB);
        let plan = watched(&mut switch, 2);
        switch.pass(secs(2.0), &[(&plan, &[0, 1])]);
        for _ in 0..19 {
            switch.pass(secs(0.5), &[(&plan, &[0])]);
            while let Some(target) = switch.control.poll_probe() {
                switch.control.probe_answered(switch.now, target, said);
            }
            assert_eq!(gone(&switch, &plan), Some(Vec::new()));
        }
        switch.pass(secs(0.5), &[(&plan, &[0])]);
        assert_eq!(gone(&switch, &plan), Some(vec![Gone { rank: 1, completed: None }]));
    }
}

#[test]
fn a_switch_that_has_stood_still_itself_loses_no_member_on_old_news() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = watched(&mut switch, 2);
    switch.pass(secs(2.0), &[(&plan, &[0, 1])]);
    switch.now += secs(60.0);
    switch.tick();
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
    // The members' next packets are read.
    switch.pass(secs(1.0), &[(&plan, &[0, 1])]);
    assert_eq!(gone(&switch, &plan), Some(Vec::new()));
}

#[test]
fn a_switch_that_has_stood_still_probes_before_it_loses_a_member_whose_connection_closed() {
    for (early, answer, is_lost) in [
        (ProbeResult::SocketOpen, Some(ProbeResult::SocketOpen), false),
        (ProbeResult::SocketOpen, None, true),
        (ProbeResult::Inconclusive, Some(ProbeResult::SocketOpen), false),
        (ProbeResult::Inconclusive, None, true),
    ] {
        let (mut switch, plan, target) = doubtful(early);
        switch.control.unwatch(switch.now, plan.config.job, ChildId(1));
        switch.now += secs(5.0);
        switch.tick();
        assert_eq!(gone(&switch, &plan), Some(Vec::new()));
        let targets: Vec<ProbeTarget> = std::iter::from_fn(|| switch.control.poll_probe()).collect();
        assert!(targets.contains(&target), "{targets:?}");
        if let Some(answer) = answer {
            switch.control.probe_answered(switch.now, target, answer);
        }
        switch.pass(secs(0.4), &[(&plan, &[0])]);
        assert_eq!(gone(&switch, &plan), Some(Vec::new()), "its host has time for an answer");
        switch.pass(secs(0.2), &[(&plan, &[0])]);
        let lost = is_lost.then_some(Gone { rank: 1, completed: None });
        assert_eq!(gone(&switch, &plan), Some(lost.into_iter().collect()), "{early:?} {answer:?}");
    }
}
