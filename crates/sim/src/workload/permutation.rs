//! Every host sends one message to another, and receives one: the workload of the speed measurements.

use tributary_proto::contract::ids::NodeId;

use crate::driver::Simulation;
use crate::rng::{Purpose, Rng};

/// Starts the messages of a random permutation of `hosts` without fixed points, all at once.
pub fn permutation(simulation: &mut Simulation, hosts: &[NodeId], seed: u64, bytes: u64, packet_bytes: u16) {
    let peers = Rng::new(seed, Purpose::Permutation, 0).derangement(hosts.len());
    for (&host, &peer) in hosts.iter().zip(&peers) {
        simulation.send_message(host, hosts[peer as usize], bytes, packet_bytes);
    }
}

/// The same with flows under DCTCP, of so many bytes of data. False if they have more packets than packets have numbers.
pub fn permutation_of_flows(simulation: &mut Simulation, hosts: &[NodeId], seed: u64, bytes: u64) -> bool {
    let peers = Rng::new(seed, Purpose::Permutation, 0).derangement(hosts.len());
    let mut pairs = hosts.iter().zip(&peers);
    pairs.all(|(&host, &peer)| simulation.start_flow(host, hosts[peer as usize], bytes).is_some())
}
