//! The options with which a switch is started, and why it did not start.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_control::admission::{SharedMemory, SharedTooLarge};
use tributary_control::config::{Tenant, Tokens};
use tributary_control::fabric::FabricLayout;
use tributary_control::{ClientLimits, IpNetwork, Limits, Quota, Timers};
use tributary_operators::Allowed;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::options::Defaults;
use tributary_proto::switch_options;

use crate::handover::HandoverError;
use crate::http::access::Access;
use crate::pool_size::longest_elements;

/// The options with which a switch is started.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchOptions {
    /// UDP address of shard 0 and TCP address of the control API; port 0 lets the system choose one for both.
    pub listen: SocketAddr,
    /// Threads that sum, each with its own shard of the slots, 1 to 256.
    pub shards: usize,
    /// Bytes for all jobs, and for what they share.
    pub memory_bytes: usize,
    /// A further TCP address for operators.
    pub http: Option<SocketAddr>,
    /// The control API of the parent switch. This switch then sums for its rack, and the parent for all racks.
    pub parent: Option<SocketAddr>,
    /// The most jobs at a time, including jobs that form.
    pub max_jobs: u16,
    /// Limits of jobs by their names.
    pub quotas: Vec<Quota>,
    /// The tenants that may use the switch, if it wants tokens, and its operators.
    pub tokens: Option<Tokens>,
    /// Without tokens: all hosts may use the switch, and not only hosts at loopback, link-local and private addresses.
    pub open: bool,
    /// Without tokens: where servers may be that sum for everybody's jobs, besides the switch's own machine.
    pub servers: Vec<IpNetwork>,
    /// How long members may be silent.
    pub timers: Timers,
    /// The options of what jobs of some protocols share, by protocol.
    pub switch_options: switch_options::SwitchOptions,
    /// Which custom operators of jobs the switch serves.
    pub operators: Allowed,
    /// Bytes of receive buffer to ask the kernel for, for each shard.
    pub receive_buffer: usize,
    /// Bytes of send buffer to ask the kernel for, for each shard.
    pub send_buffer: usize,
    /// The switch as one of a fabric. Its limits are then those of the fabric's file, and jobs come only from the hosts that
    /// the file names.
    pub fabric: Option<FabricNode>,
}

/// A switch of a fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct FabricNode {
    /// The fabric.
    pub layout: Arc<FabricLayout>,
    /// The switch's node number.
    pub node: NodeId,
}

impl SwitchOptions {
    /// The UDP and TCP port of a switch, unless another is chosen.
    pub const DEFAULT_PORT: u16 = 17_777;

    /// A switch of one shard at this address, with the memory of [`Limits::DEFAULT_MEMORY`].
    pub fn new(listen: SocketAddr) -> SwitchOptions {
        const MEMORY_BYTES: usize = Limits::DEFAULT_MEMORY.0 as usize;
        const SOCKET_BUFFER: usize = 8 << 20;
        let limits = Limits::new(MEMORY_BYTES as u64, 1);
        SwitchOptions {
            listen,
            shards: 1,
            memory_bytes: MEMORY_BYTES,
            http: None,
            parent: None,
            max_jobs: limits.max_jobs,
            quotas: limits.quotas,
            tokens: None,
            open: false,
            servers: limits.servers,
            timers: limits.timers,
            switch_options: switch_options::SwitchOptions::defaults(Defaults::Real),
            operators: Allowed::Any,
            receive_buffer: SOCKET_BUFFER,
            send_buffer: SOCKET_BUFFER,
            fabric: None,
        }
    }

    /// A switch of a fabric, at the addresses and with the memory that the fabric's file gives it, and without custom
    /// operators. Members connect to the first address, and other switches to the second.
    pub fn in_fabric(layout: Arc<FabricLayout>, node: NodeId) -> SwitchOptions {
        let listen = layout.udp(node);
        SwitchOptions {
            http: layout.nodes[node.index()].control.filter(|&control| control != listen),
            memory_bytes: layout.memory_of(node) as usize,
            quotas: layout.quotas.clone(),
            open: true,
            switch_options: layout.switch_options.clone(),
            operators: Allowed::None,
            fabric: Some(FabricNode { layout, node }),
            ..SwitchOptions::new(listen)
        }
    }

    /// These options, with those of `new` that a running switch takes over. What the memory of a fabric's switches is
    /// follows from their trees, and does not change.
    pub fn with_changeable(&self, new: &SwitchOptions) -> SwitchOptions {
        let SwitchOptions { quotas, tokens, open, servers, timers, .. } = new.clone();
        let (memory_bytes, max_jobs) = match &self.fabric {
            Some(_) => (self.memory_bytes, self.max_jobs),
            None => (new.memory_bytes, new.max_jobs),
        };
        SwitchOptions { quotas, tokens, open, servers, timers, memory_bytes, max_jobs, ..self.clone() }
    }

    pub(super) fn limits(&self) -> Limits {
        let (quotas, tenants) =
            (self.quotas.clone(), self.tenants().map(|tenant| (tenant.name.clone(), tenant.limits)));
        let tenants = tenants.collect();
        // The memory of a fabric's switches is divided as if all jobs ran over one: only the controller admits jobs.
        let limits = match &self.fabric {
            Some(fabric) => fabric.layout.limits(),
            None => Limits {
                shared: SharedMemory::of(&self.switch_options, longest_elements),
                max_jobs: self.max_jobs,
                servers: self.servers.clone(),
                timers: self.timers,
                ..Limits::new(self.memory_bytes as u64, self.shards as u16)
            },
        };
        let each_client = ClientLimits::half_of(limits.max_jobs, limits.memory_bytes);
        Limits { quotas, tenants, each_client, ..limits }
    }

    /// Where a person chooses an address: this flag, unless a fabric's file gives it.
    pub(super) fn flag(&self, flag: &'static str) -> &'static str {
        if self.fabric.is_some() { "the fabric's file" } else { flag }
    }

    pub(super) fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tokens.iter().flat_map(|tokens| tokens.tenants())
    }

    pub(super) fn access(&self) -> Access {
        Access::new(self.tokens.clone().unwrap_or_default(), self.open)
    }
}

/// Why a switch did not start: one sentence that names the address and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another program has the port.
    #[error("{transport} {addr} is in use by another program: stop that one, or choose another port with {flag}")]
    InUse {
        /// UDP or TCP.
        transport: &'static str,
        /// The address.
        addr: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
    },
    /// The address belongs to another machine.
    #[error("{} is not an address of this machine: `ip address` lists those that are; choose one with {flag}", addr.ip())]
    NotLocal {
        /// The address.
        addr: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
    },
    /// The port needs a privilege.
    #[error("{transport} {addr} may only be opened by root: choose a port of 1024 or more with {flag}")]
    Forbidden {
        /// UDP or TCP.
        transport: &'static str,
        /// The address.
        addr: SocketAddr,
        /// The flag that chooses another.
        flag: &'static str,
    },
    /// The number of shards is not possible.
    #[error("a switch has 1 to 256 shards, not {0}: say --cores with one of these")]
    Shards(usize),
    /// Jobs would share more than the switch has for all of them.
    #[error("{0} (--memory)")]
    Shared(#[from] SharedTooLarge),
    /// The earlier program's address is another one.
    #[error(
        "the running switch is at {listen}, and the settings say {wanted}: a program that takes over keeps the address"
    )]
    Moved {
        /// The switch's address.
        listen: SocketAddr,
        /// The address of the settings.
        wanted: SocketAddr,
    },
    /// The earlier program does not give its switch.
    #[error("the running program's switch cannot be taken over: {0}")]
    Handover(#[from] HandoverError),
    /// Any other error of the system.
    #[error("the switch cannot start at {addr}: {source}")]
    System {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

impl StartError {
    pub(crate) fn new(transport: &'static str, addr: SocketAddr, flag: &'static str, source: io::Error) -> StartError {
        match source.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse { transport, addr, flag },
            io::ErrorKind::AddrNotAvailable => StartError::NotLocal { addr, flag },
            io::ErrorKind::PermissionDenied => StartError::Forbidden { transport, addr, flag },
            _ => StartError::System { addr, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_control::fabric::FabricFile;

    use super::*;

    #[test]
    fn no_client_takes_more_than_half_of_a_switch_whether_it_stands_alone_or_in_a_fabric() {
        let file = "secret = \"0123456789abcdef\"\ncontroller = \"top\"\nmemory = \"64 MiB\"\n\
                    [graph]\nhosts = [\"here\"]\nswitches = [\"top\"]\nlinks = [[\"here\", \"top\"]]\n";
        let layout = Arc::new(FabricFile::parse(file).unwrap());
        let node = layout.node_named("top").unwrap();
        let alone = SwitchOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        for limits in [alone.limits(), SwitchOptions::in_fabric(layout, node).limits()] {
            let ClientLimits { jobs, memory_bytes, .. } = limits.each_client;
            assert_eq!((jobs, memory_bytes), (Some(limits.max_jobs / 2), Some(limits.memory_bytes / 2)));
        }
    }
}
