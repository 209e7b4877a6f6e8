//! Every host sends one message to another, and receives one: the workload of the speed measurements.

use tributary_proto::ids::NodeId;

use crate::driver::Simulation;
use crate::rng::{Purpose, Rng};

/// Starts the messages of a random permutation without fixed points, all at once.
pub fn permutation(simulation: &mut Simulation, seed: u64, packets: u32, packet_bytes: u16) {
    let peers = Rng::new(seed, Purpose::Permutation, 0).derangement(simulation.graph().hosts() as usize);
    for (host, &peer) in peers.iter().enumerate() {
        simulation.send_message(NodeId(host as u32), NodeId(peer), packets, packet_bytes);
    }
}
