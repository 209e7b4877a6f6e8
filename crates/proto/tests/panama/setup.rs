//! Jobs, hosts and pipelines for the tests.

use tributary_numeric::{DType, Element, ReduceOp};
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, Parent, SwitchConfig, TimerConfig, WorkerPlace};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::panama::PROTOCOL;
use tributary_proto::parts::reference::reference;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;

/// Options by name; the rest is as nobody chooses.
pub fn options(given: &[(&str, &str)]) -> Options {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    PROTOCOL.options.read(&given).unwrap()
}

/// A job with room for `room` packets at each port and tree.
pub fn job(world: u16, trees: u16, room: u16, elements_per_packet: u16) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(0x5EED),
        protocol: PROTOCOL.code,
        world,
        slots: trees * room,
        elements_per_packet,
        trees,
        levels: false,
        options: options(&[]),
    }
}

/// A worker that is a given child of its switch.
pub fn host(job: &JobConfig, rank: u16, child: u16) -> Box<dyn Host> {
    let config = HostConfig {
        job: job.clone(),
        rank: Rank(rank),
        trees: vec![WorkerPlace { child: ChildId(child) }],
        serves: None,
        timers: TimerConfig::default(),
        fabric: Default::default(),
    };
    PROTOCOL.host(Values::Elements, &config)
}

/// The pipelines of a switch whose children are behind the ports from 0 on, one a tree.
pub fn pipelines(job: &JobConfig, below: &[Below], parent: Option<Parent>) -> Vec<Pipeline> {
    (0..job.trees)
        .map(|shard| {
            let mut pipeline = Pipeline::default();
            let members: Vec<PortId> = (0..below.len() as u16).map(PortId).collect();
            let (below, group) = (below.to_vec(), GroupId(0));
            let config = SwitchConfig { job: job.clone(), tree: TreeId(shard), members, below, group, parent };
            let installed = InstalledJob {
                protocol: PROTOCOL.code,
                key: job.key,
                members: config.members.clone(),
                others: parent.iter().map(|parent| parent.port).collect(),
                machine: PROTOCOL.switch(Values::Elements, &config),
            };
            pipeline.install(job.job, installed);
            pipeline
        })
        .collect()
}

/// All ranks of a job round one switch.
pub fn star(seed: u64, link: LinkConfig, job: &JobConfig) -> Network {
    let hosts = (0..job.world).map(|rank| host(job, rank, rank)).collect();
    Network::star(seed, link, hosts, pipelines(job, &Below::workers(job.world), None))
}

/// Racks of as many ranks each below one switch. Ranks are dealt out to the racks like cards.
pub fn racks(seed: u64, link: LinkConfig, racks: u16, job: &JobConfig) -> Network {
    racks_of(seed, link, racks, job, &vec![job; usize::from(racks) + 1])
}

/// The same, where each switch, the root first, knows the job in its own way.
pub fn racks_of(seed: u64, link: LinkConfig, racks: u16, job: &JobConfig, at: &[&JobConfig]) -> Network {
    let ranks = |rack: u16| (0..job.world).filter(move |rank| rank % racks == rack).map(Rank);
    let root: Vec<Below> = (0..racks).map(|rack| Below::Switch(ranks(rack).collect())).collect();
    let mut switches = vec![(pipelines(at[0], &root, None), None)];
    for rack in 0..racks {
        let below: Vec<Below> = ranks(rack).map(Below::Worker).collect();
        let parent = Parent { port: PortId(below.len() as u16), child: ChildId(rack) };
        switches.push((pipelines(at[usize::from(rack) + 1], &below, Some(parent)), Some(0)));
    }
    let hosts = (0..job.world).map(|rank| host(job, rank, rank / racks)).collect();
    Network::tree(seed, link, hosts, |rank| 1 + rank % usize::from(racks), switches)
}

/// The tree of [`racks`].
pub fn reference_of_racks(racks: u16, world: u16) -> SumTree {
    let rack = |rack| SumTree::Switch((0..world).filter(|rank| rank % racks == rack).map(SumTree::Rank).collect());
    SumTree::Switch((0..racks).map(rack).collect())
}

pub fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// A link with every fault but a long queue.
pub fn faulty() -> LinkConfig {
    LinkConfig { loss: 0.01, duplicate: 0.02, reorder: 0.01, ..LinkConfig::default() }
}

/// Input and output in one memory, so that a block that is read after its result was written is seen.
pub fn in_place<T: Element>(data: &[T], op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(InPlaceStorage::new(data.to_vec()), op)), deadline: None }
}

/// Floats of very different magnitudes, whose sum depends on the order, and some that are no ordinary numbers.
pub fn floats(rank: usize, elements: usize) -> Vec<f32> {
    let value = |i: usize| match (rank * 31 + i * 7) % 97 {
        0 => f32::INFINITY,
        1 if rank == 1 => f32::NAN,
        2 => -0.0,
        3 => f32::from_bits(5),
        4 if i.is_multiple_of(2) => f32::NEG_INFINITY,
        odd => (odd as f32 - 48.5) * 10f32.powi((i + rank) as i32 % 9 - 4),
    };
    (0..elements).map(value).collect()
}

/// A rank's data as vectors of packets hold it.
pub fn vector<T: Element>(input: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; T::DTYPE.size() * input.len()];
    tributary_numeric::codec::write_native(input, &mut bytes);
    bytes
}

/// The bits that the sum must have.
pub fn expected<T: Element>(inputs: &[Vec<T>], op: ReduceOp, tree: &SumTree) -> Vec<u8> {
    let vectors: Vec<Vec<u8>> = inputs.iter().map(|input| vector(input)).collect();
    reference(T::DTYPE, op, &vectors, tree).expect("it has a meaning")
}

/// What every host's only event brought, the same bits on every rank: big-endian elements.
pub fn output(events: Vec<Vec<HostEvent>>, dtype: DType, elements: usize) -> Vec<u8> {
    let mut outputs = events.into_iter().enumerate().map(|(rank, events)| {
        let [HostEvent::Done { tensor, .. }] = &events[..] else { panic!("rank {rank}: {} events", events.len()) };
        let mut bytes = vec![0; dtype.size() * elements];
        tensor.read_output(0..elements, &mut bytes);
        bytes
    });
    let first = outputs.next().expect("a rank");
    assert!(outputs.all(|output| output == first), "the same bits on every rank");
    first
}

/// Runs one collective over the ranks' data; gives the output's bytes.
pub fn reduce<T: Element>(network: &mut Network, inputs: &[Vec<T>], op: ReduceOp) -> Vec<u8> {
    for (rank, input) in inputs.iter().enumerate() {
        network.submit(rank, in_place(input, op)).unwrap();
    }
    output(network.run_until_idle(at_ms(10_000_000)), T::DTYPE, inputs[0].len())
}

/// Packets that were sent again, of all ranks.
pub fn retransmissions(network: &Network) -> u64 {
    network.hosts.iter().map(|host| host.machine.stats().retransmissions).sum()
}
