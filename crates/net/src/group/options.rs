//! The options with which a caller joins, and the settings and counters that it may read afterwards.

use std::net::SocketAddr;
use std::time::Duration;

use tributary_proto::contract::config::{CoreSlots, JobConfig};
use tributary_proto::contract::host::HostStats;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

use super::error::ConnectError;
use crate::udp::SocketCounters;

/// How a worker joins its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The switch's control address, `host:port`.
    pub switch: String,
    /// The job's name.
    pub job: String,
    /// This worker's rank.
    pub rank: u16,
    /// Number of ranks.
    pub world_size: u16,
    /// How long to wait for the other ranks.
    pub timeout: Duration,
    /// The protocol.
    pub protocol: &'static Protocol,
    /// The protocol's options; all ranks choose alike.
    pub options: Options,
    /// Elements per packet; if `None`, as many as the path MTU holds.
    pub elements_per_packet: Option<u16>,
    /// Slots over all shards; if `None`, computed from the bandwidth-delay product.
    pub slots: Option<u16>,
    /// Aggregation trees in a fabric of switches; if `None`, as many as are useful.
    pub trees: Option<u16>,
    /// Cores that drive this worker, each with a socket and a thread of its own, and a share of the slots; if `None`, one
    /// for each 20 Gbit/s of the link, as far as half of the machine's processors go, and one where cores cannot divide
    /// the slots.
    pub cores: Option<u16>,
}

/// What one core is expected to send, and to receive, in a second.
const BITS_PER_S_OF_A_CORE: u64 = 20_000_000_000;

impl ConnectOptions {
    /// A rank of a job, which waits a minute for the others. The protocol has its default options, and the switch chooses
    /// sizes.
    pub fn new(
        switch: impl ToString,
        job: &str,
        rank: u16,
        world_size: u16,
        protocol: &'static Protocol,
    ) -> ConnectOptions {
        ConnectOptions {
            switch: switch.to_string(),
            job: job.to_owned(),
            rank,
            world_size,
            timeout: Duration::from_secs(60),
            protocol,
            options: protocol.options.defaults(),
            elements_per_packet: None,
            slots: None,
            trees: None,
            cores: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let &ConnectOptions { rank, world_size, cores, protocol, .. } = self;
        let wrong = if !(1..=JobConfig::MAX_WORLD_SIZE).contains(&world_size) {
            format!("a world size of {world_size} is not possible; it is 1 to {}", JobConfig::MAX_WORLD_SIZE)
        } else if rank >= world_size {
            format!("rank {rank} is outside a world size of {world_size}; ranks go from 0 to {}", world_size - 1)
        } else if [self.elements_per_packet, self.slots, self.trees].contains(&Some(0)) {
            "elements per packet, slots and trees must be at least 1".to_string()
        } else if let Some(hash) = self.options.operators().lacks() {
            format!("the operator {hash} is named without its module: name its file")
        } else if let Some(cores) = cores.filter(|cores| !(1..=CoreSlots::MAX_CORES).contains(cores)) {
            format!("{cores} cores are not possible; a worker has 1 to {}", CoreSlots::MAX_CORES)
        } else if let Some(cores) = cores.filter(|&cores| cores > 1 && !(protocol.divides_slots)(&self.options)) {
            let able = protocols::ALL.iter().filter(|protocol| protocol.divides_slots_by_default());
            let able: Vec<&str> = able.map(|protocol| protocol.name).collect();
            let able = able.join(" or ");
            format!("such a job of {protocol} has no slots that {cores} cores can divide: take one core, or {able}")
        } else {
            return Ok(());
        };
        Err(ConnectError::Option(wrong))
    }

    /// The cores that drive the worker on a link of this speed, on a machine with this many processors.
    pub(super) fn cores_on(&self, link_bits_per_s: Option<u64>, processors: usize) -> u16 {
        let of_link = link_bits_per_s.unwrap_or(0).div_ceil(BITS_PER_S_OF_A_CORE);
        let divided = if (self.protocol.divides_slots)(&self.options) { of_link } else { 1 };
        let able = divided.min(processors as u64 / 2).clamp(1, CoreSlots::MAX_CORES.into());
        self.cores.unwrap_or(able as u16)
    }
}

/// The group's settings, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// The switch as the caller named it.
    pub switch: String,
    /// The job's name.
    pub job: String,
    /// Our rank.
    pub rank: u16,
    /// Number of ranks.
    pub world_size: u16,
    /// The protocol.
    pub protocol: &'static Protocol,
    /// The protocol's options.
    pub options: Options,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// Bytes of the longest IP packet on the path to the switch.
    pub mtu: u32,
    /// The UDP address of each shard of the switch.
    pub shards: Vec<SocketAddr>,
    /// The UDP address of each of the job's servers that is a process of its own, by number.
    pub servers: Vec<SocketAddr>,
    /// Our own UDP address: that of the first core.
    pub local: SocketAddr,
    /// Cores that drive this worker.
    pub cores: u16,
    /// The round trip of a packet of full length to the switch and back, idle.
    pub round_trip: Duration,
}

/// The counters of a group since it was connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The machine's counters.
    pub host: HostStats,
    /// The socket's counters.
    pub socket: SocketCounters,
    /// Packets from addresses that belong neither to the switch nor to a peer.
    pub rejected_packets: u64,
    /// Elements of completed collectives.
    pub elements_reduced: u64,
    /// Packets that each core has sent.
    pub core_packets: Vec<u64>,
}

impl GroupStats {
    /// Adds the counters of another core of the same worker, which has reduced parts of the same elements.
    pub(super) fn add(&mut self, other: &GroupStats) {
        self.host.add(&other.host);
        self.socket.add(&other.socket);
        self.rejected_packets += other.rejected_packets;
        self.core_packets.extend(&other.core_packets);
    }

    /// The fraction of blocks that were summed in the network, 0 to 1; 0 before the first block.
    pub fn in_network(&self) -> f64 {
        let blocks = self.host.blocks_in_network + self.host.blocks_at_hosts;
        if blocks == 0 { 0.0 } else { self.host.blocks_in_network as f64 / blocks as f64 }
    }

    /// The fraction of the blocks that the network has summed and, where switches have memory for all jobs of a protocol,
    /// where the others were summed and why.
    pub fn where_summed(&self, group: &GroupInfo) -> String {
        let network = format!("{:.1} % of the blocks", self.in_network() * 100.0);
        match (&group.protocol.shared, self.host.blocks_at_hosts) {
            (Some(shared), 1..) => {
                let elsewhere = (shared.fallback_note)(group.world_size, group.servers.len() as u16, &group.options);
                let share = (1.0 - self.in_network()) * 100.0;
                format!("{network}, {share:.1} % ({} blocks) {elsewhere}", self.host.blocks_at_hosts)
            }
            _ => network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(protocol: &'static Protocol) -> ConnectOptions {
        ConnectOptions::new("127.0.0.1", "cores", 0, 2, protocol)
    }

    #[test]
    fn a_fast_link_has_a_core_for_each_20_gbit_s_as_far_as_half_of_the_processors_go() {
        let dividing = protocols::ALL.iter().find(|protocol| protocol.divides_slots_by_default()).unwrap();
        let cores = |gbit: u64, processors| of(dividing).cores_on(Some(gbit * 1_000_000_000), processors);
        assert_eq!([1, 10, 20, 25, 40, 100, 400].map(|gbit| cores(gbit, 64)), [1, 1, 1, 2, 2, 5, 16]);
        assert_eq!([1, 2, 3, 4, 8, 16].map(|processors| cores(100, processors)), [1, 1, 1, 2, 4, 5]);
        assert_eq!(of(dividing).cores_on(None, 64), 1, "nobody knows how fast a loopback interface is");
    }

    #[test]
    fn a_number_that_the_caller_names_counts_and_others_have_one_core_where_slots_cannot_be_divided() {
        for &protocol in protocols::ALL {
            let named = ConnectOptions { cores: Some(3), ..of(protocol) };
            assert_eq!(named.cores_on(Some(1_000_000_000), 64), 3);
            if !protocol.divides_slots_by_default() {
                assert_eq!(of(protocol).cores_on(Some(400_000_000_000), 64), 1, "{protocol}");
            }
        }
    }
}
