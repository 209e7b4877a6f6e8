//! Jobs, hosts, one switch and racks of switches for the tests, and what sums must be.

use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, PortId, Rank};
use tributary_proto::contract::options::Options;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::flare::PROTOCOL;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{host, pipelines};

/// Every design, and none chosen.
pub const DESIGNS: [&str; 6] = ["auto", "single", "multi:2", "multi:3", "multi:8", "tree"];

/// Options by name; the rest is as nobody chooses.
pub fn options(given: &[(&str, &str)]) -> Options {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    PROTOCOL.options.read(&given).unwrap()
}

/// A job of one shard with these options.
pub fn job(world_size: u16, slots: u16, elements_per_packet: u16, given: &[(&str, &str)]) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(0x5EED),
        protocol: PROTOCOL.code,
        world_size,
        slots,
        elements_per_packet,
        trees: 1,
        levels: false,
        options: options(given),
    }
}

/// Racks of these ranks, ascending in each, below one switch.
pub fn racks(seed: u64, link: LinkConfig, job: &JobConfig, racks: &[&[u16]]) -> Network {
    let job = &JobConfig { levels: true, ..job.clone() };
    let ranks = |rack: &&[u16]| Below::Switch(rack.iter().copied().map(Rank).collect());
    let root: Vec<Below> = racks.iter().map(ranks).collect();
    let mut switches = vec![(pipelines(job, &root, None), None)];
    for (position, rack) in racks.iter().enumerate() {
        let below: Vec<Below> = rack.iter().map(|&rank| Below::Worker(Rank(rank))).collect();
        let parent = Parent { port: PortId(below.len() as u16), child: ChildId(position as u16) };
        switches.push((pipelines(job, &below, Some(parent)), Some(0)));
    }
    let rack_of = |rank: u16| racks.iter().position(|rack| rack.contains(&rank)).expect("every rank is in a rack");
    let child_of = |rank: u16| racks[rack_of(rank)].iter().position(|&other| other == rank).expect("it is there");
    let hosts = (0..job.world_size).map(|rank| host(job, rank, child_of(rank) as u16)).collect();
    Network::tree(seed, link, hosts, |rank| 1 + rack_of(rank as u16), switches)
}

/// The tree of [`racks`].
pub fn tree_of(racks: &[&[u16]]) -> SumTree {
    SumTree::Switch(
        racks.iter().map(|rack| SumTree::Switch(rack.iter().copied().map(SumTree::Rank).collect())).collect(),
    )
}

/// Links that lose, double and reorder packets.
pub fn lossy() -> LinkConfig {
    LinkConfig { loss: 0.05, duplicate: 0.05, reorder: 0.1, ..LinkConfig::default() }
}

/// Floats of very different magnitudes, whose sum depends on the order, and some that are not ordinary numbers.
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
pub fn inputs<T>(world_size: u16, elements: usize, make: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    (0..usize::from(world_size)).map(|rank| floats(rank, elements).into_iter().map(&make).collect()).collect()
}

/// The order that every rank has been told; `None` where there is none.
pub fn order(network: &Network) -> Option<u32> {
    let orders: Vec<Option<u32>> = network.hosts.iter().map(|host| host.machine.stats().order).collect();
    assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
    orders[0]
}
