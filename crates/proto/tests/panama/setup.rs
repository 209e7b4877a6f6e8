//! Jobs, hosts and pipelines for the tests.

use tributary_proto::contract::config::{Below, JobConfig, Parent};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, PortId, Rank};
use tributary_proto::contract::options::{Kind, Options};
use tributary_proto::contract::pipeline::Pipeline;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::panama::PROTOCOL;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{host, pipelines};

/// Options by name; the rest is as nobody chooses.
pub fn options(given: &[(&str, &str)]) -> Options {
    let given = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    PROTOCOL.options.read(&given).unwrap()
}

/// Every word of `congestion_control`.
pub fn controls() -> Vec<&'static str> {
    let spec = PROTOCOL.options.specs.iter().find(|spec| spec.name == "congestion_control").unwrap();
    let Kind::Choice(words) = spec.kind else { panic!("it is a choice") };
    words.to_vec()
}

/// A job with room for `capacity` packets at each port and tree.
pub fn job(world_size: u16, trees: u16, capacity: u16, elements_per_packet: u16) -> JobConfig {
    JobConfig {
        job: JobId(1),
        key: JobKey(0x5EED),
        protocol: PROTOCOL.code,
        world_size,
        slots: trees * capacity,
        elements_per_packet,
        trees,
        levels: false,
        options: options(&[]),
    }
}

/// Racks of as many ranks each below one switch. Ranks are dealt out to the racks like cards.
pub fn racks(seed: u64, link: LinkConfig, racks: u16, job: &JobConfig) -> Network {
    racks_of(seed, link, racks, job, &vec![job; usize::from(racks) + 1])
}

/// The same, where each switch, the root first, knows the job in its own way.
pub fn racks_of(seed: u64, link: LinkConfig, racks: u16, job: &JobConfig, at: &[&JobConfig]) -> Network {
    let parent = |switch: usize| (switch > 0).then_some(0);
    let switches = at.iter().enumerate().map(|(switch, at)| (machines(switch, racks, at), parent(switch))).collect();
    let hosts = (0..job.world_size).map(|rank| host(job, rank, rank / racks)).collect();
    Network::tree(seed, link, hosts, |rank| 1 + rank % usize::from(racks), switches)
}

/// The machines of a switch of [`racks`], as new: 0 is the root, the racks follow.
fn machines(switch: usize, racks: u16, job: &JobConfig) -> Vec<Pipeline> {
    let ranks = |rack: u16| (0..job.world_size).filter(move |rank| rank % racks == rack).map(Rank);
    let Some(rack) = (switch as u16).checked_sub(1) else {
        let below: Vec<Below> = (0..racks).map(|rack| Below::Switch(ranks(rack).collect())).collect();
        return pipelines(job, &below, None);
    };
    let below: Vec<Below> = ranks(rack).map(Below::Worker).collect();
    let parent = Parent { port: PortId(below.len() as u16), child: ChildId(rack) };
    pipelines(job, &below, Some(parent))
}

/// The trees of [`racks`] begin again, with machines that know nothing, as where a fabric moves them to other switches.
pub fn plant(network: &mut Network, racks: u16, job: &JobConfig) {
    (0..=usize::from(racks)).for_each(|switch| network.restart_switch(switch, machines(switch, racks, job)));
}

/// The tree of [`racks`].
pub fn reference_of_racks(racks: u16, world_size: u16) -> SumTree {
    let rack = |rack| SumTree::Switch((0..world_size).filter(|rank| rank % racks == rack).map(SumTree::Rank).collect());
    SumTree::Switch((0..racks).map(rack).collect())
}

/// A link with every fault but a long queue.
pub fn faulty() -> LinkConfig {
    LinkConfig { loss: 0.01, duplicate: 0.02, reorder: 0.01, ..LinkConfig::default() }
}

/// Floats of very different magnitudes, whose sum depends on the order, and some that are not ordinary numbers.
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

/// Packets that were sent again, of all ranks.
pub fn retransmissions(network: &Network) -> u64 {
    network.hosts.iter().map(|host| host.machine.stats().retransmissions).sum()
}
