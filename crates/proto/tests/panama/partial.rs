//! Averages that do not wait for all ranks (§7): one result on all ranks, over ranks that are each in it once and are
//! as many as it says, whatever is late, lost, doubled or started again.

use std::collections::HashMap;

use tributary_numeric::{DType, ReduceOp, f16};
use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::drop_reason::DropReason;
use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::{ChildId, JobId, PortId, Rank};
use tributary_proto::contract::time::Time;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, host, in_place, output, pipelines, star};
use crate::setup::{faulty, job, options, racks, retransmissions};

/// A job whose averages wait for a part of its ranks.
fn partial(share: &str, job: JobConfig) -> JobConfig {
    JobConfig { levels: true, options: options(&[("partial", share)]), ..job }
}

/// What a rank brings. No two sets of a few ranks have the same average, and sums are exact.
fn bring(rank: usize) -> f64 {
    ((2 * rank as u64 + 3).wrapping_pow(25) >> 24) as f64
}

/// The sets of ranks, a bit each, by the bits of their averages.
fn averages(world_size: usize) -> HashMap<u64, u32> {
    let average = |set: u32| {
        let ranks = (0..world_size).filter(|rank| set >> rank & 1 == 1);
        (ranks.map(bring).sum::<f64>() / f64::from(set.count_ones())).to_bits()
    };
    let sets: HashMap<u64, u32> = (1..1u32 << world_size).map(|set| (average(set), set)).collect();
    assert_eq!(sets.len(), (1 << world_size) - 1, "an average says which ranks it is over");
    sets
}

/// Racks of ranks that are neighbours below one switch each.
fn rows(seed: u64, link: LinkConfig, racks: u16, job: &JobConfig) -> Network {
    let ranks = |rack: u16| (0..job.world_size).filter(move |rank| rank / (job.world_size / racks) == rack).map(Rank);
    let root: Vec<Below> = (0..racks).map(|rack| Below::Switch(ranks(rack).collect())).collect();
    let mut switches = vec![(pipelines(job, &root, None), None)];
    for rack in 0..racks {
        let below: Vec<Below> = ranks(rack).map(Below::Worker).collect();
        let parent = Parent { port: PortId(below.len() as u16), child: ChildId(rack) };
        switches.push((pipelines(job, &below, Some(parent)), Some(0)));
    }
    let row = job.world_size / racks;
    let hosts = (0..job.world_size).map(|rank| host(job, rank, rank % row)).collect();
    Network::tree(seed, link, hosts, |rank| 1 + rank / usize::from(row), switches)
}

fn is_done(network: &Network, rank: usize) -> bool {
    matches!(network.hosts[rank].events[..], [HostEvent::Done { .. }])
}

fn drops(network: &Network, reason: DropReason) -> u64 {
    let pipelines = network.switches.iter().flat_map(|switch| &switch.pipelines);
    pipelines.map(|pipeline| pipeline.report(JobId(1)).expect("it is installed").drops.get(reason)).sum()
}

fn metric(network: &Network, switch: usize, name: &str) -> f64 {
    let metrics =
        network.switches[switch].pipelines[0].report(JobId(1)).expect("it is installed").machine.unwrap().metrics;
    metrics.iter().find(|metric| metric.name == name).expect("it is counted").value.as_f64()
}

/// Runs one average; each element of it must be over `least` ranks at least. Gives how many ranks were left out of
/// elements.
fn average(network: &mut Network, world_size: usize, elements: usize, least: u32, at_us: impl Fn(usize) -> u64) -> u32 {
    for rank in 0..world_size {
        network.submit_at(Time(at_us(rank) * 1_000_000), rank, in_place(&vec![bring(rank); elements], ReduceOp::Avg));
    }
    finish(network, world_size, elements, least)
}

fn finish(network: &mut Network, world_size: usize, elements: usize, least: u32) -> u32 {
    let sums = output(network.run_until_idle(at_ms(10_000_000)), DType::F64, elements);
    let sets = averages(world_size);
    let ranks = sums.as_chunks().0.iter().map(|bytes| ranks_of(&sets, *bytes));
    ranks.map(|ranks| world_size as u32 - within(ranks, least)).sum()
}

/// How many ranks an average is over, each of them once.
fn ranks_of(sets: &HashMap<u64, u32>, average: [u8; 8]) -> u32 {
    sets.get(&u64::from_be_bytes(average)).expect("each rank is in it once or not at all").count_ones()
}

fn within(ranks: u32, least: u32) -> u32 {
    assert!(ranks >= least, "an average over {ranks} ranks, where {least} are the least");
    ranks
}

#[test]
fn fourteen_of_sixteen_do_not_wait_for_the_others_who_find_the_result_when_they_come() {
    let job = partial("14/16", job(16, 1, 8, 16));
    for in_racks in [false, true] {
        let link = LinkConfig::default();
        // In racks each may lack one: rank 3 is in the first, rank 8 in the second.
        let mut network = if in_racks { rows(1, link, 2, &job) } else { star(1, link, &job) };
        let late = [3, 8];
        for rank in 0..16 {
            let at = at_ms(if late.contains(&rank) { 5_000 } else { 0 });
            network.submit_at(at, rank, in_place(&[bring(rank); 50], ReduceOp::Avg));
        }
        network.run_until(at_ms(100));
        for rank in 0..16 {
            assert_eq!(is_done(&network, rank), !late.contains(&rank), "rank {rank}, in racks: {in_racks}");
        }
        assert_eq!(finish(&mut network, 16, 50, 14), 100, "those two are in none of the elements");
        assert_eq!(retransmissions(&network), 2 * 14, "what was sent before the first epoch began");
        for host in &network.hosts {
            let stats = host.machine.stats();
            assert_eq!((stats.ranks_in_sums, stats.ranks_of_sums), (7 * 14, 7 * 16), "seven blocks");
        }
    }
}

#[test]
fn what_comes_late_is_counted_by_name_and_changes_nothing() {
    let job = partial("3/4", job(8, 1, 8, 16));
    let mut network = star(1, LinkConfig::default(), &job);
    let left_out = average(&mut network, 8, 500, 6, |_| 0);
    assert!(left_out > 0);
    assert!(drops(&network, DropReason::Late) > 0);
    let stale = drops(&network, DropReason::StaleEpoch);
    assert_eq!(drops(&network, DropReason::Ahead) + stale, 2 * 8, "what was sent before the first epoch began");
    assert_eq!(metric(&network, 0, "partial_sums"), 63.0, "of 63 blocks each leaves with the sixth");
    assert_eq!(metric(&network, 0, "left_out"), 2.0 * 63.0);
    assert_eq!(metric(&network, 0, "lost_vids"), 0.0);
}

/// Eight ranks of 40 blocks behind ports with capacities of 8, and rank 5 begins only after five seconds.
fn one_lags() -> (JobConfig, Network) {
    let job = partial("3/4", job(8, 1, 8, 16));
    let mut network = star(1, LinkConfig::default(), &job);
    for rank in 0..8 {
        let at = at_ms(if rank == 5 { 5_000 } else { 0 });
        network.submit_at(at, rank, in_place(&[bring(rank); 8 * 40], ReduceOp::Avg));
    }
    network.run_until(at_ms(2_000));
    assert_eq!(blocks(&network), 8);
    (job, network)
}

fn blocks(network: &Network) -> u64 {
    network.hosts[0].machine.stats().blocks_in_network
}

/// A rank that is never waited for would be missed by nobody, and others would have to keep what they have
/// sent.
#[test]
fn a_rank_may_lag_by_the_capacity_of_a_port_and_no_more() {
    let (_, mut network) = one_lags();
    let report = network.switches[0].pipelines[0].report(JobId(1)).unwrap();
    assert_eq!(report.machine.unwrap().missing, [ChildId(5)], "it is named");
    let sent = retransmissions(&network);
    network.run_until(at_ms(4_900));
    assert_eq!((blocks(&network), retransmissions(&network)), (8, sent), "nobody sends again for a rank that is late");
    finish(&mut network, 8, 8 * 40, 6);
}

/// It has the results of what it has yet to submit, and so has nothing to ask for; but it lags from where it is.
#[test]
fn a_rank_that_lags_may_lag_no_further_after_the_tree_has_gone_back() {
    let (job, mut network) = one_lags();
    network.kill_switch(0);
    network.restart_switch(0, pipelines(&job, &Below::workers(8), None));
    network.run_until(at_ms(4_900));
    assert!(metric(&network, 0, "rewinds") > 0.0);
    assert_eq!(blocks(&network), 8);
    finish(&mut network, 8, 8 * 40, 6);
}

#[test]
fn two_late_ranks_of_a_rack_that_may_lack_one_are_waited_for() {
    let job = partial("14/16", job(16, 1, 8, 16));
    let mut network = rows(1, LinkConfig::default(), 2, &job);
    for rank in 0..16 {
        let at = at_ms(if [3, 5].contains(&rank) { 500 } else { 0 });
        network.submit_at(at, rank, in_place(&[bring(rank); 50], ReduceOp::Avg));
    }
    network.run_until(at_ms(400));
    assert!((0..16).all(|rank| !is_done(&network, rank)));
    finish(&mut network, 16, 50, 14);
}

/// 20 seeds of loss, doubled packets and packets that overtake others, ranks that begin at any time, one to three
/// trees.
#[test]
fn all_ranks_have_one_result_whatever_is_lost_doubled_or_overtaken() {
    let mut left_out = 0;
    for seed in 0..20 {
        for loss in [0.01, 0.08] {
            let link = LinkConfig { loss, ..faulty() };
            let job = partial("3/4", job(10, 1 + (seed % 3) as u16, 4, 16));
            let mut network = if seed % 2 == 0 { star(seed, link, &job) } else { racks(seed, link, 2, &job) };
            let begin = |rank: usize| (seed * 37 + rank as u64 * 101) % 7 * 300;
            left_out += average(&mut network, 10, 2_000, 8, begin);
            assert_eq!(drops(&network, DropReason::Overflow), 0, "seed {seed}");
        }
    }
    assert!(left_out > 0, "or it shows nothing");
}

/// A sum of 16-bit floats is wider between switches than the result, which may come up again.
#[test]
fn results_that_are_narrower_than_sums_come_up_again_too() {
    for seed in 0..10 {
        let job = partial("3/4", job(8, 2, 4, 16));
        let mut network = racks(seed, LinkConfig { loss: 0.05, ..faulty() }, 2, &job);
        for rank in 0..8 {
            network.submit(rank, in_place(&vec![f16::from_f32((1 << rank) as f32); 1_000], ReduceOp::Avg)).unwrap();
        }
        let sums = output(network.run_until_idle(at_ms(10_000_000)), DType::F16, 1_000);
        let average = |set: &u32| f16::from_f32(*set as f32 / set.count_ones() as f32).to_bits();
        let sets: Vec<u16> = (1..256u32).filter(|set| set.count_ones() >= 6).map(|set| average(&set)).collect();
        for bytes in sums.as_chunks().0 {
            assert!(sets.contains(&u16::from_be_bytes(*bytes)), "seed {seed}");
        }
    }
}

/// A switch is started again in the middle, when some ranks have results that others lack and it knows of none.
#[test]
fn a_switch_that_was_started_again_makes_no_second_result_of_a_vid() {
    for seed in 0..12 {
        for at_us in [400, 700, 1_000, 1_500] {
            let job = partial("1/2", job(8, 1 + (seed % 2) as u16, 4, 16));
            let link = LinkConfig { loss: 0.1, ..LinkConfig::default() };
            let (in_racks, victim) = (seed % 3 > 0, if seed % 3 == 2 { 1 } else { 0 });
            let mut network = if in_racks { racks(seed, link, 2, &job) } else { star(seed, link, &job) };
            for rank in 0..8 {
                network.submit(rank, in_place(&vec![bring(rank); 1_500], ReduceOp::Avg)).unwrap();
            }
            network.run_until(Time(at_us * 1_000_000));
            network.kill_switch(victim);
            network.run_until(Time(at_us * 1_000_000 + 200_000_000));
            let of_rack = |rack: u16| (0..8).filter(move |rank| rank % 2 == rack).map(Rank);
            let (below, parent) = match (in_racks, victim) {
                (false, _) => (Below::workers(8), None),
                (true, 0) => ((0..2).map(|rack| Below::Switch(of_rack(rack).collect())).collect(), None),
                (true, _) => {
                    let parent = Parent { port: PortId(4), child: ChildId(0) };
                    (of_rack(0).map(Below::Worker).collect(), Some(parent))
                }
            };
            network.restart_switch(victim, pipelines(&job, &below, parent));
            finish(&mut network, 8, 1_500, 4);
        }
    }
}

#[test]
fn results_stay_one_while_capacities_change() {
    for seed in 0..6 {
        let job = partial("3/4", job(8, 1, 32, 16));
        let mut network = racks(seed, LinkConfig { loss: 0.02, ..faulty() }, 2, &job);
        for rank in 0..8 {
            network.submit(rank, in_place(&vec![bring(rank); 8_000], ReduceOp::Avg)).unwrap();
        }
        for (number, capacity) in [5, 32, 2, 17, 32].into_iter().enumerate() {
            network.run_until(Time((number as u64 + 1) * 300_000_000));
            network.resize((seed + number as u64) as usize % 3, JobId(1), capacity);
        }
        finish(&mut network, 8, 8_000, 6);
        assert_eq!(drops(&network, DropReason::Overflow), 0, "seed {seed}");
    }
}

/// A barrier has no elements: who waits at it waits for all.
#[test]
fn a_barrier_waits_for_all_ranks() {
    let job = partial("1/2", job(4, 1, 8, 16));
    let mut network = star(1, LinkConfig::default(), &job);
    for rank in 0..4 {
        network.submit_at(at_ms(if rank == 2 { 300 } else { 0 }), rank, in_place::<i32>(&[], ReduceOp::Sum));
    }
    network.run_until(at_ms(250));
    assert!((0..4).all(|rank| !is_done(&network, rank)));
    network.run_until(at_ms(10_000));
    assert!((0..4).all(|rank| is_done(&network, rank)));
}

/// Averages and barriers in turn, by ranks that are each late at times: everyone ends, and may leave.
#[test]
fn ranks_that_fall_behind_catch_up_over_many_collectives() {
    for seed in 0..6u64 {
        let job = partial("3/4", job(8, 2, 4, 16));
        let link = LinkConfig { loss: if seed % 2 == 0 { 0.0 } else { 0.03 }, ..LinkConfig::default() };
        let mut network = racks(seed, link, 2, &job);
        for round in 0..12 {
            for rank in 0..8 {
                let late = (seed * 13 + round * 7 + rank as u64 * 11).is_multiple_of(8);
                let at = Time((round * 2_000 + if late { 1_700 } else { 0 }) * 1_000_000);
                let collective = match round % 4 {
                    3 => in_place::<i32>(&[], ReduceOp::Sum),
                    _ => in_place(&vec![bring(rank); 100 * (1 + round as usize)], ReduceOp::Avg),
                };
                network.submit_at(at, rank, collective);
            }
        }
        let events = network.run_until_idle(at_ms(10_000_000));
        for round in 0..12 {
            let elements = if round % 4 == 3 { 0 } else { 100 * (1 + round) };
            let sets = averages(8);
            let mut outputs = events.iter().map(|events| {
                let HostEvent::Done { tensor, .. } = &events[round] else { panic!("round {round} failed") };
                let mut bytes = vec![0; if round % 4 == 3 { 0 } else { 8 * elements }];
                tensor.read_output(0..elements, &mut bytes);
                bytes
            });
            let first = outputs.next().unwrap();
            assert!(outputs.all(|output| output == first), "seed {seed}, round {round}");
            for bytes in first.as_chunks().0 {
                within(ranks_of(&sets, *bytes), 6);
            }
        }
        for rank in 0..8 {
            let now = network.now;
            network.hosts[rank].machine.finish(now);
            network.kick(rank);
        }
        network.run_until_idle(at_ms(20_000_000));
        assert!(network.hosts.iter().all(|host| host.machine.may_leave()), "seed {seed}");
    }
}

#[test]
fn what_would_be_a_lie_is_refused_with_a_sentence() {
    use tributary_proto::contract::tensor::Spec;
    use tributary_proto::panama::PROTOCOL;
    let options = options(&[("partial", "15/16")]);
    let can = |spec: Spec| (PROTOCOL.check)(&spec, &options).map_err(|refusal| refusal.to_string());
    let average = Spec::allreduce(5, DType::F32, ReduceOp::Avg);
    assert_eq!(can(average), Ok(()));
    assert_eq!(can(Spec { dtype: DType::BF16, ..average }), Ok(()));
    assert_eq!(can(Spec { elements: 0, op: ReduceOp::Sum, ..average }), Ok(()), "a barrier");
    for spec in [
        Spec { op: ReduceOp::Sum, ..average },
        Spec { op: ReduceOp::Max, ..average },
        Spec { dtype: DType::I32, ..average },
        Spec::reduce(5, DType::F32, ReduceOp::Avg, Rank(0)),
        Spec::broadcast(5, Rank(0)),
    ] {
        let sentence = can(spec).unwrap_err();
        assert!(sentence.starts_with(&format!("panama cannot do a {spec} of some of the ranks: ")), "{sentence}");
        assert!(sentence.contains("use op=avg, or leave the option partial out"), "{sentence}");
    }
}
