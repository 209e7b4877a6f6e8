//! Jobs, hosts and pipelines for the tests.

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, Parent, SwitchConfig, TreeLeaf};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;

/// The options with floats summed in this way.
pub fn numbers(kind: &str) -> Options {
    let given = [("numbers".to_owned(), kind.to_owned())].into();
    tributary_proto::switchml::PROTOCOL.options.read(&given).unwrap()
}

pub fn job(world_size: u16, slots: u16, elements_per_packet: u16) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(0x5EED),
        protocol: 1,
        world_size,
        slots,
        elements_per_packet,
        trees: 1,
        levels: false,
        options: numbers("fixed"),
    }
}

pub fn host(job: &JobConfig, worker: u16) -> Box<dyn Host> {
    host_of(Values::Elements, job, worker)
}

/// The same, over elements or fingerprints.
pub fn host_of(values: Values, job: &JobConfig, worker: u16) -> Box<dyn Host> {
    host_below(values, job, worker, ChildId(worker))
}

/// A rank that is this child of its switch.
pub fn host_below(values: Values, job: &JobConfig, rank: u16, child: ChildId) -> Box<dyn Host> {
    let trees = vec![TreeLeaf { child }];
    let config = HostConfig { trees, ..HostConfig::worker(job.clone(), Rank(rank)) };
    tributary_proto::switchml::PROTOCOL.host(values, &config)
}

/// The pipelines of a switch that sums for all ranks, behind ports 0 to `children` - 1, one a shard.
pub fn pipelines(values: Values, job: &JobConfig, children: u16) -> Vec<Pipeline> {
    pipelines_in_tree(values, job, &Below::workers(children), None)
}

/// The pipelines of a switch whose children are behind the ports from 0 on, one a shard.
pub fn pipelines_in_tree(values: Values, job: &JobConfig, below: &[Below], parent: Option<Parent>) -> Vec<Pipeline> {
    (0..job.trees)
        .map(|shard| {
            let mut pipeline = Pipeline::default();
            let members = (0..below.len() as u16).map(PortId).collect();
            let (job, shard, below, group) = (job.clone(), TreeId(shard), below.to_vec(), GroupId(0));
            install(values, &mut pipeline, &SwitchConfig { job, tree: shard, members, below, group, parent });
            pipeline
        })
        .collect()
}

pub fn install(values: Values, pipeline: &mut Pipeline, config: &SwitchConfig) {
    let installed = InstalledJob {
        protocol: tributary_proto::switchml::PROTOCOL.code,
        key: config.job.key,
        members: config.members.clone(),
        others: config.parent.iter().map(|parent| parent.port).collect(),
        machine: tributary_proto::switchml::PROTOCOL.switch(values, config),
    };
    pipeline.install(config.job.job, installed);
}

/// All ranks of a job round one switch.
pub fn star(seed: u64, link: LinkConfig, job: &JobConfig) -> Network {
    let hosts = (0..job.world_size).map(|worker| host(job, worker)).collect();
    Network::star(seed, link, hosts, pipelines(Values::Elements, job, job.world_size))
}

pub fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Rank `rank`'s input of the `op`th collective: small integers, so that floats sum exactly too.
pub fn input(rank: u16, op: usize, elements: usize) -> Vec<i32> {
    let seed = 7919 * i64::from(rank) + 104_729 * op as i64;
    (0..elements as i64).map(|i| ((seed + i * 31) % 2001 - 1000) as i32).collect()
}

pub fn sum(world_size: u16, op: usize, elements: usize) -> Vec<i32> {
    let mut sum = vec![0i32; elements];
    for rank in 0..world_size {
        sum.iter_mut().zip(input(rank, op, elements)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

/// Input and output in one memory, so that a block that is encoded after it was decoded is seen.
pub fn in_place<T: Element>(data: Vec<T>, op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(InPlaceStorage::new(data), op)), deadline: None }
}

pub fn collective(rank: u16, op: usize, elements: usize, float: bool) -> Collective {
    let input = input(rank, op, elements);
    match float {
        true => in_place(input.into_iter().map(|value| value as f32).collect(), ReduceOp::Sum),
        false => in_place(input, ReduceOp::Sum),
    }
}

/// Checks that every host completed exactly these collectives, in their order, with the right sums.
pub fn check_sums(events: Vec<Vec<HostEvent>>, sizes: &[(usize, bool)]) {
    let world_size = events.len() as u16;
    for (rank, events) in events.into_iter().enumerate() {
        assert_eq!(events.len(), sizes.len(), "rank {rank}");
        for (index, (event, &(elements, float))) in events.into_iter().zip(sizes).enumerate() {
            let HostEvent::Done { op, tensor } = event else { panic!("collective {index} of rank {rank} failed") };
            assert_eq!(op.0 as usize, index);
            let mut bytes = vec![0; 4 * elements];
            tensor.read_output(0..elements, &mut bytes);
            let words = bytes.chunks_exact(4).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
            let values: Vec<i32> =
                words.map(|word| if float { f32::from_bits(word).round() as i32 } else { word as i32 }).collect();
            assert!(
                values == sum(world_size, index, elements),
                "collective {index} of {elements} elements, rank {rank}"
            );
        }
    }
}

/// Submits the same collectives on all ranks at once, runs until all are complete, and checks the sums.
pub fn reduce(network: &mut Network, sizes: &[(usize, bool)], limit: Time) {
    let world_size = network.hosts.len() as u16;
    for (op, &(elements, float)) in sizes.iter().enumerate() {
        for rank in 0..world_size {
            network.submit(usize::from(rank), collective(rank, op, elements, float)).unwrap();
        }
    }
    let events = network.run_until_idle(limit);
    check_sums(events, sizes);
}
