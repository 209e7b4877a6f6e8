//! Who is gone, across switches in levels: each reports to its neighbours what it knows, and never what they have reported.

use std::sync::Arc;

use crate::harness::{MIB, name, request, secs};
use tributary_control::levels::{ParentAnswer, SwitchJoin, SwitchRanks};
use tributary_control::{Control, Departed, Effect, Gone, JobName, Limits, Phase, Plan, Refusal, Ticket};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::time::{Span, Time};

const ID: JobId = JobId(1);

fn lost(rank: u16) -> Gone {
    Gone { rank, completed: None }
}

fn left(rank: u16) -> Gone {
    Gone { rank, completed: Some(0) }
}

fn members(gone: &[Gone]) -> Departed {
    Departed { members: gone.to_vec(), switches: Vec::new(), servers: Vec::new() }
}

fn switch(last: u8, ranks: &[u16]) -> SwitchRanks {
    SwitchRanks { addr: format!("10.9.0.{last}:17777").parse().unwrap(), ranks: ranks.to_vec() }
}

fn installed(control: &mut Control, now: Time) -> Vec<(Ticket, Arc<Plan>)> {
    let mut answers = Vec::new();
    while let Some(effect) = control.poll_effect() {
        match effect {
            Effect::Install(plan) => control.installed(now, plan.config.job, Ok(())),
            Effect::Answer { ticket, admitted: Ok(plan) } => answers.push((ticket, plan)),
            _ => {}
        }
    }
    answers
}

/// The switch at the top with two switches below: the first with ranks 0 and 2, the other with 1 and 3.
fn top() -> (Control, Arc<Plan>) {
    let mut control = Control::new(Limits::new(64 * MIB, 1));
    for (rack, ranks) in [[0, 2], [1, 3]].iter().enumerate() {
        let own = switch(rack as u8 + 1, ranks);
        let join = SwitchJoin {
            incarnation: 1_000 + rack as u64,
            joined_at: "10.9.0.9".parse().unwrap(),
            sequence: 1,
            shards: vec![own.addr],
            most_slots: 64,
            ranks: ranks.iter().map(|&rank| (request(rank, 4, 1), Span::ZERO)).collect(),
            switches: vec![own],
        };
        control.join_switch(Time::ZERO, &name("job"), join, JobKey(7));
    }
    control.handle_timeout(Time::ZERO);
    let plan = installed(&mut control, Time::ZERO).remove(0).1;
    (control, plan)
}

/// A switch below another one, with ranks 0 and 2 of four.
fn below() -> (Control, Arc<Plan>) {
    let mut control = Control::with_parent(Limits::new(64 * MIB, 1));
    for rank in [0, 2] {
        control.join(Time::ZERO, &name("job"), request(rank, 4, 1), JobKey(1));
    }
    let sequence = std::iter::from_fn(|| control.poll_effect()).find_map(|effect| match effect {
        Effect::JoinParent { sequence, ranks, .. } if ranks.len() == 2 => Some(sequence),
        _ => None,
    });
    let answer = ParentAnswer {
        job: ID,
        key: JobKey(7),
        slots: 64,
        elements_per_packet: 360,
        wid: ChildId(0),
        shards: vec!["10.9.0.9:17777".parse().unwrap()],
        workers: (0..4).map(|rank| request(rank, 4, 1).addr).collect(),
        servers: Vec::new(),
        switches: vec![switch(9, &[0, 1, 2, 3]), switch(1, &[0, 2]), switch(2, &[1, 3])],
    };
    control.parent_answered(Time::ZERO, &name("job"), sequence.unwrap(), Ok(answer));
    let plan = installed(&mut control, Time::ZERO).remove(0).1;
    for rank in [0, 2] {
        control.watch(&plan.name, ID, rank, JobKey(7)).unwrap();
    }
    (control, plan)
}

fn say(control: &mut Control, plan: &Plan, wid: u16, said: Departed) {
    control.watch_from_child(&plan.name, plan.config.job, ChildId(wid), plan.config.key, said).unwrap();
}

/// Lets time pass while packets come from these children and, if `parent`, from the parent.
fn pass(control: &mut Control, from: Time, span: Span, alive: &[u16], parent: bool) -> Time {
    let (mut now, end) = (from, from + span);
    while now < end {
        now += Span::from_millis(100);
        alive.iter().for_each(|&wid| control.member_seen(ID, ChildId(wid), now));
        if parent {
            control.parent_seen(ID, now);
        }
        control.handle_timeout(now);
    }
    now
}

#[test]
fn what_one_child_reports_the_others_learn_and_never_itself() {
    let (mut top, plan) = top();
    assert_eq!(plan.config.job, ID);
    say(&mut top, &plan, 0, Departed::default());
    let before = top.departures(ID);
    say(&mut top, &plan, 1, members(&[left(1), lost(3)]));
    assert_ne!(top.departures(ID), before);
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(members(&[left(1), lost(3)])));
    assert_eq!(top.gone_beside(ID, ChildId(1)), Some(Departed::default()));
    let job = &top.jobs()[0];
    assert_eq!((job.phase, &job.missing[..]), (Phase::Failed, &[3][..]), "an operator at the top sees it too");
    // Packets came from it again.
    say(&mut top, &plan, 1, members(&[left(1)]));
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(members(&[left(1)])));
}

#[test]
fn a_switch_below_speaks_for_its_own_ranks_alone() {
    let (mut top, plan) = top();
    let said = Departed {
        members: vec![lost(0), lost(3)],
        switches: vec![switch(8, &[0, 1]), switch(7, &[])],
        servers: Vec::new(),
    };
    say(&mut top, &plan, 1, said);
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(members(&[lost(3)])));
    let key = plan.config.key;
    let nobody = top.watch_from_child(&plan.name, ID, ChildId(2), key, Departed::default());
    assert!(matches!(nobody, Err(Refusal::NotASwitch { .. })), "{nobody:?}");
    let refused = top.watch_from_child(&plan.name, ID, ChildId(1), JobKey(0), members(&[lost(1)]));
    assert!(matches!(refused, Err(Refusal::WrongKey { .. })), "{refused:?}");
}

#[test]
fn only_a_switch_of_the_job_speaks_as_one_and_a_member_never() {
    let (mut top, plan) = top();
    let key = plan.config.key;
    let mut check = |wid, incarnation| top.check_child(&plan.name, ID, key, ChildId(wid), incarnation);
    assert_eq!(check(1, 1_001), Ok(()));
    for (wid, incarnation) in [(1, 1_000), (1, 0), (2, 1_001), (60_000, 0)] {
        let refused = check(wid, incarnation);
        assert!(matches!(refused, Err(Refusal::NotASwitch { .. })), "{wid} {incarnation}: {refused:?}");
    }
    let (mut leaf, plan) = below();
    let as_switch = leaf.watch_from_child(&plan.name, ID, ChildId(0), JobKey(7), members(&[lost(0)]));
    assert!(matches!(as_switch, Err(Refusal::NotASwitch { .. })), "{as_switch:?}");
}

#[test]
fn a_switch_below_that_dies_is_named_with_its_ranks_within_two_keepalives() {
    let (mut top, plan) = top();
    (0..2).for_each(|wid| say(&mut top, &plan, wid, Departed::default()));
    let now = pass(&mut top, Time::ZERO, secs(2.0), &[0, 1], false);
    top.unwatch(now, ID, ChildId(1));
    let now = pass(&mut top, now, secs(0.9), &[0], false);
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(Departed::default()));
    pass(&mut top, now, secs(0.2), &[0], false);
    let gone = Departed { members: vec![lost(1), lost(3)], switches: vec![switch(2, &[1, 3])], servers: Vec::new() };
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(gone));
}

#[test]
fn a_switch_that_ends_a_job_because_of_a_lost_rank_is_not_lost_itself() {
    let (mut top, plan) = top();
    say(&mut top, &plan, 1, members(&[lost(3)]));
    top.leave_switch(Time::ZERO, &plan.name, ID, plan.config.key, ChildId(1), None).unwrap();
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(members(&[lost(1), lost(3)])));
}

/// Ranks elsewhere may still lack a result of collectives that all below it have completed, and of no others.
#[test]
fn a_switch_that_leaves_says_what_all_members_below_it_have_completed() {
    let (mut top, plan) = top();
    top.leave_switch(Time::ZERO, &plan.name, ID, plan.config.key, ChildId(1), Some(5)).unwrap();
    let left = [1, 3].map(|rank| Gone { rank, completed: Some(5) });
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(members(&left)));

    let (mut rack, _) = below();
    while rack.poll_effect().is_some() {}
    for (rank, completed) in [(0, 7), (2, 5)] {
        rack.leave(Time::ZERO, &name("job"), ID, rank, JobKey(7), Some(completed)).unwrap();
    }
    let effects: Vec<Effect> = std::iter::from_fn(|| rack.poll_effect()).collect();
    let says = |effect: &Effect| matches!(effect, Effect::LeaveParent { completed: Some(5), .. });
    assert!(effects.iter().any(says), "{effects:?}");
}

/// Its job has ended there: packets that it sent before are counted after it has left.
#[test]
fn a_switch_that_leaves_as_lost_stays_lost_whatever_still_comes_from_it() {
    let (mut top, plan) = top();
    top.leave_switch(Time::ZERO, &plan.name, ID, plan.config.key, ChildId(1), None).unwrap();
    pass(&mut top, Time::ZERO, secs(0.1), &[0, 1], false);
    let gone = Departed { members: vec![lost(1), lost(3)], switches: vec![switch(2, &[1, 3])], servers: Vec::new() };
    assert_eq!(top.gone_beside(ID, ChildId(0)), Some(gone));
}

#[test]
fn a_switch_reports_upwards_what_is_below_it_and_to_its_members_everything() {
    let (mut rack, _) = below();
    rack.parent_reports(ID, members(&[lost(3)]));
    assert_eq!(rack.gone(ID), Some(members(&[lost(3)])));
    assert_eq!(rack.gone_below(ID), Some(Departed::default()));
    let now = pass(&mut rack, Time::ZERO, secs(2.0), &[0, 1], true);
    rack.unwatch(now, ID, ChildId(1));
    pass(&mut rack, now, secs(1.1), &[0], true);
    assert_eq!(rack.gone(ID), Some(members(&[lost(2), lost(3)])));
    assert_eq!(rack.gone_below(ID), Some(members(&[lost(2)])));
    let (plan, number) = rack.jobs_at_parent().next().map(|(plan, number)| (plan.name.clone(), number)).unwrap();
    assert_eq!((plan, Some(number)), (JobName::new("job").unwrap(), rack.departures(ID)));
}

#[test]
fn the_parent_is_lost_when_it_is_silent_and_nothing_listens_there() {
    let (mut rack, _) = below();
    let now = pass(&mut rack, Time::ZERO, secs(2.0), &[0, 1], true);
    rack.watch_at_parent(now, ID, false);
    let now = pass(&mut rack, now, secs(5.0), &[0, 1], true);
    assert_eq!(rack.gone(ID), Some(Departed::default()), "its packets come: a firewall, perhaps");
    rack.watch_at_parent(now, ID, true);
    let now = pass(&mut rack, now, secs(5.0), &[0, 1], false);
    assert_eq!(rack.gone(ID), Some(Departed::default()), "the connection stands");
    rack.watch_at_parent(now, ID, false);
    let now = pass(&mut rack, now, secs(1.1), &[0, 1], false);
    let gone = Departed { members: Vec::new(), switches: vec![switch(9, &[])], servers: Vec::new() };
    assert_eq!(rack.gone(ID), Some(gone));
    // Nobody can ask this switch for the other racks any more: the slots come back when its own ranks have left.
    for rank in [0, 2] {
        rack.leave(now, &name("job"), ID, rank, JobKey(7), Some(0)).unwrap();
    }
    assert!(rack.jobs().is_empty());
}

#[test]
fn a_parent_that_does_not_know_the_job_is_lost_at_once() {
    let (mut rack, _) = below();
    rack.gone_at_parent(Time::ZERO, ID);
    assert_eq!(rack.gone(ID).unwrap().switches, [switch(9, &[])]);
}
