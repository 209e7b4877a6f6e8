//! Exact sums, for every length and world size, and whatever the network does to packets.

use half::{bf16, f16};
use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::host::HostEvent;

use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, input, job, output, reduce, ring, separate, submit_all};

const SIZES: [usize; 6] = [0, 1, 63, 64, 65, 100_000];

#[test]
fn every_length_for_every_world_size_one_after_the_other() {
    for world_size in [1, 2, 3, 8, 32] {
        for elements in SIZES {
            let mut net = ring(1, LinkConfig::default(), &job(world_size, 64));
            reduce(&mut net, &[elements], at_ms(10_000));
        }
    }
}

#[test]
fn queued_collectives_complete_in_order() {
    for world_size in [1, 2, 3, 8] {
        let sizes: Vec<usize> = (0..200).map(|op| (op * 7919) % 3000).collect();
        reduce(&mut ring(1, LinkConfig::default(), &job(world_size, 360)), &sizes, at_ms(60_000));
    }
}

#[test]
fn many_more_collectives_than_may_be_under_way_complete() {
    reduce(&mut ring(1, LinkConfig::default(), &job(3, 64)), &[5; 5000], at_ms(60_000));
}

#[test]
fn loss_does_not_change_a_result() {
    for (loss, limit) in [(0.01, 1_000), (0.05, 4_000), (0.2, 30_000)] {
        for world_size in [2, 3, 8, 32] {
            let link = LinkConfig { loss, ..LinkConfig::default() };
            let mut net = ring(u64::from(world_size), link, &job(world_size, 360));
            reduce(&mut net, &[0, 1, 1000, 100_000, 65], at_ms(limit));
            assert!(net.hosts.iter().all(|host| host.machine.stats().retransmissions > 0));
        }
    }
}

#[test]
fn duplicates_reordering_and_corruption_do_not_change_a_result() {
    let faults = [
        LinkConfig { duplicate: 0.3, ..LinkConfig::default() },
        LinkConfig { reorder: 0.3, ..LinkConfig::default() },
        LinkConfig { corrupt: 0.05, ..LinkConfig::default() },
        LinkConfig { loss: 0.05, duplicate: 0.1, reorder: 0.2, corrupt: 0.01, ..LinkConfig::default() },
    ];
    for (seed, link) in faults.into_iter().enumerate() {
        for world_size in [2, 5, 16] {
            reduce(&mut ring(seed as u64, link, &job(world_size, 64)), &[40_000, 0, 3, 100], at_ms(20_000));
        }
    }
}

#[test]
fn short_queues_that_mark_or_drop_do_not_change_a_result() {
    for (queue_bytes, mark_bytes) in [(20_000, u64::MAX), (200_000, 30_000)] {
        let link = LinkConfig { queue_bytes, mark_bytes, ..LinkConfig::default() };
        reduce(&mut ring(1, link, &job(4, 360)), &[500_000], at_ms(1_000));
    }
}

#[test]
fn a_straggler_delays_all_and_loses_nothing() {
    let sizes = [100_000, 10, 0, 5_000];
    for world_size in [2, 3, 8] {
        let mut net = ring(1, LinkConfig::default(), &job(world_size, 64));
        for (op, &elements) in sizes.iter().enumerate() {
            for rank in 0..world_size {
                let at = if rank == 1 { at_ms(500 + 10 * op as u64) } else { at_ms(1) };
                net.submit_at(at, usize::from(rank), collective(rank, op as u64, elements, None));
            }
        }
        let events = net.run_until_idle(at_ms(2_000));
        check_sums(events, &sizes);
        let resent = net.hosts[0].machine.stats().retransmissions;
        assert!(resent < 40, "a closed window is probed, not flooded: {resent}");
    }
}

#[test]
fn one_seed_gives_one_trace() {
    let trace = |seed| {
        let link = LinkConfig { loss: 0.05, reorder: 0.1, duplicate: 0.05, ..LinkConfig::default() };
        let mut net = ring(seed, link, &job(4, 64));
        net.record_trace();
        reduce(&mut net, &[5_000, 100], at_ms(10_000));
        net.trace.unwrap()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

/// Floats, where the order of additions shows: all ranks get the same bits, near the sum in binary64.
fn floats_agree<T: Element + Into<f64>>(from: fn(f64) -> T, op: ReduceOp, tolerance: f64) {
    let (world_size, elements) = (5u16, 10_007);
    let inputs: Vec<Vec<T>> = (0..world_size)
        .map(|rank| input(rank, 0, elements).into_iter().map(|x| from(f64::from(x) * 1e-9)).collect())
        .collect();
    let mut net = ring(1, LinkConfig::default(), &job(world_size, 360));
    for (rank, input) in inputs.iter().enumerate() {
        net.submit(rank, separate(input.clone(), op)).unwrap();
    }
    let mut outputs = Vec::new();
    for event in net.run_until_idle(at_ms(1_000)).into_iter().flatten() {
        let HostEvent::Done { tensor, .. } = event else { panic!("failed") };
        outputs.push(output::<T>(&*tensor));
    }
    assert_eq!(outputs.len(), usize::from(world_size));
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{} on all ranks", T::DTYPE);
    let mut result = vec![T::default(); elements];
    tributary_numeric::codec::read_native(&outputs[0], &mut result);
    for (index, value) in result.iter().enumerate() {
        let sum: f64 = inputs.iter().map(|input| input[index].into()).sum();
        let expected = if op == ReduceOp::Avg { sum / f64::from(world_size) } else { sum };
        let value: f64 = (*value).into();
        assert!((value - expected).abs() <= tolerance, "{value} instead of {expected}");
    }
}

#[test]
fn all_ranks_get_the_same_bits_of_every_type() {
    floats_agree(|x| x as f32, ReduceOp::Sum, 4e-6);
    floats_agree(|x| x as f32, ReduceOp::Avg, 1e-6);
    floats_agree(f16::from_f64, ReduceOp::Sum, 3e-2);
    floats_agree(bf16::from_f64, ReduceOp::Avg, 5e-2);
}

#[test]
fn blocks_are_counted_as_summed_at_hosts() {
    let mut net = ring(1, LinkConfig::default(), &job(4, 64));
    submit_all(&mut net, &[64 * 4 * 10], None);
    net.run_until_idle(at_ms(1_000));
    for host in &net.hosts {
        assert_eq!((host.machine.stats().blocks_at_hosts, host.machine.stats().blocks_in_network), (40, 0));
    }
}
