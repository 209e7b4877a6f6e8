//! What cannot succeed fails with the names of those who are to blame, in all racks.

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use tributary_proto::contract::ids::{Rank, TreeId};

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, in_place, star};
use crate::setup::{floats, job, racks};

fn error_of(events: &[HostEvent]) -> CollectiveError {
    match events {
        [HostEvent::Failed { error, .. }] => error.clone(),
        _ => panic!("the collective did not fail"),
    }
}

fn with_deadline(rank: usize, elements: usize) -> Collective {
    Collective { deadline: Some(at_ms(500)), ..in_place(&floats(rank, elements), ReduceOp::Sum) }
}

fn networks(link: LinkConfig, elements_per_packet: u16) -> [Network; 2] {
    let job = JobConfig { levels: true, ..job(6, 2, 8, elements_per_packet) };
    [star(1, link, &job), racks(1, link, 2, &job)]
}

#[test]
fn missing_ranks_are_named_on_all_others() {
    for absent in [&[0][..], &[1], &[5, 0], &[1, 2]] {
        for loss in [0.0, 0.05] {
            for mut network in networks(LinkConfig { loss, ..LinkConfig::default() }, 16) {
                for rank in (0..6).filter(|rank| !absent.contains(rank)) {
                    network.submit(rank, with_deadline(rank, 1_000)).unwrap();
                }
                let events = network.run_until_idle(at_ms(10_000));
                for rank in (0..6).filter(|rank| !absent.contains(rank)) {
                    let CollectiveError::Missing { mut missing, .. } = error_of(&events[rank]) else {
                        panic!("rank {rank} does not know that {absent:?} are missing: {}", error_of(&events[rank]));
                    };
                    missing.sort();
                    let mut expected: Vec<Rank> = absent.iter().map(|&rank| Rank(rank as u16)).collect();
                    expected.sort();
                    assert_eq!(missing, expected, "rank {rank}");
                }
            }
        }
    }
}

#[test]
fn ranks_that_disagree_are_named_in_all_racks() {
    for odd in 0..6 {
        for mut network in networks(LinkConfig::default(), 64) {
            let elements = |rank| if rank == odd { 1_001 } else { 1_000 };
            for rank in 0..6 {
                network.submit(rank, in_place(&floats(rank, elements(rank)), ReduceOp::Sum)).unwrap();
            }
            for (rank, events) in network.run_until_idle(at_ms(10_000)).iter().enumerate() {
                let CollectiveError::Mismatch { a, a_spec, b, b_spec, .. } = error_of(events) else {
                    panic!("rank {rank} was not told that {odd} disagrees");
                };
                let brings = |rank: Rank| elements(rank.index()) as u32;
                assert_eq!((a_spec.elements, b_spec.elements), (brings(a), brings(b)));
                assert!(a.index() == odd || b.index() == odd);
                assert!(matches!(
                    network.hosts[rank].machine.submit(at_ms(0), with_deadline(rank, 1)),
                    Err(SubmitError::Broken(CollectiveError::Mismatch { .. }))
                ));
            }
        }
    }
}

#[test]
fn a_switch_that_is_silent_is_named() {
    let mut network = star(1, LinkConfig::default(), &job(3, 1, 8, 16));
    network.kill_switch(0);
    for rank in 0..3 {
        network.submit(rank, with_deadline(rank, 100)).unwrap();
    }
    for events in network.run_until_idle(at_ms(10_000)) {
        let silent =
            CollectiveError::SwitchSilent { tree: TreeId(0), block: 0, op: tributary_proto::contract::ids::OpId(0) };
        assert_eq!(error_of(&events), silent);
    }
}

#[test]
fn a_parent_that_is_silent_is_named_by_its_level() {
    let job = JobConfig { levels: true, ..job(4, 1, 8, 16) };
    let mut network = racks(1, LinkConfig::default(), 2, &job);
    network.kill_switch(0);
    for rank in 0..4 {
        network.submit(rank, with_deadline(rank, 100)).unwrap();
    }
    for events in network.run_until_idle(at_ms(10_000)) {
        assert!(matches!(error_of(&events), CollectiveError::ParentSilent { levels_up: 1, .. }));
    }
}
