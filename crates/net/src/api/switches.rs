//! The JSON that the switches of a tree exchange, also about one another.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tributary_control::levels::{ParentAnswer, SwitchJoin, SwitchRanks};
use tributary_control::{Client, JoinRequest, Plan};
use tributary_operators::Library;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::wire;

use super::{GoneMembers, JoinBody, from_hex, hex, parse_incarnation};
use crate::api::error::ApiError;
use crate::os::to_span;

/// A switch of a job's tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchBody {
    /// The switch's control API. If its IP address is the wildcard address, it is the address at which the sender was
    /// reached.
    pub addr: SocketAddr,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
}

impl SwitchBody {
    /// As JSON.
    pub fn new(switch: &SwitchRanks) -> SwitchBody {
        SwitchBody { addr: switch.addr, ranks: switch.ranks.clone() }
    }

    /// The entry, for a receiver that reached the sender at the address `sender`.
    pub fn seen_from(self, sender: IpAddr) -> SwitchRanks {
        SwitchRanks { addr: reached(self.addr, sender), ranks: self.ranks }
    }
}

/// Replaces a wildcard address by the address at which its owner was reached.
pub(super) fn reached(addr: SocketAddr, at: IpAddr) -> SocketAddr {
    if addr.ip().is_unspecified() { SocketAddr::new(at.to_canonical(), addr.port()) } else { addr }
}

/// All switches of a job, as the switch at `listen` knows them.
pub fn switch_bodies(plan: &Plan, listen: SocketAddr) -> Vec<SwitchBody> {
    let own = SwitchRanks { addr: listen, ranks: plan.ranks_below() };
    // A child switch has learned the whole tree from its parent, including itself.
    let own = plan.uplink.is_none().then(|| SwitchBody::new(&own));
    own.into_iter().chain(plan.switches.iter().map(SwitchBody::new)).collect()
}

/// `POST /jobs/{name}/switches/join`: a child switch joins with the ranks that have joined there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchJoinBody {
    /// The wire format that the switch speaks.
    pub wire_version: u8,
    /// Random, 16 hexadecimal digits: names the switch's process.
    pub incarnation: String,
    /// Counts the joins of this process, so that a newer one replaces an older one.
    pub question: u64,
    /// The UDP address of each of its shards.
    pub shards: Vec<SocketAddr>,
    /// The most slots for which the switch has memory.
    pub most_slots: u16,
    /// The modules of the job's custom operators, which the ranks leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// The ranks that have joined at the switch. If the list is empty, the switch withdraws its join.
    pub ranks: Vec<RankBody>,
    /// The switches of its subtree, beginning with itself.
    pub switches: Vec<SwitchBody>,
}

/// One rank that has joined at a child switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankBody {
    /// The rank's request at the child switch.
    pub join: JoinBody,
    /// The source address of the rank's packets, as the child switch saw it.
    pub udp: SocketAddr,
    /// Seconds that the rank has waited at the child switch.
    pub waited_s: f64,
}

impl SwitchJoinBody {
    /// The join as the control plane understands it. All ranks are charged to the switch's client.
    pub fn join(
        self,
        from: IpAddr,
        local_ip: IpAddr,
        client: &Client,
        library: &Library,
    ) -> Result<SwitchJoin, ApiError> {
        if self.wire_version != wire::VERSION {
            return Err(ApiError::wire_version("the switch below", self.wire_version));
        }
        let incarnation = parse_incarnation(&self.incarnation)?;
        let rank = |body: RankBody| {
            let waited = Duration::try_from_secs_f64(body.waited_s)
                .map_err(|_| ApiError::bad_request("waited_s is not a number of seconds".into()))?;
            let join = JoinBody { modules: self.modules.clone(), ..body.join };
            let request = join.request(body.udp.ip(), local_ip, client.clone(), library)?;
            Ok((JoinRequest { addr: body.udp, ..request }, to_span(waited)))
        };
        Ok(SwitchJoin {
            incarnation,
            joined_at: local_ip,
            sequence: self.question,
            shards: self.shards.into_iter().map(|shard| reached(shard, from)).collect(),
            most_slots: self.most_slots,
            ranks: self.ranks.into_iter().map(rank).collect::<Result<_, ApiError>>()?,
            switches: self.switches.into_iter().map(|entry| entry.seen_from(from)).collect(),
        })
    }
}

/// The answer to a child switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchJoinReply {
    /// The job's id in packets, at all levels.
    pub job_id: u16,
    /// The members' secret, at all levels: 16 hexadecimal digits.
    pub key: String,
    /// Slots over all shards.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The joining switch's number at this switch.
    pub wid: u16,
    /// The UDP port of each shard, at the address at which the joining switch reached this API.
    pub shard_ports: Vec<u16>,
    /// The UDP address of each worker of the whole job, by rank.
    pub workers: Vec<SocketAddr>,
    /// The UDP address of each server that is a process of its own, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<SocketAddr>,
    /// All switches of the job.
    pub switches: Vec<SwitchBody>,
}

impl SwitchJoinReply {
    /// The answer for one child switch.
    pub fn new(plan: &Plan, wid: ChildId, listen: SocketAddr, shard_ports: Vec<u16>) -> SwitchJoinReply {
        SwitchJoinReply {
            job_id: plan.config.job.0,
            key: hex(plan.config.key.0),
            slots: plan.config.slots,
            elements_per_packet: plan.config.elements_per_packet,
            wid: wid.0,
            shard_ports,
            workers: plan.workers.clone(),
            servers: plan.servers.dedicated().iter().map(|server| server.addr).collect(),
            switches: switch_bodies(plan, listen),
        }
    }

    /// The answer for the child switch; `None` if it cannot be interpreted.
    pub fn answer(self, parent: IpAddr) -> Option<ParentAnswer> {
        Some(ParentAnswer {
            job: JobId(self.job_id),
            key: JobKey(from_hex(&self.key)?),
            slots: self.slots,
            elements_per_packet: self.elements_per_packet,
            wid: ChildId(self.wid),
            shards: self.shard_ports.iter().map(|&port| SocketAddr::new(parent, port)).collect(),
            workers: self.workers,
            servers: self.servers,
            switches: self.switches.into_iter().map(|entry| entry.seen_from(parent)).collect(),
        })
    }
}

/// `POST /jobs/{name}/switches/leave`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchLeaveBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// The switch's number at its parent.
    pub wid: u16,
    /// The incarnation of its join, which only the switch itself knows.
    pub incarnation: String,
    /// How many of the job's first collectives all members below it have completed; absent if not all have left in good
    /// order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<u64>,
}

/// `POST /jobs/{name}/switches/watch`: a child switch reports who is gone below it. The answer comes when those gone
/// elsewhere differ from those that the switch knows of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchWatchBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// The switch's number at its parent.
    pub wid: u16,
    /// The incarnation of its join, which only the switch itself knows.
    pub incarnation: String,
    /// What is gone below it.
    pub below: GoneMembers,
    /// What is gone elsewhere, as far as the switch knows.
    pub gone: GoneMembers,
}
