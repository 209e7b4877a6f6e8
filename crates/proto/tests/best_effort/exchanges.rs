//! Every exchange in which something could be counted twice or be lost, written out: a switch or a server that is told
//! of single blocks, partial and full sums in any order, and what it answers.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Flags, Kind};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::time::Span;

use crate::fabric::{Choice, DELAY, Fabric, Fate, Sent};
use crate::setup::{LEASE, acknowledging, at_us, collective, expected, family, input, output};

/// One block, which rank 0 serves, on four ranks round a switch; `late` ranks come a while later.
fn one_block(choice: &Choice<'_>, late: &[usize], fate: impl FnMut(&Sent) -> Fate + 'static) -> Fabric {
    let mut fabric = Fabric::star(4, choice);
    fabric.fate = Box::new(fate);
    for rank in 0..4 {
        let at = if late.contains(&rank) { at_us(300) } else { at_us(0) };
        fabric.submit_at(at, rank, collective(input(rank, 8), ReduceOp::Sum));
    }
    fabric
}

fn finishes(fabric: &mut Fabric) {
    fabric.run(Span::from_millis(30));
    let expected = expected(4, 8);
    for (rank, events) in fabric.events.iter_mut().enumerate() {
        assert_eq!(output::<i32>(events), expected, "rank {rank}");
        assert!(events.is_empty());
    }
    fabric.run(LEASE + LEASE);
    assert_eq!(fabric.in_use(), 0);
}

/// Packets of a kind that reach the server's host, rank 0.
fn at_server(fabric: &Fabric, kind: Kind) -> Vec<(Rank, u16, Flags)> {
    let arrive = fabric.sent.iter().filter(|sent| sent.kind == kind && sent.to.0 == 0);
    arrive.map(|sent| (sent.header.wid, sent.header.count, sent.header.flags)).collect()
}

/// The `number`-th packet of a kind from or to a host, counted from 0.
fn nth(kind: Kind, host: u32, number: usize, fate: Fate) -> impl FnMut(&Sent) -> Fate {
    let mut seen = 0;
    move |sent: &Sent| {
        let is_it = sent.kind == kind && (sent.from.0 == host || sent.to.0 == host);
        seen += usize::from(is_it);
        if is_it && seen == number + 1 { fate } else { Fate::Arrives }
    }
}

#[test]
fn three_gradients_make_one_full_sum_and_its_result_frees_the_aggregator() {
    for protocol in family() {
        let mut fabric = one_block(&Choice::of(protocol), &[], |_| Fate::Arrives);
        fabric.run_until(at_us(0) + DELAY);
        assert_eq!(fabric.in_use(), 1, "until the result goes by");
        finishes(&mut fabric);
        let (_, count, flags) = at_server(&fabric, Kind::Sum)[0];
        assert_eq!((count, flags), (3, Flags::FULL.with(Flags::EDGE)));
        assert!(at_server(&fabric, Kind::Gradient).is_empty());
        assert_eq!(fabric.count(Kind::Aack, fabric.switch(0)), 3, "one result is multicast");
    }
}

#[test]
fn the_gradient_acknowledgement_comes_at_once_also_for_the_last_and_none_without_it() {
    for protocol in family() {
        let mut fabric = one_block(&Choice::of(protocol), &[3], |_| Fate::Arrives);
        fabric.run_until(at_us(200));
        let acknowledges = protocol == acknowledging();
        let gacks = |fabric: &Fabric| fabric.count(Kind::Gack, fabric.switch(0));
        assert_eq!(gacks(&fabric), if acknowledges { 2 } else { 0 });
        finishes(&mut fabric);
        assert_eq!(gacks(&fabric), if acknowledges { 3 } else { 0 });
    }
}

/// Who is acknowledged knows its own mark, and leaders must not make way for a queue that only the straggler meets.
#[test]
fn the_mark_of_a_gradient_is_in_its_acknowledgement_alone_and_without_one_in_the_result_of_all() {
    for protocol in family() {
        let from_rank_2 = |sent: &Sent| match sent.kind == Kind::Gradient && sent.from.0 == 2 {
            true => Fate::IsMarked,
            false => Fate::Arrives,
        };
        let mut fabric = one_block(&Choice::of(protocol), &[], from_rank_2);
        finishes(&mut fabric);
        for sent in fabric.sent.iter().filter(|sent| sent.kind == Kind::Gack) {
            assert_eq!(sent.header.flags.has(Flags::ECN), sent.header.wid == Rank(2));
        }
        let marked = protocol != acknowledging();
        let results = fabric.sent.iter().filter(|sent| matches!(sent.kind, Kind::Sum | Kind::Aack));
        assert!(results.map(|sent| sent.header.flags.has(Flags::ECN)).all(|ecn| ecn == marked), "{protocol}");
    }
}

/// Nobody acknowledges a sum: that it met a long queue is told to all with its result.
#[test]
fn the_mark_of_a_sum_is_in_its_result() {
    for protocol in family() {
        let sums = |sent: &Sent| if sent.kind == Kind::Sum { Fate::IsMarked } else { Fate::Arrives };
        let mut fabric = one_block(&Choice::of(protocol), &[], sums);
        finishes(&mut fabric);
        let mut results = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack);
        assert!(results.all(|sent| sent.header.flags.has(Flags::ECN)), "{protocol}");
    }
}

#[test]
fn a_gradient_that_came_twice_is_counted_once_before_and_after_the_result() {
    for protocol in family() {
        for by in [1, 2, 700, 100_000, 400_000] {
            let fate = nth(Kind::Gradient, 1, 0, Fate::IsDoubled(Span::from_nanos(by)));
            finishes(&mut one_block(&Choice::of(protocol), &[3], fate));
        }
    }
}

#[test]
fn a_gradient_without_an_aggregator_that_came_twice_is_counted_once_and_no_difference_is_left() {
    for protocol in family() {
        for by in [1, 700, 400_000] {
            let choice = Choice { switch: &[("aggregators", "0")], ..Choice::of(protocol) };
            let fate = nth(Kind::Gradient, 0, 0, Fate::IsDoubled(Span::from_nanos(by)));
            let mut fabric = one_block(&choice, &[3], fate);
            finishes(&mut fabric);
            assert_eq!(at_server(&fabric, Kind::Gradient).len(), 3 - 1 + 1, "the doubled one was sent once");
        }
    }
}

#[test]
fn a_lost_gradient_is_sent_again_past_the_aggregator_whose_contents_follow_it() {
    for protocol in family() {
        let fate = nth(Kind::Gradient, 2, 0, Fate::IsLost);
        let mut fabric = one_block(&Choice::of(protocol), &[], fate);
        finishes(&mut fabric);
        let resent =
            fabric.sent.iter().filter(|sent| sent.kind == Kind::Gradient && sent.header.flags.has(Flags::RESEND));
        assert!(resent.clone().count() >= 1 && resent.clone().all(|sent| sent.header.wid == Rank(2)), "{protocol}");
    }
}

#[test]
fn a_lost_gradient_acknowledgement_makes_its_worker_alone_send_again_and_changes_no_sum() {
    let mut fabric = one_block(&Choice::of(acknowledging()), &[3], nth(Kind::Gack, 2, 0, Fate::IsLost));
    finishes(&mut fabric);
    let again = fabric.sent.iter().filter(|sent| sent.kind == Kind::Gradient && sent.header.flags.has(Flags::RESEND));
    assert!(again.clone().all(|sent| sent.header.wid == Rank(2)) && again.count() >= 1);
    // Ranks 1 and 2 leave the aggregator as a partial sum, and rank 3, who is late, goes past it.
    let (_, count, flags) = at_server(&fabric, Kind::Sum)[0];
    assert_eq!((count, flags), (2, Flags::RESEND.with(Flags::EDGE)));
    assert_eq!(at_server(&fabric, Kind::Gradient).len(), 1);
}

/// However long leases are: ranks ask after 400 us here. All three ask, and one copy serves them all.
#[test]
fn a_lost_full_sum_leaves_the_switch_again_when_somebody_asks() {
    for protocol in family() {
        let choice = Choice { switch: &[("lease", "800 ms")], ..Choice::of(protocol) };
        let mut fabric = one_block(&choice, &[], nth(Kind::Sum, 0, 0, Fate::IsLost));
        finishes(&mut fabric);
        let full = at_server(&fabric, Kind::Sum);
        assert_eq!(full.len(), 2, "{protocol}: {full:?}");
        assert!(fabric.sent.iter().filter(|sent| sent.kind == Kind::Query && sent.to.0 == 0).count() >= 3);
        let results = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack).map(|sent| sent.at).max();
        assert!(results < Some(at_us(410)), "{protocol}: {results:?}");
        let mut others = fabric.sent.iter().filter(|sent| sent.kind != Kind::Aack);
        assert!(others.all(|sent| !sent.header.flags.has(Flags::RESEND)), "{protocol}");
    }
}

/// The copy for the first question is lost, too. Each rank asks again in its turn, and the one that was first gets
/// another.
#[test]
fn a_full_sum_that_is_lost_twice_leaves_the_switch_a_third_time() {
    for protocol in family() {
        let mut seen = 0;
        let lose_two = move |sent: &Sent| {
            seen += usize::from(sent.kind == Kind::Sum);
            if sent.kind == Kind::Sum && seen <= 2 { Fate::IsLost } else { Fate::Arrives }
        };
        let mut fabric = one_block(&Choice::of(protocol), &[], lose_two);
        finishes(&mut fabric);
        assert_eq!(at_server(&fabric, Kind::Sum).len(), 3, "{protocol}");
    }
}

#[test]
fn a_lost_partial_sum_is_made_good_by_those_who_were_in_it() {
    for protocol in family() {
        let mut lost_gack = nth(Kind::Gack, 2, 0, Fate::IsLost);
        let mut lost_gradient = nth(Kind::Gradient, 2, 0, Fate::IsLost);
        let mut lost_sum = nth(Kind::Sum, 0, 0, Fate::IsLost);
        let acknowledges = protocol == acknowledging();
        let fate = move |sent: &Sent| {
            let first = if acknowledges { lost_gack(sent) } else { lost_gradient(sent) };
            if first == Fate::IsLost { first } else { lost_sum(sent) }
        };
        finishes(&mut one_block(&Choice::of(protocol), &[3], fate));
    }
}

#[test]
fn a_result_that_is_lost_before_the_switch_or_behind_it_is_sent_to_those_who_ask() {
    for protocol in family() {
        let mut fabric = one_block(&Choice::of(protocol), &[], nth(Kind::Aack, 0, 0, Fate::IsLost));
        finishes(&mut fabric);
        let mut fabric = one_block(&Choice::of(protocol), &[], nth(Kind::Aack, 2, 0, Fate::IsLost));
        finishes(&mut fabric);
        let results = fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack && sent.from.0 == 0);
        assert_eq!(results.filter(|sent| !sent.header.flags.has(Flags::MULTICAST)).count(), 1, "{protocol}");
    }
}

#[test]
fn a_switch_that_was_started_again_between_acknowledgement_and_result_loses_nothing() {
    for protocol in family() {
        let mut fabric = one_block(&Choice::of(protocol), &[3], |_| Fate::Arrives);
        fabric.run_until(at_us(100));
        assert_eq!(fabric.in_use(), 1);
        fabric.restart(0);
        finishes(&mut fabric);
    }
}

#[test]
fn what_nobody_touches_for_a_lease_goes_to_the_server_and_the_late_ones_follow_it() {
    for protocol in family() {
        let choice = Choice { switch: &[("lease", "50 us")], ..Choice::of(protocol) };
        let mut fabric = one_block(&choice, &[3], |_| Fate::Arrives);
        fabric.run_until(at_us(200));
        assert_eq!(fabric.in_use(), 0);
        assert_eq!(fabric.figure(0, "expired"), 1.0);
        finishes(&mut fabric);
        let (_, count, flags) = at_server(&fabric, Kind::Sum)[0];
        assert_eq!((count, flags), (2, Flags::EDGE), "a partial sum of those who were there");
    }
}

#[test]
fn a_job_that_is_taken_away_leaves_nothing_behind() {
    for protocol in family() {
        let mut fabric = one_block(&Choice::of(protocol), &[3], |_| Fate::Arrives);
        fabric.run_until(at_us(100));
        assert_eq!(fabric.in_use(), 1);
        fabric.remove_job(0);
        assert_eq!(fabric.in_use(), 0);
        fabric.run(LEASE + LEASE);
    }
}

#[test]
fn a_rank_that_is_late_by_a_thousand_round_trips_costs_the_others_questions_and_no_resend() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice { slots: 64, switch: &[("lease", "800 ms")], ..Choice::of(protocol) });
        for rank in 0..4 {
            let late = if rank == 3 { 100_000 } else { 0 };
            fabric.submit_at(at_us(late), rank, collective(input(rank, 8 * 4000), ReduceOp::Sum));
        }
        fabric.run(Span::from_millis(300));
        let expected = expected(4, 8 * 4000);
        fabric.events.iter_mut().for_each(|events| assert_eq!(output::<i32>(events), expected));
        let count = |with: fn(&Sent) -> bool| fabric.sent.iter().filter(|sent| with(sent)).count();
        assert_eq!(count(|sent| sent.header.flags.has(Flags::RESEND)), 0, "{protocol}");
        let (all, extra) =
            (count(|_| true), count(|sent| matches!(sent.kind, Kind::Query | Kind::Report | Kind::Need)));
        assert!(extra > 0 && 100 * extra < all, "{protocol}: {extra} of {all}");
        assert_eq!(fabric.figure(0, "released"), 0.0, "{protocol}");
    }
}

/// All six orders of a single block, a partial sum of two and the full sum of three give the same.
#[test]
fn single_blocks_partial_and_full_sums_are_right_in_every_order() {
    for protocol in family() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            // Rank 2's first gradient is late, so that it asks or sends again; sums and singles arrive as the order has
            // it.
            let delay = move |position: usize| Span::from_micros(40 * order[position] as u64);
            let mut first = true;
            let fate = move |sent: &Sent| match (sent.kind, sent.to.0) {
                (Kind::Gradient, _) if sent.from.0 == 2 && std::mem::take(&mut first) => {
                    Fate::IsLate(Span::from_micros(120))
                }
                (Kind::Gradient, 0) => Fate::IsLate(delay(0)),
                (Kind::Sum, 0) if !sent.header.flags.has(Flags::FULL) => Fate::IsDoubled(delay(1)),
                (Kind::Sum, 0) => Fate::IsDoubled(delay(2)),
                _ => Fate::Arrives,
            };
            finishes(&mut one_block(&Choice::of(protocol), &[3], fate));
        }
    }
}

#[test]
fn what_was_counted_of_a_job_stays_counted_when_the_job_is_gone() {
    for protocol in family() {
        let mut fabric =
            one_block(&Choice { switch: &[("aggregators", "0")], ..Choice::of(protocol) }, &[], |_| Fate::Arrives);
        finishes(&mut fabric);
        let counted = |fabric: &Fabric| ["results", "overflowed"].map(|name| fabric.figure(0, name));
        assert_eq!(counted(&fabric), [1.0, 3.0], "three gradients found no room");
        fabric.remove_job(0);
        assert_eq!(counted(&fabric), [1.0, 3.0], "{}", protocol.name);
    }
}
