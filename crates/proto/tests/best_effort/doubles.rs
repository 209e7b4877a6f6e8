//! Packets that come twice, at once or long after: each kind, of one block and in a stream whose positions are used
//! again.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Flags, Kind};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::time::Span;

use crate::fabric::{Choice, Fabric, Fate, Sent};
use crate::setup::{LEASE, acknowledging, at_us, collective, expected, family, input, output};

/// Behind the first packet at once, behind a switch, when the block is over, and when its position has another block.
const LATER_NS: [u64; 4] = [1, 700, 100_000, 400_000];
/// Blocks of a stream, 16 of which are a window.
const BLOCKS: usize = 200;

/// Four ranks round a switch sum a stream of blocks, the last of them late, while `fate` has its way.
fn stream(choice: &Choice<'_>, fate: impl FnMut(&Sent) -> Fate + 'static) -> Fabric {
    let mut fabric = Fabric::star(4, choice);
    fabric.fate = Box::new(fate);
    for rank in 0..4 {
        let late = if rank == 3 { 150 } else { 0 };
        fabric.submit_at(at_us(late), rank, collective(input(rank, 8 * BLOCKS), ReduceOp::Sum));
    }
    fabric.run(Span::from_millis(200));
    let expected = expected(4, 8 * BLOCKS);
    for (rank, events) in fabric.events.iter_mut().enumerate() {
        assert_eq!(output::<i32>(events), expected, "{}: rank {rank}", choice.protocol);
        assert!(events.is_empty(), "{}: rank {rank}", choice.protocol);
    }
    fabric.run(LEASE + LEASE);
    assert_eq!(fabric.in_use(), 0, "{}", choice.protocol);
    fabric
}

/// Every third packet for which `is_it` says so comes a second time.
fn twice(by: u64, is_it: impl Fn(&Sent) -> bool + 'static) -> impl FnMut(&Sent) -> Fate {
    let mut seen = 0;
    move |sent: &Sent| {
        seen += usize::from(is_it(sent));
        if is_it(sent) && seen % 3 == 1 { Fate::IsDoubled(Span::from_nanos(by)) } else { Fate::Arrives }
    }
}

/// Every packet of a kind may come twice: the sums are right, and nothing stays held.
fn may_come_twice(
    protocol: &'static Protocol,
    switch: &[(&str, &str)],
    is_it: impl Fn(&Sent) -> bool + Copy + 'static,
) {
    for by in LATER_NS {
        let choice = Choice { switch, ..Choice::of(protocol) };
        let fabric = stream(&choice, twice(by, is_it));
        let there = fabric.sent.iter().filter(|sent| is_it(sent)).count();
        assert!(there > 0, "{protocol}: there was nothing to double");
    }
}

#[test]
fn a_gradient_acknowledgement_that_came_twice_opens_no_window_twice_and_changes_no_sum() {
    may_come_twice(acknowledging(), &[], |sent| sent.kind == Kind::Gack);
    // Nobody had more under way than where nothing was doubled: the first window, until results open it.
    let most = |fate: Box<dyn FnMut(&Sent) -> Fate>| {
        let choice = Choice { slots: 64, job: &[("initial_window", "4")], ..Choice::of(acknowledging()) };
        let fabric = stream(&choice, fate);
        fabric.sent.iter().filter(|sent| sent.kind == Kind::Gradient && sent.from.0 == 1 && sent.at < at_us(2)).count()
    };
    let doubled = most(Box::new(twice(1, |sent| sent.kind == Kind::Gack)));
    assert_eq!(doubled, most(Box::new(|_| Fate::Arrives)));
}

/// The second one may find the position taken over by a later block, whose aggregator it must not free.
#[test]
fn a_result_that_came_twice_frees_no_later_blocks_aggregator() {
    for protocol in family() {
        may_come_twice(protocol, &[], |sent| sent.kind == Kind::Aack);
    }
}

#[test]
fn a_full_sum_that_came_twice_is_counted_once() {
    for protocol in family() {
        may_come_twice(protocol, &[], |sent| sent.kind == Kind::Sum && sent.header.flags.has(Flags::FULL));
    }
}

/// A short lease makes the switch send on what it holds while the last rank is late.
#[test]
fn a_partial_sum_that_came_twice_is_counted_once() {
    for protocol in family() {
        let short = [("lease", "50 us")];
        may_come_twice(protocol, &short, |sent| sent.kind == Kind::Sum && !sent.header.flags.has(Flags::FULL));
    }
}

#[test]
fn a_gradient_that_found_no_aggregator_and_came_twice_is_counted_once() {
    for protocol in family() {
        let scarce = [("aggregators", "3")];
        may_come_twice(protocol, &scarce, |sent| {
            sent.kind == Kind::Gradient && sent.header.flags.has(Flags::COLLISION)
        });
    }
}

#[test]
fn questions_and_answers_that_came_twice_change_nothing() {
    for protocol in family() {
        for by in LATER_NS {
            // One gradient in twenty is lost, so that ranks ask and the server says what it lacks.
            let mut seen = 0;
            let mut spoil = twice(by, |sent| matches!(sent.kind, Kind::Query | Kind::Report | Kind::Need));
            stream(&Choice::of(protocol), move |sent| {
                seen += usize::from(sent.kind == Kind::Gradient);
                let is_lost = sent.kind == Kind::Gradient && seen % 20 == 7;
                if is_lost { Fate::IsLost } else { spoil(sent) }
            });
        }
    }
}
