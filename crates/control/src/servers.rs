//! Servers: processes that offer themselves to the jobs whose sums are made by servers. Who is there, who serves which
//! job, and who of them is gone. `docs/control.md` has the rules.
//!
//! A server keeps a connection to the control plane while it lives, and asks again as soon as it is answered. One whose
//! connection is closed is lost soon; one that vanishes with its host, by the lease.

use std::net::SocketAddr;

use crate::client::Client;

/// A process that offers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOffer {
    /// Drawn at random by each process when it starts.
    pub incarnation: u64,
    /// Where it receives packets, and sends them from.
    pub addr: SocketAddr,
    /// Bytes of its receive buffer.
    pub receive_buffer: u64,
    /// Whose it is.
    pub client: Client,
}

/// One server of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobServer {
    /// Where it receives packets, and sends them from.
    pub addr: SocketAddr,
    /// Its process; `None` where the switch above knows it.
    pub incarnation: Option<u64>,
}

/// The servers of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Servers {
    /// The protocol has none.
    #[default]
    None,
    /// One beside each worker, by rank.
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

/// A server of a job that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerPlace {
    /// Its number in the job.
    pub server: u16,
    /// Where it was.
    pub addr: SocketAddr,
}
