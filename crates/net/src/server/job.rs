//! A job as one of its servers knows it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use tributary_control::{JobName, Limits};
use tributary_proto::contract::config::{CoreSlots, FabricPlan, HostConfig, JobConfig, TimerConfig, TreeLeaf};
use tributary_proto::contract::host::Host;
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, Rank, ServerId, TreeId};
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::rate_limit::QueryLimit;
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;
use tributary_proto::protocols;

use crate::api::{ServedBody, from_hex};
use crate::transmit::Addresses;
use crate::udp::{Reassembly, UdpPort, key_of};

/// The most elements that a datagram holds.
const MOST_ELEMENTS: u16 = tributary_control::admission::MAX_ELEMENTS_PER_PACKET;

/// One job with its machine.
pub struct Job {
    /// The header of the job's packets, without a kind.
    pub header: Common,
    pub host: Box<dyn Host>,
    workers: Vec<SocketAddr>,
    /// The switch between the workers and this server, if the workers' packets pass one.
    switch: Option<SocketAddr>,
    /// The sender at each address.
    pub senders: HashMap<(IpAddr, u16), Addr>,
    /// The address of each receiver.
    pub addresses: Addresses,
    /// How often each worker has pinged recently.
    pub query_limits: HashMap<Addr, QueryLimit>,
    /// Packets that arrive in fragments, and the packet that was reassembled last.
    pub fragments: Reassembly<Addr, Addr>,
    pub reassembled: Vec<u8>,
}

/// Where the job's members and servers are, if packets pass switches; `None` if the description is inconsistent.
fn plan(body: &ServedBody, world_size: u16, passes_switch: bool) -> Option<FabricPlan> {
    let Some(fabric) = &body.fabric else {
        return Some(match passes_switch {
            true => FabricPlan::star_with_servers(world_size, body.servers),
            false => FabricPlan::default(),
        });
    };
    let endpoints = usize::from(world_size) + usize::from(body.servers);
    let is_complete = passes_switch && fabric.hosts.len() == endpoints && fabric.leaves.len() == endpoints;
    let nodes = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect();
    is_complete.then(|| FabricPlan { hosts: nodes(&fabric.hosts), switches: nodes(&fabric.leaves), roots: [].into() })
}

impl Job {
    /// The job's machine, from the description that the switch at this address has sent. `None` if this build cannot
    /// interpret it.
    pub fn new(body: &ServedBody, switch: SocketAddr) -> Option<Job> {
        let world_size = u16::try_from(body.workers.len()).ok()?;
        JobName::new(&body.name).ok()?;
        let protocol = protocols::named(&body.protocol)?;
        let make = protocol.server_machine()?;
        // Each server owns a shard of the slots, unless packets pass a switch whose memory jobs share.
        let passes_switch = protocol.shared.is_some();
        let shared = body.server < body.servers && (passes_switch || body.slots.is_multiple_of(body.servers));
        let bounded = (1..=Limits::MAX_SLOTS).contains(&body.slots)
            && (1..=MOST_ELEMENTS).contains(&body.elements_per_packet)
            && (1..=JobConfig::MAX_WORLD_SIZE).contains(&world_size);
        if !shared || !bounded {
            return None;
        }
        let job = JobConfig {
            job: JobId(body.job_id),
            key: JobKey(from_hex(&body.key)?),
            protocol: protocol.code,
            world_size,
            slots: body.slots,
            elements_per_packet: body.elements_per_packet,
            trees: if passes_switch { 1 } else { body.servers },
            levels: false,
            options: protocol.options.read(&body.options).ok()?,
        };
        let header = job.common();
        // The number of a server must differ from the ranks.
        let rank = Rank(world_size + body.server);
        let config = HostConfig {
            job,
            rank,
            trees: TreeLeaf::of_rank(rank),
            serves: Some(ServerId(body.server)),
            slots: CoreSlots::ALL,
            timers: TimerConfig::default(),
            fabric: plan(body, world_size, passes_switch)?,
        };
        let host = make(Values::Elements, &config);
        let workers = body.workers.clone();
        let (senders, addresses) = (HashMap::new(), Addresses::new());
        let (fragments, reassembled) = (Reassembly::default(), Vec::new());
        let query_limits = HashMap::new();
        // In a standalone switch, shard 0 has the shared memory, and its UDP address is that of the control API.
        let switch = passes_switch.then(|| body.fabric.as_ref().map_or(switch, |fabric| fabric.leaf));
        Some(Job { header, host, workers, switch, senders, addresses, query_limits, fragments, reassembled })
    }

    /// Resolves the addresses of the job's workers and of the switch between them.
    pub fn resolve_addresses(&mut self, udp: &UdpPort) {
        let workers = || (0..).zip(&self.workers).map(|(rank, &at)| (Addr::Worker(Rank(rank)), at));
        let known = || workers().chain(self.switch.map(|at| (Addr::Switch(TreeId(0)), at)));
        self.senders = known().map(|(addr, at)| (key_of(at), addr)).collect();
        self.addresses = known().map(|(addr, at)| (addr, udp.destination(at))).collect();
    }
}
