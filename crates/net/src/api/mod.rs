//! The JSON of the control API (`docs/control.md`), shared by server and client. `switches.rs` is what switches in levels
//! exchange, `error.rs` the form of every refusal, `version.rs` the version of the API, and `call.rs` makes a call.

pub(crate) mod call;
pub mod error;
pub(crate) mod modules;
mod servers;
mod switches;
pub mod version;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tributary_control::servers::{ServerAddr, Servers};
use tributary_control::{Client, Departed, Gone, JoinRequest, LargeSums, Plan};
use tributary_operators::Library;
use tributary_proto::contract::config::TreeLeaf;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, NodeId, ServerId};
use tributary_proto::contract::wire;
use tributary_proto::protocols;

use crate::api::error::ApiError;
use crate::os::to_span;
use crate::rendezvous;
use crate::status::JobStatus;

pub use servers::{OfferBody, OfferReply, RetireBody, ServedBody, ServedInFabric};
pub use switches::{
    RankBody, SwitchBody, SwitchJoinBody, SwitchJoinReply, SwitchLeaveBody, SwitchWatchBody, switch_bodies,
};

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
            joined_at: local_ip,
            incarnation,
            options,
            timeout: to_span(timeout),
            client,
        })
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

/// `POST /jobs/{name}/leave`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaveBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// The rank that leaves.
    pub rank: u16,
    /// It can no longer contribute to what others have begun: they must not wait for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// `POST /jobs/{name}/standing`: is the job still installed?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
}

/// `POST /jobs/{name}/sums`: where the job's large sums are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumsBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// What its workers have planned.
    pub sums: LargeSums,
}

/// `POST /jobs/{name}/watch`: answered when the members that are gone are no longer those that the caller knows of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// The rank that asks. Its connection shows that it is alive.
    pub rank: u16,
    /// The members that are gone, as far as the rank knows.
    pub gone: GoneMembers,
}

/// The answer to a watch: the members that are gone, each list of ranks ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoneMembers {
    /// Members that have left.
    pub left: Vec<u16>,
    /// Members that fell silent without a leave, or left as lost.
    pub lost: Vec<u16>,
    /// Switches that fell silent, each with the ranks below it. A switch without ranks is a parent of the answering switch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchBody>,
    /// Servers that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<GoneServer>,
    /// A sentence, if the job is over because a tree of it has lost a switch or a cable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// A server that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoneServer {
    /// The server's number in the job.
    pub server: u16,
    /// The address where the server received packets.
    pub addr: SocketAddr,
}

impl GoneMembers {
    /// Makes the answer from a table.
    pub fn new(gone: &Departed) -> GoneMembers {
        let ranks = |left| gone.members.iter().filter(|gone| gone.left == left).map(|gone| gone.rank).collect();
        let switches = gone.switches.iter().map(SwitchBody::new).collect();
        let server = |&ServerAddr { server, addr }: &ServerAddr| GoneServer { server, addr };
        GoneMembers {
            left: ranks(true),
            lost: ranks(false),
            switches,
            servers: gone.servers.iter().map(server).collect(),
            broken: None,
        }
    }

    /// The answer where the job has failed.
    pub fn failed(sentence: String) -> GoneMembers {
        GoneMembers { broken: Some(sentence), ..GoneMembers::default() }
    }

    /// The table, for a receiver that reached the sender at the address `sender`.
    pub fn table(self, sender: IpAddr) -> Departed {
        let left = self.left.iter().map(|&rank| Gone { rank, left: true });
        let mut members: Vec<Gone> = left.chain(self.lost.iter().map(|&rank| Gone { rank, left: false })).collect();
        members.sort_by_key(|gone| gone.rank);
        let switches = self.switches.into_iter().map(|entry| entry.seen_from(sender)).collect();
        let server = |GoneServer { server, addr }| ServerAddr { server, addr };
        Departed { members, switches, servers: self.servers.into_iter().map(server).collect() }
    }
}

/// The answer to requests that need no data in their answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {}

/// `GET /jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// Every job.
    pub jobs: Vec<JobStatus>,
}

/// The code for a switch of a fabric that cannot reach the controller.
pub const NO_CONTROLLER: &str = "no_controller";

/// The code for a switch that ends: joins are refused, and watches of a fabric's jobs, which go on elsewhere.
pub const STOPPING: &str = "stopping";

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// One sentence for people.
    pub error: String,
    /// One word for programs.
    pub code: String,
    /// Set when only this rank is refused and the others can still form the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u16>,
}

/// 64 bits as 16 hexadecimal digits: JSON's numbers lose bits above 53 in many languages.
pub fn hex(value: u64) -> String {
    format!("{value:016x}")
}

/// Reads the incarnation of a process.
pub(crate) fn parse_incarnation(incarnation: &str) -> Result<u64, ApiError> {
    from_hex(incarnation).ok_or_else(|| ApiError::bad_request("incarnation is not of 16 hexadecimal digits".into()))
}

/// Reads what [`hex`] wrote.
pub fn from_hex(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok())?
}
