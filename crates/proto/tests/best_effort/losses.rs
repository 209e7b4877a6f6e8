//! Losses in a stream of blocks: who acts, and what it costs the others.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::Span;
use tributary_proto::parts::best_effort::wire::{Flags, Kind};

use crate::fabric::{Choice, Fabric, Fate, Sent};
use crate::setup::{LEASE, at_us, collective, expected, family, input, output};

fn whole(fabric: &mut Fabric, elements: usize) {
    let world = fabric.hosts.len();
    let expected = expected(world, elements);
    fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected));
}

#[test]
fn one_loss_in_the_middle_is_made_good_by_those_whom_it_concerns_and_no_sum_of_others_leaves_early() {
    for protocol in family() {
        for kind in [Kind::Gradient, Kind::Sum, Kind::Aack] {
            let mut fabric = Fabric::star(4, &Choice { slots: 64, ..Choice::of(protocol) });
            let mut seen = 0;
            fabric.fate = Box::new(move |sent: &Sent| {
                seen += usize::from(sent.kind == kind);
                if seen == 101 && sent.kind == kind { Fate::IsLost } else { Fate::Arrives }
            });
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 1000), ReduceOp::Sum)));
            fabric.run(Span::from_millis(20));
            whole(&mut fabric, 8000);
            assert!(fabric.figure(0, "released") <= 1.0, "{protocol}: {kind:?}");
            let resent = fabric
                .sent
                .iter()
                .filter(|sent| sent.kind == Kind::Gradient && sent.header.flags.has(Flags::RESEND) && sent.from.0 < 4);
            assert!(resent.count() <= 4, "{protocol}: {kind:?}");
        }
    }
}

#[test]
fn a_switch_that_was_started_again_in_the_middle_of_a_stream_delays_it() {
    for protocol in family() {
        for racks in [1, 2] {
            let mut fabric = Fabric::leaf_spine(racks, 1, 4 / racks, &Choice { slots: 64, ..Choice::of(protocol) });
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 8 * 3000), ReduceOp::Sum)));
            for at in [10, 20, 40] {
                fabric.run_until(at_us(at));
                fabric.restart(0);
            }
            fabric.run(Span::from_millis(100));
            whole(&mut fabric, 24_000);
            fabric.run(LEASE + LEASE);
            assert_eq!(fabric.held(), 0, "{protocol}");
        }
    }
}

fn with_deadline(rank: usize, elements: usize) -> Collective {
    Collective { deadline: Some(at_us(20_000)), ..collective(input(rank, elements), ReduceOp::Sum) }
}

fn error(events: &[HostEvent]) -> &CollectiveError {
    match &events[0] {
        HostEvent::Failed { error, .. } => error,
        HostEvent::Done { .. } => panic!("it is done"),
    }
}

#[test]
fn who_is_missing_is_named_on_every_rank() {
    for protocol in family() {
        for elements in [8, 8 * 100] {
            let mut fabric = Fabric::star(4, &Choice::of(protocol));
            for rank in [0, 1, 3] {
                fabric.submit(rank, with_deadline(rank, elements));
            }
            fabric.run(Span::from_millis(30));
            for rank in [0, 1, 3] {
                let CollectiveError::Missing { missing, .. } = error(&fabric.events[rank]) else {
                    panic!("{protocol}: {}", error(&fabric.events[rank]))
                };
                assert_eq!(missing, &[Rank(2)], "{protocol}: rank {rank}, {elements} elements");
            }
        }
    }
}

#[test]
fn a_rank_that_has_died_is_named_as_missing_or_as_silent() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice::of(protocol));
        (0..4).for_each(|rank| fabric.submit(rank, with_deadline(rank, 8 * 3000)));
        fabric.run_until(at_us(15));
        fabric.alive[2] = false;
        fabric.run(Span::from_millis(30));
        for rank in [0, 1, 3] {
            match error(&fabric.events[rank]) {
                CollectiveError::Missing { missing, .. } => assert_eq!(missing, &[Rank(2)], "{protocol}"),
                CollectiveError::PeerSilent { worker, .. } => assert_eq!(*worker, Rank(2), "{protocol}"),
                other => panic!("{protocol}: {other}"),
            }
        }
        fabric.run(LEASE + LEASE + LEASE);
        assert_eq!(fabric.held(), 0, "{protocol}");
    }
}

#[test]
fn ranks_that_disagree_are_told_so_all_of_them() {
    for protocol in family() {
        for odd in 0..4 {
            let mut fabric = Fabric::leaf_spine(2, 1, 2, &Choice::of(protocol));
            for rank in 0..4 {
                let op = if rank == odd { ReduceOp::Max } else { ReduceOp::Sum };
                let tensor = collective(input(rank, 100), op);
                fabric.submit(rank, Collective { deadline: Some(at_us(50_000)), ..tensor });
            }
            fabric.run(Span::from_millis(60));
            for events in &fabric.events {
                let CollectiveError::Mismatch { a, b, .. } = error(events) else {
                    panic!("{protocol}: {}", error(events))
                };
                assert!((a.index() == odd) != (b.index() == odd), "{protocol}: {a} and {b}, not {odd}");
            }
            fabric.run(LEASE + LEASE + LEASE);
            assert_eq!(fabric.held(), 0, "{protocol}");
        }
    }
}
