//! Servers on hosts of their own: they bring nothing, sum what found no room, and keep results for who asks.

use tributary_numeric::{BlockExponent, DType, ReduceOp};
use tributary_proto::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent};
use tributary_proto::contract::ids::{JobId, NodeId, Rank, ServerId};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::tensor::Spec;
use tributary_proto::contract::time::Span;
use tributary_proto::contract::wire::Common;

use crate::fabric::{Choice, Fabric, Fate, Sent, bad_cables};
use crate::setup::{KEY, LEASE, at_us, collective, expected, family, input, output};

const ELEMENTS: usize = 8 * 300;

/// Ranks and servers round one switch; all ranks sum two tensors.
fn sums(ranks: usize, servers: u16, choice: &Choice<'_>, spoil: impl FnOnce(&mut Fabric)) -> Fabric {
    let mut fabric = Fabric::star(ranks as u32 + u32::from(servers), &Choice { servers, ..choice.clone() });
    spoil(&mut fabric);
    all_sum(fabric, ranks, choice.protocol)
}

/// All ranks sum two tensors.
fn all_sum(mut fabric: Fabric, ranks: usize, protocol: &Protocol) -> Fabric {
    for _ in 0..2 {
        (0..ranks).for_each(|rank| fabric.submit(rank, collective(input(rank, ELEMENTS), ReduceOp::Sum)));
    }
    fabric.run(Span::from_millis(300));
    let expected = expected(ranks, ELEMENTS);
    for rank in 0..ranks {
        assert_eq!(output::<i32>(&mut fabric.events[rank]), expected, "{protocol}: rank {rank}");
        assert_eq!(output::<i32>(&mut fabric.events[rank]), expected, "{protocol}: rank {rank}");
    }
    assert_eq!(fabric.in_use(), 0);
    fabric
}

fn results(fabric: &Fabric, of: impl Fn(&Sent) -> bool) -> usize {
    fabric.sent.iter().filter(|sent| sent.kind == Kind::Aack && of(sent)).count()
}

#[test]
fn the_switch_sums_for_all_ranks_and_each_server_answers_for_its_share() {
    for protocol in family() {
        for (ranks, servers) in [(2, 1), (4, 1), (4, 3), (3, 5)] {
            let fabric = sums(ranks, servers, &Choice { slots: 64, ..Choice::of(protocol) }, |_| {});
            let first = ranks as u32;
            let by_server = |number: u32| results(&fabric, |sent| sent.from == NodeId(first + number));
            for number in 0..u32::from(servers) {
                let share = (600 + u32::from(servers) - 1 - number) / u32::from(servers);
                assert_eq!(by_server(number), share as usize, "{protocol}: one for each block of server {number}");
            }
            // Those of ranks alone have them: no server gets another's results.
            assert_eq!(results(&fabric, |sent| sent.to.0 >= first && sent.to.0 < first + u32::from(servers)), 0);
            assert_eq!(fabric.figure(0, "overflowed"), 0.0, "{protocol}");
            let to_server =
                |sent: &&Sent| sent.kind == Kind::Gradient && (first..first + u32::from(servers)).contains(&sent.to.0);
            assert_eq!(fabric.sent.iter().filter(to_server).count(), 0, "{protocol}: sums alone go on");
        }
    }
}

/// On two levels of switches, with ranks behind the servers' switch and without.
#[test]
fn in_a_fabric_one_sum_of_each_rack_comes_to_the_switch_next_to_a_server() {
    for protocol in family() {
        for (leaves, per_leaf, servers) in [(2, 4, 2u16), (3, 2, 2), (3, 3, 1)] {
            let choice = Choice { slots: 64, servers, ..Choice::of(protocol) };
            let hosts = leaves * per_leaf;
            let ranks = hosts - u32::from(servers);
            let fabric = all_sum(Fabric::leaf_spine(leaves, 2, per_leaf, &choice), ranks as usize, protocol);
            let to =
                |kind, node: NodeId| fabric.sent.iter().filter(|sent| sent.kind == kind && sent.to == node).count();
            let by_server = |server: u32| results(&fabric, |sent| sent.from == NodeId(ranks + server));
            // 600 blocks, and a result for each switch with ranks.
            let racks = ranks.div_ceil(per_leaf) as usize;
            let shares: usize = (0..u32::from(servers)).map(by_server).sum();
            assert_eq!(shares, 600 * racks, "{protocol}, {leaves} leaves");
            let gradients: usize = (ranks..hosts).map(|server| to(Kind::Gradient, NodeId(server))).sum();
            let sums: usize = (ranks..hosts).map(|server| to(Kind::Sum, NodeId(server))).sum();
            assert_eq!((gradients, sums), (0, 600), "{protocol}, {leaves} leaves: one sum of all for a block");
        }
    }
}

/// The BytePS baseline: a parameter server with congestion control.
#[test]
fn without_aggregators_servers_sum_everything() {
    for protocol in family() {
        let choice = Choice { slots: 64, switch: &[("aggregators", "0")], ..Choice::of(protocol) };
        let fabric = sums(4, 2, &choice, |_| {});
        assert_eq!(fabric.figure(0, "overflowed"), 4.0 * 600.0, "{protocol}");
        assert_eq!(fabric.figure(0, "outstanding"), 0.0, "{protocol}");
    }
}

#[test]
fn every_sum_is_right_on_bad_cables_and_with_a_switch_that_is_started_again() {
    for protocol in family() {
        for seed in 0..12 {
            let aggregators = ["0", "5", "1024"][seed as usize % 3];
            let choice = Choice { switch: &[("aggregators", aggregators)], ..Choice::of(protocol) };
            sums(4, 1 + (seed % 3) as u16, &choice, |fabric| {
                fabric.fate = bad_cables(seed);
                if seed % 4 == 0 {
                    fabric.submit_at(at_us(0), 0, collective(vec![0i32; 0], ReduceOp::Sum));
                    (1..4).for_each(|rank| fabric.submit(rank, collective(vec![0i32; 0], ReduceOp::Sum)));
                    fabric.run_until(at_us(40));
                    fabric.restart(0);
                    fabric.run(Span::from_millis(100));
                    (0..4).for_each(|rank| drop(fabric.events[rank].remove(0)));
                }
            });
        }
    }
}

#[test]
fn floats_have_the_same_bits_on_every_rank_and_blocks_that_did_not_fit_their_scale_are_sent_again() {
    for protocol in family() {
        let mut fabric = Fabric::star(5, &Choice { servers: 1, ..Choice::of(protocol) });
        let value =
            |rank: usize, i: usize| (rank as f32 + 0.25) * (i % 97) as f32 * if i > 1200 { 4096.0 } else { 1.0 };
        let inputs: Vec<Vec<f32>> = (0..4).map(|rank| (0..ELEMENTS).map(|i| value(rank, i)).collect()).collect();
        for (rank, input) in inputs.iter().enumerate() {
            fabric.submit(rank, collective(input.clone(), ReduceOp::Avg));
        }
        fabric.run(Span::from_millis(50));
        let outputs: Vec<Vec<f32>> = fabric.events[..4].iter_mut().map(output::<f32>).collect();
        for i in 0..ELEMENTS {
            let exact = inputs.iter().map(|input| f64::from(input[i])).sum::<f64>() / 4.0;
            assert!((f64::from(outputs[0][i]) - exact).abs() <= exact * 1e-5 + 0.01, "{protocol}: element {i}");
            assert!(outputs.iter().all(|output| output[i].to_bits() == outputs[0][i].to_bits()), "{protocol}: {i}");
        }
        assert!(fabric.hosts[4].stats().reissues > 0, "{protocol}: nobody knew a scale at first");
    }
}

#[test]
fn a_worker_may_leave_at_once_since_servers_keep_what_others_may_need() {
    for protocol in family() {
        let mut fabric = sums(4, 1, &Choice::of(protocol), |_| {});
        (0..4).for_each(|rank| fabric.finish(rank));
        assert!((0..4).all(|rank| fabric.hosts[rank].may_leave()), "{protocol}");
    }
}

#[test]
fn a_server_that_has_died_is_named_and_a_rank_that_is_late_is() {
    for protocol in family() {
        for (dead, late) in [(5, 4), (9, 3)] {
            let mut fabric = Fabric::star(6, &Choice { servers: 2, ..Choice::of(protocol) });
            for rank in 0..late {
                let tensor = collective(input(rank, ELEMENTS), ReduceOp::Sum);
                fabric.submit(rank, Collective { deadline: Some(at_us(20_000)), ..tensor });
            }
            if let Some(alive) = fabric.alive.get_mut(dead) {
                *alive = false;
            }
            fabric.run(Span::from_millis(30));
            for rank in 0..3 {
                let Some(HostEvent::Failed { error, .. }) = fabric.events[rank].first() else { panic!("{protocol}") };
                match error {
                    CollectiveError::ServerSilent { server, .. } => assert_eq!((*server, dead), (ServerId(1), 5)),
                    CollectiveError::Missing { missing, .. } => {
                        assert_eq!((missing.as_slice(), late), (&[Rank(3)][..], 3))
                    }
                    other => panic!("{protocol}: {other}"),
                }
            }
            fabric.run(LEASE + LEASE + LEASE);
            assert_eq!(fabric.in_use(), 0, "{protocol}");
        }
    }
}

/// A server's number is not a rank's: nobody contributes or asks under it, at the switch or at a server.
#[test]
fn nothing_is_taken_under_the_number_of_a_server() {
    for protocol in family() {
        let mut fabric = Fabric::star(5, &Choice { servers: 1, ..Choice::of(protocol) });
        let spec = Spec::allreduce(8, DType::I32, ReduceOp::Sum);
        let zero = BlockExponent::ZERO;
        let (flags, exponent, scale) = (Flags::default(), zero, zero);
        let header = Header {
            seq: 1,
            prog: 0,
            index: 0,
            received: 0,
            flags,
            wid: Rank(4),
            count: 1,
            attempt: 0,
            exponent,
            scale,
            spec,
        };
        for kind in [Kind::Gradient, Kind::Query] {
            let mut bytes = vec![0; HEADER_LEN];
            Common { protocol: protocol.code, kind: 0, job: JobId(1), key: KEY }.emit(&mut bytes);
            header.emit(kind, &mut bytes);
            bytes.extend([1; 32]);
            fabric.inject(NodeId(4), NodeId(5), bytes.clone());
            fabric.inject(NodeId(5), NodeId(4), bytes);
        }
        fabric.run(Span::from_millis(1));
        let drops = &fabric.switches[0].report(JobId(1)).expect("the job").drops;
        assert_eq!(drops.get(DropReason::BadField), 2, "{protocol}: at the switch");
        assert_eq!(fabric.hosts[4].stats().drops.get(DropReason::BadField), 2, "{protocol}: at the server");
        assert_eq!(fabric.in_use(), 0);
    }
}

/// One block on four ranks and a server round a switch.
fn one_block(protocol: &'static Protocol, late: &[usize]) -> Fabric {
    let mut fabric = Fabric::star(5, &Choice { servers: 1, ..Choice::of(protocol) });
    for rank in 0..4 {
        let at = if late.contains(&rank) { at_us(60) } else { at_us(0) };
        let block = collective(input(rank, 8), ReduceOp::Sum);
        fabric.submit_at(at, rank, Collective { deadline: Some(at_us(20_000)), ..block });
    }
    fabric
}

/// Three gradients are in the switch when the server is started again. The fourth one makes the sum full, and the
/// server needs to know nothing else to answer it.
#[test]
fn a_server_that_was_started_again_before_the_sum_was_full_answers_the_sum() {
    for protocol in family() {
        let mut fabric = one_block(protocol, &[3]);
        fabric.run_until(at_us(50));
        assert_eq!((fabric.in_use(), results(&fabric, |_| true)), (1, 0), "{protocol}");
        fabric.restart_host(4);
        fabric.run(Span::from_millis(30));
        let sums: Vec<u16> = fabric.sent.iter().filter(|sent| sent.kind == Kind::Sum).map(|s| s.header.count).collect();
        assert_eq!((sums, results(&fabric, |sent| sent.from == NodeId(4))), (vec![4], 1), "{protocol}");
        (0..4).for_each(|rank| assert_eq!(output::<i32>(&mut fabric.events[rank]), expected(4, 8), "{protocol}"));
        assert_eq!(fabric.in_use(), 0, "{protocol}");
    }
}

/// The sum was full, three ranks have its result, the fourth one's was lost, and then the server is started again. That
/// rank asks, the server asks for its part, and gets it; but the others' parts are gone with their memory. There is no
/// second result, and the rank says in the end whose parts are missing.
#[test]
fn a_result_that_was_lost_and_whose_server_was_started_again_is_not_made_again_of_fewer_contributions() {
    for protocol in family() {
        let mut fabric = one_block(protocol, &[]);
        fabric.fate = Box::new(|sent: &Sent| match sent.kind == Kind::Aack && sent.to == NodeId(2) {
            true => Fate::IsLost,
            false => Fate::Arrives,
        });
        fabric.run_until(at_us(50));
        assert_eq!((fabric.in_use(), results(&fabric, |sent| sent.from == NodeId(4))), (0, 1), "{protocol}");
        let before = fabric.sent.len();
        fabric.restart_host(4);
        fabric.run(Span::from_millis(40));
        let after = &fabric.sent[before..];
        let count = |kind, node| after.iter().filter(|sent| sent.kind == kind && sent.from == NodeId(node)).count();
        assert!(count(Kind::Query, 2) > 0 && count(Kind::Need, 4) > 0 && count(Kind::Gradient, 2) > 0, "{protocol}");
        assert_eq!((count(Kind::Aack, 4), count(Kind::Gradient, 0)), (0, 0), "{protocol}");
        for rank in [0, 1, 3] {
            assert_eq!(output::<i32>(&mut fabric.events[rank]), expected(4, 8), "{protocol}: rank {rank}");
        }
        let Some(HostEvent::Failed { error, .. }) = fabric.events[2].first() else { panic!("{protocol}: no result") };
        let CollectiveError::Missing { missing, .. } = error else { panic!("{protocol}: {error}") };
        assert_eq!(missing[..], [Rank(0), Rank(1), Rank(3)], "{protocol}");
        fabric.run(LEASE + LEASE + LEASE);
        assert_eq!(fabric.in_use(), 0, "{protocol}");
    }
}

/// What a server holds is nowhere else, so a job does not outlive it. One that comes back without it gives no result
/// rather than a wrong one, ranks end by their deadlines, and the switch keeps nothing.
#[test]
fn a_server_that_has_lost_all_that_it_knew_gives_no_wrong_result() {
    for protocol in family() {
        for us in [1, 3, 10, 30, 60, 100, 200] {
            let choice = Choice { slots: 64, servers: 2, ..Choice::of(protocol) };
            let mut fabric = Fabric::star(6, &choice);
            for rank in 0..4 {
                let tensor = collective(input(rank, ELEMENTS), ReduceOp::Sum);
                fabric.submit(rank, Collective { deadline: Some(at_us(20_000)), ..tensor });
            }
            fabric.run_until(at_us(us));
            fabric.restart_host(5);
            fabric.run(Span::from_millis(40));
            let (expected, mut ended) = (expected(4, ELEMENTS), 0);
            for rank in 0..4 {
                match fabric.events[rank].first() {
                    Some(HostEvent::Failed { .. }) => ended += 1,
                    _ => assert_eq!(output::<i32>(&mut fabric.events[rank]), expected, "{protocol}: rank {rank}"),
                }
            }
            assert!(us > 3 || ended == 4, "{protocol}: in the middle, {ended} ranks are told");
            fabric.run(LEASE + LEASE + LEASE);
            assert_eq!(fabric.in_use(), 0, "{protocol}");
        }
    }
}
