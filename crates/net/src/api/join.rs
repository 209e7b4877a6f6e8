//! `POST /jobs/{name}/join`: what a worker brings, and the answer for each member.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tributary_control::servers::Servers;
use tributary_control::{Client, JoinRequest, Plan};
use tributary_operators::Library;
use tributary_proto::contract::config::{CoreSlots, TreeLeaf};
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, NodeId, ServerId};
use tributary_proto::contract::wire;
use tributary_proto::protocols;

use super::{SwitchBody, from_hex, hex, modules, parse_incarnation, switch_bodies};
use crate::api::error::ApiError;
use crate::os::to_span;
use crate::rendezvous;

/// `POST /jobs/{name}/join`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinBody {
    /// The wire format that the worker speaks.
    pub wire_version: u8,
    /// The worker's rank.
    pub rank: u16,
    /// The number of ranks that the worker expects.
    pub world_size: u16,
    /// The protocol's name.
    pub protocol: String,
    /// The UDP port of the worker's packets; the address is that of this request.
    pub udp_port: u16,
    /// The UDP ports of the packets of its further cores, at the same address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core_ports: Vec<u16>,
    /// The address of the worker's packets as its own machine knows it; on the way it may be translated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_ip: Option<IpAddr>,
    /// Elements per packet, if the caller insists on a number.
    #[serde(default)]
    pub elements_per_packet: Option<u16>,
    /// Elements per packet that the worker's path holds.
    pub max_elements_per_packet: u16,
    /// Slots, if the caller insists on a number.
    #[serde(default)]
    pub slots: Option<u16>,
    /// Slots that suit the worker's link.
    pub suggested_slots: u16,
    /// The protocol's options by name, as text. Options that are left out have their defaults.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// The modules of the job's custom operators, each as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Aggregation trees, if the caller insists on a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// Random, 16 hexadecimal digits: the same when one process asks again, different in its successor.
    pub incarnation: String,
    /// Seconds that the worker waits for the others.
    pub timeout_s: f64,
}

impl JoinBody {
    /// A worker's request as JSON.
    pub fn new(request: &rendezvous::JoinRequest, incarnation: u64) -> JoinBody {
        JoinBody {
            wire_version: wire::VERSION,
            rank: request.rank,
            world_size: request.world_size,
            protocol: request.protocol.name.to_owned(),
            udp_port: request.udp.port(),
            core_ports: request.core_ports.clone(),
            udp_ip: Some(request.udp.ip()).filter(|ip| !ip.is_unspecified()),
            elements_per_packet: request.elements_per_packet,
            max_elements_per_packet: request.max_elements_per_packet,
            slots: request.slots,
            suggested_slots: request.suggested_slots,
            options: request.options.to_text(),
            modules: modules::of(&request.options),
            trees: request.trees,
            incarnation: hex(incarnation),
            timeout_s: request.timeout.as_secs_f64(),
        }
    }

    /// The request as the control plane understands it. It came from the address `from` to our address `local_ip`, and
    /// is charged to `client`. Its operators are compiled if the library does not have them, which may take a while.
    pub fn request(
        self,
        from: IpAddr,
        local_ip: IpAddr,
        client: Client,
        library: &Library,
    ) -> Result<JoinRequest, ApiError> {
        if self.wire_version != wire::VERSION {
            return Err(ApiError::wire_version("this worker", self.wire_version));
        }
        if self.udp_port == 0 {
            return Err(ApiError::bad_request("udp_port is 0: name the port that the packets come from".into()));
        }
        self.check_cores()?;
        let protocol = protocols::named(&self.protocol).ok_or_else(|| ApiError::unknown_protocol(&self.protocol))?;
        let options = protocol.options.read(&self.options).map_err(|error| ApiError::bad_request(error.to_string()))?;
        let options = modules::provide(options, &self.modules, library)?;
        let incarnation = parse_incarnation(&self.incarnation)?;
        let timeout = Duration::try_from_secs_f64(self.timeout_s)
            .map_err(|_| ApiError::bad_request("timeout_s is not a number of seconds".into()))?;
        Ok(JoinRequest {
            rank: self.rank,
            world_size: self.world_size,
            protocol,
            slots: self.slots,
            suggested_slots: self.suggested_slots,
            elements_per_packet: self.elements_per_packet,
            max_elements_per_packet: self.max_elements_per_packet,
            trees: self.trees,
            addr: SocketAddr::new(from, self.udp_port),
            core_ports: self.core_ports,
            joined_at: local_ip,
            incarnation,
            options,
            timeout: to_span(timeout),
            client,
        })
    }

    /// Each core has a port of its own.
    fn check_cores(&self) -> Result<(), ApiError> {
        let most = usize::from(CoreSlots::MAX_CORES);
        let mut ports: BTreeSet<u16> = self.core_ports.iter().copied().collect();
        ports.insert(self.udp_port);
        if ports.len() == 1 + self.core_ports.len() && ports.len() <= most && !ports.contains(&0) {
            return Ok(());
        }
        let sentence =
            format!("core_ports must name different ports, with udp_port at most {most}, and none of them 0");
        Err(ApiError::bad_request(sentence))
    }
}

/// The answer to a join.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinReply {
    /// The job's id in packets.
    pub job_id: u16,
    /// The members' secret: 16 hexadecimal digits.
    pub key: String,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The UDP port of each shard, at the address at which the worker reached this API.
    pub shard_ports: Vec<u16>,
    /// The cores of the worker at the switch that has the most, if that is not 1: the slots of each shard are divided into
    /// as many shares among the cores of each worker.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub most_cores: u16,
    /// The UDP address of each member, by rank.
    pub peers: Vec<SocketAddr>,
    /// The member's number at this switch.
    pub wid: u16,
    /// The switches of the job.
    pub switches: Vec<SwitchBody>,
    /// The UDP address of each server, by number, where servers sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SocketAddr>,
    /// The server that the member also is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<u16>,
    /// In a fabric of switches: where the members are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricReply>,
}

/// What a member learns of the fabric of switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricReply {
    /// The UDP address of the switch that the member's host is connected to.
    pub leaf: SocketAddr,
    /// The host of each member, by rank, and then of each server on a host of its own.
    pub hosts: Vec<u32>,
    /// The switch that each of these hosts is connected to.
    pub leaves: Vec<u32>,
    /// The switches of the highest level.
    pub roots: Vec<u32>,
    /// The member's number at its switch in each tree of the job; none for protocols without trees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<u16>,
    /// True if switches of some tree send partial results to each other.
    #[serde(default)]
    pub levels: bool,
    /// In a lossless fabric: the rate of the member's cable, which the member must not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless_bits_per_s: Option<u64>,
}

impl JoinReply {
    /// The answer for one member.
    pub fn new(plan: &Plan, wid: ChildId, listen: SocketAddr, shard_ports: Vec<u16>) -> JoinReply {
        let colocated = plan.servers == Servers::Colocated;
        let dedicated = plan.servers.dedicated().iter().map(|server| server.addr);
        JoinReply {
            servers: if colocated { plan.workers.clone() } else { dedicated.collect() },
            // Without a switch in between, packets go from host to host, and a member's number is its rank.
            serves: colocated.then_some(wid.0),
            wid: wid.0,
            switches: switch_bodies(plan, listen),
            job_id: plan.config.job.0,
            key: hex(plan.config.key.0),
            slots: plan.config.slots,
            elements_per_packet: plan.config.elements_per_packet,
            shard_ports,
            most_cores: plan.most_cores(),
            peers: plan.workers.clone(),
            fabric: None,
        }
    }

    /// The answer for a worker that reached the switch at the address `switch`; `None` if it cannot be interpreted.
    pub fn answer(self, switch: IpAddr) -> Option<rendezvous::JoinAnswer> {
        let shards = match &self.fabric {
            Some(fabric) => vec![fabric.leaf],
            None => self.shard_ports.iter().map(|&port| SocketAddr::new(switch, port)).collect(),
        };
        let nodes = |numbers: Vec<u32>| numbers.into_iter().map(NodeId).collect::<Vec<_>>();
        Some(rendezvous::JoinAnswer {
            job_id: JobId(self.job_id),
            key: JobKey(from_hex(&self.key)?),
            shards,
            slots: self.slots,
            elements_per_packet: self.elements_per_packet,
            most_cores: self.most_cores,
            peers: self.peers,
            servers: self.servers,
            serves: self.serves.map(ServerId),
            wid: ChildId(self.wid),
            switches: self.switches.into_iter().map(|entry| entry.seen_from(switch)).collect(),
            fabric: self.fabric.map(|fabric| rendezvous::FabricAnswer {
                hosts: nodes(fabric.hosts),
                leaves: nodes(fabric.leaves),
                roots: nodes(fabric.roots),
                trees: fabric.trees.into_iter().map(|child| TreeLeaf { child: ChildId(child) }).collect(),
                levels: fabric.levels,
                lossless_bits_per_s: fabric.lossless_bits_per_s,
            }),
        })
    }
}

fn one() -> u16 {
    1
}

fn is_one(number: &u16) -> bool {
    *number == 1
}
