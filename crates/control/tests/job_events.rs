//! What operators are told of a switch's jobs as it happens: each thing once, and how a job has ended.

use crate::harness::{MIB, World, secs};
use tributary_control::{End, JobEvent};

/// All that is new, in short.
fn told(world: &mut World) -> Vec<String> {
    std::iter::from_fn(|| world.control.poll_event()).map(|tiding| in_short(&tiding)).collect()
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
        JobEvent::Ended { plan, end } => format!("{} ended: {}", plan.name, end.name()),
    }
}

#[test]
fn a_job_is_formed_and_ends_when_all_have_left() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    assert_eq!(told(&mut world), ["a formed"]);
    for rank in [2, 0] {
        world.leave(&plan, rank);
        assert!(told(&mut world).is_empty(), "who leaves in good order is no news");
    }
    world.leave(&plan, 1);
    assert_eq!(told(&mut world), ["a ended: left"]);
}

#[test]
fn a_lost_member_is_told_once_and_again_when_it_is_heard_and_lost_anew() {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 3, 1);
    let (others, all): (&[u16], &[u16]) = (&[0, 2], &[0, 1, 2]);
    world.pass(secs(10.1), &[(&plan, others)]);
    assert_eq!(told(&mut world), ["a formed", "a lost [1]"]);
    world.pass(secs(5.0), &[(&plan, others)]);
    assert!(told(&mut world).is_empty());
    world.pass(secs(1.0), &[(&plan, all)]);
    assert_eq!(told(&mut world), ["a back [1]"]);
    world.pass(secs(10.5), &[(&plan, others)]);
    assert_eq!(told(&mut world), ["a lost [1]"]);
    world.pass(secs(31.0), &[(&plan, others)]);
    assert_eq!(told(&mut world), ["a ended: lost"]);
}

#[test]
fn losses_at_the_very_end_are_told_before_it_and_successors_after() {
    let mut world = World::new(64 * MIB);
    world.start("a", 2, 1);
    world.pass(secs(60.0), &[]);
    let told_all = told(&mut world);
    assert_eq!(told_all.last().map(String::as_str), Some("a ended: lost"));
    assert!(told_all.iter().any(|told| told.starts_with("a lost")), "{told_all:?}");
}

#[test]
fn a_switch_that_stops_says_so_of_every_job() {
    let mut world = World::new(64 * MIB);
    world.start("a", 2, 1);
    told(&mut world);
    world.control.stop();
    assert_eq!(told(&mut world), ["a ended: stopped"]);
    assert_eq!(End::ALL.map(End::name), ["left", "lost", "superseded", "stopped", "not_installed"]);
}
