//! §7: switches in levels. Each sums its children and hands one contribution up; loss is recovered through all levels.

use tributary_proto::config::{JobConfig, Parent};
use tributary_proto::host::{CollectiveError, HostEvent};
use tributary_proto::ids::{PortId, WorkerId};
use tributary_proto::pipeline::Pipeline;
use tributary_proto::values::Elements;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::setup::{at_ms, check_sums, collective, host, job, pipelines};

/// A complete tree: `fanout[0]` switches below the root, `fanout[1]` below each of those, and so on; the last number
/// counts hosts.
fn tree(seed: u64, link: LinkConfig, fanout: &[u16], job: &JobConfig) -> Network {
    let mut switches: Vec<(Vec<Pipeline>, Option<usize>)> = vec![(pipelines::<Elements>(job, fanout[0], None), None)];
    let mut level = vec![0];
    for window in fanout.windows(2) {
        let mut below = Vec::new();
        for parent in level {
            for child in 0..window[0] {
                below.push(switches.len());
                let up = Parent { port: PortId(window[1]), worker: WorkerId(child) };
                switches.push((pipelines::<Elements>(job, window[1], Some(up)), Some(parent)));
            }
        }
        level = below;
    }
    let per_leaf = fanout[fanout.len() - 1];
    let hosts = (0..job.world).map(|rank| host(job, rank % per_leaf)).collect();
    let first_leaf = level[0];
    Network::tree(seed, link, hosts, |rank| first_leaf + rank / usize::from(per_leaf), switches)
}

fn worlds() -> [(u16, &'static [u16]); 4] {
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
    for (world, fanout) in worlds() {
        let mut network = tree(1, LinkConfig::default(), fanout, &job(world, 16, 64));
        reduce(&mut network);
        assert!(network.hosts.iter().all(|host| host.machine.stats().retransmissions == 0));
    }
}

#[test]
fn loss_is_recovered_through_all_levels() {
    for (world, fanout) in worlds() {
        for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2)] {
            let link = LinkConfig { loss, duplicate: 0.05, reorder: 0.1, ..LinkConfig::default() };
            let mut network = tree(seed, link, fanout, &job(world, 16, 64));
            reduce(&mut network);
        }
    }
}

#[test]
fn ranks_in_other_racks_learn_that_ranks_disagree() {
    // The odd one disagrees with its own rack, or with the other rack only.
    for (world, fanout) in [(6, &[2, 3][..]), (2, &[2, 1]), (8, &[2, 2, 2])] {
        let job = job(world, 8, 64);
        for odd in 0..world {
            let mut network = tree(1, LinkConfig::default(), fanout, &job);
            for rank in 0..world {
                let elements = if rank == odd { 1001 } else { 1000 };
                network.submit(usize::from(rank), collective(rank, 0, elements, true)).unwrap();
            }
            let events = network.run_until_idle(at_ms(10_000));
            for (rank, events) in events.iter().enumerate() {
                let [HostEvent::Failed { error: CollectiveError::Mismatch { a_spec, b_spec, .. }, .. }] = &events[..]
                else {
                    panic!("rank {rank} was not told that {odd} of {fanout:?} disagrees");
                };
                assert_ne!(a_spec, b_spec);
            }
        }
    }
}

#[test]
fn a_missing_rank_is_told_from_a_missing_rack() {
    let job = job(6, 8, 64);
    let mut network = tree(1, LinkConfig::default(), &[2, 3], &job);
    for rank in 0..6 {
        if rank == 3 {
            continue; // The first of the second rack.
        }
        let mut collective = collective(rank, 0, 100, true);
        collective.deadline = Some(at_ms(500));
        network.submit(usize::from(rank), collective).unwrap();
    }
    let events = network.run_until_idle(at_ms(10_000));
    for (rank, events) in events.iter().enumerate().filter(|(rank, _)| *rank != 3) {
        let [HostEvent::Failed { error: CollectiveError::Missing { missing, .. }, .. }] = &events[..] else {
            panic!("rank {rank} does not know who is missing");
        };
        // Names are those of the switch that waits: in the rack the rank's, at the root the rack's.
        let expected = if rank > 3 { WorkerId(0) } else { WorkerId(1) };
        assert_eq!(missing[..], [expected], "rank {rank}");
    }
}
