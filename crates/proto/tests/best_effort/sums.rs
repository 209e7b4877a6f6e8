//! Whole collectives: every rank gets the sum, the same to the bit, and switches hold nothing afterwards.

use tributary_numeric::ReduceOp;
use tributary_proto::aggregation::best_effort::wire::{Flags, Kind};
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::fabric::{Choice, Fabric, bad_cables};
use crate::setup::{LEASE, collective, expected, family, input, output};

const PATIENCE: Span = Span::from_millis(2);

/// One collective of integers on all ranks at once, right on all of them.
pub fn reduce(fabric: &mut Fabric, elements: usize, patience: Span) {
    let world_size = fabric.hosts.len();
    (0..world_size).for_each(|rank| fabric.submit(rank, collective(input(rank, elements), ReduceOp::Sum)));
    fabric.run(patience);
    check(fabric, elements);
}

pub fn check(fabric: &mut Fabric, elements: usize) {
    let expected = expected(fabric.hosts.len(), elements);
    for (rank, events) in fabric.events.iter_mut().enumerate() {
        assert_eq!(output::<i32>(events), expected, "rank {rank}");
    }
}

#[test]
fn integers_are_summed_exactly_on_every_shape_whatever_memory_switches_have() {
    for protocol in family() {
        for (leaves, spines, per_leaf) in [(1, 0, 1), (1, 0, 2), (1, 0, 5), (2, 1, 1), (2, 2, 3), (4, 3, 2)] {
            for aggregators in ["0", "1", "5", "1024"] {
                for placement in ["any", "hash"] {
                    let options = [("aggregators", aggregators), ("placement", placement)];
                    for (levels, by) in
                        [("1", "every_rank"), ("2", "every_rank"), ("1", "last_rank"), ("2", "last_rank")]
                    {
                        let job = [("levels", levels), ("served_by", by)];
                        let choice = Choice { job: &job, switch: &options, ..Choice::of(protocol) };
                        for elements in [0, 1, 9, 500] {
                            let mut fabric = Fabric::leaf_spine(leaves, spines, per_leaf, &choice);
                            reduce(&mut fabric, elements, PATIENCE);
                            let what = format!("{protocol}: {leaves} x {per_leaf}, {options:?}, {job:?}, {elements}");
                            assert_eq!(fabric.in_use(), 0, "{what}");
                            assert!(fabric.sent.iter().all(|sent| !sent.header.flags.has(Flags::RESEND)), "{what}");
                            assert!(fabric.sent.iter().all(|sent| sent.kind != Kind::Query), "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_finds_memory_is_summed_in_the_network_and_what_finds_none_by_servers() {
    for protocol in family() {
        for (aggregators, in_network) in [("1024", true), ("0", false)] {
            let choice = Choice { switch: &[("aggregators", aggregators)], ..Choice::of(protocol) };
            let mut fabric = Fabric::star(4, &choice);
            reduce(&mut fabric, 800, PATIENCE);
            for host in &fabric.hosts {
                let stats = host.stats();
                let expected = if in_network { (100, 0) } else { (0, 100) };
                assert_eq!((stats.blocks_in_network, stats.blocks_at_hosts), expected, "{protocol}");
            }
            let sums = fabric.count(Kind::Sum, fabric.switch(0));
            assert_eq!(sums, if in_network { 100 } else { 0 });
        }
    }
}

#[test]
fn a_switch_never_holds_more_than_it_has_and_says_what_went_on_unsummed() {
    for protocol in family() {
        let choice = Choice { switch: &[("aggregators", "5")], slots: 64, ..Choice::of(protocol) };
        let mut fabric = Fabric::star(4, &choice);
        reduce(&mut fabric, 8000, PATIENCE);
        assert_eq!(fabric.peak_of(0), 5);
        assert!(fabric.figure(0, "overflowed") > 0.0);
        let unsummed = |sent: &&crate::fabric::Sent| {
            sent.kind == Kind::Gradient && sent.header.flags.has(Flags::COLLISION) && sent.from == fabric.switch(0)
        };
        assert_eq!(fabric.figure(0, "overflowed"), fabric.sent.iter().filter(unsummed).count() as f64);
        assert_eq!(fabric.figure(0, "outstanding"), 0.0, "servers have told of all");
        let some = fabric.hosts[0].stats();
        assert!(some.blocks_in_network > 0 && some.blocks_at_hosts > 0, "{some:?}");
    }
}

/// Ranks are at different distances from the switch of a block, so that its memory may be free by the time that the last
/// of a block comes.
#[test]
fn a_block_that_overflowed_is_split_only_if_the_operator_says_so_and_its_sum_is_right_all_the_same() {
    for protocol in family() {
        for (overflow, splits) in [("whole", false), ("split", true)] {
            // What is split waits until its ranks ask, one block after another, and never for a lease.
            let switch = [("aggregators", "5"), ("overflow", overflow), ("lease", "100 s")];
            let choice = Choice { job: &[("levels", "1")], switch: &switch, slots: 64, ..Choice::of(protocol) };
            let mut fabric = Fabric::row(&[2, 1, 1, 1], &choice);
            reduce(&mut fabric, 2000, Span(40 * LEASE.0));
            assert_eq!(fabric.in_use(), 0, "{protocol}, {overflow}");
            let released: f64 = (0..4).map(|switch| fabric.figure(switch, "released")).sum();
            assert_eq!(released > 0.0, splits, "{protocol}, {overflow}: {released} incomplete sums");
        }
    }
}

#[test]
fn two_levels_bring_one_sum_of_each_rack_to_the_servers_switch() {
    for protocol in family() {
        let packets = |levels| {
            let choice = Choice { job: &[("levels", levels)], ..Choice::of(protocol) };
            let mut fabric = Fabric::leaf_spine(2, 1, 4, &choice);
            reduce(&mut fabric, 8 * 80, PATIENCE);
            let spine = fabric.switch(2);
            let arrives =
                |sent: &&crate::fabric::Sent| sent.to == spine && matches!(sent.kind, Kind::Gradient | Kind::Sum);
            fabric.sent.iter().filter(arrives).count()
        };
        // 80 blocks, and four ranks in the rack that the server is not in.
        assert_eq!((packets("1"), packets("2")), (80 * 4, 80), "{protocol}");
    }
}

/// Three workers and a parameter server, which is the last rank: its own part costs no packet.
#[test]
fn the_last_rank_may_serve_all_blocks_and_sends_nothing_but_results() {
    for protocol in family() {
        let choice = Choice { job: &[("served_by", "last_rank")], ..Choice::of(protocol) };
        let mut fabric = Fabric::star(4, &choice);
        reduce(&mut fabric, 8 * 80, PATIENCE);
        let switch = fabric.switch(0);
        let of = |kind, from: u32| {
            let sent = fabric.sent.iter().filter(|sent| sent.kind == kind && sent.from == NodeId(from));
            sent.filter(|sent| sent.to == switch).count()
        };
        for worker in 0..3 {
            assert_eq!((of(Kind::Gradient, worker), of(Kind::Aack, worker)), (80, 0), "{protocol}: rank {worker}");
        }
        assert_eq!((of(Kind::Gradient, 3), of(Kind::Aack, 3)), (0, 80), "{protocol}: the server");
        assert_eq!(fabric.count(Kind::Sum, switch), 80, "{protocol}: one sum a block");
    }
}

#[test]
fn a_switch_sums_nobody_elses_rack_although_its_packets_pass() {
    for protocol in family() {
        for per_switch in [&[2, 2, 1][..], &[1, 3, 2], &[2, 3, 0, 2], &[4, 1]] {
            let mut fabric = Fabric::row(per_switch, &Choice::of(protocol));
            reduce(&mut fabric, 500, PATIENCE);
            assert_eq!(fabric.in_use(), 0, "{protocol}: {per_switch:?}");
        }
    }
}

#[test]
fn collectives_follow_each_other_and_end_in_their_order() {
    for protocol in family() {
        let mut fabric = Fabric::leaf_spine(2, 1, 2, &Choice::of(protocol));
        for elements in [40, 0, 300, 8] {
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, elements), ReduceOp::Sum)));
        }
        fabric.run(PATIENCE);
        for elements in [40, 0, 300, 8] {
            check(&mut fabric, elements);
        }
    }
}

#[test]
fn every_type_and_operator_that_the_protocol_takes_comes_out_right() {
    fn one<T: tributary_numeric::Element + PartialEq + std::fmt::Debug>(
        op: ReduceOp,
        value: fn(usize) -> T,
        expected: T,
    ) {
        for protocol in family() {
            for aggregators in ["0", "64"] {
                let choice = Choice { switch: &[("aggregators", aggregators)], ..Choice::of(protocol) };
                let mut fabric = Fabric::leaf_spine(2, 1, 2, &choice);
                (0..4).for_each(|rank| fabric.submit(rank, collective(vec![value(rank); 50], op)));
                fabric.run(PATIENCE);
                for events in &mut fabric.events {
                    assert_eq!(output::<T>(events), vec![expected; 50], "{protocol}: {op}");
                }
            }
        }
    }
    one::<i8>(ReduceOp::Sum, |rank| 60 + rank as i8, -10);
    one::<i64>(ReduceOp::Sum, |rank| 1 << (40 + rank), 15 << 40);
    one::<u8>(ReduceOp::Max, |rank| rank as u8, 3);
    one::<i32>(ReduceOp::Prod, |rank| rank as i32 + 1, 24);
    one::<i32>(ReduceOp::Avg, |rank| 2 * rank as i32, 3);
    one::<u8>(ReduceOp::Bxor, |rank| 1 << rank, 15);
    one::<f32>(ReduceOp::Avg, |rank| rank as f32, 1.5);
}

#[test]
fn a_reduce_writes_to_the_root_alone_and_a_broadcast_to_all_others() {
    for protocol in family() {
        for root in [None, Some(2)] {
            let mut fabric = Fabric::star(4, &Choice::of(protocol));
            for rank in 0..4 {
                let tensor = ElementTensor::new(InPlaceStorage::new(input(rank, 100)), ReduceOp::Sum);
                let tensor = match root {
                    Some(root) => tensor.to(Rank(root)),
                    None => tensor.from(Rank(1)),
                };
                fabric.submit(rank, Collective { tensor: Box::new(tensor), deadline: None });
            }
            fabric.run(PATIENCE);
            for (rank, events) in fabric.events.iter_mut().enumerate() {
                let expected = match root {
                    Some(root) if usize::from(root) == rank => expected(4, 100),
                    Some(_) => input(rank, 100),
                    None => input(1, 100),
                };
                assert_eq!(output::<i32>(events), expected, "{protocol}: rank {rank}");
            }
        }
    }
}

#[test]
fn bad_cables_delay_sums_and_nothing_else() {
    for protocol in family() {
        for seed in 0..60 {
            let switch = [("aggregators", ["1", "3", "1024"][seed as usize % 3]), ("lease", "200 us")];
            let by = ["every_rank", "every_rank", "last_rank"][seed as usize / 6 % 3];
            let job = [("levels", ["1", "2"][seed as usize / 3 % 2]), ("served_by", by)];
            let choice = Choice { switch: &switch, job: &job, ..Choice::of(protocol) };
            let mut fabric = Fabric::leaf_spine(2, 2, 3, &choice);
            fabric.fate = bad_cables(seed);
            for _ in 0..3 {
                (0..6).for_each(|rank| fabric.submit(rank, collective(input(rank, 400), ReduceOp::Sum)));
                fabric.run_until_notified();
                check(&mut fabric, 400);
            }
            fabric.fate = Box::new(|_| crate::fabric::Fate::Arrives);
            fabric.run(LEASE);
            assert_eq!(fabric.in_use(), 0, "{protocol}: seed {seed}");
        }
    }
}

#[test]
fn hosts_leave_when_nobody_needs_them_any_more() {
    for protocol in family() {
        for seed in 0..20 {
            let mut fabric = Fabric::leaf_spine(2, 1, 2, &Choice::of(protocol));
            fabric.fate = bad_cables(seed);
            (0..4).for_each(|rank| fabric.submit(rank, collective(input(rank, 100), ReduceOp::Sum)));
            fabric.run_until(Time::ZERO + Span::from_millis(200));
            check(&mut fabric, 100);
            assert!(fabric.hosts.iter().all(|host| host.may_leave()), "nobody leaves yet");
            fabric.finish(0);
            assert!(!fabric.hosts[0].may_leave());
            fabric.run(Span::from_millis(100));
            assert!(fabric.hosts[0].may_leave(), "{protocol}: seed {seed}: all have what it has");
        }
    }
}
