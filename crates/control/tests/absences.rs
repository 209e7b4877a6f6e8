//! Ranks behind a switch of a fabric that cannot be reached: what is the switch's death, and what is theirs.

use crate::harness::{MIB, TestSwitch, secs};
use tributary_control::levels::SwitchRanks;
use tributary_control::{Departed, Gone, Plan};
use tributary_proto::contract::ids::ChildId;

/// Four ranks, of which 2 and 3 are behind the leaf.
fn four_ranks() -> (TestSwitch, std::sync::Arc<Plan>) {
    let mut switch = TestSwitch::new(64 * MIB);
    let plan = switch.start("a", 4, 1);
    for rank in 0..4 {
        switch.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    switch.pass(secs(2.0), &[(&plan, &[0, 1, 2, 3])]);
    (switch, plan)
}

fn leaf() -> SwitchRanks {
    SwitchRanks { addr: "10.77.128.2:17777".parse().unwrap(), ranks: vec![2, 3] }
}

/// Nothing comes through the leaf, and it is not reached either, for this long.
fn absent(switch: &mut TestSwitch, plan: &Plan, seconds: f64) {
    switch.control.unreachable(switch.now, plan.config.job, &[leaf()]);
    switch.pass(secs(seconds), &[(plan, &[0, 1])]);
}

fn close(switch: &mut TestSwitch, plan: &Plan, rank: u16) {
    switch.control.unwatch(switch.now, plan.config.job, ChildId(rank));
}

#[test]
fn a_switch_that_is_gone_is_named_with_the_ranks_behind_it() {
    let (mut switch, plan) = four_ranks();
    [2, 3].iter().for_each(|&rank| close(&mut switch, &plan, rank));
    absent(&mut switch, &plan, 1.4);
    assert_eq!(switch.control.gone(plan.config.job), Some(Departed::default()), "it may be started again");
    absent(&mut switch, &plan, 0.2);
    let members = [2, 3].map(|rank| Gone { rank, completed: None }).to_vec();
    let gone = Departed { members, switches: vec![leaf()], servers: Vec::new() };
    assert_eq!(switch.control.gone(plan.config.job), Some(gone));
}

/// A driver looks at what it knows of switches whenever a timeout has come, and otherwise once a second.
#[test]
fn the_death_of_a_switch_is_reported_within_two_seconds_though_nobody_knew_of_it_when_connections_closed() {
    let (mut switch, plan) = four_ranks();
    let died = switch.now;
    [2, 3].iter().for_each(|&rank| close(&mut switch, &plan, rank));
    let next_check = switch.control.poll_timeout().unwrap().since(died);
    assert!(next_check <= secs(0.1), "the driver checks after {} s", next_check.as_secs_f64());
    switch.pass(next_check, &[(&plan, &[0, 1])]);
    absent(&mut switch, &plan, 1.55);
    assert_eq!(switch.control.gone(plan.config.job).unwrap().switches, [leaf()]);
    // Ranks that learn of it give up 0.1 s later.
    assert!(switch.now.since(died) <= secs(1.7));
}

#[test]
fn all_that_a_switch_cuts_off_are_lost_at_one_time_though_their_connections_end_one_by_one() {
    let (mut switch, plan) = four_ranks();
    close(&mut switch, &plan, 2);
    absent(&mut switch, &plan, 0.3);
    close(&mut switch, &plan, 3);
    absent(&mut switch, &plan, 1.3);
    assert_eq!(switch.control.gone(plan.config.job).unwrap().switches, [leaf()]);
}

#[test]
fn a_switch_that_comes_back_costs_nobody() {
    let (mut switch, plan) = four_ranks();
    [2, 3].iter().for_each(|&rank| close(&mut switch, &plan, rank));
    absent(&mut switch, &plan, 1.4);
    switch.control.unreachable(switch.now, plan.config.job, &[]);
    switch.pass(secs(0.9), &[(&plan, &[0, 1])]);
    assert_eq!(
        switch.control.gone(plan.config.job),
        Some(Departed::default()),
        "they have their time again to send something"
    );
    for rank in [2, 3] {
        switch.control.watch(&plan.name, plan.config.job, rank, plan.config.key).unwrap();
    }
    switch.pass(secs(5.0), &[(&plan, &[0, 1, 2, 3])]);
    assert_eq!(switch.control.gone(plan.config.job), Some(Departed::default()));
}

#[test]
fn a_rank_that_died_while_its_switch_was_gone_is_lost_soon_after() {
    let (mut switch, plan) = four_ranks();
    [2, 3].iter().for_each(|&rank| close(&mut switch, &plan, rank));
    absent(&mut switch, &plan, 1.0);
    switch.control.unreachable(switch.now, plan.config.job, &[]);
    switch.pass(secs(1.1), &[(&plan, &[0, 1, 2])]);
    let gone = switch.control.gone(plan.config.job).unwrap();
    assert_eq!((gone.members, gone.switches), (vec![Gone { rank: 3, completed: None }], Vec::new()));
}

#[test]
fn ranks_of_a_switch_that_only_its_control_network_has_lost_are_not_lost_before_the_lease() {
    let (mut switch, plan) = four_ranks();
    absent(&mut switch, &plan, 7.0);
    assert_eq!(switch.control.gone(plan.config.job), Some(Departed::default()), "their connections stand");
}
