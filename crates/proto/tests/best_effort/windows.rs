//! How far ranks go, as their packets tell.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Flags, Kind};
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use crate::fabric::{Choice, Fabric, Sent};
use crate::setup::{acknowledging, at_us, clocked_by_results, collective, expected, input, output};

/// The newest sequence number that a rank has sent.
fn newest(fabric: &Fabric, rank: u32) -> u32 {
    let own = fabric.sent.iter().filter(|sent| sent.kind == Kind::Gradient && sent.from == NodeId(rank));
    own.map(|sent| sent.header.seq).max().unwrap_or(0)
}

/// Figure 5: CWD 5, AWD 15. Nobody goes further than 15 blocks beyond the last result, however many are acknowledged.
#[test]
fn a_leader_goes_as_far_as_its_second_window_and_one_result_lets_it_send_one_more() {
    let job = [("initial_window", "5"), ("initial_ahead", "15"), ("limit", "true")];
    let choice = Choice { slots: 64, job: &job, ..Choice::of(acknowledging()) };
    let mut fabric = Fabric::star(4, &choice);
    for rank in 0..3 {
        fabric.submit(rank, collective(input(rank, 8 * 100), ReduceOp::Sum));
    }
    fabric.run_until(at_us(50));
    for rank in 0..3 {
        // Number 15 is the limit; rank 2 serves it itself, with number 14 as its last packet.
        assert_eq!(newest(&fabric, rank), if rank == 2 { 14 } else { 15 }, "rank {rank}");
    }
    fabric.submit(3, collective(input(3, 8 * 100), ReduceOp::Sum));
    let mut last = 15;
    let mut results = 0;
    for at in 0..40 {
        fabric.run_until(at_us(50) + Span::from_nanos(500 * at));
        let seen = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack && sent.to == NodeId(0));
        let now = newest(&fabric, 0);
        assert!(now >= last);
        (last, results) = (now, seen.map(|sent| sent.header.seq).max().unwrap_or(0).max(results));
        assert!(now <= results.max(newest(&fabric, 3)) + 17, "AWD has grown by one or two meanwhile: {now}, {results}");
    }
    fabric.run(Span::from_millis(5));
    fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected(4, 800)));
}

#[test]
fn gradients_that_fly_are_no_more_than_the_first_window() {
    let job = [("initial_window", "5"), ("initial_ahead", "15")];
    let choice = Choice { slots: 64, job: &job, ..Choice::of(acknowledging()) };
    let mut fabric = Fabric::star(4, &choice);
    fabric.submit(1, collective(input(1, 8 * 100), ReduceOp::Sum));
    assert_eq!(fabric.count(Kind::Gradient, NodeId(1)), 5);
}

#[test]
fn a_worker_that_results_alone_clock_waits_for_the_straggler_with_its_first_window() {
    let choice = Choice { slots: 64, job: &[("initial_window", "6")], ..Choice::of(clocked_by_results()) };
    let mut fabric = Fabric::star(4, &choice);
    for rank in 0..3 {
        fabric.submit(rank, collective(input(rank, 8 * 100), ReduceOp::Sum));
    }
    fabric.run_until(at_us(50));
    assert_eq!((newest(&fabric, 0), newest(&fabric, 1)), (6, 5), "rank 1 serves number 6 itself");
}

/// Memory for ten blocks: what is held and what overflows are above eq. 9's threshold, and results say so.
#[test]
fn results_are_marked_while_memory_is_short_and_leaders_shorten_their_second_window() {
    let run = |aggregators| {
        let switch = [("aggregators", aggregators), ("path_packets", "4")];
        let choice = Choice { slots: 200, switch: &switch, ..Choice::of(acknowledging()) };
        let mut fabric = Fabric::star(4, &choice);
        for rank in 0..4 {
            // The last rank is slow all the time: each of its packets takes ten times as long.
            fabric.submit_at(at_us(0), rank, collective(input(rank, 8 * 3000), ReduceOp::Sum));
        }
        fabric.fate = Box::new(|sent: &Sent| match sent.kind == Kind::Gradient && sent.from == NodeId(3) {
            true => crate::fabric::Fate::IsLate(Span::from_micros(20)),
            false => crate::fabric::Fate::Arrives,
        });
        fabric.run(Span::from_millis(60));
        fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected(4, 24_000)));
        let results = || fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack && sent.to == NodeId(0));
        let marked = results().filter(|sent| sent.header.flags.has(Flags::AECN)).count();
        (marked, results().count(), fabric.figure(0, "overflowed"), fabric.figure(0, "outstanding"))
    };
    let (marked, all, overflowed, left) = run("10");
    assert!(marked > 0 && marked < all && overflowed > 0.0 && left == 0.0, "{marked} of {all}, {overflowed}, {left}");
    assert_eq!(run("100000").0, 0, "there is room for all");
}
