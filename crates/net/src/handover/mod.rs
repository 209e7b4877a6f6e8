//! A switch gets a new program, and no collective fails. The running program starts the next one, gives it the sockets on
//! which the switch listens, and goes on with its jobs until they end, as web servers do that restart without a lost
//! request. No protocol's state moves, so every protocol can do it, in the middle of a block.
//!
//! - *Packets*: both programs have a UDP socket at the switch's address. The kernel gives packets of the earlier program's
//!   jobs to its socket, by their id, and all others to the next program's.
//! - *Control API*: the next program accepts every connection. A request about a job of the earlier program goes there,
//!   with its connection, before a byte of it is read.
//! - *Ranks that wait* for a job to form are told by the earlier program to join again, and form it at the next one.
//! - *The end*: when the next program has heard that the last of these jobs has ended, it passes on no more connections and
//!   closes its half of the channel. The earlier program answers those that came before, and ends.
//!
//! The programs talk over a [`Channel`] that nobody else can open: [`earlier`] is the next program's end, and [`next`] the
//! earlier one's. If the next program fails, the earlier one takes everything back.

mod channel;
mod earlier;
mod next;

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tributary_control::{Client, EarlierJob, JobName};
use tributary_proto::contract::ids::JobId;
use tributary_proto::protocols;

pub use self::channel::Channel;
pub(crate) use self::earlier::{EarlierProgram, Inheritance};
pub use self::next::Ending;
pub(crate) use self::next::{HandedConnections, Intake, NextProgram};

/// Programs with another version of these messages do not take over from each other.
const VERSION: u32 = 2;

/// Why a switch is not handed over. It then goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The switch is one of a fabric.
    #[error(
        "a switch of a fabric is not handed over: stop it and start it again; jobs go on around it or are planned again"
    )]
    Fabric,
    /// The earlier program of this switch still has jobs.
    #[error(
        "this program has taken over itself, and jobs of the one before still run ({0}): wait until these have ended"
    )]
    UnderWay(usize),
    /// There is a next program already.
    #[error("this program has handed its switch over already")]
    Done,
    /// The programs do not understand each other.
    #[error(
        "the programs' versions hand over in different ways ({0} and {1}): stop the switch, and start the new program"
    )]
    Version(u32, u32),
    /// The next program has ended, or says something else.
    #[error("the next program has not taken over: its own error says why")]
    NotTaken,
    /// An error of the system.
    #[error("the switch cannot be handed over: {0}")]
    System(#[from] io::Error),
}

/// What the programs say to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Message {
    /// The next program has read its settings and can take over.
    Ready { version: u32 },
    /// The earlier program's version, if it is another one.
    OtherVersion { version: u32 },
    /// A job that stays with the earlier program.
    Job(JobBody),
    /// A client whose joins an operator has forbidden.
    Banned(ClientBody),
    /// The rest of what the next program must know. The listening sockets come with it: that of members, then that of
    /// operators.
    Sockets { listen: SocketAddr, http: Option<SocketAddr>, last_id: u16, cordoned: bool },
    /// The next program accepts connections.
    Serving,
    /// A connection for the earlier program comes with this message; it was accepted at this listening socket.
    Connection { listener: usize },
    /// A job of the earlier program has ended.
    Ended { id: u16 },
    /// The next program is asked to stop, and so is the earlier one.
    Stop,
}

/// A client as programs name it to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientBody {
    Tenant(String),
    Address(IpAddr),
}

impl ClientBody {
    fn new(client: &Client) -> ClientBody {
        match client {
            Client::Tenant(name) => ClientBody::Tenant(name.to_string()),
            Client::Address(address) => ClientBody::Address(*address),
        }
    }

    fn client(self) -> Client {
        match self {
            ClientBody::Tenant(name) => Client::Tenant(name.into()),
            ClientBody::Address(address) => Client::Address(address),
        }
    }
}

/// A job as programs name it to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobBody {
    id: u16,
    name: String,
    client: ClientBody,
    protocol: u8,
    memory_bytes: u64,
    has_servers: bool,
}

impl JobBody {
    fn new(job: &EarlierJob) -> JobBody {
        JobBody {
            id: job.id.0,
            name: job.name.to_string(),
            client: ClientBody::new(&job.client),
            protocol: job.protocol.code,
            memory_bytes: job.memory_bytes,
            has_servers: job.has_servers,
        }
    }

    /// The job; `None` if this build does not have its protocol.
    fn job(self) -> Option<EarlierJob> {
        let JobBody { id, name, client, protocol, memory_bytes, has_servers } = self;
        Some(EarlierJob {
            id: JobId(id),
            name: JobName::new(&name).ok()?,
            client: client.client(),
            protocol: protocols::with_code(protocol)?,
            memory_bytes,
            has_servers,
        })
    }
}
