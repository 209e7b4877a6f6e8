//! The JSON that servers and the control plane exchange.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tributary_control::servers::ServerOffer;
use tributary_control::{Client, Plan};
use tributary_proto::contract::ids::ServerId;
use tributary_proto::contract::wire;

use super::switches::reached;
use super::{hex, parse_incarnation};
use crate::api::error::ApiError;

/// `POST /servers/watch`: a server offers itself. The answer comes when the server's jobs differ from those that it
/// knows of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferBody {
    /// The wire format that the server speaks.
    pub wire_version: u8,
    /// Random, 16 hexadecimal digits: names the server's process.
    pub incarnation: String,
    /// The address where the server receives packets. If it is the wildcard address, the address of this request
    /// counts.
    pub udp: SocketAddr,
    /// Bytes of the server's receive buffer.
    pub receive_buffer: u64,
    /// The number in the last answer. Without such a number, the first answer comes at once.
    #[serde(default)]
    pub known: Option<u64>,
}

impl OfferBody {
    /// The offer of a process that receives at `udp`.
    pub fn new(incarnation: u64, udp: SocketAddr, receive_buffer: u64) -> OfferBody {
        let (wire_version, incarnation) = (wire::VERSION, hex(incarnation));
        OfferBody { wire_version, incarnation, udp, receive_buffer, known: None }
    }

    /// The offer as the control plane understands it. It came from the address `from`, of this client.
    pub fn offer(&self, from: IpAddr, client: Client) -> Result<ServerOffer, ApiError> {
        if self.wire_version != wire::VERSION {
            return Err(ApiError::wire_version("this server", self.wire_version));
        }
        if self.udp.port() == 0 {
            return Err(ApiError::bad_request("udp has port 0: name the port that packets are received at".into()));
        }
        let incarnation = parse_incarnation(&self.incarnation)?;
        Ok(ServerOffer { incarnation, addr: reached(self.udp, from), receive_buffer: self.receive_buffer, client })
    }
}

/// `POST /servers/leave`: a server reports that it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetireBody {
    /// Random, 16 hexadecimal digits: names the server's process.
    pub incarnation: String,
}

impl RetireBody {
    /// The incarnation of the process that ends.
    pub fn incarnation(&self) -> Result<u64, ApiError> {
        parse_incarnation(&self.incarnation)
    }
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferReply {
    /// A number that changes whenever the server's jobs change.
    pub changes: u64,
    /// All jobs that the server serves.
    pub jobs: Vec<ServedBody>,
}

/// A job, for one of its servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedBody {
    /// The job's name.
    pub name: String,
    /// The protocol's name.
    pub protocol: String,
    /// The job's id in packets.
    pub job_id: u16,
    /// The members' secret: 16 hexadecimal digits.
    pub key: String,
    /// Slots over all servers.
    pub slots: u16,
    /// Elements per packet.
    pub elements_per_packet: u16,
    /// The protocol's options.
    pub options: BTreeMap<String, String>,
    /// The server's number in the job.
    pub server: u16,
    /// The number of servers.
    pub servers: u16,
    /// The UDP address of each worker, by rank.
    pub workers: Vec<SocketAddr>,
    /// In a fabric of switches: where members and servers are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<ServedInFabric>,
}

/// What a server learns of the fabric of switches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServedInFabric {
    /// The UDP address of the switch that the server's host is connected to.
    pub leaf: SocketAddr,
    /// The host of each member, by rank, and then of each server.
    pub hosts: Vec<u32>,
    /// The switch that each of these hosts is connected to.
    pub leaves: Vec<u32>,
}

impl ServedBody {
    /// A job as JSON, for one of its servers.
    pub fn new(plan: &Plan, server: ServerId) -> ServedBody {
        ServedBody {
            name: plan.name.as_str().to_owned(),
            protocol: plan.protocol.name.to_owned(),
            job_id: plan.config.job.0,
            key: hex(plan.config.key.0),
            slots: plan.config.slots,
            elements_per_packet: plan.config.elements_per_packet,
            options: plan.config.options.to_text(),
            server: server.0,
            servers: plan.servers.dedicated().len() as u16,
            workers: plan.workers.clone(),
            fabric: None,
        }
    }
}
