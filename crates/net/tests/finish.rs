//! A switch that is asked to stop lets what is being summed end first. Real sockets on the loopback interface.

use std::sync::mpsc;
use std::thread;

use crate::fabric;
use crate::support::{PATIENCE, connect_options, ready, until};
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::protocols;

const ELEMENTS: usize = 100_000;

fn start() -> RunningSwitch {
    RunningSwitch::start(&SwitchOptions { shards: 2, ..SwitchOptions::new("127.0.0.1:0".parse().unwrap()) }).unwrap()
}

fn options(switch: &RunningSwitch, job: &str, rank: u16, world_size: u16) -> ConnectOptions {
    let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.placement == Placement::Trees).unwrap();
    connect_options(switch.listen_addr(), protocol, job, rank, world_size)
}

/// Two ranks that have joined a job.
fn pair(switch: &RunningSwitch) -> [Group; 2] {
    let join = |rank| Group::connect(&options(switch, "pair", rank, 2)).expect("the rank joins");
    thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        [join(0), other.join().expect("the other joins")]
    })
}

fn sum(group: &Group) -> bool {
    let mut data = vec![1i32; ELEMENTS];
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).is_ok() && data.iter().all(|&sum| sum == 2)
}

fn sum_of_one(group: &Group) -> bool {
    group.allreduce_in_place(&mut [1i32; 1_000], ReduceOp::Sum, PATIENCE).is_ok()
}

#[test]
fn a_sum_that_waits_for_a_rank_is_complete_before_the_switch_ends() {
    let switch = start();
    let [early, late] = pair(&switch);
    let (stop_sender, stop_requested) = mpsc::channel();
    thread::scope(|scope| {
        let early = scope.spawn(move || sum(&early));
        let late = scope.spawn(move || {
            stop_requested.recv_timeout(PATIENCE).expect("the switch is asked to stop");
            sum(&late)
        });
        let mut polls = 0;
        let rested = switch.finish(|| {
            polls += 1;
            if polls == 3 {
                stop_sender.send(()).expect("the late rank waits");
            }
            false
        });
        assert!(rested.unwrap(), "nothing is being summed any more");
        switch.stop();
        assert!(early.join().unwrap() && late.join().unwrap(), "both ranks have the sum");
    });
}

#[test]
fn a_rank_that_never_comes_does_not_keep_a_switch_from_stopping_and_nobody_joins_meanwhile() {
    let switch = start();
    let [early, absent] = pair(&switch);
    thread::scope(|scope| {
        let early = scope.spawn(move || sum(&early));
        let mut polls = 0;
        let rested = switch.finish(|| {
            polls += 1;
            if polls == 1 {
                let refused = Group::connect(&options(&switch, "another", 0, 1)).err().expect("no joins any more");
                assert!(refused.to_string().contains("stopping"), "{refused}");
            }
            polls == 3
        });
        assert!(!rested.unwrap(), "one rank still waits");
        switch.stop();
        assert!(!early.join().unwrap(), "its sum has failed");
    });
    drop(absent);
}

#[test]
fn ranks_that_are_still_summing_are_notified_that_the_switch_stops() {
    let switch = start();
    let [early, absent] = pair(&switch);
    let addr = switch.listen_addr().to_string();
    thread::scope(|scope| {
        let waits = scope.spawn(|| early.allreduce_in_place(&mut vec![1i32; ELEMENTS], ReduceOp::Sum, PATIENCE));
        let mut calls = 0;
        let rested = switch.finish(|| {
            calls += 1;
            calls == 3
        });
        assert!(!rested.unwrap(), "a sum is under way");
        switch.announce_stop().unwrap();
        switch.stop();
        let error = waits.join().unwrap().expect_err("the sum has failed").to_string();
        assert!(error.contains("is stopping") && error.contains(&addr), "{error}");
    });
    drop(absent);
}

/// The rank of a job with one tree, which passes the leaf alone, is at the leaf. Others of a tree learn it from the controller.
#[test]
fn a_switch_of_a_fabric_that_stops_notifies_its_controller_and_jobs_that_need_it_fail() {
    let fabric = fabric::fabric(90, "0123456789abcdef");
    let (leaf, top) = (fabric::start(&fabric, "leaf"), fabric::start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&options(&leaf, "alone", 0, 1)).unwrap();
    leaf.announce_stop().unwrap();
    let broken = client::status(top.listen_addr()).unwrap().jobs.remove(0).broken.expect("the job has failed");
    assert!(broken.starts_with("switch leaf is stopping, as its operator has asked it to"), "{broken}");
    leaf.stop();
    drop(group);
}

/// Running jobs may outlive the controller, so nobody is notified before it is missed.
#[test]
fn ranks_that_miss_a_controller_are_given_its_operator_s_stop_as_the_reason_until_it_is_back() {
    let fabric = fabric::fabric(91, "0123456789abcdef");
    let (leaf, top) = (fabric::start(&fabric, "leaf"), fabric::start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&connect_options(leaf.listen_addr(), fabric::dynamic(), "alone", 0, 1)).unwrap();
    top.announce_stop().unwrap();
    top.stop();
    assert!(sum_of_one(&group), "the job goes on");
    let refused = Group::connect(&options(&leaf, "another", 0, 1)).err().expect("no joins now").to_string();
    assert!(refused.contains("switch top is stopping, as its operator has asked it to"), "{refused}");
    let _top = fabric::start(&fabric, "top");
    until(&leaf, "the controller's next message", |status| {
        status
            .switch
            .fabric
            .as_ref()
            .is_some_and(|fabric| fabric.controller_silent_s.is_some_and(|silent| silent < 2.0))
    });
    Group::connect(&options(&leaf, "another", 0, 1)).map(Group::close).expect("the controller is back");
    assert!(sum_of_one(&group), "the job has gone on");
}

#[test]
fn a_switch_without_jobs_ends_at_once() {
    let switch = start();
    assert!(switch.finish(|| panic!("there is nothing to wait for")).unwrap());
    switch.stop();
}
