//! The JSON of the control API, shared by server and client. `docs/control.md` describes it. `switches.rs` is what
//! switches in levels say to each other, `error.rs` what every refusal looks like,
//! `version.rs` which version is spoken, and `call.rs` makes a call.

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
use tributary_control::{Client, Departed, Gone, JoinRequest, Plan, ServerPlace, Servers};
use tributary_operators::Library;
use tributary_proto::contract::config::WorkerPlace;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey, NodeId, ServerId};
use tributary_proto::contract::wire;
use tributary_proto::protocols;

use crate::api::error::ApiError;
use crate::clock::span;
use crate::rendezvous;
use crate::status::JobStatus;

pub use servers::{OfferBody, OfferReply, RetireBody, ServedBody};
pub use switches::{Place, RankBody, SwitchJoinBody, SwitchJoinReply, SwitchLeaveBody, SwitchWatchBody, places};

/// `POST /jobs/{name}/join`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinBody {
    /// The wire format that the worker speaks.
    pub wire_version: u8,
    /// Its rank.
    pub rank: u16,
    /// How many ranks it thinks there are.
    pub world: u16,
    /// The protocol's name.
    pub protocol: String,
    /// The UDP port that its packets come from; the address is that of this request.
    pub udp_port: u16,
    /// Elements per packet that its caller insists on.
    #[serde(default)]
    pub elements_per_packet: Option<u16>,
    /// Elements per packet that its path holds.
    pub max_elements_per_packet: u16,
    /// Slots that its caller insists on.
    #[serde(default)]
    pub slots: Option<u16>,
    /// Slots that suit its link.
    pub suggested_slots: u16,
    /// The protocol's options by name, as text; those left out have their defaults.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// The modules of the job's own operators, each as hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Aggregation trees that its caller insists on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trees: Option<u16>,
    /// Random, 16 hexadecimal digits: the same when one process asks again, another in its successor.
    pub incarnation: String,
    /// Seconds that it waits for the others.
    pub timeout_s: f64,
}

impl JoinBody {
    /// A worker's request as JSON.
    pub fn new(request: &rendezvous::JoinRequest, incarnation: u64) -> JoinBody {
        JoinBody {
            wire_version: wire::VERSION,
            rank: request.rank,
            world: request.world,
            protocol: request.protocol.name.to_owned(),
            udp_port: request.udp.port(),
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

    /// The request that the control plane understands; it came from the address `from` to our address `asked_at`, and is
    /// charged to `client`. Its operators are compiled, which may take a while, where the library does not have them.
    pub fn request(
        self,
        from: IpAddr,
        asked_at: IpAddr,
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
        let incarnation = from_hex(&self.incarnation)
            .ok_or_else(|| ApiError::bad_request("incarnation is not of 16 hexadecimal digits".into()))?;
        let timeout = Duration::try_from_secs_f64(self.timeout_s)
            .map_err(|_| ApiError::bad_request("timeout_s is not a number of seconds".into()))?;
        Ok(JoinRequest {
            rank: self.rank,
            world: self.world,
            protocol,
            slots: self.slots,
            suggested_slots: self.suggested_slots,
            elements_per_packet: self.elements_per_packet,
            max_elements_per_packet: self.max_elements_per_packet,
            trees: self.trees,
            addr: SocketAddr::new(from, self.udp_port),
            asked_at,
            incarnation,
            options,
            timeout: span(timeout),
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
    /// What members know: 16 hexadecimal digits.
    pub key: String,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The UDP port of each shard, at the address that the worker reached this API at.
    pub shard_ports: Vec<u16>,
    /// The UDP address of each member, by rank.
    pub peers: Vec<SocketAddr>,
    /// The member's number at this switch.
    pub wid: u16,
    /// The switches of the job.
    pub switches: Vec<Place>,
    /// The UDP address of each server, by number, where servers sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SocketAddr>,
    /// The server that the member is besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<u16>,
    /// In a fabric of switches: who is where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricReply>,
}

/// What a member is told of the fabric of switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricReply {
    /// The UDP address of the switch that its host is connected to.
    pub leaf: SocketAddr,
    /// The host of each member, by rank.
    pub hosts: Vec<u32>,
    /// The switch that each of them is connected to, by rank.
    pub leaves: Vec<u32>,
    /// The switches of the highest level.
    pub roots: Vec<u32>,
    /// The member's number at its switch in each tree of the job; none for protocols without trees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees: Vec<u16>,
    /// Switches of some tree pass partial results on to each other.
    #[serde(default)]
    pub levels: bool,
    /// Where nothing may be lost: the rate of the member's cable, which it keeps to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossless_bits_per_s: Option<u64>,
}

impl JoinReply {
    /// What a member is told.
    pub fn new(plan: &Plan, wid: ChildId, listen: SocketAddr, shard_ports: Vec<u16>) -> JoinReply {
        let colocated = plan.servers == Servers::Colocated;
        let dedicated = plan.servers.dedicated().iter().map(|server| server.addr);
        JoinReply {
            servers: if colocated { plan.workers.clone() } else { dedicated.collect() },
            // Packets go from host to host: a member's number is its rank.
            serves: colocated.then_some(wid.0),
            wid: wid.0,
            switches: places(plan, listen),
            job_id: plan.config.job.0,
            key: hex(plan.config.key.0),
            slots: plan.config.slots,
            elements_per_packet: plan.config.elements_per_packet,
            shard_ports,
            peers: plan.workers.clone(),
            fabric: None,
        }
    }

    /// The answer as a worker understands it that reached the switch at `switch`; `None` if it makes no sense.
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
            switches: self.switches.into_iter().map(|place| place.seen_from(switch)).collect(),
            fabric: self.fabric.map(|fabric| rendezvous::FabricAnswer {
                hosts: nodes(fabric.hosts),
                leaves: nodes(fabric.leaves),
                roots: nodes(fabric.roots),
                trees: fabric.trees.into_iter().map(|child| WorkerPlace { child: ChildId(child) }).collect(),
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
    /// Its key.
    pub key: String,
    /// Who leaves.
    pub rank: u16,
}

/// `POST /jobs/{name}/standing`: is the job still installed?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandingBody {
    /// The job's id.
    pub job_id: u16,
    /// Its key.
    pub key: String,
}

/// `POST /jobs/{name}/watch`: answered when other members are gone than the asker knows of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchBody {
    /// The job's id.
    pub job_id: u16,
    /// Its key.
    pub key: String,
    /// Who asks, and shows by its connection that it lives.
    pub rank: u16,
    /// Who is gone as far as it knows.
    pub gone: GoneMembers,
}

/// The answer to a watch: who takes no part any more, each list of ranks ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoneMembers {
    /// Those that said so.
    pub left: Vec<u16>,
    /// Those that fell silent without a word.
    pub lost: Vec<u16>,
    /// Switches that fell silent, each with the ranks below it; one without ranks is above the switch that answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<Place>,
    /// Servers that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<GoneServer>,
    /// A tree of the job has lost a switch or a cable, and the job is over: a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// A server that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoneServer {
    /// Its number in the job.
    pub server: u16,
    /// Where it received packets.
    pub addr: SocketAddr,
}

impl GoneMembers {
    /// From a table.
    pub fn new(gone: &Departed) -> GoneMembers {
        let ranks = |left| gone.members.iter().filter(|gone| gone.left == left).map(|gone| gone.rank).collect();
        let switches = gone.switches.iter().map(Place::new).collect();
        let server = |&ServerPlace { server, addr }: &ServerPlace| GoneServer { server, addr };
        GoneMembers {
            left: ranks(true),
            lost: ranks(false),
            switches,
            servers: gone.servers.iter().map(server).collect(),
            broken: None,
        }
    }

    /// As a table, as someone understands it who reached its sender at `sender`.
    pub fn table(self, sender: IpAddr) -> Departed {
        let left = self.left.iter().map(|&rank| Gone { rank, left: true });
        let mut members: Vec<Gone> = left.chain(self.lost.iter().map(|&rank| Gone { rank, left: false })).collect();
        members.sort_by_key(|gone| gone.rank);
        let switches = self.switches.into_iter().map(|place| place.seen_from(sender)).collect();
        let server = |GoneServer { server, addr }| ServerPlace { server, addr };
        Departed { members, switches, servers: self.servers.into_iter().map(server).collect() }
    }
}

/// The answer to requests that have nothing else to say.
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

/// The word for a switch of a fabric that cannot ask the one where jobs are formed.
pub const NO_SEAT: &str = "no_seat";

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// One sentence for people.
    pub error: String,
    /// One word for programs.
    pub code: String,
    /// The rank that it is about, where the others may still become a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u16>,
}

/// 64 bits as 16 hexadecimal digits: JSON's numbers lose bits above 53 in many languages.
pub fn hex(value: u64) -> String {
    format!("{value:016x}")
}

/// The inverse of [`hex`].
pub fn from_hex(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok())?
}
