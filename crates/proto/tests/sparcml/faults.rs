//! Trouble speaks: every rank hears in time what is wrong, and who it is.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use tributary_proto::contract::ids::{OpId, Rank};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::sparcml::PROTOCOL;

use crate::harness::Network;
use crate::harness::hosts::{apart, check_sums, collective, errors, submit_all};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, star};
use crate::setup::{ALGORITHMS, dense_job, sparse_job};

fn silent(worker: u16, op: u64) -> CollectiveError {
    CollectiveError::PeerSilent { worker: Rank(worker), op: OpId(op) }
}

/// Runs to the end; every rank but the dead one must fail each of its collectives with this error.
fn all_but_fail(net: &mut Network, dead: usize, collectives: usize, error: &CollectiveError) {
    let errors = errors(net.run_until_idle(at_ms(60_000)));
    for (rank, errors) in errors.into_iter().enumerate().filter(|(rank, _)| *rank != dead) {
        assert_eq!(errors.len(), collectives, "rank {rank}");
        for (_, found) in errors {
            assert_eq!(found, *error, "rank {rank}");
        }
    }
}

#[test]
fn a_rank_that_dies_in_the_middle_is_named_by_all_others() {
    for (world, algorithm) in [2, 3, 5, 8, 32].into_iter().flat_map(|world| ALGORITHMS.map(|name| (world, name))) {
        let mut net = star(1, LinkConfig::default(), &dense_job(world, 360, algorithm));
        submit_all(&mut net, &[1_000_000, 10], Some(at_ms(1_000)));
        net.run_until(at_ms(1));
        net.kill_host(1);
        all_but_fail(&mut net, 1, 2, &silent(1, 0));
        assert!(net.last_event() <= at_ms(1_100), "within the deadline and what is told after it");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_all_others_also_under_loss() {
    let worlds = [(2, 0.0), (3, 0.0), (8, 0.0), (32, 0.0), (8, 0.05), (7, 0.05)];
    for ((world, loss), algorithm) in worlds.into_iter().flat_map(|world| ALGORITHMS.map(|name| (world, name))) {
        let link = LinkConfig { loss, ..LinkConfig::default() };
        let mut net = star(3, link, &dense_job(world, 64, algorithm));
        for rank in (0..world).filter(|&rank| rank != 1) {
            net.submit(usize::from(rank), collective(rank, 0, 10_000, Some(at_ms(400)))).unwrap();
        }
        all_but_fail(&mut net, 1, 1, &silent(1, 0));
        // The straggler hears of it too, as the failure of its own collective; only then it is an earlier one.
        net.submit(1, collective(1, 0, 10_000, None)).unwrap();
        let late = errors(net.run_until_idle(at_ms(60_000))).swap_remove(1);
        assert_eq!(late, [(OpId(0), silent(1, 0))]);
        assert_eq!(net.submit(1, collective(1, 1, 10, None)), Err(SubmitError::Broken(silent(1, 0))));
    }
}

#[test]
fn a_rank_that_brings_something_else_fails_all_ranks_with_both_specs() {
    let f32s = |elements: u32| Spec::allreduce(elements, DType::F32, ReduceOp::Sum);
    let others: [(Collective, Spec); 4] = [
        (apart(vec![1.0f32; 1001], ReduceOp::Sum), f32s(1001)),
        (apart(vec![1i32; 1000], ReduceOp::Sum), Spec { dtype: DType::I32, ..f32s(1000) }),
        (apart(vec![1.0f32; 1000], ReduceOp::Avg), Spec { op: ReduceOp::Avg, ..f32s(1000) }),
        (apart(Vec::<f32>::new(), ReduceOp::Sum), f32s(0)),
    ];
    for (world, (other, other_spec)) in [2, 3, 8, 8].into_iter().zip(others) {
        let link = LinkConfig { loss: 0.02, ..LinkConfig::default() };
        let mut net = star(1, link, &dense_job(world, 64, "ssar_split_allgather"));
        let mut other = Some(other);
        for rank in 0..usize::from(world) {
            let same = || apart(vec![1.0f32; 1000], ReduceOp::Sum);
            net.submit(rank, if rank == 1 { other.take().unwrap() } else { same() }).unwrap();
        }
        for (rank, errors) in errors(net.run_until_idle(at_ms(10_000))).into_iter().enumerate() {
            let [(op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op: in_error })] = errors[..] else {
                panic!("rank {rank} of {world}: {errors:?}");
            };
            assert_eq!((op, in_error), (OpId(0), OpId(0)));
            assert!(a < b && (a == Rank(1) || b == Rank(1)), "{a} and {b}");
            let (one, same) = if a == Rank(1) { (a_spec, b_spec) } else { (b_spec, a_spec) };
            assert_eq!((one, same), (other_spec, f32s(1000)));
        }
    }
}

#[test]
fn a_late_mismatch_leaves_the_collectives_before_it_alone() {
    for algorithm in ALGORITHMS {
        let mut net = star(1, LinkConfig::default(), &dense_job(4, 64, algorithm));
        for rank in 0..4 {
            net.submit(usize::from(rank), collective(rank, 0, 50_000, None)).unwrap();
            let elements = if rank == 2 { 10 } else { 11 };
            net.submit(usize::from(rank), collective(rank, 1, elements, None)).unwrap();
        }
        for events in net.run_until_idle(at_ms(10_000)) {
            let done = events.iter().filter(|event| matches!(event, HostEvent::Done { op: OpId(0), .. })).count();
            let failed = events.iter().filter(|event| matches!(event, HostEvent::Failed { op: OpId(1), .. })).count();
            assert_eq!((done, failed), (1, 1), "{algorithm}");
        }
    }
}

#[test]
fn a_rank_alone_completes_at_once_and_says_nothing() {
    let mut net = star(1, LinkConfig::default(), &dense_job(1, 64, "auto"));
    net.record_trace();
    submit_all(&mut net, &[0, 100, 100_000], Some(at_ms(1)));
    check_sums(net.run_until_idle(at_ms(1_000)), &[0, 100, 100_000]);
    assert_eq!((net.trace.unwrap().len(), net.now), (0, Time::ZERO));
}

#[test]
fn an_aborted_rank_fails_itself_and_is_missed_by_the_others_at_once() {
    for algorithm in ALGORITHMS {
        let mut net = star(1, LinkConfig::default(), &dense_job(4, 64, algorithm));
        submit_all(&mut net, &[1_000_000], None);
        net.run_until(at_ms(1));
        net.abort(2);
        let errors = errors(net.run_until_idle(at_ms(10_000)));
        for (rank, errors) in errors.into_iter().enumerate() {
            let expected = if rank == 2 { CollectiveError::Aborted } else { silent(2, 0) };
            assert_eq!(errors, [(OpId(0), expected)], "{algorithm}");
        }
        assert!(net.last_event() < at_ms(100));
    }
}

#[test]
fn a_job_is_of_sparse_tensors_or_of_dense_ones() {
    let spec = Spec::allreduce(10, DType::F32, ReduceOp::Sum);
    let options = |job: tributary_proto::contract::config::JobConfig| -> Options { job.options };
    let (dense, sparse) = (options(dense_job(2, 64, "auto")), options(sparse_job(2, 64, "auto")));
    assert!((PROTOCOL.can)(&spec, &dense).is_ok() && PROTOCOL.can_sparse(&spec, &sparse).is_ok());
    assert_eq!(
        (PROTOCOL.can)(&spec, &sparse).unwrap_err().to_string(),
        "sparcml cannot do a sum of 10 f32 elements of a dense tensor in a job of sparse ones: leave the option sparse out, \
         or bring indices and values"
    );
    assert_eq!(
        PROTOCOL.can_sparse(&spec, &dense).unwrap_err().to_string(),
        "sparcml cannot do a sum of 10 f32 elements of a sparse tensor in a job of dense ones: choose sparse=true"
    );
}
