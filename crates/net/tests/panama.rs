//! PANAMA over real sockets on the loopback interface: the bits of the tree, on every rank and in every run.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{LocalSwitch, PATIENCE, connect_options, on_every_rank, speak};
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::{DType, ReduceOp, bf16, codec};
use tributary_proto::aggregation::reference;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::panama::PROTOCOL;

/// A rank's floats: of all magnitudes, so that the order of a sum is seen in its bits.
fn input(rank: u16, len: usize) -> Vec<f32> {
    let value = |i: usize| match (usize::from(rank) * 31 + i * 7) % 101 {
        0 => -0.0,
        1 => f32::from_bits(7),
        odd => (odd as f32 - 50.5) * 10f32.powi((i + usize::from(rank)) as i32 % 9 - 4),
    };
    (0..len).map(value).collect()
}

/// What every rank must get, to the bit.
fn expected(world_size: u16, len: usize) -> Vec<u8> {
    let vector = |rank| {
        let mut bytes = vec![0; 4 * len];
        codec::write_native(&input(rank, len), &mut bytes);
        bytes
    };
    let vectors: Vec<Vec<u8>> = (0..world_size).map(vector).collect();
    reference(DType::F32, ReduceOp::Sum, &vectors, &SumTree::star(world_size)).expect("a sum of floats has a meaning")
}

fn bytes(output: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; 4 * output.len()];
    codec::write_native(output, &mut bytes);
    bytes
}

#[test]
fn the_bits_are_those_of_the_tree_with_1_2_3_and_8_ranks_for_every_length() {
    for (world_size, shards) in [(1, 1), (2, 2), (3, 1), (8, 4)] {
        let switch = LocalSwitch::start(shards);
        let adjust = |options: &mut ConnectOptions| speak(options, &PROTOCOL);
        on_every_rank(&switch, "bits", world_size, adjust, |group, rank| {
            for len in [0, 1, 63, 64, 65, 60_007, 0, 400_003, 5] {
                let mut data = input(rank, len);
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                assert!(
                    bytes(&data) == expected(world_size, len),
                    "{len} elements, {world_size} ranks, {shards} trees"
                );
            }
            assert_eq!(group.stats().unwrap().in_network(), 1.0);
        });
    }
}

#[test]
fn a_late_rank_makes_nobody_send_again() {
    let switch = LocalSwitch::start(2);
    let adjust = |options: &mut ConnectOptions| speak(options, &PROTOCOL);
    let sent_again = on_every_rank(&switch, "late", 3, adjust, |group, rank| {
        if rank == 1 {
            thread::sleep(Duration::from_millis(700));
        }
        let mut data = input(rank, 10_000);
        group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
        assert!(bytes(&data) == expected(3, 10_000));
        group.stats().unwrap().host.retransmissions
    });
    assert_eq!(sent_again, [0, 0, 0]);
}

/// Two racks of two ranks below one switch: whole switches, to the nearest of which each rank goes.
#[test]
fn in_levels_all_ranks_have_the_same_bits_and_sums_are_rounded_once() {
    let start = |parent: Option<&RunningSwitch>| {
        let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
        RunningSwitch::start(&SwitchOptions { parent: parent.map(RunningSwitch::listen_addr), ..any }).unwrap()
    };
    let root = start(None);
    let racks = [start(Some(&root)), start(Some(&root))];
    let work = |rank: u16| {
        let mut options = ConnectOptions {
            switch: racks[usize::from(rank / 2)].listen_addr().to_string(),
            job: "levels".to_string(),
            rank,
            world_size: 4,
            timeout: PATIENCE,
            protocol: &PROTOCOL,
            options: PROTOCOL.options.defaults(),
            elements_per_packet: None,
            slots: None,
            trees: None,
            cores: None,
        };
        speak(&mut options, &PROTOCOL);
        let group = Group::connect(&options).unwrap();
        let mut floats = input(rank, 100_003);
        group.allreduce_in_place(&mut floats, ReduceOp::Sum, PATIENCE).unwrap();
        // 256 and three ones are 259, which is 260 in bfloat16; one at a time they would be 256.
        let mut narrow = vec![bf16::from_f32(if rank == 0 { 256.0 } else { 1.0 }); 10_001];
        group.allreduce_in_place(&mut narrow, ReduceOp::Sum, PATIENCE).unwrap();
        assert!(narrow.iter().all(|&sum| sum == bf16::from_f32(259.0)));
        bytes(&floats)
    };
    let sums: Vec<Vec<u8>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|rank| {
                scope.spawn({
                    let work = &work;
                    move || work(rank)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    });
    assert!(sums.iter().all(|sum| *sum == sums[0]));
    let rack = |ranks: [u16; 2]| SumTree::Switch(ranks.map(SumTree::Rank).to_vec());
    let vectors: Vec<Vec<u8>> = (0..4).map(|rank| bytes(&input(rank, 100_003))).collect();
    let tree = SumTree::Switch(vec![rack([0, 1]), rack([2, 3])]);
    // Additions commute, so that the order of two racks, or of two ranks, is not seen in the bits.
    assert!(sums[0] == reference(DType::F32, ReduceOp::Sum, &vectors, &tree).unwrap());
}

#[test]
fn where_averages_may_lack_ranks_nothing_else_is_done_and_who_is_late_is_reported() {
    let switch = LocalSwitch::start(2);
    let adjust = |options: &mut ConnectOptions| {
        speak(options, &PROTOCOL);
        let half = [("partial".to_owned(), "1/2".to_owned())].into();
        options.options = PROTOCOL.options.read(&half).unwrap();
    };
    let shares = on_every_rank(&switch, "partial", 2, adjust, |group, rank| {
        let mut data = input(rank, 10_000);
        let refused = [
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap_err(),
            group.broadcast(&mut data, 0, PATIENCE).unwrap_err(),
        ];
        for error in refused.map(|error| error.to_string()) {
            assert!(error.contains("use op=avg, or leave the option partial out"), "{error}");
        }
        if rank == 1 {
            thread::sleep(Duration::from_millis(700));
        }
        let mut data = vec![f32::from(rank); 10_000];
        group.allreduce_in_place(&mut data, ReduceOp::Avg, PATIENCE).unwrap();
        assert!(data.iter().all(|one| [0.0, 0.5, 1.0].contains(one)), "an average of whoever was there");
        group.allreduce_in_place::<f32>(&mut [], ReduceOp::Sum, PATIENCE).unwrap();
        (data, group.stats().unwrap().host.contributed())
    });
    assert!(shares[0].0 == shares[1].0, "both have the same results");
    for (_, contributed) in &shares {
        assert!(contributed.is_some_and(|share| (0.5..1.0).contains(&share)), "{contributed:?}");
    }
}

fn at(switch: &RunningSwitch, job: &str, rank: u16, world_size: u16) -> ConnectOptions {
    let chosen = connect_options(switch.listen_addr(), &PROTOCOL, job, rank, world_size);
    ConnectOptions { elements_per_packet: Some(358), ..chosen }
}

fn small_switch(memory_bytes: usize) -> RunningSwitch {
    let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
    RunningSwitch::start(&SwitchOptions { memory_bytes, shards: 2, ..any }).unwrap()
}

/// All jobs here are one client's, who may have half of a switch's memory.
#[test]
fn eight_jobs_divide_a_small_switch_while_they_sum_and_nothing_overflows() {
    const JOBS: usize = 8;
    let switch = small_switch(1 << 20);
    let (all_run, looked) = (Barrier::new(2 * JOBS + 1), Barrier::new(2 * JOBS + 1));
    let sum = |group: &mut Group, rank: u16, times: u32| {
        for _ in 0..times {
            let mut data = input(rank, 20_011);
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
            assert!(bytes(&data) == expected(2, 20_011));
        }
    };
    let status = || client::status(switch.listen_addr()).unwrap();
    thread::scope(|scope| {
        for job in 0..JOBS {
            for rank in 0..2 {
                let (switch, all_run, looked, sum) = (&switch, &all_run, &looked, &sum);
                scope.spawn(move || {
                    thread::sleep(Duration::from_millis(20 * job as u64));
                    let mut group = Group::connect(&at(switch, &format!("job{job}"), rank, 2)).unwrap();
                    // Others come meanwhile, and take their part of what this job has.
                    sum(&mut group, rank, 20);
                    all_run.wait();
                    looked.wait();
                    sum(&mut group, rank, 20);
                });
            }
        }
        all_run.wait();
        let seen = status();
        looked.wait();
        assert_eq!(seen.jobs.len(), JOBS);
        let slots: Vec<u16> = seen.jobs.iter().map(|job| job.slots).collect();
        assert!(slots.iter().all(|&own| own == slots[0]), "{slots:?}");
        let in_use: u64 = seen.jobs.iter().map(|job| job.memory_bytes).sum();
        assert!(in_use <= 512 << 10 && in_use > 460 << 10, "{in_use} bytes");
        let overflows = seen.jobs.iter().filter_map(|job| job.drops.get("overflow"));
        assert_eq!(overflows.sum::<u64>(), 0);
        for job in &seen.jobs {
            let caps: Vec<u16> =
                job.trees.iter().map(|tree| tree.switches[0].order.as_ref().unwrap().wnd_cap).collect();
            assert_eq!(caps, [slots[0] / 2; 2], "what results say is what the job is charged for");
        }
    });
}

/// The rack's switch is small, the root is not: each divides its own memory, and results say the least room on the way.
#[test]
fn in_levels_each_switch_divides_its_own_memory_while_jobs_sum() {
    const JOBS: usize = 4;
    let start = |parent: Option<&RunningSwitch>, memory_bytes| {
        let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
        let parent = parent.map(RunningSwitch::listen_addr);
        RunningSwitch::start(&SwitchOptions { memory_bytes, shards: 1, parent, ..any }).unwrap()
    };
    let root = start(None, 64 << 20);
    let racks = [start(Some(&root), 64 << 20), start(Some(&root), 1 << 20)];
    let (all_run, looked) = (Barrier::new(2 * JOBS + 1), Barrier::new(2 * JOBS + 1));
    let sum = |group: &mut Group, rank: u16| {
        for _ in 0..10 {
            let mut data = input(rank, 50_003);
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
            assert!(bytes(&data) == expected(2, 50_003));
        }
    };
    thread::scope(|scope| {
        for (job, rank) in (0..JOBS).flat_map(|job| [(job, 0), (job, 1)]) {
            let (rack, all_run, looked, sum) = (&racks[usize::from(rank)], &all_run, &looked, &sum);
            scope.spawn(move || {
                let mut group = Group::connect(&at(rack, &format!("job{job}"), rank, 2)).unwrap();
                sum(&mut group, rank);
                all_run.wait();
                looked.wait();
                sum(&mut group, rank);
            });
        }
        all_run.wait();
        let seen = client::status(racks[1].listen_addr()).unwrap();
        looked.wait();
        let slots: Vec<u16> = seen.jobs.iter().map(|job| job.slots).collect();
        assert!(slots.len() == JOBS && slots.iter().all(|&own| own == slots[0] && own >= 8), "{slots:?}");
        let in_use: u64 = seen.jobs.iter().map(|job| job.memory_bytes).sum();
        assert!(in_use <= 512 << 10 && in_use > 400 << 10, "one client has half: {in_use} bytes");
        assert!(seen.jobs.iter().all(|job| !job.drops.contains_key("overflow")));
    });
}

#[test]
fn a_job_that_does_not_fit_beside_the_others_least_is_refused_in_a_sentence() {
    let switch = small_switch(96 << 10);
    let mut groups = Vec::new();
    let refused = loop {
        match Group::connect(&at(&switch, &format!("job{}", groups.len()), 0, 1)) {
            Ok(group) => groups.push(group),
            Err(error) => break error.to_string(),
        }
    };
    assert!(groups.len() >= 2, "{} jobs", groups.len());
    assert!(refused.contains("48.0 KiB for all of its jobs"), "{refused}");
}

#[test]
fn a_job_that_has_summed_is_in_status_with_its_tree_however_lately_somebody_looked() {
    let switch = small_switch(1 << 20);
    let status = || client::status(switch.listen_addr()).unwrap();
    for turn in 0..5 {
        status();
        let name = format!("lately{turn}");
        let group = Group::connect(&at(&switch, &name, 0, 1)).unwrap();
        group.allreduce_in_place(&mut input(0, 1_000), ReduceOp::Sum, PATIENCE).unwrap();
        let status_of_job = status().jobs.into_iter().find(|job| job.name == name).expect("the job runs");
        assert_eq!(
            (status_of_job.trees.len(), status_of_job.blocks > 0),
            (2, true),
            "a tree in each shard, in turn {turn}"
        );
        group.close();
    }
}

/// Two racks below one switch, and a rank that does not come before both say that they wait for it.
#[test]
fn status_names_the_port_that_the_head_waits_for_and_the_ranks_behind_it() {
    let start = |parent: Option<&RunningSwitch>| {
        let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
        RunningSwitch::start(&SwitchOptions { parent: parent.map(RunningSwitch::listen_addr), ..any }).unwrap()
    };
    let root = start(None);
    let racks = [start(Some(&root)), start(Some(&root))];
    let seen = Barrier::new(2);
    let work = |rank: u16| {
        let group = Group::connect(&at(&racks[usize::from(rank / 2)], "head", rank, 4)).unwrap();
        if rank == 3 {
            seen.wait();
        }
        group.allreduce_in_place(&mut input(rank, 100_003), ReduceOp::Sum, PATIENCE).unwrap();
    };
    // What the head of the first tree waits for, once something waits at its switch.
    let head = |switch: &RunningSwitch| {
        let job = client::status(switch.listen_addr()).unwrap().jobs.into_iter().find(|job| job.name == "head")?;
        let switch = job.trees.into_iter().next()?.switches.into_iter().find(|switch| switch.order.is_some())?;
        let order = switch.order?;
        let ports = switch.children.iter().filter(|child| order.waits_for.contains(&child.node));
        let behind: Vec<u16> = ports.flat_map(|child| child.ranks.clone()).collect();
        assert_eq!(behind, order.waits_for_ranks, "{:?} of {:?}", order.waits_for, switch.children);
        let holds = order.queued.iter().any(|&queued| queued > 0);
        holds.then_some((order.waits_for.len(), order.waits_for_ranks, order.expected_vid))
    };
    let until = |switch: &RunningSwitch, ranks: &[u16]| {
        let began = Instant::now();
        while head(switch) != Some((1, ranks.to_vec(), 0)) {
            assert!(began.elapsed() < PATIENCE, "{:?}, not {ranks:?}", head(switch));
            thread::sleep(Duration::from_millis(20));
        }
    };
    thread::scope(|scope| {
        let work = &work;
        (0..4).for_each(|rank| drop(scope.spawn(move || work(rank))));
        until(&racks[1], &[3]);
        until(&root, &[2, 3]);
        seen.wait();
    });
}
