//! Ranks that do not come, do not contribute or differ, and switches that refuse: who is told what.

use std::time::Instant;

use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::ids::Rank;

use crate::levels::setup::{BRIEF, cause, in_the_middle, jobs, on_ranks, options, switch, until_empty, worker};
use crate::support::PATIENCE;

#[test]
fn every_rank_learns_which_rank_of_another_rack_never_came() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let (a, b) = (Some(&racks[0]), Some(&racks[1]));
    let begun = Instant::now();
    let errors = on_ranks(&[a, b, a, None, b], "absent", BRIEF, |_| (), |group, _| group.map(|_| ()).unwrap_err());
    for error in errors {
        assert!(error.to_string().starts_with("rank 3 of 5 did not come within 2 s"), "{error}");
    }
    assert!(begun.elapsed() < PATIENCE / 2);
    assert!(jobs(&root).is_empty() && jobs(&racks[0]).is_empty() && jobs(&racks[1]).is_empty());
}

#[test]
fn ranks_of_different_racks_that_differ_learn_who_says_what() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let odd = |options: &mut ConnectOptions| {
        if options.rank == 1 {
            options.slots = Some(64);
        } else {
            options.slots = Some(32);
        }
    };
    let errors = on_ranks(&[Some(&racks[0]), Some(&racks[1])], "differ", PATIENCE, odd, |group, _| {
        group.map(|_| ()).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("disagree on the number of slots") && error.contains("rank 1 says 64"), "{error}");
    }
}

#[test]
fn what_the_parent_switch_refuses_is_one_sentence_at_the_worker() {
    let full = RunningSwitch::start(&SwitchOptions { memory_bytes: 1 << 10, ..options(None) }).unwrap();
    let shards = RunningSwitch::start(&SwitchOptions { shards: 2, ..options(None) }).unwrap();
    let gone = switch(None);
    let below = [switch(Some(&full)), switch(Some(&shards)), switch(Some(&gone))];
    let parent = gone.listen_addr();
    gone.stop();
    let say = |switch: &RunningSwitch| {
        let error = Group::connect(&worker(switch.listen_addr(), "refused", 0, 2, PATIENCE))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let error = say(&below[0]);
    assert!(error.contains(&format!("the switch above, {}, says: the switch is full", full.listen_addr())), "{error}");
    let error = say(&below[1]);
    assert!(error.contains("has 1 shards and its parent 2") && error.contains("--cores"), "{error}");
    let error = say(&below[2]);
    assert!(error.contains(&format!("of the switch above: nothing listens at {parent}")), "{error}");
}

#[test]
fn a_rank_that_does_not_contribute_is_named_in_the_other_rack() {
    let root = switch(None);
    let racks = [switch(Some(&root)), switch(Some(&root))];
    let [a, b] = racks.each_ref().map(RunningSwitch::listen_addr);
    for error in in_the_middle(&[a, b, a, b], Some(3), BRIEF, || ()).iter().flatten() {
        let CollectiveError::Missing { missing, .. } = cause(error) else { panic!("{error}") };
        assert_eq!(missing[..], [Rank(3)]);
    }
    until_empty(&[&root, &racks[0], &racks[1]]);
}
