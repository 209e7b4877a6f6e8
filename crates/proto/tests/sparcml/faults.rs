//! Trouble speaks: every rank hears in time what is wrong, and who it is.

use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::host::{CollectiveError, HostEvent, SubmitError};
use tributary_proto::contract::ids::OpId;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Time;
use tributary_proto::sparcml::PROTOCOL;

use crate::harness::hosts::{
    all_but_fail, all_fail_with_both_specs, check_sums, collective, errors, silent, submit_all,
};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, star};
use crate::setup::{ALGORITHMS, dense_job, sparse_job};

#[test]
fn a_rank_that_dies_in_the_middle_is_named_by_all_others() {
    for (world_size, algorithm) in
        [2, 3, 5, 8, 32].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
    {
        let mut net = star(1, LinkConfig::default(), &dense_job(world_size, 360, algorithm));
        submit_all(&mut net, &[1_000_000, 10], Some(at_ms(1_000)));
        net.run_until(at_ms(1));
        net.kill_host(1);
        all_but_fail(&mut net, 1, 2, &silent(1, 0));
        assert!(net.last_event() <= at_ms(1_100), "within the deadline and what is told after it");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_all_others_also_under_loss() {
    let trees = [(2, 0.0), (3, 0.0), (8, 0.0), (32, 0.0), (8, 0.05), (7, 0.05)];
    for ((world_size, loss), algorithm) in
        trees.into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
    {
        let link = LinkConfig { loss, ..LinkConfig::default() };
        let mut net = star(3, link, &dense_job(world_size, 64, algorithm));
        for rank in (0..world_size).filter(|&rank| rank != 1) {
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
    all_fail_with_both_specs(|world_size, link| star(1, link, &dense_job(world_size, 64, "ssar_split_allgather")));
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
    assert!((PROTOCOL.check)(&spec, &dense).is_ok() && PROTOCOL.check_sparse(&spec, &sparse).is_ok());
    assert_eq!(
        (PROTOCOL.check)(&spec, &sparse).unwrap_err().to_string(),
        "sparcml cannot do a sum of 10 f32 elements of a dense tensor in a job of sparse ones: leave the option sparse out, \
         or bring indices and values"
    );
    assert_eq!(
        PROTOCOL.check_sparse(&spec, &dense).unwrap_err().to_string(),
        "sparcml cannot do a sum of 10 f32 elements of a sparse tensor in a job of dense ones: choose sparse=true"
    );
}
