//! Real sums over real sockets on the loopback interface: exact, on every rank, for every size.

use std::sync::Arc;
use std::thread;

use crate::support::{LocalSwitch, PATIENCE, in_flight, on_every_rank};
use tributary_net::group::ConnectOptions;
use tributary_numeric::{ReduceOp, f16};
use tributary_proto::contract::protocol::{Placement, Protocol};
use tributary_proto::protocols;

/// Element `i` of `rank`'s tensor in the collective `round`: of all magnitudes, and wrapping.
fn value(rank: u16, round: u32, i: usize) -> i32 {
    (i as i32).wrapping_mul(2_654_435_761u32 as i32) ^ (i32::from(rank) << 20).wrapping_add(round as i32 * 77)
}

fn input(rank: u16, round: u32, len: usize) -> Vec<i32> {
    (0..len).map(|i| value(rank, round, i)).collect()
}

fn check(world_size: u16, round: u32, output: &[i32]) {
    for (i, &sum) in output.iter().enumerate() {
        let expected = (0..world_size).map(|rank| value(rank, round, i)).fold(0, i32::wrapping_add);
        assert_eq!(sum, expected, "element {i} of {} in round {round}", output.len());
    }
}

#[test]
fn integers_sum_exactly_with_1_2_3_and_8_ranks_for_every_length() {
    for (world_size, shards) in [(1, 1), (2, 2), (3, 1), (8, 2)] {
        let switch = LocalSwitch::start(shards);
        on_every_rank(
            &switch,
            "sizes",
            world_size,
            |_| {},
            |group, rank| {
                for (round, len) in [0, 1, 63, 64, 65, 2232, 2233, 100_000, 0, 1_000_007, 5].into_iter().enumerate() {
                    let round = round as u32;
                    let mut output = vec![0; len];
                    let input = input(rank, round, len);
                    group.allreduce(&input, &mut output, ReduceOp::Sum, PATIENCE).unwrap();
                    check(world_size, round, &output);
                }
                assert_eq!(group.stats().unwrap().in_network(), 1.0);
            },
        );
    }
}

#[test]
fn a_job_of_32_ranks_and_a_ring_of_hosts_sum_exactly_too() {
    let switch = LocalSwitch::start(2);
    for (protocol, world_size) in [
        (protocols::named("switchml").unwrap(), 32),
        (protocols::named("ring").unwrap(), 1),
        (protocols::named("ring").unwrap(), 2),
        (protocols::named("ring").unwrap(), 5),
    ] {
        let adjust = |options: &mut ConnectOptions| crate::support::speak(options, protocol);
        let job = format!("{}-{world_size}", protocol.name);
        on_every_rank(&switch, &job, world_size, adjust, |group, rank| {
            for (round, len) in [1, 65, 0, 60_007].into_iter().enumerate() {
                let mut output = vec![0; len];
                group.allreduce(&input(rank, round as u32, len), &mut output, ReduceOp::Sum, PATIENCE).unwrap();
                check(world_size, round as u32, &output);
            }
        });
    }
}

#[test]
fn input_and_output_may_be_the_same_memory() {
    let switch = LocalSwitch::start(2);
    on_every_rank(
        &switch,
        "in place",
        3,
        |_| {},
        |group, rank| {
            let mut data = input(rank, 9, 70_001);
            group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
            check(3, 9, &data);
        },
    );
}

#[test]
fn each_rank_gets_its_shard_of_the_sum_and_all_shards_come_together() {
    let switch = LocalSwitch::start(2);
    let is_here = |protocol: &&Protocol| protocol.placement != Placement::EveryHop && protocol.server.is_none();
    let differ = |protocol: &&Protocol| protocol.rooted_is_unicast || protocol.hosts_forward_results;
    for protocol in protocols::ALL.iter().copied().filter(is_here).filter(differ) {
        let adjust = |options: &mut ConnectOptions| crate::support::speak(options, protocol);
        on_every_rank(&switch, &format!("parts of {}", protocol.name), 3, adjust, |group, rank| {
            for (round, len) in [0, 1, 65, 20_011].into_iter().enumerate() {
                let input = input(rank, round as u32, 3 * len);
                let (mut shard, mut whole) = (vec![0; len], vec![0; 3 * len]);
                group.reduce_scatter(&input, &mut shard, ReduceOp::Sum, PATIENCE).unwrap();
                group.all_gather(&shard, &mut whole, PATIENCE).unwrap();
                check(3, round as u32, &whole);
            }
            let error = group.reduce_scatter(&[1, 2, 3, 4], &mut [0], ReduceOp::Sum, PATIENCE).unwrap_err();
            let text = "4 elements are not those of 3 ranks with 1 each; all chunks are of one length";
            assert_eq!(error.to_string(), text);
            assert!(group.all_gather(&[1], &mut [0; 4], PATIENCE).is_err());
        });
    }
}

#[test]
fn floats_come_out_bit_identical_and_close_to_the_exact_sum() {
    let switch = LocalSwitch::start(1);
    let outputs = on_every_rank(
        &switch,
        "floats",
        4,
        |_| {},
        |group, rank| {
            let input: Vec<f32> = (0..300_000).map(|i| (i as f32 * 0.37 + f32::from(rank)).sin()).collect();
            let mut output = vec![0.0; input.len()];
            group.allreduce(&input, &mut output, ReduceOp::Avg, PATIENCE).unwrap();
            output
        },
    );
    for output in &outputs {
        assert!(output.iter().map(|x| x.to_bits()).eq(outputs[0].iter().map(|x| x.to_bits())));
    }
    for (i, &mean) in outputs[0].iter().enumerate() {
        let exact: f64 = (0..4).map(|rank| f64::from((i as f32 * 0.37 + rank as f32).sin())).sum::<f64>() / 4.0;
        // Theorem 1's bound for 4 ranks and magnitudes up to 1, with room for the last rounding to binary32.
        assert!((f64::from(mean) - exact).abs() < 4.0 / f64::from(1u32 << 27) + 1e-7, "element {i}: {mean}, {exact}");
    }
}

#[test]
fn short_packets_and_a_small_pool_give_the_same_sums() {
    for (elements, slots) in [(64, 2), (256, 8), (1, 1)] {
        let switch = LocalSwitch::start(1);
        let adjust = |options: &mut ConnectOptions| {
            (options.elements_per_packet, options.slots) = (Some(elements), Some(slots));
        };
        on_every_rank(&switch, "short", 2, adjust, |group, rank| {
            let len = 40 * usize::from(elements) + 1;
            let mut output = vec![0; len];
            group.allreduce(&input(rank, 3, len), &mut output, ReduceOp::Sum, PATIENCE).unwrap();
            check(2, 3, &output);
        });
    }
}

#[test]
fn two_jobs_at_once_do_not_see_each_other() {
    let switch = LocalSwitch::start(2);
    thread::scope(|scope| {
        for (job, base) in [("a", 0), ("b", 1000)] {
            let switch = Arc::clone(&switch);
            scope.spawn(move || {
                on_every_rank(
                    &switch,
                    job,
                    3,
                    |_| {},
                    |group, rank| {
                        for round in base..base + 30 {
                            let mut output = vec![0; 20_011];
                            group.allreduce(&input(rank, round, 20_011), &mut output, ReduceOp::Sum, PATIENCE).unwrap();
                            check(3, round, &output);
                        }
                    },
                );
            });
        }
    });
}

#[test]
fn tensors_in_flight_together_stream_back_to_back() {
    let switch = LocalSwitch::start(2);
    on_every_rank(
        &switch,
        "stream",
        3,
        |_| {},
        |group, rank| {
            let lens: Vec<usize> = (0..40).map(|i| (i * 7919) % 30_000).collect();
            let inputs: Vec<_> = lens.iter().enumerate().map(|(i, &len)| input(rank, i as u32, len)).collect();
            let mut outputs: Vec<_> = lens.iter().map(|&len| vec![0i32; len]).collect();
            let mut pending = Vec::new();
            for (input, output) in inputs.iter().zip(&mut outputs) {
                pending.push(in_flight::begin(&group, input, output));
            }
            // Waited for in the opposite order: the first to end are found ended.
            for pending in pending.iter().rev() {
                pending.wait(Some(PATIENCE)).unwrap();
                assert!(pending.is_done());
            }
            drop(pending);
            for (round, output) in outputs.iter().enumerate() {
                check(3, round as u32, output);
            }
        },
    );
}

#[test]
fn one_group_serves_many_threads_that_wait() {
    let switch = LocalSwitch::start(1);
    on_every_rank(
        &switch,
        "threads",
        2,
        |_| {},
        |group, rank| {
            let lens = [50_000usize, 1, 200_000, 3_000];
            let mut outputs: Vec<_> = lens.iter().map(|&len| vec![0i32; len]).collect();
            let inputs: Vec<_> = lens.iter().map(|&len| input(rank, len as u32, len)).collect();
            thread::scope(|scope| {
                for (input, output) in inputs.iter().zip(&mut outputs) {
                    let pending = in_flight::begin(&group, input, output);
                    scope.spawn(move || pending.wait(None).unwrap());
                }
            });
            for (output, len) in outputs.iter().zip(lens) {
                check(2, len as u32, output);
            }
        },
    );
}

#[test]
fn a_reduce_brings_the_sum_to_its_root_and_leaves_the_others_alone() {
    let switch = LocalSwitch::start(2);
    for protocol in [protocols::named("switchml").unwrap(), protocols::named("ring").unwrap()] {
        let adjust = |options: &mut ConnectOptions| crate::support::speak(options, protocol);
        on_every_rank(&switch, &format!("reduce-{}", protocol.name), 3, adjust, |group, rank| {
            for (round, len) in [1, 0, 2233, 100_000].into_iter().enumerate() {
                let (round, root) = (round as u32, round as u16 % 3);
                let (input, mut output) = (input(rank, round, len), vec![0i32; len]);
                group.reduce(&input, &mut output, ReduceOp::Sum, root, PATIENCE).unwrap();
                match rank == root {
                    true => check(3, round, &output),
                    false => assert_eq!(output, vec![0; len]),
                }
            }
            let refused = group.reduce::<i32>(&[], &mut [], ReduceOp::Sum, 3, PATIENCE);
            let sentence = "rank 3 cannot be the root: the job has ranks 0 to 2";
            assert_eq!(refused.unwrap_err().to_string(), sentence);
            assert_eq!(group.broadcast(&mut [1.0f32], 3, PATIENCE).unwrap_err().to_string(), sentence);
            let refused = group.allreduce_in_place(&mut [1.0f64], ReduceOp::Band, PATIENCE).unwrap_err().to_string();
            let protocol = protocol.name;
            let sentence =
                format!("{protocol} cannot do a band of 1 f64 elements: band, bor and bxor are for integers");
            assert_eq!(refused, sentence);
        });
    }
}

#[test]
fn a_broadcast_brings_the_roots_bits_to_every_rank_whatever_they_are() {
    let switch = LocalSwitch::start(2);
    for (protocol, world_size) in [
        (protocols::named("switchml").unwrap(), 1),
        (protocols::named("switchml").unwrap(), 3),
        (protocols::named("ring").unwrap(), 1),
        (protocols::named("ring").unwrap(), 3),
    ] {
        let adjust = |options: &mut ConnectOptions| crate::support::speak(options, protocol);
        on_every_rank(
            &switch,
            &format!("broadcast-{}-{world_size}", protocol.name),
            world_size,
            adjust,
            |group, rank| {
                for (round, len) in [1, 0, 2233, 100_001].into_iter().enumerate() {
                    let (round, root) = (round as u32, round as u16 % world_size);
                    let mut words = input(rank, round, len);
                    group.broadcast(&mut words, root, PATIENCE).unwrap();
                    assert_eq!(words, input(root, round, len), "rank {rank}, {len} elements");
                    // Infinities and everything else that is not a number; the last word is not whole.
                    let half =
                        |rank| -> Vec<u16> { input(rank, round, len).iter().map(|&x| x as u16 | 0x7c00).collect() };
                    let mut halves: Vec<f16> = half(rank).into_iter().map(f16::from_bits).collect();
                    group.broadcast(&mut halves, root, PATIENCE).unwrap();
                    assert_eq!(halves.into_iter().map(f16::to_bits).collect::<Vec<_>>(), half(root));
                }
                group.barrier(PATIENCE).unwrap();
            },
        );
    }
}

#[test]
fn ranks_that_name_different_roots_fail_at_once_with_both() {
    let switch = LocalSwitch::start(1);
    for protocol in [protocols::named("switchml").unwrap(), protocols::named("ring").unwrap()] {
        for is_broadcast in [false, true] {
            let adjust = |options: &mut ConnectOptions| crate::support::speak(options, protocol);
            let job = format!("roots-{}-{is_broadcast}", protocol.name);
            on_every_rank(&switch, &job, 3, adjust, |group, rank| {
                let root = if rank == 2 { 0 } else { 1 };
                let failed = match is_broadcast {
                    true => group.broadcast(&mut [0i32; 5000], root, PATIENCE),
                    false => group.reduce(&[1i32; 5000], &mut [0; 5000], ReduceOp::Sum, root, PATIENCE),
                };
                let text = failed.unwrap_err().to_string();
                let mine =
                    if is_broadcast { "broadcast of 5000 32-bit words from" } else { "sum of 5000 i32 elements for" };
                assert!(text.contains("rank 2 brings") && text.contains(&format!("{mine} rank 0")), "{text}");
                assert!(text.contains(&format!("{mine} rank 1")), "{text}");
            });
        }
    }
}
