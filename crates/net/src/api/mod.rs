//! The JSON of the control API (`docs/control.md`), shared by server and client. `join.rs` is how workers join,
//! `switches.rs` what switches in levels exchange, `error.rs` the form of every refusal, `version.rs` the version of the
//! API, and `call.rs` makes a call.

pub(crate) mod call;
pub mod error;
mod join;
pub(crate) mod modules;
mod servers;
mod switches;
pub mod version;

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tributary_control::servers::ServerAddr;
use tributary_control::{Departed, Gone, LargeSums};

use crate::api::error::ApiError;
use crate::status::JobStatus;

pub use join::{FabricReply, JoinBody, JoinReply};
pub use servers::{OfferBody, OfferReply, RetireBody, ServedBody, ServedInFabric};
pub use switches::{
    RankBody, SwitchBody, SwitchJoinBody, SwitchJoinReply, SwitchLeaveBody, SwitchWatchBody, switch_bodies,
};

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
    /// How many of the job's first collectives it has completed; absent if it can no longer contribute to what others have
    /// begun, so that they must not wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<u64>,
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

/// The answer to a watch: the members that are gone, each list by ascending rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoneMembers {
    /// Members that have left in good order.
    pub left: Vec<LeftMember>,
    /// Members that fell silent without a leave, or could no longer contribute when they left.
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

/// A member that has left in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftMember {
    /// The member's rank.
    pub rank: u16,
    /// How many of the job's first collectives it had completed.
    pub completed: u64,
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
        let left = |gone: &Gone| Some(LeftMember { rank: gone.rank, completed: gone.completed? });
        let switches = gone.switches.iter().map(SwitchBody::new).collect();
        let server = |&ServerAddr { server, addr }: &ServerAddr| GoneServer { server, addr };
        GoneMembers {
            left: gone.members.iter().filter_map(left).collect(),
            lost: gone.members.iter().filter(|gone| !gone.has_left()).map(|gone| gone.rank).collect(),
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
        let left = self.left.iter().map(|left| Gone { rank: left.rank, completed: Some(left.completed) });
        let lost = self.lost.iter().map(|&rank| Gone { rank, completed: None });
        let mut members: Vec<Gone> = left.chain(lost).collect();
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
