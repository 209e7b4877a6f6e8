//! The events of a switch's jobs that operators see: each thing once, and how a job has ended.

use crate::harness::{MIB, TestSwitch, secs};
use tributary_control::{End, JobEvent};

/// All that is new, in short.
fn events(switch: &mut TestSwitch) -> Vec<String> {
    std::iter::from_fn(|| switch.control.poll_event()).map(|tiding| in_short(&tiding)).collect()
}

fn in_short(tiding: &JobEvent) -> String {
    match tiding {
        JobEvent::Formed(plan) => format!("{} formed", plan.name),
        JobEvent::Adopted(plan) => format!("{} adopted", plan.name),
        JobEvent::Lost { plan, lost } => {
            let ranks: Vec<u16> = lost.members.iter().map(|gone| gone.rank).collect();
            format!("{} lost {ranks:?}", plan.name)
        }
        JobEvent::Back { plan, ranks } => format!("{} back {ranks:?}", plan.name),
        JobEvent::Ended { plan, end, .. } => format!("{} ended: {}", plan.name, end.name()),
    }
}

#[test]
fn a_job_is_formed_and_ends_when_all_have_left() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    assert_eq!(events(&mut switch), ["a formed"]);
    for rank in [2, 0] {
        switch.leave(&plan, rank);
        assert!(events(&mut switch).is_empty(), "who leaves in good order makes no event");
    }
    switch.leave(&plan, 1);
    assert_eq!(events(&mut switch), ["a ended: left"]);
}

#[test]
fn a_lost_member_is_reported_once_and_again_when_it_comes_back_and_is_lost_again() {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 3, 1);
    let (others, all): (&[u16], &[u16]) = (&[0, 2], &[0, 1, 2]);
    switch.pass(secs(10.1), &[(&plan, others)]);
    assert_eq!(events(&mut switch), ["a formed", "a lost [1]"]);
    switch.pass(secs(5.0), &[(&plan, others)]);
    assert!(events(&mut switch).is_empty());
    switch.pass(secs(1.0), &[(&plan, all)]);
    assert_eq!(events(&mut switch), ["a back [1]"]);
    switch.pass(secs(10.5), &[(&plan, others)]);
    assert_eq!(events(&mut switch), ["a lost [1]"]);
    switch.pass(secs(31.0), &[(&plan, others)]);
    assert_eq!(events(&mut switch), ["a ended: lost"]);
}

#[test]
fn losses_at_the_very_end_are_reported_before_it_and_successors_after() {
    let mut switch = TestSwitch::new(64 * MIB);
    switch.start("a", 2, 1);
    switch.pass(secs(60.0), &[]);
    let all = events(&mut switch);
    assert_eq!(all.last().map(String::as_str), Some("a ended: lost"));
    assert!(all.iter().any(|event| event.starts_with("a lost")), "{all:?}");
}

#[test]
fn a_switch_that_stops_says_so_of_every_job() {
    let mut switch = TestSwitch::new(64 * MIB);
    switch.start("a", 2, 1);
    events(&mut switch);
    switch.control.stop();
    assert_eq!(events(&mut switch), ["a ended: stopped"]);
    assert_eq!(End::ALL.map(End::name), ["left", "lost", "superseded", "operator", "stopped", "not_installed"]);
}
