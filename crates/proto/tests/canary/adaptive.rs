//! The timeout that adapts: how long a switch waits after what it has seen.

use tributary_proto::canary::wire::{Header, Kind};
use tributary_proto::contract::ids::{JobId, NodeId};
use tributary_proto::contract::switch::Verdict;
use tributary_proto::contract::time::Span;

use crate::setup::{install, switch_with};
use crate::switch::{Bench, ROOT, contribution, packet, sum, values};

const LEAST: Span = Span::from_nanos(200);
const MOST: Span = Span::from_micros(8);

/// A switch whose timeout adapts, after it has seen this many blocks of one contribution each from these ports.
fn adapted<const N: usize>(blocks: u32, ports: [u16; N], distance: Span) -> Bench {
    let (least, most) = (LEAST.to_text(), MOST.to_text());
    let mut bench = Bench::new(switch_with(&[("adaptive", "true"), ("least_timeout", &least), ("timeout", &most)]));
    (0..blocks).for_each(|id| one(&mut bench, id, ports, distance));
    bench
}

/// A block of nine hosts, of which those at these ports send, one after the other; and its sum.
fn one<const N: usize>(bench: &mut Bench, id: u32, ports: [u16; N], distance: Span) {
    for (turn, port) in ports.into_iter().enumerate() {
        bench.pass(if turn == 0 { Span::ZERO } else { distance });
        bench.reduce(port, &of_nine(id), &[1, 1]);
    }
    bench.pass(MOST);
    bench.process(9, packet(1, Kind::Broadcast, &Header { hosts: 9, ..sum(id) }, &[2, 2]));
}

fn of_nine(id: u32) -> Header {
    Header { hosts: 9, ..contribution(id) }
}

#[test]
fn the_wait_follows_what_the_switch_sees() {
    let bench = adapted(100, [0, 1], Span::from_nanos(600));
    assert_eq!(bench.timeout(), Span::from_micros(1), "the first step that is long enough");
    let mut bench = adapted(100, [0, 1], Span::from_nanos(50));
    assert_eq!(bench.timeout(), LEAST);
    (100..110).for_each(|id| one(&mut bench, id, [0, 1], Span::from_micros(3)));
    assert!(bench.timeout() >= Span::from_micros(3));
}

#[test]
fn as_many_contributions_as_recent_blocks_had_wait_for_nothing() {
    let mut bench = adapted(10, [0, 1, 2], Span::from_nanos(100));
    let late = bench.count("flushed_late");
    bench.reduce(2, &of_nine(50), &[1, 1]);
    bench.reduce(0, &of_nine(50), &[2, 2]);
    let (verdict, bytes) = bench.reduce(1, &of_nine(50), &[4, 4]);
    assert_eq!((verdict, values(&bytes)), (Verdict::Route(ROOT), vec![7, 7]), "three of eight, at once");
    let mut bench = adapted(10, [4], Span::ZERO);
    assert_eq!(bench.reduce(4, &of_nine(50), &[1, 1]).0, Verdict::Route(ROOT), "nor does one alone");
    assert!(late > 0 && bench.count("flushed_late") <= 1, "except for the first, of which nothing was known");
}

#[test]
fn blocks_on_other_ways_are_distinguished() {
    let mut bench = adapted(10, [0, 1], Span::ZERO);
    let elsewhere = |id| Header { root: NodeId(77), ..of_nine(id) };
    bench.reduce(0, &elsewhere(50), &[1, 1]);
    assert_eq!(bench.reduce(1, &elsewhere(50), &[1, 1]).0, Verdict::Consume, "perhaps more come");
}

#[test]
fn whoever_comes_beyond_what_was_expected_is_a_straggler_and_expected_from_then_on() {
    let mut bench = adapted(10, [0, 1], Span::ZERO);
    one(&mut bench, 50, [0, 1, 2, 3], Span::ZERO);
    assert_eq!(bench.count("stragglers"), 2);
    for port in [0, 1, 2] {
        assert_eq!(bench.reduce(port, &of_nine(51), &[1, 1]).0, Verdict::Consume);
    }
    assert_eq!(bench.reduce(3, &of_nine(51), &[1, 1]).0, Verdict::Route(ROOT));
}

#[test]
fn stragglers_that_are_collected_leave_when_nothing_is_missing() {
    let mut bench = adapted(10, [0, 1, 2], Span::ZERO);
    bench.reduce(0, &of_nine(50), &[1, 1]);
    bench.pass(MOST);
    assert_eq!(bench.reduce(1, &of_nine(50), &[2, 2]).0, Verdict::Route(ROOT), "the first one");
    assert_eq!(bench.reduce(2, &of_nine(50), &[3, 3]).0, Verdict::Route(ROOT), "and the last one of all");
    assert!(bench.pass(MOST).is_empty());
}

/// Time is up in the order of arrival only among those that wait equally long.
#[test]
fn a_block_that_waits_long_holds_up_no_other() {
    let mut bench = adapted(20, [0, 1], Span::from_micros(3));
    bench.reduce(0, &of_nine(50), &[1, 1]);
    bench.reduce(0, &Header { root: NodeId(77), ..of_nine(51) }, &[2, 2]);
    let sent = bench.pass(LEAST);
    assert_eq!(sent.iter().map(|(_, bytes)| values(bytes)).collect::<Vec<_>>(), [[2, 2]]);
    let sent = bench.pass(MOST);
    assert_eq!(sent.iter().map(|(_, bytes)| values(bytes)).collect::<Vec<_>>(), [[1, 1]]);
}

#[test]
fn what_was_learned_goes_with_its_job() {
    let mut bench = adapted(10, [0, 1], Span::ZERO);
    assert!(bench.pipeline.remove(JobId(1)));
    install(&mut bench.pipeline, JobId(1));
    bench.reduce(0, &of_nine(50), &[1, 1]);
    assert_eq!(bench.reduce(1, &of_nine(50), &[1, 1]).0, Verdict::Consume);
}
