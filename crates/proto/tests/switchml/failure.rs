//! What cannot succeed fails on every rank, in time, and with the reason.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::config::HostConfig;
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use tributary_proto::contract::ids::{OpId, Rank, TreeId};
use tributary_proto::contract::tensor::{Primitive, Spec};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, in_place, job, pipelines, reduce, star};

const LIMIT_MS: u64 = 400;

fn with_deadline(rank: u16, op: usize, elements: usize) -> Collective {
    Collective { deadline: Some(at_ms(LIMIT_MS)), ..collective(rank, op, elements, true) }
}

/// The error with which a host's only collectives failed, the same for all.
fn error_of(events: &[HostEvent]) -> CollectiveError {
    let errors: Vec<&CollectiveError> = events
        .iter()
        .map(|event| match event {
            HostEvent::Failed { error, .. } => error,
            HostEvent::Done { op, .. } => panic!("collective {op} is complete"),
        })
        .collect();
    assert!(!errors.is_empty() && errors.windows(2).all(|pair| pair[0] == pair[1]));
    errors[0].clone()
}

#[test]
fn a_rank_that_never_comes_is_named() {
    for (world_size, absent) in [(2, 0), (3, 2), (8, 5), (32, 31)] {
        let mut network = star(1, LinkConfig::default(), &job(world_size, 16, 64));
        for rank in (0..world_size).filter(|&rank| rank != absent) {
            network.submit(usize::from(rank), with_deadline(rank, 0, 1000)).unwrap();
        }
        let events = network.run_until_idle(at_ms(10_000));
        assert!(network.now <= at_ms(LIMIT_MS), "in time");
        for rank in (0..usize::from(world_size)).filter(|&rank| rank != usize::from(absent)) {
            let expected =
                CollectiveError::Missing { missing: vec![Rank(absent)], others: 0, slot: 0, block: 0, op: OpId(0) };
            assert_eq!(error_of(&events[rank]), expected);
            let refused = network.submit(rank, with_deadline(rank as u16, 1, 1));
            assert_eq!(refused, Err(SubmitError::Broken(expected)));
        }
    }
}

#[test]
fn several_missing_ranks_are_all_named_though_packets_are_lost() {
    for seed in 0..50 {
        let link = LinkConfig { loss: 0.2, ..LinkConfig::default() };
        let mut network = star(seed, link, &job(8, 16, 64));
        for rank in (0..8).filter(|rank| ![1, 6, 7].contains(rank)) {
            // Time enough for a dozen probes: a rank none of whose packets arrived is missing, too.
            let collective = Collective { deadline: Some(at_ms(4 * LIMIT_MS)), ..with_deadline(rank, 0, 5000) };
            network.submit(usize::from(rank), collective).unwrap();
        }
        let events = network.run_until_idle(at_ms(10_000));
        for rank in [0, 2, 3, 4, 5] {
            let CollectiveError::Missing { missing, .. } = error_of(&events[rank]) else { panic!("rank {rank}") };
            assert_eq!(missing, [Rank(1), Rank(6), Rank(7)], "seed {seed}, rank {rank}");
        }
    }
}

#[test]
fn a_rank_that_dies_in_the_middle_is_named_with_the_block() {
    let mut network = star(1, LinkConfig::default(), &job(4, 16, 64));
    for rank in 0..4 {
        network.submit(usize::from(rank), with_deadline(rank, 0, 200_000)).unwrap();
    }
    network.run_until(at_ms(3));
    network.kill_host(2);
    let events = network.run_until_idle(at_ms(10_000));
    for rank in [0, 1, 3] {
        let CollectiveError::Missing { missing, block, .. } = error_of(&events[rank]) else { panic!("rank {rank}") };
        assert_eq!(missing, [Rank(2)]);
        assert!(block > 100, "block {block}: the collective was well under way");
    }
}

#[test]
fn a_switch_that_dies_is_named_and_the_next_job_works() {
    for kill_at in [0, 3] {
        let job = job(4, 16, 64);
        let mut network = star(1, LinkConfig::default(), &job);
        for rank in 0..4 {
            network.submit(usize::from(rank), with_deadline(rank, 0, 200_000)).unwrap();
        }
        network.run_until(at_ms(kill_at));
        network.kill_switch(0);
        let events = network.run_until_idle(at_ms(10_000));
        for (rank, events) in events.iter().enumerate() {
            let error = error_of(events);
            assert!(
                matches!(error, CollectiveError::SwitchSilent { tree: TreeId(0), .. }),
                "rank {rank}, killed at {kill_at} ms: {error}"
            );
        }
        network.restart_switch(0, pipelines(Values::Elements, &job, 4));
        for (rank, host) in network.hosts.iter_mut().enumerate() {
            let config = HostConfig::worker(job.clone(), Rank(rank as u16));
            host.machine = tributary_proto::switchml::PROTOCOL.host(Values::Elements, &config);
        }
        reduce(&mut network, &[(1000, true)], at_ms(100_000));
    }
}

fn tensor(spec: Spec) -> Collective {
    let elements = spec.elements as usize;
    let collective = match spec.dtype {
        DType::F32 => in_place(vec![0f32; elements], spec.op),
        DType::I32 => return of_i32(spec),
        _ => in_place(vec![tributary_numeric::bf16::ZERO; elements], spec.op),
    };
    Collective { deadline: Some(at_ms(LIMIT_MS)), ..collective }
}

fn of_i32(spec: Spec) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(vec![0i32; spec.elements as usize]), spec.op);
    let tensor = match spec.primitive {
        Primitive::Allreduce => tensor,
        Primitive::Reduce(root) => tensor.to(root),
        Primitive::Broadcast(root) => tensor.from(root),
    };
    Collective { tensor: Box::new(tensor), deadline: Some(at_ms(LIMIT_MS)) }
}

#[test]
fn ranks_that_name_different_roots_are_reported_on_every_rank() {
    let [sum, reduce, other] = [Primitive::Allreduce, Primitive::Reduce(Rank(1)), Primitive::Reduce(Rank(513))];
    let [from, from_other] = [1, 2].map(|root| Primitive::Broadcast(Rank(root)));
    let pairs = [(reduce, other), (sum, reduce), (from, from_other), (from, sum), (from, reduce)];
    for (usual, odd) in pairs.into_iter().flat_map(|(a, b)| [(a, b), (b, a)]) {
        for elements in [0, 1000] {
            let brings = |rank: u16| {
                let primitive = if rank == 1 { odd } else { usual };
                Spec { primitive, ..Spec::allreduce(elements, DType::I32, ReduceOp::Sum) }
            };
            let mut network = star(1, LinkConfig::default(), &job(3, 8, 64));
            for rank in 0..3 {
                network.submit(usize::from(rank), of_i32(brings(rank))).unwrap();
            }
            for events in network.run_until_idle(at_ms(LIMIT_MS / 2)) {
                let CollectiveError::Mismatch { a, a_spec, b, b_spec, .. } = error_of(&events) else {
                    panic!("{usual:?} and {odd:?}");
                };
                assert_eq!((a_spec, b_spec), (brings(a.0), brings(b.0)));
                assert_ne!(a_spec, b_spec);
            }
        }
    }
}

#[test]
fn ranks_that_disagree_are_reported_on_every_rank() {
    let usual = Spec::allreduce(1000, DType::F32, ReduceOp::Sum);
    let others = [
        Spec { elements: 999, ..usual },
        Spec { elements: 5000, ..usual },
        Spec { elements: 0, ..usual },
        Spec { elements: 1, ..usual },
        Spec { dtype: DType::BF16, ..usual },
        Spec { dtype: DType::I32, ..usual },
        Spec { op: ReduceOp::Avg, ..usual },
    ];
    for (index, other) in others.into_iter().enumerate() {
        for world_size in [2, 3, 8] {
            let odd = (index % usize::from(world_size)) as u16;
            for loss in [0.0, 0.05] {
                let mut network =
                    star(index as u64, LinkConfig { loss, ..LinkConfig::default() }, &job(world_size, 8, 64));
                for rank in 0..world_size {
                    // One collective on which they agree comes first and must complete; one comes later and must not.
                    network.submit(usize::from(rank), collective(rank, 0, 700, true)).unwrap();
                    network.submit(usize::from(rank), tensor(if rank == odd { other } else { usual })).unwrap();
                    network.submit(usize::from(rank), tensor(usual)).unwrap();
                }
                let mut events = network.run_until_idle(at_ms(10_000));
                for (rank, events) in events.iter_mut().enumerate() {
                    let CollectiveError::Mismatch { a, a_spec, b, b_spec, op } = error_of(&events.split_off(1)) else {
                        panic!("rank {rank} of {world_size}");
                    };
                    let brings = |rank: Rank| if rank.0 == odd { other } else { usual };
                    assert_eq!((a_spec, b_spec, op), (brings(a), brings(b), OpId(1)));
                    assert_ne!(a_spec, b_spec);
                }
                check_sums(events, &[(700, true)]);
            }
        }
    }
}

#[test]
fn ranks_that_swap_two_collectives_get_an_error_about_the_first() {
    let specs = [10, 600].map(|elements| Spec::allreduce(elements, DType::F32, ReduceOp::Sum));
    let mut network = star(1, LinkConfig::default(), &job(3, 8, 64));
    for rank in 0..3 {
        for index in 0..2 {
            let swapped = if rank == 1 { 1 - index } else { index };
            network.submit(rank, tensor(specs[swapped])).unwrap();
        }
    }
    for events in network.run_until_idle(at_ms(10_000)) {
        assert!(matches!(error_of(&events), CollectiveError::Mismatch { op: OpId(0), .. }));
    }
}

#[test]
fn giving_up_fails_everything_that_is_queued() {
    let mut network = star(1, LinkConfig::default(), &job(2, 8, 64));
    for op in 0..3 {
        network.submit(0, collective(0, op, 100, true)).unwrap();
    }
    network.run_until(at_ms(1));
    let now = network.now;
    network.hosts[0].machine.abort(now);
    while let Some(event) = network.hosts[0].machine.poll_event() {
        network.hosts[0].events.push(event);
    }
    let events = network.run_until_idle(at_ms(1000));
    assert_eq!(events[0].len(), 3);
    assert_eq!(error_of(&events[0]), CollectiveError::Aborted);
    assert_eq!(network.hosts[0].machine.poll_timeout(), None);
    let refused = network.submit(0, collective(0, 3, 1, true));
    assert_eq!(refused, Err(SubmitError::Broken(CollectiveError::Aborted)));
}

#[test]
fn a_straggler_is_waited_for_without_a_storm() {
    let mut network = star(1, LinkConfig::default(), &job(8, 256, 360));
    for rank in 0..7 {
        network.submit(rank, collective(rank as u16, 0, 500_000, true)).unwrap();
    }
    network.submit_at(at_ms(3_000), 7, collective(7, 0, 500_000, true));
    let events = network.run_until_idle(at_ms(100_000));
    check_sums(events, &[(500_000, true)]);
    for (rank, host) in network.hosts.iter().enumerate() {
        let again = host.machine.stats().retransmissions;
        // 3 s / 200 ms, 8 slots each time, and a few at the beginning.
        assert!(again < 250, "rank {rank} sent {again} packets again in 3 s");
    }
}
