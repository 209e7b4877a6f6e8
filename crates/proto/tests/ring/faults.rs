//! Trouble speaks: every rank hears in time what is wrong, and who it is.

use tributary_proto::contract::host::{CollectiveError, HostEvent, SubmitError};
use tributary_proto::contract::ids::OpId;
use tributary_proto::contract::time::{Span, Time};

use crate::harness::Network;
use crate::harness::hosts::{all_but_fail, all_fail_with_both_specs, silent};
use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, errors, job, ring, submit_all};

#[test]
fn a_rank_that_dies_in_the_middle_is_named_by_all_others() {
    for world_size in [2, 3, 8, 32] {
        let mut net = ring(1, LinkConfig::default(), &job(world_size, 360));
        submit_all(&mut net, &[1_000_000, 10], Some(at_ms(1_000)));
        net.run_until(at_ms(3));
        net.kill_host(1);
        all_but_fail(&mut net, 1, 2, &silent(1, 0));
        assert!(net.last_event() <= at_ms(1_001), "within the deadline and a few microseconds");
    }
}

#[test]
fn a_rank_that_never_comes_is_named_by_all_others_also_under_loss() {
    for (world_size, loss) in [(2, 0.0), (3, 0.0), (8, 0.0), (32, 0.0), (8, 0.05)] {
        let mut net = ring(3, LinkConfig { loss, ..LinkConfig::default() }, &job(world_size, 64));
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
fn the_first_deadline_ends_the_collective_on_every_rank() {
    let mut net = ring(1, LinkConfig::default(), &job(4, 64));
    for rank in [0, 2, 3] {
        let deadline = if rank == 2 { Some(at_ms(100)) } else { None };
        net.submit(usize::from(rank), collective(rank, 0, 1_000, deadline)).unwrap();
    }
    all_but_fail(&mut net, 1, 1, &silent(1, 0));
    assert!(net.last_event() < at_ms(101));
}

#[test]
fn a_rank_that_brings_something_else_fails_all_ranks_with_both_specs() {
    all_fail_with_both_specs(|world_size, link| ring(1, link, &job(world_size, 64)));
}

#[test]
fn a_late_mismatch_leaves_the_collectives_before_it_alone() {
    let world_size = 4;
    let mut net = ring(1, LinkConfig::default(), &job(world_size, 64));
    for rank in 0..world_size {
        net.submit(usize::from(rank), collective(rank, 0, 50_000, None)).unwrap();
        let elements = if rank == 2 { 10 } else { 11 };
        net.submit(usize::from(rank), collective(rank, 1, elements, None)).unwrap();
    }
    for events in net.run_until_idle(at_ms(10_000)) {
        let done = events.iter().filter(|event| matches!(event, HostEvent::Done { op: OpId(0), .. })).count();
        let failed = events.iter().filter(|event| matches!(event, HostEvent::Failed { op: OpId(1), .. })).count();
        assert_eq!((done, failed), (1, 1));
    }
}

#[test]
fn a_rank_alone_completes_at_once_and_says_nothing() {
    let mut net = ring(1, LinkConfig::default(), &job(1, 64));
    net.record_trace();
    submit_all(&mut net, &[0, 100, 100_000], Some(at_ms(1)));
    net.abort(0);
    check_sums(net.run_until_idle(at_ms(1_000)), &[0, 100, 100_000]);
    assert_eq!((net.trace.unwrap().len(), net.now), (0, Time::ZERO));
}

#[test]
fn what_comes_after_a_failure_is_refused_with_its_reason() {
    let mut net = ring(1, LinkConfig::default(), &job(2, 64));
    net.submit(0, collective(0, 0, 100, Some(at_ms(50)))).unwrap();
    net.run_until_idle(at_ms(1_000));
    assert_eq!(net.submit(0, collective(0, 1, 100, None)), Err(SubmitError::Broken(silent(1, 0))));
}

#[test]
fn an_aborted_rank_fails_itself_and_is_missed_by_the_others_at_once() {
    let mut net = ring(1, LinkConfig::default(), &job(4, 64));
    submit_all(&mut net, &[1_000_000], None);
    net.run_until(at_ms(2));
    net.abort(2);
    let errors = errors(net.run_until_idle(at_ms(10_000)));
    for (rank, errors) in errors.into_iter().enumerate() {
        let expected = if rank == 2 { CollectiveError::Aborted } else { silent(2, 0) };
        assert_eq!(errors, [(OpId(0), expected)]);
    }
    assert!(net.last_event() < at_ms(10));
}

/// Two ranks, of which rank 1 is far from the switch on its way up: it completes a millisecond before rank 0 knows.
fn far_rank_completes_first(elements: usize) -> Network {
    let mut net = ring(1, LinkConfig::default(), &job(2, 64));
    net.hosts[1].port.link.config.delay = Span::from_millis(1);
    submit_all(&mut net, &[elements], None);
    net
}

#[test]
fn a_rank_that_leaves_after_its_last_collective_does_not_hold_the_others() {
    let mut net = far_rank_completes_first(10);
    net.run_until(Time::ZERO + Span::from_micros(1_500));
    assert_eq!((net.hosts[0].events.len(), net.hosts[1].events.len()), (0, 1));
    // Its last acknowledgement, that is under way, is lost with it.
    net.kill_host(1);
    net.kill_switch(0);
    let events = net.run_until_idle(at_ms(1_000));
    assert!(matches!(events[0][..], [HostEvent::Done { .. }]));
}

#[test]
fn a_rank_that_receives_nothing_for_longer_than_others_linger_still_gets_its_data() {
    let mut net = far_rank_completes_first(10);
    // The way to rank 1 is cut when all but the last packet, rank 0's result, has come through.
    net.run_until(Time::ZERO + Span::from_micros(1_010));
    net.switches[0].ports[1].link.config.loss = 1.0;
    net.run_until(at_ms(1_000));
    assert_eq!((net.hosts[0].events.len(), net.hosts[1].events.len()), (1, 0));
    net.set_links(|link| link.loss = 0.0);
    check_sums(net.run_until_idle(at_ms(5_000)), &[10]);
}

#[test]
fn memory_for_a_rank_that_is_not_ready_is_bounded() {
    // Thousands of collectives wait for rank 1; its machine keeps a window of packets and refuses the rest.
    let mut net = ring(1, LinkConfig::default(), &job(2, 64));
    for op in 0..3_000 {
        net.submit(0, collective(0, op, 64, None)).unwrap();
    }
    net.run_until(at_ms(5_000));
    let received = net.hosts[1].machine.stats().packets_received;
    assert!((1_000..1_100).contains(&received), "{received}");
    for op in 0..3_000 {
        net.submit(1, collective(1, op, 64, None)).unwrap();
    }
    check_sums(net.run_until_idle(at_ms(20_000)), &[64; 3_000]);
}
