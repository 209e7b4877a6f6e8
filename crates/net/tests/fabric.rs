//! Two switches of a fabric on the loopback interface: jobs that are formed at one and installed at both. The one host that
//! is there has the address from which this machine speaks to itself.

use std::net::TcpListener;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, connect_options, ready, until};
use tributary_control::fabric::{FabricFile, FabricLayout};
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

/// A protocol whose trees are found packet by packet.
pub(crate) fn dynamic() -> &'static Protocol {
    protocols::named("canary").unwrap()
}

/// A protocol whose trees are planned.
pub(crate) fn with_trees() -> &'static Protocol {
    protocols::ALL.iter().copied().find(|protocol| protocol.placement == Placement::Trees).unwrap()
}

/// A leaf with the host, and the controller above it. `number` keeps tests that run at the same time apart.
pub(crate) fn fabric(number: u8, secret: &str) -> Arc<FabricLayout> {
    fabric_with(number, secret, "")
}

/// The same with more keys.
fn fabric_with(number: u8, secret: &str, keys: &str) -> Arc<FabricLayout> {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "secret = \"{secret}\"\ncontroller = \"top\"\nnetwork = \"127.77.{number}.0\"\nport = {}\n{keys}\
         [graph]\nhosts = [\"here\", \"away\"]\nswitches = [\"leaf\", \"top\"]\n\
         links = [[\"here\", \"leaf\"], [\"away\", \"top\"], [\"leaf\", \"top\"]]\n\
         [addresses]\nhere = \"127.0.0.1\"\n",
        free.local_addr().unwrap().port()
    );
    Arc::new(FabricFile::parse(&text).unwrap())
}

pub(crate) fn start(fabric: &Arc<FabricLayout>, name: &str) -> RunningSwitch {
    let node = fabric.node_named(name).unwrap();
    RunningSwitch::start(&SwitchOptions::in_fabric(Arc::clone(fabric), node)).unwrap()
}

pub(crate) fn options(switch: &RunningSwitch, protocol: &'static Protocol) -> ConnectOptions {
    connect_options(switch.listen_addr(), protocol, "alone", 0, 1)
}

#[test]
fn a_job_that_joins_at_a_leaf_is_formed_at_the_controller_installed_everywhere_and_removed_everywhere() {
    let fabric = fabric(0, "0123456789abcdef");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&options(&leaf, dynamic())).unwrap();
    let mut data: Vec<i32> = (0..10_000).collect();
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    assert!(data.iter().copied().eq(0..10_000));
    let jobs = |switch: &RunningSwitch| client::status(switch.listen_addr()).unwrap().jobs;
    assert_eq!((jobs(&top)[0].name.as_str(), jobs(&leaf)[0].name.as_str()), ("alone", "alone"));
    until(&top, "the member's sign of life", |status| status.jobs[0].members[0].last_seen_s_ago.is_some());
    for switch in [&leaf, &top] {
        until(switch, "how far the member is", |status| status.jobs[0].collectives == 1);
        until(switch, "the job's age", |status| status.jobs[0].age_s > 0.0);
    }
    group.close();
    for switch in [&top, &leaf] {
        until(switch, "the removal", |status| status.jobs.is_empty());
    }
}

/// The sums of a tree are in its switches alone: one that comes back without them ends the job, by name.
#[test]
fn a_tree_whose_switch_was_started_again_fails_its_ranks() {
    let fabric = fabric(6, "0123456789abcdef");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&options(&leaf, protocols::named("switchml").unwrap())).unwrap();
    until(&top, "the job", |status| status.jobs.len() == 1);
    leaf.stop();
    let leaf = start(&fabric, "leaf");
    until(&leaf, "the end of the job", |status| status.jobs.iter().any(|job| job.broken.is_some()));
    // A rank that brings something before it has heard the news may still get its sum.
    let start = Instant::now();
    let error = loop {
        match group.allreduce_in_place(&mut [1i32; 1_000], ReduceOp::Sum, PATIENCE) {
            Err(error) => break error.to_string(),
            Ok(()) => assert!(start.elapsed() < PATIENCE, "the rank is not told"),
        }
        thread::sleep(Duration::from_millis(20));
    };
    let wanted = "tree 0 of job \"alone\" ran through leaf, which was started again without its sums; connect again";
    assert!(error.contains(wanted), "{error}");
    drop(group);
    let again = Group::connect(&options(&leaf, protocols::named("switchml").unwrap())).unwrap();
    let mut data = vec![3i32; 1_000];
    again.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    assert_eq!(data, [3; 1_000]);
}

#[test]
fn a_leaf_that_is_started_again_gets_the_running_job_again() {
    let fabric = fabric(1, "0123456789abcdef");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&options(&leaf, dynamic())).unwrap();
    leaf.stop();
    let leaf = start(&fabric, "leaf");
    until(&leaf, "the job", |status| ready(status) && status.jobs.len() == 1);
    until(&top, "the member's sign of life through the new leaf", |status| {
        status.jobs.first().is_some_and(|job| job.members[0].last_seen_s_ago.is_some_and(|ago| ago < 2.0))
    });
    let mut data = vec![3i32; 1_000];
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    assert_eq!(data, [3; 1_000]);
}

#[test]
fn a_controller_that_is_started_again_finds_the_running_job_and_forms_new_ones() {
    let fabric = fabric(4, "0123456789abcdef");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let group = Group::connect(&options(&leaf, dynamic())).unwrap();
    top.stop();
    let mut data = vec![3i32; 1_000];
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    let top = start(&fabric, "top");
    until(&top, "the job, with its name and its member", |status| {
        ready(status)
            && status.jobs.iter().any(|job| job.name == "alone" && job.id == Some(1))
            && status.jobs[0].members[0].last_seen_s_ago.is_some_and(|ago| ago < 2.0)
    });
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    assert_eq!(data, [3; 1_000]);
    group.close();
    until(&leaf, "the removal", |status| status.jobs.is_empty());
    let next = Group::connect(&options(&leaf, dynamic())).unwrap();
    assert_eq!(client::status(leaf.listen_addr()).unwrap().jobs[0].id, Some(2), "ids do not come back soon");
    drop(next);
}

/// What a job's packets say that there is room for is what it is charged for, also after others have come.
#[test]
fn jobs_whose_machines_can_be_resized_divide_their_client_s_half_of_a_fabric_s_memory_while_they_sum() {
    const JOBS: usize = 8;
    let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.resizes).expect("one of them does");
    let fabric = fabric_with(7, "0123456789abcdef", "memory = \"2 MiB\"\nqueue = \"4096 KiB\"\n");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let (all_run, looked) = (Barrier::new(JOBS + 1), Barrier::new(JOBS + 1));
    let sum = |group: &Group| {
        for round in 0..20 {
            let mut data: Vec<i32> = (round..round + 50_003).collect();
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
            assert!(data.iter().copied().eq(round..round + 50_003));
        }
    };
    thread::scope(|scope| {
        for job in 0..JOBS {
            let (leaf, all_run, looked, sum) = (&leaf, &all_run, &looked, &sum);
            scope.spawn(move || {
                let own = connect_options(leaf.listen_addr(), protocol, &format!("job{job}"), 0, 1);
                let group = Group::connect(&own).unwrap();
                sum(&group);
                all_run.wait();
                looked.wait();
                sum(&group);
            });
        }
        all_run.wait();
        let [here, controller] = [&leaf, &top].map(|switch| client::status(switch.listen_addr()).unwrap());
        looked.wait();
        let slots: Vec<u16> = controller.jobs.iter().map(|job| job.slots).collect();
        assert!(slots.len() == JOBS && slots.iter().all(|&own| own == slots[0]), "{slots:?}");
        let in_use: u64 = controller.jobs.iter().map(|job| job.memory_bytes).sum();
        assert!(in_use <= 1 << 20 && in_use > 900 << 10, "{in_use} bytes");
        for job in &here.jobs {
            assert_eq!(job.trees[0].switches[0].order.as_ref().unwrap().wnd_cap, slots[0], "{}", job.name);
            assert!(!job.drops.contains_key("overflow"), "{:?}", job.drops);
        }
    });
}

#[test]
fn a_job_that_does_not_fit_beside_the_least_shares_of_its_client_s_others_is_refused_in_a_sentence() {
    let protocol = protocols::ALL.iter().copied().find(|protocol| protocol.resizes).expect("one of them does");
    let keys = "memory = \"2 MiB\"\nqueue = \"4096 KiB\"\nelements_per_packet = 9000\n";
    let fabric = fabric_with(8, "0123456789abcdef", keys);
    let (leaf, _top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    let mut groups = Vec::new();
    let refused = loop {
        let own = connect_options(leaf.listen_addr(), protocol, &format!("job{}", groups.len()), 0, 1);
        match Group::connect(&own) {
            Ok(group) => groups.push(group),
            Err(error) => break error.to_string(),
        }
    };
    assert!((2..64).contains(&groups.len()), "{} jobs", groups.len());
    assert!(refused.contains("this switch allows 127.0.0.1 ") && refused.contains("end another job"), "{refused}");
    for group in &groups {
        let mut data: Vec<i32> = (0..20_003).collect();
        group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
        assert!(data.iter().copied().eq(0..20_003));
    }
}

/// What is held is what machines take: at the controller as jobs are charged, elsewhere as the machines say.
#[test]
fn every_switch_says_what_its_jobs_hold_and_what_they_share() {
    let chosen = protocols::ALL.iter().copied().filter(|protocol| protocol.sums_in_network());
    for (number, protocol) in (60..).zip(chosen) {
        let fabric = fabric(number, "0123456789abcdef");
        let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
        until(&leaf, "a greeting", ready);
        let used = |switch| client::status(RunningSwitch::listen_addr(switch)).unwrap().switch.memory_used_bytes;
        assert_eq!((used(&leaf), used(&top)), (0, 0));
        let group = Group::connect(&options(&leaf, protocol)).unwrap();
        let (here, controller) =
            (client::status(leaf.listen_addr()).unwrap(), client::status(top.listen_addr()).unwrap());
        let shared: u64 = here.switch.shared.iter().map(|shared| shared.bytes).sum();
        assert_eq!(here.switch.memory_used_bytes, shared + here.jobs[0].memory_bytes, "{protocol}");
        assert!(here.switch.memory_used_bytes > 1_000, "{protocol}: {}", here.switch.memory_used_bytes);
        assert!(
            controller.switch.memory_used_bytes >= here.switch.memory_used_bytes,
            "{protocol}: it is charged for all"
        );
        group.close();
        until(&leaf, "the removal", |status| status.jobs.is_empty());
        let idle: u64 =
            client::status(leaf.listen_addr()).unwrap().switch.shared.iter().map(|shared| shared.bytes).sum();
        assert_eq!(used(&leaf), idle, "{protocol}: what jobs share stays");
        assert_eq!(idle > 0, protocol.shared.is_some(), "{protocol}");
    }
}

#[test]
fn what_jobs_share_in_a_fabric_gives_way_at_every_switch_or_is_refused_with_a_sentence() {
    let sharing: Vec<&'static Protocol> = protocols::ALL.iter().copied().filter(|own| own.shared.is_some()).collect();
    // Room for one of these machines, but not for two.
    let fabric = fabric_with(80, "0123456789abcdef", "memory = \"9 MiB\"\n");
    let (leaf, top) = (start(&fabric, "leaf"), start(&fabric, "top"));
    until(&leaf, "a greeting", ready);
    for protocol in &sharing {
        let group = Group::connect(&options(&leaf, protocol)).unwrap();
        for switch in [&leaf, &top] {
            until(switch, "what jobs share now", |status| {
                let there = status.switch.shared.iter().filter(|shared| shared.bytes > 0);
                there.map(|shared| shared.protocol.as_str()).eq([protocol.name])
            });
        }
        for other in sharing.iter().filter(|other| *other != protocol) {
            let other = ConnectOptions { job: "other".into(), ..options(&leaf, other) };
            let refusal = Group::connect(&other).map(drop).unwrap_err().to_string();
            let expected = format!("would be the first of {}, whose jobs share ", other.protocol);
            assert!(refusal.contains(&expected), "{refusal}");
        }
        group.close();
    }
}

#[test]
fn a_switch_with_another_secret_does_not_belong_to_the_fabric() {
    let ours = fabric(2, "0123456789abcdef");
    let theirs = Arc::new(FabricLayout { secret: "fedcba9876543210".into(), ..FabricLayout::clone(&ours) });
    let (leaf, top) = (start(&theirs, "leaf"), start(&ours, "top"));
    let error = Group::connect(&options(&leaf, dynamic())).map(drop).unwrap_err().to_string();
    assert!(error.contains("the secret is not this fabric's"), "{error}");
    let seen = |switch: &RunningSwitch| client::status(switch.listen_addr()).unwrap().switch;
    until(&top, "a greeting under the wrong key", |status| status.switch.rejected_packets.contains_key("wrong_key"));
    assert!(!ready(&client::status(top.listen_addr()).unwrap()) && !seen(&leaf).fabric.unwrap().ready);
}

#[test]
fn without_its_controller_a_fabric_says_so_and_protocols_go_where_they_belong() {
    let fabric = fabric(3, "0123456789abcdef");
    let leaf = start(&fabric, "leaf");
    let refusal = |options: &ConnectOptions| Group::connect(options).map(drop).unwrap_err().to_string();
    let error = refusal(&options(&leaf, dynamic()));
    assert!(error.contains("switch top, where this fabric's jobs are formed, cannot be asked"), "{error}");
    let _top = start(&fabric, "top");
    let error = refusal(&options(&leaf, protocols::named("ring").unwrap()));
    assert!(error.contains("ring is not for a fabric: take switchml or canary"), "{error}");
    let lone = RunningSwitch::start(&SwitchOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let switch = lone.listen_addr().to_string();
    let trees =
        |protocol, trees| ConnectOptions { trees: Some(trees), ..options(&leaf, protocols::named(protocol).unwrap()) };
    let error = refusal(&trees("canary", 2));
    assert!(error.contains("trees = 2: canary finds its trees itself"), "{error}");
    assert!(refusal(&trees("switchml", 65)).contains("a job has 1 to 64 trees, not 65"));
    let error = refusal(&ConnectOptions { switch: switch.clone(), ..trees("switchml", 2) });
    assert!(error.contains("trees = 2: one switch is one tree"), "{error}");
    let alone = ConnectOptions { switch, ..options(&leaf, dynamic()) };
    Group::connect(&alone).map(Group::close).expect("one switch is a fabric of one");
}
