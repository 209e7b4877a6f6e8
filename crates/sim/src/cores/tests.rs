//! Tests of the processor.

use proptest::prelude::*;

use super::model::{Costs, Design, Handling, Modelled};
use super::steps::Kind;
use super::{Finished, Full, Shape, Subset};
use crate::rng::{Purpose, Rng};

const BYTES: u64 = 100;
const COSTS: Costs = Costs { start: 0, copy: 10, combine: 10, merge: 10, send: 0 };

fn shape(clusters: u32, cores: u32, subset: Subset) -> Shape {
    Shape::ideal(clusters, cores, subset)
}

fn handling(design: Design, children: u32) -> Handling {
    Handling { design, children, buffer_bytes: BYTES, costs: COSTS }
}

/// A block and a child.
type Packet = (u64, u32);

fn packet(block: u64, child: u32) -> Packet {
    (block, child)
}

/// Lets the packets arrive at their times, and goes on to the end.
fn run(processor: &mut Modelled, arrivals: &[(u64, Packet)]) -> Vec<Finished> {
    let mut finished = Vec::new();
    for &(at, packet) in arrivals {
        finished.extend(processor.advance(at));
        processor.arrive(at, packet.0, packet.1, BYTES).unwrap();
    }
    while let Some(next) = processor.next_time() {
        finished.extend(processor.advance(next));
    }
    finished
}

fn children(finished: &[Finished]) -> Vec<u32> {
    finished.iter().map(|one| one.packet.child).collect()
}

#[test]
fn a_subset_serves_who_came_first() {
    let mut processor = Modelled::new(shape(1, 1, Subset::Core), handling(Design::Unbuffered, 9));
    let finished = run(&mut processor, &[3, 1, 4, 0, 5].map(|child| (0, packet(0, child))));
    assert_eq!(children(&finished), [3, 1, 4, 0, 5]);
    assert_eq!(finished.iter().map(|one| one.ended).collect::<Vec<_>>(), [10, 20, 30, 40, 50]);
}

#[test]
fn a_packet_waits_for_its_home_while_other_subsets_are_free() {
    for (subset, blocks) in [(Subset::Core, 4), (Subset::Cluster, 2)] {
        let mut processor = Modelled::new(shape(2, 2, subset), handling(Design::Unbuffered, 9));
        let arrivals: Vec<_> = (0..6).map(|child| (0, packet(blocks + 1, child))).collect();
        let homes: Vec<u32> = run(&mut processor, &arrivals).iter().map(|one| one.core).collect();
        match subset {
            Subset::Core => assert!(homes.iter().all(|&core| core == 1), "{homes:?}"),
            Subset::Cluster => assert_eq!(homes, [2, 3, 2, 3, 2, 3]),
        }
        assert_eq!(processor.queue(1).peak(), if subset == Subset::Core { 5 } else { 4 });
        assert_eq!(processor.queue(0).peak(), 0);
    }
}

#[test]
fn a_core_that_becomes_free_when_a_packet_arrives_is_free_for_it() {
    let mut processor = Modelled::new(shape(1, 1, Subset::Core), handling(Design::Unbuffered, 9));
    run(&mut processor, &[(0, packet(0, 0)), (10, packet(0, 1))]);
    assert_eq!(processor.counters().queued.peak(), 0);
}

#[test]
fn locks_are_granted_in_the_order_of_asking_and_waiting_burns_the_core() {
    let mut processor = Modelled::new(shape(1, 4, Subset::Cluster), handling(Design::Buffers(1), 4));
    // Child 0's core asks first, then those of 1, 2 and 3, a cycle apart.
    let arrivals: Vec<_> = (0..4).map(|child| (u64::from(child), packet(0, child))).collect();
    let finished = run(&mut processor, &arrivals);
    assert_eq!(children(&finished), [0, 1, 2, 3]);
    assert_eq!(finished.iter().map(|one| one.ended).collect::<Vec<_>>(), [10, 20, 30, 40]);
    assert_eq!(finished.iter().map(|one| one.sent.is_some()).collect::<Vec<_>>(), [false, false, false, true]);
    assert_eq!(processor.counters().lock_waiting, 9 + 18 + 27);
    assert_eq!(processor.counters().service(), 40 + 54);
}

#[test]
fn many_buffers_are_taken_as_they_are_free_and_merged_by_the_last() {
    let mut processor = Modelled::new(shape(1, 4, Subset::Cluster), handling(Design::Buffers(2), 4)).recording();
    let finished = run(&mut processor, &[0, 1, 2, 3].map(|child| (u64::from(child), packet(0, child))));
    // 0 and 1 own buffers 0 and 1; 2 waits for buffer 0, and 3 for buffer 1, because fewer wait there.
    assert_eq!(finished.iter().map(|one| one.ended).collect::<Vec<_>>(), [10, 11, 20, 31]);
    let of_last: Vec<_> = processor.stretches().iter().filter(|stretch| stretch.packet.child == 3).collect();
    let works: Vec<_> = of_last.iter().map(|stretch| (stretch.kind, stretch.buffer)).collect();
    assert_eq!(works, [(None, 1), (Some(Kind::Combine), 1), (Some(Kind::Merge), 0)]);
    assert_eq!(processor.counters().working_bytes.peak(), 2 * BYTES);
    assert_eq!(processor.counters().working_bytes.value(), 0);
}

#[test]
fn a_tree_waits_for_nobody_and_makes_each_node_once() {
    for children in 1..=17 {
        let mut processor = Modelled::new(shape(1, 8, Subset::Cluster), handling(Design::Tree, children));
        // All arrive at once, so that siblings end at the same time.
        let finished = run(&mut processor, &(0..children).map(|child| (0, packet(0, child))).collect::<Vec<_>>());
        let counters = processor.counters();
        assert_eq!(counters.lock_waiting, 0);
        assert_eq!(counters.of(Kind::Merge), 10 * u64::from(children - 1), "{children} children");
        assert_eq!(finished.iter().filter(|one| one.sent.is_some()).count(), 1);
        assert_eq!(counters.working_bytes.value(), 0);
    }
}

#[test]
fn of_two_siblings_made_at_one_time_the_lower_core_goes_on() {
    let mut processor = Modelled::new(shape(1, 2, Subset::Cluster), handling(Design::Tree, 2));
    let finished = run(&mut processor, &[(0, packet(0, 1)), (0, packet(0, 0))]);
    let sender = finished.iter().find(|one| one.sent.is_some()).unwrap();
    assert_eq!((sender.core, sender.packet.child, sender.ended), (0, 1, 20));
}

#[test]
fn a_full_packet_memory_refuses_until_a_handler_has_ended() {
    let small = Shape { packet_memory: 2 * BYTES, ..shape(1, 1, Subset::Core) };
    let mut processor = Modelled::new(small, handling(Design::Unbuffered, 9));
    assert_eq!([0, 1, 2].map(|child| processor.arrive(0, 0, child, BYTES)), [Ok(()), Ok(()), Err(Full)]);
    processor.advance(9);
    assert_eq!(processor.arrive(9, 0, 2, BYTES), Err(Full));
    processor.advance(10);
    assert_eq!(processor.arrive(10, 0, 2, BYTES), Ok(()));
    assert_eq!((processor.counters().refused, processor.counters().input_bytes.value()), (2, 2 * BYTES));
}

/// Packets of blocks at random times, `gap` cycles from one to the next on average.
fn random(seed: u64, count: u64, gap: f64, children: u64) -> Vec<(u64, Packet)> {
    let (mut rng, mut at) = (Rng::new(seed, Purpose::Arrivals, 0), 0.0);
    let arrival = |number: u64| {
        at += gap * rng.exponential();
        (at as u64, packet(number / children, (number % children) as u32))
    };
    (0..count).map(arrival).collect()
}

proptest! {
    #[test]
    fn a_run_is_the_same_each_time_and_loses_nothing(
        seed: u64, design in prop_oneof![Just(Design::Unbuffered), (1u32..5).prop_map(Design::Buffers), Just(Design::Tree)],
        subset in prop_oneof![Just(Subset::Core), Just(Subset::Cluster)], children in 1u64..9, gap in 0.5f64..20.0,
    ) {
        let arrivals = random(seed, 40 * children, gap, children);
        let ran = || {
            let mut handling = handling(design, children as u32);
            handling.costs = Costs { start: 3, copy: 2, combine: 10, merge: 10, send: 5 };
            let mut processor = Modelled::new(shape(2, 4, subset), handling).recording();
            let finished = run(&mut processor, &arrivals);
            (finished, processor.counters().clone(), processor.stretches().to_vec())
        };
        let (finished, counters, stretches) = ran();
        prop_assert_eq!(finished.len(), arrivals.len());
        prop_assert_eq!(finished.iter().filter(|one| one.sent.is_some()).count(), 40);
        prop_assert_eq!(finished.iter().map(|one| one.ended - one.started).sum::<u64>(), counters.service());
        prop_assert_eq!((counters.packets.value(), counters.input_bytes.value(), counters.working_bytes.value()), (0, 0, 0));
        prop_assert_eq!((finished, counters, stretches), ran());
    }
}

#[test]
fn packets_inside_are_the_rate_times_how_long_they_stay() {
    // Little's law at the given rate: two cores, each busy half of the time.
    let (count, gap) = (200_000, 10.0);
    let mut processor = Modelled::new(shape(2, 1, Subset::Core), handling(Design::Unbuffered, 1));
    let finished = run(&mut processor, &random(1, count, gap, 1));
    let stays = finished.iter().map(|one| one.ended - one.arrived).sum::<u64>() as f64 / count as f64;
    let end = finished.last().unwrap().ended;
    let inside = processor.counters().packets.mean(end);
    assert!((inside / (stays / gap) - 1.0).abs() < 0.01, "{inside} packets, {stays} cycles");
    assert!((processor.counters().service() as f64 / end as f64 - 1.0).abs() < 0.01, "one of two cores");
}
