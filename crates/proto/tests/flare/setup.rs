//! Jobs, hosts, one switch and racks of switches for the tests, and what sums must be.

use tributary_numeric::{DType, Element, ReduceOp, codec};
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, Parent, SwitchConfig, TimerConfig, WorkerPlace};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, JobId, JobKey, PortId, Rank, TreeId};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::parts::reference::reference;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::harness::Network;
use crate::harness::link::LinkConfig;

/// Every design, and none chosen.
pub const DESIGNS: [&str; 6] = ["auto", "single", "multi:2", "multi:3", "multi:8", "tree"];

/// Options by name; the rest is as nobody chooses.
pub fn options(given: &[(&str, &str)]) -> Options {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    PROTOCOL.options.read(&given).unwrap()
}

/// A job of one shard with these options.
pub fn job(world: u16, slots: u16, elements_per_packet: u16, given: &[(&str, &str)]) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(0x5EED),
        protocol: PROTOCOL.code,
        world,
        slots,
        elements_per_packet,
        trees: 1,
        levels: false,
        options: options(given),
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

/// What a shard of a switch is made from whose children are behind the ports from 0 on.
pub fn switch_config(job: &JobConfig, shard: u16, below: &[Below], parent: Option<Parent>) -> SwitchConfig {
    let members = (0..below.len() as u16).map(PortId).collect();
    let (below, group) = (below.to_vec(), GroupId(0));
    SwitchConfig { job: job.clone(), tree: TreeId(shard), members, below, group, parent }
}

/// The pipelines of that switch, one a shard.
pub fn pipelines(job: &JobConfig, below: &[Below], parent: Option<Parent>) -> Vec<Pipeline> {
    let shard = |shard| {
        let mut pipeline = Pipeline::default();
        let config = switch_config(job, shard, below, parent);
        let installed = InstalledJob {
            protocol: PROTOCOL.code,
            key: job.key,
            members: config.members.clone(),
            others: parent.iter().map(|parent| parent.port).collect(),
            machine: PROTOCOL.switch(Values::Elements, &config),
        };
        pipeline.install(job.job, installed);
        pipeline
    };
    (0..job.trees).map(shard).collect()
}

/// All ranks of a job round one switch.
pub fn star(seed: u64, link: LinkConfig, job: &JobConfig) -> Network {
    let hosts = (0..job.world).map(|rank| host(job, rank, rank)).collect();
    Network::star(seed, link, hosts, pipelines(job, &Below::workers(job.world), None))
}

/// Racks of these ranks, ascending in each, below one switch.
pub fn racks(seed: u64, link: LinkConfig, job: &JobConfig, racks: &[&[u16]]) -> Network {
    let job = &JobConfig { levels: true, ..job.clone() };
    let ranks = |rack: &&[u16]| Below::Switch(rack.iter().copied().map(Rank).collect());
    let root: Vec<Below> = racks.iter().map(ranks).collect();
    let mut switches = vec![(pipelines(job, &root, None), None)];
    for (place, rack) in racks.iter().enumerate() {
        let below: Vec<Below> = rack.iter().map(|&rank| Below::Worker(Rank(rank))).collect();
        let parent = Parent { port: PortId(below.len() as u16), child: ChildId(place as u16) };
        switches.push((pipelines(job, &below, Some(parent)), Some(0)));
    }
    let rack_of = |rank: u16| racks.iter().position(|rack| rack.contains(&rank)).expect("every rank is in a rack");
    let child_of = |rank: u16| racks[rack_of(rank)].iter().position(|&other| other == rank).expect("it is there");
    let hosts = (0..job.world).map(|rank| host(job, rank, child_of(rank) as u16)).collect();
    Network::tree(seed, link, hosts, |rank| 1 + rack_of(rank as u16), switches)
}

/// The tree of [`racks`].
pub fn tree_of(racks: &[&[u16]]) -> SumTree {
    SumTree::Switch(
        racks.iter().map(|rack| SumTree::Switch(rack.iter().copied().map(SumTree::Rank).collect())).collect(),
    )
}

pub fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Links that lose, double and reorder packets.
pub fn lossy() -> LinkConfig {
    LinkConfig { loss: 0.05, duplicate: 0.05, reorder: 0.1, ..LinkConfig::default() }
}

/// Input and output in one memory, so that a block that is read after its result was written is seen.
pub fn in_place<T: Element>(data: &[T], op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(InPlaceStorage::new(data.to_vec()), op)), deadline: None }
}

/// Floats of very different magnitudes, whose sum depends on the order, and some that are no ordinary numbers.
pub fn floats(rank: usize, elements: usize) -> Vec<f32> {
    let value = |i: usize| match (rank * 31 + i * 7) % 97 {
        0 => f32::INFINITY,
        1 if rank == 1 => f32::from_bits(0xffc0_1234),
        2 => -0.0,
        3 => f32::from_bits(5),
        4 if i.is_multiple_of(2) => f32::NEG_INFINITY,
        odd => (odd as f32 - 48.5) * 10f32.powi((i + rank) as i32 % 9 - 4),
    };
    (0..elements).map(value).collect()
}

/// Every rank's floats, as elements of another type.
pub fn inputs<T>(world: u16, elements: usize, make: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    (0..usize::from(world)).map(|rank| floats(rank, elements).into_iter().map(&make).collect()).collect()
}

/// A rank's data as vectors of packets hold it.
pub fn vector<T: Element>(input: &[T]) -> Vec<u8> {
    let mut bytes = vec![0; T::DTYPE.size() * input.len()];
    codec::write_native(input, &mut bytes);
    bytes
}

/// The bits that the sum along a tree must have.
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

/// The order that every rank has been told; `None` where there is none.
pub fn order(network: &Network) -> Option<u32> {
    let orders: Vec<Option<u32>> = network.hosts.iter().map(|host| host.machine.stats().order).collect();
    assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
    orders[0]
}
