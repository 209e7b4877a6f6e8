//! A rank that is merely slow is named, with how far it is behind, while the others wait for it and not afterwards.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::switch::Lag;
use tributary_proto::contract::time::Span;

use crate::fabric::{Choice, Fabric};
use crate::setup::{at_us, collective, expected, family, input, output};

/// Blocks of eight elements.
const BLOCKS: usize = 60;

/// Four ranks round a switch; rank 3 comes 2 ms after the others.
fn one_is_late(choice: &Choice<'_>) -> Fabric {
    let mut fabric = Fabric::star(4, choice);
    for rank in 0..4 {
        let at = if rank == 3 { at_us(2_000) } else { at_us(0) };
        fabric.submit_at(at, rank, collective(input(rank, 8 * BLOCKS), ReduceOp::Sum));
    }
    fabric
}

#[test]
fn the_rank_that_others_wait_for_is_named_with_the_blocks_that_it_is_behind() {
    for protocol in family() {
        for aggregators in ["1024", "0"] {
            let switch = [("aggregators", aggregators)];
            let mut fabric = one_is_late(&Choice { switch: &switch, ..Choice::of(protocol) });
            fabric.run_until(at_us(1_900));
            let Some(Lag { rank, blocks }) = fabric.lag(0) else { panic!("{}: nobody lags", protocol.name) };
            // Others may send what is in the first window, and one of the last two blocks there is served by its
            // sender.
            assert_eq!(rank, Rank(3));
            assert!(
                (9..=16).contains(&blocks),
                "{blocks} blocks with {aggregators} aggregators under {}",
                protocol.name
            );
            fabric.run(Span::from_millis(60));
            let expected = expected(4, 8 * BLOCKS);
            assert!(fabric.events.iter_mut().all(|events| output::<i32>(events) == expected));
            assert_eq!(fabric.lag(0), None, "all have come to the end");
        }
    }
}

#[test]
fn ranks_that_go_side_by_side_are_not_called_slow() {
    for protocol in family() {
        let mut fabric = Fabric::star(4, &Choice::of(protocol));
        for rank in 0..4 {
            fabric.submit(rank, collective(input(rank, 8 * BLOCKS), ReduceOp::Sum));
        }
        while fabric.events.iter().any(Vec::is_empty) {
            fabric.run(Span::from_micros(7));
            assert_eq!(fabric.lag(0), None, "{}", protocol.name);
        }
    }
}
