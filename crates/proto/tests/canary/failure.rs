//! What cannot succeed ends with an error that says why.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::{Span, Time};

use crate::broadcast::from;
use crate::fabric::{Fabric, Fate};
use crate::reduce::to;
use crate::results::{collective, input};
use crate::setup::switch_config;

fn fabric() -> Fabric {
    Fabric::leaf_spine(2, 2, 2, 4, switch_config())
}

fn timed(rank: usize, elements: usize) -> Collective {
    let deadline = Some(Time::ZERO + Span::from_millis(20));
    Collective { deadline, ..collective(input(rank, elements), ReduceOp::Sum) }
}

pub fn error_of(events: &[HostEvent]) -> &CollectiveError {
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
                CollectiveError::Missing { missing: named, .. } => assert_eq!(named[..], [Rank(missing as u16)]),
                error => panic!("rank {rank} without rank {missing}: {error}"),
            }
        }
        fabric.run(Span::from_millis(30));
        assert_eq!(fabric.in_use(), 0);
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
        assert!(matches!(error, CollectiveError::PeerSilent { worker: Rank(0), .. }), "{error}");
    }
}

#[test]
fn ranks_that_disagree_are_reported_on_every_rank() {
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
                        assert!(*a == Rank(odd as u16) || *b == Rank(odd as u16));
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

/// What a rank does: a sum for all, for one rank, or a broadcast.
#[derive(Clone, Copy, Debug)]
enum Does {
    Sum,
    To(usize),
    From(usize),
}

impl Does {
    fn collective(self, rank: usize, elements: usize) -> Collective {
        let deadline = Some(Time::ZERO + Span::from_millis(5000));
        let collective = match self {
            Does::Sum => collective(input(rank, elements), ReduceOp::Sum),
            Does::To(root) => to(root, input(rank, elements), ReduceOp::Sum),
            Does::From(root) => from(root, input(rank, elements)),
        };
        Collective { deadline, ..collective }
    }
}

/// Both kinds are named on every rank, and what the two ranks do differs.
fn all_are_notified(fabric: &Fabric, does: &[Does]) {
    for (rank, events) in fabric.events.iter().enumerate() {
        let CollectiveError::Mismatch { a, a_spec, b, b_spec, .. } = error_of(events) else {
            panic!("rank {rank} of {does:?}: {}", error_of(events))
        };
        for (who, spec) in [(a, a_spec), (b, b_spec)] {
            let brought = does[who.index()].collective(who.index(), 20).tensor.spec();
            assert_eq!(*spec, brought, "rank {rank} of {does:?} hears of rank {who}");
        }
        assert_ne!(a_spec, b_spec);
    }
}

/// However they disagree: also where each names itself, so that nobody sends anything, and where two halves name one of
/// their own each.
const DISAGREEMENTS: [[Does; 4]; 10] = [
    [Does::To(1), Does::To(2), Does::To(2), Does::To(2)],
    [Does::To(0), Does::To(1), Does::To(2), Does::To(3)],
    [Does::To(0), Does::To(0), Does::To(2), Does::To(2)],
    [Does::To(1), Does::To(0), Does::To(3), Does::To(2)],
    [Does::From(1), Does::From(1), Does::From(1), Does::From(2)],
    [Does::From(0), Does::From(1), Does::From(2), Does::From(3)],
    [Does::From(2), Does::To(2), Does::From(2), Does::From(2)],
    [Does::Sum, Does::To(0), Does::Sum, Does::Sum],
    [Does::Sum, Does::Sum, Does::Sum, Does::From(3)],
    [Does::To(1), Does::Sum, Does::Sum, Does::Sum],
];

#[test]
fn ranks_that_name_different_roots_fail_long_before_their_deadline() {
    for does in DISAGREEMENTS {
        for elements in [0, 20, 200] {
            let mut fabric = fabric();
            (0..4).for_each(|rank| fabric.submit(rank, does[rank].collective(rank, elements)));
            fabric.run(Span::from_millis(1));
            assert!(fabric.events.iter().all(|events| !events.is_empty()), "{does:?}, {elements} elements");
            if elements == 20 {
                all_are_notified(&fabric, &does);
            }
            fabric.run(Span::from_millis(20));
            assert_eq!(fabric.in_use(), 0, "{does:?}");
        }
    }
}

#[test]
fn a_rank_that_comes_late_to_a_disagreement_learns_of_it_too() {
    for does in DISAGREEMENTS {
        for late in 0..4 {
            let mut fabric = fabric();
            (0..4).filter(|&rank| rank != late).for_each(|rank| fabric.submit(rank, does[rank].collective(rank, 20)));
            fabric.run(Span::from_millis(10));
            fabric.submit(late, does[late].collective(late, 20));
            fabric.run(Span::from_millis(10));
            all_are_notified(&fabric, &does);
        }
    }
}

#[test]
fn a_disagreement_is_reported_over_a_network_that_loses_packets() {
    for (seed, does) in (0..40u64).flat_map(|seed| DISAGREEMENTS.map(|does| (seed, does))) {
        let mut fabric = fabric();
        let mut state = seed;
        fabric.fate = Box::new(move |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if state >> 33 & 7 == 0 { Fate::IsLost } else { Fate::Arrives }
        });
        (0..4).for_each(|rank| fabric.submit(rank, does[rank].collective(rank, 20)));
        fabric.run(Span::from_millis(200));
        all_are_notified(&fabric, &does);
    }
}

/// A root that is the first by far says who it is to those that it waits for: they come, and nothing is wrong.
#[test]
fn claims_change_nothing_where_ranks_agree() {
    for is_broadcast in [false, true] {
        let mut fabric = fabric();
        let does = if is_broadcast { Does::From(1) } else { Does::To(1) };
        for rank in [1, 0, 3, 2] {
            fabric.submit(rank, does.collective(rank, 200));
            fabric.run(Span::from_millis(7));
        }
        assert!(fabric.events.iter().all(|events| matches!(events[..], [HostEvent::Done { .. }])));
        assert_eq!(fabric.in_use(), 0);
    }
}
