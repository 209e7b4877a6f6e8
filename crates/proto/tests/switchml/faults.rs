//! Whatever the network does to packets, every collective ends with the right sum.

use std::ops::Range;

use tributary_proto::contract::config::{Below, JobConfig, SwitchConfig};
use tributary_proto::contract::host::HostEvent;
use tributary_proto::contract::ids::{GroupId, JobId, JobKey, PortId, TreeId};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::time::Span;
use tributary_proto::contract::values::Values;

use crate::harness::Network;
use crate::harness::link::{LinkConfig, SplitMix};
use crate::setup::{at_ms, check_sums, collective, host, install, job, reduce, star};

const SIZES: [(usize, bool); 9] =
    [(0, false), (1, true), (63, true), (64, false), (65, true), (100_003, true), (0, true), (360, false), (361, true)];

#[test]
fn sums_are_right_without_loss() {
    for world_size in [1, 2, 3, 8, 32] {
        let job = job(world_size, 32, 64);
        let mut network = star(1, LinkConfig::default(), &job);
        reduce(&mut network, &SIZES, at_ms(10_000));
        for host in &network.hosts {
            assert_eq!(host.machine.stats().retransmissions, 0, "world_size {world_size}");
        }
    }
}

#[test]
fn sums_are_right_whatever_is_lost_doubled_or_late() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2)] {
        for world_size in [1, 2, 3, 8, 32] {
            let job = job(world_size, 16, 64);
            let link = LinkConfig {
                loss,
                duplicate: 0.05,
                reorder: 0.1,
                reorder_delay: Span::from_millis(3),
                ..LinkConfig::default()
            };
            let mut network = star(seed, link, &job);
            reduce(&mut network, &SIZES, at_ms(1_000_000));
        }
    }
}

#[test]
fn two_hundred_collectives_of_random_sizes_stream_back_to_back() {
    for (seed, loss, shards) in [(1, 0.0, 1), (2, 0.01, 1), (3, 0.05, 4)] {
        let mut rng = SplitMix(seed);
        let sizes: Vec<(usize, bool)> = (0..200)
            .map(|_| {
                let limit = [2, 70, 3000, 20_000][rng.below(4) as usize];
                (rng.below(limit) as usize, rng.chance(0.7))
            })
            .collect();
        let job = JobConfig { trees: shards, ..job(4, 16, 64) };
        let mut network = star(seed, LinkConfig { loss, ..LinkConfig::default() }, &job);
        let memory: Vec<usize> = memory_bytes(&network, &job);
        reduce(&mut network, &sizes, at_ms(1_000_000));
        assert_eq!(memory_bytes(&network, &job), memory);
        for pipeline in &network.switches[0].pipelines {
            assert_eq!(pipeline.report(job.job).unwrap().machine.unwrap().slots_waiting, 0, "no slot is left waiting");
        }
    }
}

fn memory_bytes(network: &Network, job: &JobConfig) -> Vec<usize> {
    network.switches[0].pipelines.iter().map(|pipeline| pipeline.report(job.job).unwrap().memory_bytes).collect()
}

/// Ranks submit at their own pace: the next collective when the one before it is complete, or after some thinking.
#[test]
fn ranks_may_be_out_of_step() {
    for seed in 0..10 {
        let mut rng = SplitMix(seed);
        let sizes: Vec<(usize, bool)> = (0..30).map(|op| (rng.below(2000) as usize, op % 3 > 0)).collect();
        let mut network = star(seed, LinkConfig { loss: 0.02, ..LinkConfig::default() }, &job(3, 8, 64));
        for rank in 0..3 {
            let mut at = 0;
            for (op, &(elements, float)) in sizes.iter().enumerate() {
                at += rng.below(3);
                network.submit_at(at_ms(at), usize::from(rank), collective(rank, op, elements, float));
            }
        }
        let events = network.run_until_idle(at_ms(100_000));
        check_sums(events, &sizes);
    }
}

/// Two jobs in one pipeline, each with its own hosts behind its own ports.
#[test]
fn two_jobs_do_not_see_each_other() {
    let first = job(2, 8, 64);
    let second = JobConfig {
        job: JobId(2),
        key: JobKey(77),
        protocol: 1,
        world_size: 3,
        slots: 4,
        elements_per_packet: 32,
        trees: 1,
        levels: false,
        options: tributary_proto::switchml::PROTOCOL.options.defaults(),
    };
    let mut pipeline = Pipeline::default();
    let install = |pipeline: &mut _, job: &JobConfig, ports: Range<u16>, group| {
        let below = Below::workers(ports.len() as u16);
        let (job, shard, members, parent) = (job.clone(), TreeId(0), ports.map(PortId).collect(), None);
        install(Values::Elements, pipeline, &SwitchConfig { job, tree: shard, members, below, group, parent });
    };
    install(&mut pipeline, &first, 0..2, GroupId(1));
    install(&mut pipeline, &second, 2..5, GroupId(2));
    let hosts = (0..2).map(|rank| host(&first, rank)).chain((0..3).map(|rank| host(&second, rank))).collect();
    let mut network = Network::star(1, LinkConfig { loss: 0.05, ..LinkConfig::default() }, hosts, vec![pipeline]);
    network.switches[0].groups.insert(GroupId(1), (0..2).map(PortId).collect());
    network.switches[0].groups.insert(GroupId(2), (2..5).map(PortId).collect());
    let sizes = [[(5000, true), (100, false)], [(70, true), (9000, true)]];
    for (job, ranks) in [(0, 0..2), (1, 2..5)] {
        for (rank, host) in ranks.enumerate() {
            for (op, &(elements, float)) in sizes[job].iter().enumerate() {
                network.submit(host, collective(rank as u16, op, elements, float)).unwrap();
            }
        }
    }
    let mut events = network.run_until_idle(at_ms(100_000));
    check_sums(events.split_off(2), &sizes[1]);
    check_sums(events, &sizes[0]);
    // One job goes; the other goes on.
    assert!(network.switches[0].pipelines[0].remove(second.job));
    for rank in 0..2 {
        network.submit(usize::from(rank), collective(rank, 2, 1000, true)).unwrap();
    }
    let events = network.run_until_idle(at_ms(200_000));
    assert!(events[..2].iter().all(|events| matches!(events[..], [HostEvent::Done { .. }])));
}
