//! Every host sends to one other host, and receives from one: the workload of the speed measurements.

use tributary_proto::contract::ids::NodeId;

use crate::rng::{Purpose, Rng};

/// Senders and receivers of a random permutation of `hosts` without fixed points.
pub fn permutation(hosts: &[NodeId], seed: u64) -> impl Iterator<Item = (NodeId, NodeId)> {
    let peers = Rng::new(seed, Purpose::Permutation, 0).derangement(hosts.len());
    peers.into_iter().zip(hosts).map(|(peer, &host)| (host, hosts[peer as usize]))
}
