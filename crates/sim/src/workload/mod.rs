//! Traffic of hosts besides jobs.

mod background;
mod poisson;
mod published;
mod queries;
mod source;

pub(crate) use background::{Bursts, Stream, Uniform, UniformGroup};
pub use poisson::PoissonGroup;
pub use published::FlowSizes;
pub(crate) use published::{Model, SizeTable};
pub(crate) use queries::{Queries, all_to_all};
pub use source::FlowSource;
pub(crate) use source::{FlowList, ListedFlow, read_flows};

use crate::rng::{Purpose, Rng};
use tributary_proto::contract::ids::NodeId;

/// Senders and receivers of a random permutation of `hosts` without fixed points.
pub fn permutation(hosts: &[NodeId], seed: u64) -> impl Iterator<Item = (NodeId, NodeId)> {
    let peers = Rng::new(seed, Purpose::Permutation, 0).derangement(hosts.len());
    peers.into_iter().zip(hosts).map(|(peer, &host)| (host, hosts[peer as usize]))
}
