//! Ranks behind a switch of a fabric that cannot be reached: what is the switch's death, and what is theirs.

use crate::harness::{MIB, World, secs};
use tributary_control::levels::SwitchRanks;
use tributary_control::{Departed, Gone, Plan};
use tributary_proto::contract::ids::ChildId;

/// Four ranks, of which 2 and 3 are behind the leaf.
fn world() -> (World, std::sync::Arc<Plan>) {
    let mut world = World::new(64 * MIB);
    let plan = world.start("a", 4, 1);
    for rank in 0..4 {
        world.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    world.pass(secs(2.0), &[(&plan, &[0, 1, 2, 3])]);
    (world, plan)
}

fn leaf() -> SwitchRanks {
    SwitchRanks { addr: "10.77.128.2:17777".parse().unwrap(), ranks: vec![2, 3] }
}

/// Nobody is heard through the leaf, and it is not reached either, for so long.
fn absent(world: &mut World, plan: &Plan, seconds: f64) {
    world.control.unreachable(world.now, plan.config.job, &[leaf()]);
    world.pass(secs(seconds), &[(plan, &[0, 1])]);
}

fn close(world: &mut World, plan: &Plan, rank: u16) {
    world.control.unwatch(world.now, plan.config.job, ChildId(rank));
}

#[test]
fn a_switch_that_is_gone_is_named_with_the_ranks_behind_it() {
    let (mut world, plan) = world();
    [2, 3].iter().for_each(|&rank| close(&mut world, &plan, rank));
    absent(&mut world, &plan, 1.4);
    assert_eq!(world.control.gone(plan.config.job), Some(Departed::default()), "it may be started again");
    absent(&mut world, &plan, 0.2);
    let members = [2, 3].map(|rank| Gone { rank, left: false }).to_vec();
    let gone = Departed { members, switches: vec![leaf()], servers: Vec::new() };
    assert_eq!(world.control.gone(plan.config.job), Some(gone));
}

/// A driver looks at what it knows of switches whenever a timeout has come, and otherwise once a second.
#[test]
fn the_death_of_a_switch_is_told_within_two_seconds_though_nobody_knew_of_it_when_connections_closed() {
    let (mut world, plan) = world();
    let died = world.now;
    [2, 3].iter().for_each(|&rank| close(&mut world, &plan, rank));
    let look = world.control.poll_timeout().unwrap().since(died);
    assert!(look <= secs(0.1), "the driver looks after {} s", look.as_secs_f64());
    world.pass(look, &[(&plan, &[0, 1])]);
    absent(&mut world, &plan, 1.55);
    assert_eq!(world.control.gone(plan.config.job).unwrap().switches, [leaf()]);
    // Ranks that hear of it give up 0.1 s later.
    assert!(world.now.since(died) <= secs(1.7));
}

#[test]
fn all_that_a_switch_cuts_off_are_lost_at_one_time_though_their_connections_end_one_by_one() {
    let (mut world, plan) = world();
    close(&mut world, &plan, 2);
    absent(&mut world, &plan, 0.3);
    close(&mut world, &plan, 3);
    absent(&mut world, &plan, 1.3);
    assert_eq!(world.control.gone(plan.config.job).unwrap().switches, [leaf()]);
}

#[test]
fn a_switch_that_comes_back_costs_nobody() {
    let (mut world, plan) = world();
    [2, 3].iter().for_each(|&rank| close(&mut world, &plan, rank));
    absent(&mut world, &plan, 1.4);
    world.control.unreachable(world.now, plan.config.job, &[]);
    world.pass(secs(0.9), &[(&plan, &[0, 1])]);
    assert_eq!(
        world.control.gone(plan.config.job),
        Some(Departed::default()),
        "they have their time to be heard again"
    );
    for rank in [2, 3] {
        world.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    world.pass(secs(5.0), &[(&plan, &[0, 1, 2, 3])]);
    assert_eq!(world.control.gone(plan.config.job), Some(Departed::default()));
}

#[test]
fn a_rank_that_died_while_its_switch_was_gone_is_lost_soon_after() {
    let (mut world, plan) = world();
    [2, 3].iter().for_each(|&rank| close(&mut world, &plan, rank));
    absent(&mut world, &plan, 1.0);
    world.control.unreachable(world.now, plan.config.job, &[]);
    world.pass(secs(1.1), &[(&plan, &[0, 1, 2])]);
    let gone = world.control.gone(plan.config.job).unwrap();
    assert_eq!((gone.members, gone.switches), (vec![Gone { rank: 3, left: false }], Vec::new()));
}

#[test]
fn a_switch_that_only_its_control_network_has_lost_is_not_held_against_its_ranks_before_the_lease() {
    let (mut world, plan) = world();
    absent(&mut world, &plan, 7.0);
    assert_eq!(world.control.gone(plan.config.job), Some(Departed::default()), "their connections stand");
}
