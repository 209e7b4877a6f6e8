//! Losses, doubled packets, dead switches (§3.3): the sum is right, and only what was lost is sent again.

use tributary_proto::canary::PROTOCOL;
use tributary_proto::canary::wire::Kind;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use crate::fabric::{Fabric, Fate, bad_cables};
use crate::harness::fabric::Cables;
use crate::results::{check, collective, input, reduce};
use crate::setup::{job, switch_config};
use tributary_numeric::ReduceOp;

const PATIENCE: Span = Span::from_millis(50);

fn fabric() -> Fabric {
    Fabric::leaf_spine(2, 2, 2, 4, switch_config())
}

fn sum_of(fabric: &Fabric, of: impl Fn(&tributary_proto::contract::host::HostStats) -> u64) -> u64 {
    fabric.hosts.iter().map(|host| of(host.stats())).sum()
}

#[test]
fn any_one_packet_may_be_lost() {
    let mut clean = fabric();
    reduce(&mut clean, 64, PATIENCE);
    let packets = clean.sent.len();
    for lost in 0..packets {
        let mut fabric = fabric();
        let mut count = 0;
        fabric.fate = Box::new(move |_| {
            count += 1;
            if count == lost + 1 { Fate::IsLost } else { Fate::Arrives }
        });
        reduce(&mut fabric, 64, PATIENCE);
        assert!(sum_of(&fabric, |stats| stats.reissues) <= 1, "packet {lost}");
        assert_eq!(fabric.in_use(), 0, "packet {lost}");
    }
}

#[test]
fn the_first_packets_of_each_kind_may_be_lost() {
    for kind in Kind::ALL {
        for number in [1, 5, 20] {
            let mut fabric = fabric();
            let mut left = number;
            let mut losses = 0;
            // A contribution is lost now and then, so that all kinds come up.
            fabric.fate = Box::new(move |sent| {
                losses += u64::from(sent.kind == Kind::Reduce);
                if sent.kind == Kind::Reduce && losses % 37 == 0 {
                    return Fate::IsLost;
                }
                if sent.kind == kind && left > 0 {
                    left -= 1;
                    return Fate::IsLost;
                }
                Fate::Arrives
            });
            reduce(&mut fabric, 400, Span::from_millis(200));
        }
    }
}

#[test]
fn a_network_that_loses_a_tenth_of_all_packets_is_only_slow() {
    for seed in 0..20u64 {
        let mut fabric = fabric();
        fabric.fate = bad_cables(seed);
        reduce(&mut fabric, 300, Span::from_millis(1000));
        assert_eq!(fabric.in_use(), 0);
    }
}

#[test]
fn doubled_packets_never_count_twice() {
    for late in [0, 1, 500, 3000, 30_000] {
        for kind in [Kind::Reduce, Kind::Broadcast] {
            let mut fabric = fabric();
            fabric.fate = Box::new(move |sent| match sent.kind == kind {
                true => Fate::IsDoubled(Span::from_nanos(late)),
                false => Fate::Arrives,
            });
            reduce(&mut fabric, 200, PATIENCE);
        }
    }
}

/// As many contributions as ranks, but one of them twice: only their proofs tell.
#[test]
fn a_doubled_contribution_does_not_stand_for_a_lost_one() {
    let mut fabric = fabric();
    fabric.fate = Box::new(|sent| match (sent.kind, sent.from, sent.header.id, sent.header.attempt) {
        (Kind::Reduce, NodeId(2), 0, 0) => Fate::IsDoubled(Span::from_nanos(1)),
        (Kind::Reduce, NodeId(3), 0, 0) => Fate::IsLost,
        _ => Fate::Arrives,
    });
    reduce(&mut fabric, 64, PATIENCE);
    assert_eq!(fabric.hosts[0].stats().reissues, 1, "rank 0 leads block 0");
}

/// Contributions to block 0 that are lost on hosts' cables, whether leaf 1's sum is too, and ranks that are never heard
/// to ask for it: the leader need not hear everybody.
#[test]
fn a_block_is_issued_again_though_requests_are_lost_as_well() {
    for (lost, leaf_lost, silent) in [
        (vec![5], false, vec![9, 10]),
        (vec![5, 6], false, vec![9, 10]),
        (vec![], true, vec![2, 3]),
        (vec![5], true, vec![3]),
    ] {
        let mut fabric = Fabric::leaf_spine(2, 2, 8, 4, switch_config());
        let case = format!("{lost:?}, {leaf_lost}, {silent:?}");
        fabric.fate = Box::new(move |sent| {
            let is_first = sent.header.id == 0 && sent.header.attempt == 0;
            match sent.kind {
                Kind::Reduce if is_first && lost.contains(&sent.from.0) => Fate::IsLost,
                Kind::Reduce if is_first && leaf_lost && sent.from == NodeId(17) => Fate::IsLost,
                Kind::Request if is_first && silent.contains(&sent.from.0) => Fate::IsLost,
                _ => Fate::Arrives,
            }
        });
        reduce(&mut fabric, 64, PATIENCE);
        assert_eq!(fabric.hosts[0].stats().reissues, 1, "rank 0 leads block 0: {case}");
    }
}

/// Nothing is lost but a request: who is late is waited for.
#[test]
fn late_ranks_are_waited_for_though_a_request_is_lost() {
    for late in [vec![5], vec![5, 6], vec![1, 5, 9, 12]] {
        let mut fabric = Fabric::leaf_spine(2, 2, 8, 4, switch_config());
        fabric.fate = Box::new(|sent| match sent.kind == Kind::Request && sent.from == NodeId(10) {
            true => Fate::IsLost,
            false => Fate::Arrives,
        });
        let start = |fabric: &mut Fabric, rank| fabric.submit(rank, collective(input(rank, 64), ReduceOp::Sum));
        (0..16).filter(|rank| !late.contains(rank)).for_each(|rank| start(&mut fabric, rank));
        fabric.run(Span::from_millis(4));
        late.iter().for_each(|&rank| start(&mut fabric, rank));
        fabric.run(PATIENCE);
        check(&mut fabric, 64);
        assert_eq!(sum_of(&fabric, |stats| stats.reissues), 0, "{late:?} are late");
    }
}

/// The paper's leader (§3.3) does not wait: whoever is late, a request fails the blocks that wait for it.
#[test]
fn with_the_papers_rule_a_late_rank_fails_blocks_of_which_nothing_is_lost() {
    let options = PROTOCOL.options.read(&[("fails".to_owned(), "paper".to_owned())].into()).unwrap();
    let job = JobConfig { options, ..job(16, 4) };
    let mut fabric = Fabric::of_job(Cables::leaf_spine(2, 2, 8), Vec::new(), job, switch_config());
    let start = |fabric: &mut Fabric, rank| fabric.submit(rank, collective(input(rank, 64), ReduceOp::Sum));
    (0..16).filter(|&rank| rank != 5).for_each(|rank| start(&mut fabric, rank));
    fabric.run(Span::from_millis(4));
    start(&mut fabric, 5);
    fabric.run(PATIENCE);
    check(&mut fabric, 64);
    assert!(sum_of(&fabric, |stats| stats.reissues) > 0, "rank 5 was late");
}

#[test]
fn a_switch_that_restarts_costs_the_blocks_in_its_memory() {
    for (switch, at) in [(0, 1400), (0, 3100), (2, 3100), (3, 4000)] {
        let mut fabric = fabric();
        let world_size = fabric.hosts.len();
        (0..world_size).for_each(|rank| fabric.submit(rank, collective(input(rank, 800), ReduceOp::Sum)));
        fabric.run_until(Time::ZERO + Span::from_nanos(at));
        let in_use = fabric.in_use_at(switch);
        fabric.restart(switch);
        fabric.run(PATIENCE);
        check(&mut fabric, 800);
        let reissues = sum_of(&fabric, |stats| stats.reissues);
        assert!(reissues <= in_use.into(), "{reissues} blocks again of {in_use}");
        assert_eq!(sum_of(&fabric, |stats| stats.blocks_at_hosts), 0);
    }
}

#[test]
fn a_dead_spine_is_avoided_as_soon_as_packets_take_other_ways() {
    let mut fabric = fabric();
    let world_size = fabric.hosts.len();
    let dead = NodeId(world_size as u32 + 2);
    (0..world_size).for_each(|rank| fabric.submit(rank, collective(input(rank, 800), ReduceOp::Sum)));
    fabric.run(Span::from_micros(20));
    fabric.alive[dead.index()] = false;
    fabric.run(Span::from_micros(300));
    assert!(fabric.events.iter().all(Vec::is_empty), "everything goes through the dead one");
    fabric.choice = Box::new(|_, ways| ways - 1);
    fabric.run(PATIENCE);
    check(&mut fabric, 800);
    let reissues = sum_of(&fabric, |stats| stats.reissues);
    assert!(reissues <= 3 * 4, "{reissues} blocks again; 4 were under way");
}

#[test]
fn hosts_sum_what_switches_lose_again_and_again() {
    let mut fabric = fabric();
    fabric.fate = Box::new(|sent| match sent.kind == Kind::Reduce && !sent.header.bypass {
        true => Fate::IsLost,
        false => Fate::Arrives,
    });
    reduce(&mut fabric, 64, PATIENCE);
    let blocks = 8 * fabric.hosts.len() as u64;
    // The notice that all have everything fails as well.
    assert_eq!(sum_of(&fabric, |stats| stats.blocks_at_hosts), blocks, "each rank tells of each");
    assert_eq!(sum_of(&fabric, |stats| stats.reissues), 3 * (8 + 1));
}

#[test]
fn a_sum_that_is_lost_on_its_way_down_is_sent_again_and_not_made_again() {
    let mut fabric = fabric();
    fabric.fate = Box::new(|sent| match sent.kind == Kind::Broadcast && sent.header.multicast {
        true => Fate::IsLost,
        false => Fate::Arrives,
    });
    reduce(&mut fabric, 64, PATIENCE);
    assert_eq!(sum_of(&fabric, |stats| stats.reissues), 0);
    assert_eq!(fabric.in_use(), 0, "leases have freed what no sum came for");
}
