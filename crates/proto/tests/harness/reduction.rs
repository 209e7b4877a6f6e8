//! One collective over all ranks of a job in a network: the machines of whatever protocol the job names, and the bits
//! that its sums must have.

use tributary_numeric::{DType, Element, ReduceOp, codec};
use tributary_proto::aggregation::reference;
use tributary_proto::contract::config::{Below, HostConfig, JobConfig, Parent, SwitchConfig, TreeLeaf};
use tributary_proto::contract::host::{Collective, Host, HostEvent};
use tributary_proto::contract::ids::{ChildId, GroupId, PortId, Rank, TreeId};
use tributary_proto::contract::pipeline::{InstalledJob, Pipeline};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::protocols;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use super::Network;
use super::link::LinkConfig;

fn protocol(job: &JobConfig) -> &'static Protocol {
    protocols::with_code(job.protocol).expect("the job's protocol is one of ours")
}

/// A worker that is a given child of its switch.
pub fn host(job: &JobConfig, rank: u16, child: u16) -> Box<dyn Host> {
    let trees = vec![TreeLeaf { child: ChildId(child) }];
    let config = HostConfig { trees, ..HostConfig::worker(job.clone(), Rank(rank)) };
    protocol(job).host(Values::Elements, &config)
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
            protocol: job.protocol,
            key: job.key,
            members: config.members.clone(),
            others: parent.iter().map(|parent| parent.port).collect(),
            machine: protocol(job).switch(Values::Elements, &config),
        };
        pipeline.install(job.job, installed);
        pipeline
    };
    (0..job.trees).map(shard).collect()
}

/// All ranks of a job round one switch.
pub fn star(seed: u64, link: LinkConfig, job: &JobConfig) -> Network {
    let hosts = (0..job.world_size).map(|rank| host(job, rank, rank)).collect();
    Network::star(seed, link, hosts, pipelines(job, &Below::workers(job.world_size), None))
}

pub fn at_ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Input and output in one memory, so that a block that is read after its result was written is seen.
pub fn in_place<T: Element>(data: &[T], op: ReduceOp) -> Collective {
    Collective { tensor: Box::new(ElementTensor::new(InPlaceStorage::new(data.to_vec()), op)), deadline: None }
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
