//! What cannot succeed ends with an error that says why.

use tributary_numeric::ReduceOp;
use tributary_proto::host::{Collective, CollectiveError, HostEvent, SubmitError};
use tributary_proto::ids::WorkerId;
use tributary_proto::time::{Span, Time};

use crate::fabric::{Fabric, switch_config};
use crate::results::{collective, input};

fn fabric() -> Fabric {
    Fabric::leaf_spine(2, 2, 2, 4, switch_config())
}

fn timed(rank: usize, elements: usize) -> Collective {
    let deadline = Some(Time::ZERO + Span::from_millis(20));
    Collective { deadline, ..collective(input(rank, elements), ReduceOp::Sum) }
}

fn error_of(events: &[HostEvent]) -> &CollectiveError {
    match events {
        [HostEvent::Failed { error, .. }] => error,
        _ => panic!("{} events", events.len()),
    }
}

#[test]
fn who_is_missing_is_named_on_every_rank() {
    for missing in 0..4usize {
        let mut fabric = fabric();
        (0..4).filter(|&rank| rank != missing).for_each(|rank| fabric.submit(rank, timed(rank, 100)));
        fabric.run(Span::from_millis(30));
        for rank in (0..4).filter(|&rank| rank != missing) {
            match error_of(&fabric.events[rank]) {
                CollectiveError::Missing { missing: named, .. } => assert_eq!(named[..], [WorkerId(missing as u16)]),
                error => panic!("rank {rank} without rank {missing}: {error}"),
            }
        }
        fabric.run(Span::from_millis(30));
        assert_eq!(fabric.held(), 0);
    }
}

#[test]
fn a_dead_leader_is_named_by_those_who_wait_for_it() {
    let mut fabric = fabric();
    (0..4).for_each(|rank| fabric.submit(rank, timed(rank, 100)));
    fabric.alive[0] = false;
    fabric.run(Span::from_millis(30));
    for rank in 1..4 {
        let error = error_of(&fabric.events[rank]);
        assert!(matches!(error, CollectiveError::PeerSilent { worker: WorkerId(0), .. }), "{error}");
    }
}

#[test]
fn ranks_that_disagree_are_told_on_every_rank() {
    for odd in 0..4usize {
        for elements in [96, 104, 4] {
            let mut fabric = fabric();
            for rank in 0..4 {
                fabric.submit(rank, timed(rank, if rank == odd { elements } else { 100 }));
            }
            fabric.run(Span::from_millis(30));
            for events in &fabric.events {
                match error_of(events) {
                    CollectiveError::Mismatch { a, b, a_spec, b_spec, .. } => {
                        assert!(*a == WorkerId(odd as u16) || *b == WorkerId(odd as u16));
                        assert_eq!(a_spec.elements + b_spec.elements, 100 + elements as u32);
                    }
                    error => panic!("rank {odd} brings {elements} elements: {error}"),
                }
            }
            let refused = fabric.hosts[0].submit(fabric.now, timed(0, 1));
            assert!(matches!(refused, Err(SubmitError::Broken(CollectiveError::Mismatch { .. }))));
        }
    }
}

#[test]
fn what_is_aborted_ends_at_once() {
    let mut fabric = fabric();
    fabric.submit(0, timed(0, 100));
    fabric.hosts[0].abort(fabric.now);
    fabric.run(Span::from_micros(1));
    let Some(HostEvent::Failed { error: CollectiveError::Aborted, .. }) = fabric.hosts[0].poll_event() else {
        panic!("it goes on")
    };
}
