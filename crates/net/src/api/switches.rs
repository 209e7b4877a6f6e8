//! The JSON that the switches of a tree exchange, also about one another.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tributary_control::levels::{ParentAnswer, SwitchJoin, SwitchRanks};
use tributary_control::{Client, JoinRequest, Plan};
use tributary_operators::Library;
use tributary_proto::contract::ids::{ChildId, JobId, JobKey};
use tributary_proto::contract::wire;

use super::{GoneMembers, JoinBody, from_hex, hex};
use crate::api::error::ApiError;
use crate::clock::span;

/// A switch of a job's tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The switch's control API. If its IP address is the wildcard address, it is the address at which the sender was
    /// reached.
    pub addr: SocketAddr,
    /// The ranks below it, ascending.
    pub ranks: Vec<u16>,
}

impl Place {
    /// As JSON.
    pub fn new(place: &SwitchRanks) -> Place {
        Place { addr: place.addr, ranks: place.ranks.clone() }
    }

    /// The place as a receiver understands it that reached the sender at the address `sender`.
    pub fn seen_from(self, sender: IpAddr) -> SwitchRanks {
        SwitchRanks { addr: reached(self.addr, sender), ranks: self.ranks }
    }
}

/// Replaces a wildcard address by the address at which its owner was reached.
pub(super) fn reached(addr: SocketAddr, at: IpAddr) -> SocketAddr {
    if addr.ip().is_unspecified() { SocketAddr::new(at.to_canonical(), addr.port()) } else { addr }
}

/// All switches of a job, as the switch at `listen` knows them.
pub fn places(plan: &Plan, listen: SocketAddr) -> Vec<Place> {
    let own = SwitchRanks { addr: listen, ranks: plan.ranks_below() };
    // A switch below another one learned the whole tree from that one, including its own place.
    let own = plan.uplink.is_none().then(|| Place::new(&own));
    own.into_iter().chain(plan.switches.iter().map(Place::new)).collect()
}

/// `POST /jobs/{name}/switches/join`: a switch below joins with the ranks that have joined at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchJoinBody {
    /// The wire format that the switch speaks.
    pub wire_version: u8,
    /// Random, 16 hexadecimal digits: names the switch's process.
    pub incarnation: String,
    /// Counts the questions of this process, so that a newer one replaces an older one.
    pub question: u64,
    /// The UDP address of each of its shards.
    pub shards: Vec<SocketAddr>,
    /// The most slots for which the switch has memory.
    pub most_slots: u16,
    /// The modules of the job's own operators, which the ranks leave out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// The ranks that have joined at the switch. If the list is empty, the switch withdraws its join.
    pub ranks: Vec<RankBody>,
    /// The switches of its part of the tree, beginning with itself.
    pub switches: Vec<Place>,
}

/// One rank that has joined at a switch below.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankBody {
    /// What the rank asked for at the switch below.
    pub join: JoinBody,
    /// The source address of the rank's packets, as the switch below saw it.
    pub udp: SocketAddr,
    /// Seconds that the rank has waited at the switch below.
    pub waited_s: f64,
}

impl SwitchJoinBody {
    /// The join as the control plane understands it. All ranks are charged to the switch's client.
    pub fn join(
        self,
        from: IpAddr,
        asked_at: IpAddr,
        client: &Client,
        library: &Library,
    ) -> Result<SwitchJoin, ApiError> {
        if self.wire_version != wire::VERSION {
            return Err(ApiError::wire_version("the switch below", self.wire_version));
        }
        let incarnation = from_hex(&self.incarnation)
            .ok_or_else(|| ApiError::bad_request("incarnation is not of 16 hexadecimal digits".into()))?;
        let rank = |body: RankBody| {
            let waited = Duration::try_from_secs_f64(body.waited_s)
                .map_err(|_| ApiError::bad_request("waited_s is not a number of seconds".into()))?;
            let join = JoinBody { modules: self.modules.clone(), ..body.join };
            let request = join.request(body.udp.ip(), asked_at, client.clone(), library)?;
            Ok((JoinRequest { addr: body.udp, ..request }, span(waited)))
        };
        Ok(SwitchJoin {
            incarnation,
            joined_at: asked_at,
            sequence: self.question,
            shards: self.shards.into_iter().map(|shard| reached(shard, from)).collect(),
            most_slots: self.most_slots,
            ranks: self.ranks.into_iter().map(rank).collect::<Result<_, ApiError>>()?,
            switches: self.switches.into_iter().map(|place| place.seen_from(from)).collect(),
        })
    }
}

/// The answer to a switch below.
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
    pub switches: Vec<Place>,
}

impl SwitchJoinReply {
    /// The answer for one switch below.
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
            switches: places(plan, listen),
        }
    }

    /// The answer as the switch below understands it; `None` if it makes no sense.
    pub fn ascent(self, above: IpAddr) -> Option<ParentAnswer> {
        Some(ParentAnswer {
            job: JobId(self.job_id),
            key: JobKey(from_hex(&self.key)?),
            slots: self.slots,
            elements_per_packet: self.elements_per_packet,
            wid: ChildId(self.wid),
            shards: self.shard_ports.iter().map(|&port| SocketAddr::new(above, port)).collect(),
            workers: self.workers,
            servers: self.servers,
            switches: self.switches.into_iter().map(|place| place.seen_from(above)).collect(),
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
    /// The switch's number at the switch above.
    pub wid: u16,
    /// A member below it was lost.
    pub lost: bool,
}

/// `POST /jobs/{name}/switches/watch`: a switch below reports who is gone below it. The answer comes when those gone
/// elsewhere differ from those that the switch knows of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchWatchBody {
    /// The job's id.
    pub job_id: u16,
    /// The job's key.
    pub key: String,
    /// The switch's number at the switch above.
    pub wid: u16,
    /// What is gone below it.
    pub below: GoneMembers,
    /// What is gone elsewhere, as far as the switch knows.
    pub gone: GoneMembers,
}
