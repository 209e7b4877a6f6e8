//! Servers: processes that offer themselves to jobs whose sums are made by servers. `docs/control.md` has the rules.
//!
//! A server keeps a connection to the control plane while it is alive, and asks again as soon as it is answered. A
//! server whose connection is closed is lost soon; a server that vanishes with its host is lost when its lease ends.

use std::net::SocketAddr;

use crate::names::Client;

/// A process that offers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOffer {
    /// Drawn at random by each process when it starts.
    pub incarnation: u64,
    /// The address where the server receives packets, and from which it sends them.
    pub addr: SocketAddr,
    /// Bytes of the server's receive buffer.
    pub receive_buffer: u64,
    /// The client that offers the server.
    pub client: Client,
}

/// One server of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobServer {
    /// The address where the server receives packets, and from which it sends them.
    pub addr: SocketAddr,
    /// The server's process; `None` if only the parent switch knows it.
    pub incarnation: Option<u64>,
}

/// The servers of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// The protocol has no servers.
    #[default]
    None,
    /// One server beside each worker, by rank.
    Colocated,
    /// Processes of their own, by number.
    Dedicated(Vec<JobServer>),
}

impl Servers {
    /// The servers that are processes of their own, by number.
    pub fn dedicated(&self) -> &[JobServer] {
        match self {
            Servers::Dedicated(servers) => servers,
            Servers::None | Servers::Colocated => &[],
        }
    }
}

/// A server of a job, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddr {
    /// The server's number in the job.
    pub server: u16,
    /// The server's address.
    pub addr: SocketAddr,
}
