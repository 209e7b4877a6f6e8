//! §7: switches in levels. Each sums its children and hands one contribution up; loss is recovered through all levels.

use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent};
use tributary_proto::contract::ids::{ChildId, PortId, Rank};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, host_below, job, pipelines_in_tree};

/// A complete tree: `fanout[0]` switches below the root, `fanout[1]` below each of those, and so on; the last number
/// counts hosts. Switches come level by level, the root first. Ranks are dealt out to the leaves like cards, so that no
/// switch has ranks in a row below it.
pub fn tree(seed: u64, link: LinkConfig, fanout: &[u16], job: &JobConfig) -> Network {
    let mut switches: Vec<(Vec<Pipeline>, Option<usize>)> = Vec::new();
    let (mut level, mut width) = (vec![None], 1);
    let leaves = job.world_size / fanout[fanout.len() - 1];
    for (depth, &children) in fanout.iter().enumerate() {
        let mut below = Vec::new();
        for (position, &parent) in level.iter().enumerate() {
            let up = parent.map(|_| {
                let child = ChildId(position as u16 % fanout[depth - 1]);
                Parent { port: PortId(children), child }
            });
            let is_leaf = depth + 1 == fanout.len();
            let child = |child: u16| {
                let position = position as u16 * children + child;
                match is_leaf {
                    true => Below::Worker(Rank(rank_at(position, leaves, children))),
                    false => Below::Switch(ranks_below(position, leaves / (width * children), leaves, job.world_size)),
                }
            };
            let children: Vec<Below> = (0..children).map(child).collect();
            below.extend((!is_leaf).then_some(Some(switches.len())).iter().cycle().take(children.len()));
            switches.push((pipelines_in_tree(Values::Elements, job, &children, up), parent));
        }
        (level, width) = (below, width * children);
    }
    let hosts =
        (0..job.world_size).map(|rank| host_below(Values::Elements, job, rank, ChildId(rank / leaves))).collect();
    let first_leaf = switches.len() - usize::from(leaves);
    Network::tree(seed, link, hosts, |rank| first_leaf + rank % usize::from(leaves), switches)
}

/// The rank of the `position`th host, counted from leaf to leaf.
fn rank_at(position: u16, leaves: u16, per_leaf: u16) -> u16 {
    position % per_leaf * leaves + position / per_leaf
}

/// The ranks below the `position`th switch of a level whose switches have `width` leaves each.
fn ranks_below(position: u16, width: u16, leaves: u16, world_size: u16) -> Vec<Rank> {
    let below = position * width..(position + 1) * width;
    (0..world_size).filter(|rank| below.contains(&(rank % leaves))).map(Rank).collect()
}

fn trees() -> [(u16, &'static [u16]); 4] {
    [(6, &[2, 3]), (4, &[4, 1]), (8, &[2, 2, 2]), (18, &[3, 3, 2])]
}

const SIZES: [(usize, bool); 5] = [(1, true), (0, false), (65, false), (10_007, true), (64, true)];

fn reduce(network: &mut Network) {
    for (op, &(elements, float)) in SIZES.iter().enumerate() {
        for rank in 0..network.hosts.len() {
            network.submit(rank, collective(rank as u16, op, elements, float)).unwrap();
        }
    }
    let events = network.run_until_idle(at_ms(1_000_000));
    check_sums(events, &SIZES);
}

#[test]
fn two_and_three_levels_sum_exactly() {
    for (world_size, fanout) in trees() {
        let mut network = tree(1, LinkConfig::default(), fanout, &job(world_size, 16, 64));
        reduce(&mut network);
        assert!(network.hosts.iter().all(|host| host.machine.stats().retransmissions == 0));
    }
}

#[test]
fn loss_is_recovered_through_all_levels() {
    for (world_size, fanout) in trees() {
        for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2)] {
            let link = LinkConfig { loss, duplicate: 0.05, reorder: 0.1, ..LinkConfig::default() };
            let mut network = tree(seed, link, fanout, &job(world_size, 16, 64));
            reduce(&mut network);
        }
    }
}

/// The error with which a host's only collective failed.
fn error_of(events: &[HostEvent]) -> CollectiveError {
    match events {
        [HostEvent::Failed { error, .. }] => error.clone(),
        _ => panic!("the collective did not fail"),
    }
}

#[test]
fn ranks_that_disagree_are_named_in_all_racks() {
    // The odd one disagrees with its own rack, or with the other rack only.
    for (world_size, fanout) in [(6, &[2, 3][..]), (2, &[2, 1]), (8, &[2, 2, 2])] {
        let job = job(world_size, 8, 64);
        for odd in 0..world_size {
            let mut network = tree(1, LinkConfig::default(), fanout, &job);
            let elements = |rank| if rank == odd { 1001 } else { 1000 };
            for rank in 0..world_size {
                network.submit(usize::from(rank), collective(rank, 0, elements(rank) as usize, true)).unwrap();
            }
            for (rank, events) in network.run_until_idle(at_ms(10_000)).iter().enumerate() {
                let CollectiveError::Mismatch { a, a_spec, b, b_spec, .. } = error_of(events) else {
                    panic!("rank {rank} was not told that {odd} of {fanout:?} disagrees");
                };
                let brings = (elements(a.0), elements(b.0));
                assert_eq!((a_spec.elements, b_spec.elements), brings, "rank {rank} is told of {a} and {b}");
                assert!(a.0 == odd || b.0 == odd);
            }
        }
    }
}

/// All but some ranks submit, something breaks, and everyone's time runs out.
fn run_out_of_time(network: &mut Network, absent: &[u16], elements: usize, at: Span, act: impl FnOnce(&mut Network)) {
    for rank in (0..network.hosts.len() as u16).filter(|rank| !absent.contains(rank)) {
        let collective = Collective { deadline: Some(at_ms(500)), ..collective(rank, 0, elements, true) };
        network.submit(usize::from(rank), collective).unwrap();
    }
    network.run_until(Time::ZERO + at);
    act(network);
}

#[test]
fn missing_ranks_of_any_rack_are_named_in_all_racks() {
    for (world_size, fanout) in trees() {
        for absent in [&[0][..], &[1], &[world_size - 1, 0], &[1, 2]] {
            for loss in [0.0, 0.05] {
                let link = LinkConfig { loss, ..LinkConfig::default() };
                let mut network = tree(1, link, fanout, &job(world_size, 8, 64));
                run_out_of_time(&mut network, absent, 1000, Span::ZERO, |_| ());
                let events = network.run_until_idle(at_ms(10_000));
                assert!(network.now <= at_ms(500));
                for rank in (0..world_size).filter(|rank| !absent.contains(rank)) {
                    let CollectiveError::Missing { mut missing, .. } = error_of(&events[usize::from(rank)]) else {
                        panic!("rank {rank} of {fanout:?} does not know that {absent:?} are missing");
                    };
                    missing.sort();
                    let mut expected: Vec<Rank> = absent.iter().copied().map(Rank).collect();
                    expected.sort();
                    assert_eq!(missing, expected, "rank {rank} of {fanout:?}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_dies_in_the_middle_is_named_in_the_other_racks() {
    let mut network = tree(1, LinkConfig::default(), &[2, 2, 2], &job(8, 16, 64));
    run_out_of_time(&mut network, &[], 200_000, Span::from_millis(3), |network| network.kill_host(5));
    let events = network.run_until_idle(at_ms(10_000));
    for rank in [0, 1, 2, 3, 4, 6, 7] {
        let CollectiveError::Missing { missing, block, .. } = error_of(&events[rank]) else { panic!("rank {rank}") };
        assert_eq!(missing, [Rank(5)]);
        assert!(block > 20, "block {block}: the collective was well under way");
    }
}

#[test]
fn a_switch_that_dies_is_named_by_where_it_is() {
    // Switches: 0 is the root, 1 and 2 are below it, 3 to 6 are leaves; leaf 3 + i has ranks i and i + 4.
    let ranks = |ranks: &[u16]| ranks.iter().copied().map(Rank).collect::<Vec<_>>();
    for (killed, own, others) in [(3, [0, 4], ranks(&[0, 4])), (6, [3, 7], ranks(&[3, 7]))] {
        let mut network = tree(1, LinkConfig::default(), &[2, 2, 2], &job(8, 16, 64));
        run_out_of_time(&mut network, &[], 200_000, Span::from_millis(3), |network| network.kill_switch(killed));
        for (rank, events) in network.run_until_idle(at_ms(10_000)).iter().enumerate() {
            match error_of(events) {
                CollectiveError::SwitchSilent { .. } => assert!(own.contains(&rank), "rank {rank}"),
                CollectiveError::ChildSwitchSilent { ranks, .. } => assert_eq!(ranks, others, "rank {rank}"),
                error => panic!("rank {rank}: {error}"),
            }
        }
    }
    for killed in [0, 1] {
        let mut network = tree(1, LinkConfig::default(), &[2, 2, 2], &job(8, 16, 64));
        run_out_of_time(&mut network, &[], 200_000, Span::from_millis(3), |network| network.kill_switch(killed));
        for (rank, events) in network.run_until_idle(at_ms(10_000)).iter().enumerate() {
            let below_it = rank % 4 < 2;
            match error_of(events) {
                CollectiveError::ParentSilent { levels_up: 2, .. } => assert_eq!(killed, 0, "rank {rank}"),
                CollectiveError::ParentSilent { levels_up: 1, .. } => assert!(killed == 1 && below_it, "rank {rank}"),
                CollectiveError::ChildSwitchSilent { mut ranks, .. } => {
                    ranks.sort();
                    assert!(killed == 1 && !below_it, "rank {rank}");
                    assert_eq!(ranks, [0, 1, 4, 5].map(Rank));
                }
                error => panic!("rank {rank}: {error}"),
            }
        }
    }
}
