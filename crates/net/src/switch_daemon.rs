//! A whole switch: shards, control plane and control API. The daemon runs one; so does a process that embeds a switch.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tributary_control::admission::{SharedMemory, SharedTooLarge};
use tributary_control::config::{Tenant, Tokens};
use tributary_control::{ClientLimits, IpNetwork, Limits, Quota, Timers};
use tributary_operators::{Allowed, Library};
use tributary_proto::contract::ids::TreeId;
use tributary_proto::contract::options::Defaults;
use tributary_proto::switch_options;

use crate::client::Token;
use crate::control_plane::{ControlPlane, Shard};
use crate::http::HttpServer;
use crate::http::access::Access;
use crate::pool_size::longest_elements;
use crate::shard::{ShardError, ShardHandle, ShardOptions};

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
    /// The tenants that may use the switch, if it wants tokens.
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
        }
    }

    fn limits(&self, shards: u16) -> Limits {
        Limits {
            memory_bytes: self.memory_bytes as u64,
            memory_at: BTreeMap::new(),
            shared: SharedMemory::of(&self.switch_options, longest_elements),
            shards,
            max_jobs: self.max_jobs,
            quotas: self.quotas.clone(),
            each_client: ClientLimits::half_of(self.max_jobs, self.memory_bytes as u64),
            tenants: self.tenants().map(|tenant| (tenant.name.clone(), tenant.limits)).collect(),
            servers: self.servers.clone(),
            timers: self.timers,
            planned_trees: None,
        }
    }

    fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tokens.iter().flat_map(|tokens| tokens.tenants())
    }

    fn access(&self) -> Access {
        match &self.tokens {
            Some(tokens) => Access::Tokens(tokens.clone()),
            None if self.open => Access::Open,
            None => Access::Private,
        }
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

/// A switch that runs until it is stopped or dropped.
pub struct RunningSwitch {
    listen: SocketAddr,
    http: Option<SocketAddr>,
    // The fields are in the order in which they are dropped: the control plane removes the jobs while the shards still
    // run.
    server: HttpServer,
    plane: Arc<ControlPlane>,
}

impl RunningSwitch {
    /// Opens every socket and starts every thread. If that fails, nothing is left behind.
    pub fn start(options: &SwitchOptions) -> Result<RunningSwitch, StartError> {
        const MAX_SHARDS: usize = 256;
        if !(1..=MAX_SHARDS).contains(&options.shards) {
            return Err(StartError::Shards(options.shards));
        }
        let limits = options.limits(options.shards as u16);
        limits.shared.check(&options.switch_options, limits.memory_bytes)?;
        let system = |source| StartError::System { addr: options.listen, source };
        let incarnation = getrandom::u64().map_err(|error| system(io::Error::other(error.to_string())))?;
        let (tcp, first) = open_pair(options, incarnation)?;
        let listen = first.udp_addr();
        let http = options.http.map(|addr| bind_tcp(addr, "--http")).transpose()?;
        let http_addr = http.as_ref().and_then(|http| http.local_addr().ok());
        let mut shards: Vec<Box<dyn Shard>> = vec![Box::new(first)];
        for shard in 1..options.shards as u16 {
            let addr = SocketAddr::new(options.listen.ip(), 0);
            shards.push(Box::new(open_shard(options, TreeId(shard), addr, incarnation)?));
        }
        let plane = match options.parent {
            None => ControlPlane::new(limits, shards),
            Some(parent) => {
                let token = Token::of_this_process().map_err(|error| system(io::Error::other(error)))?;
                ControlPlane::below(limits, shards, listen, parent, incarnation, token)
            }
        };
        let plane = Arc::new(plane.serving(Arc::new(Library::new(options.operators.clone()))));
        let server = HttpServer::start(Arc::clone(&plane), &options.access(), tcp, http).map_err(system)?;
        tracing::info!(%listen, parent = ?options.parent, shards = options.shards, memory_bytes = options.memory_bytes, "switch started");
        Ok(RunningSwitch { listen, http: http_addr, server, plane })
    }

    /// The UDP address of shard 0 and the TCP address of the control API.
    pub fn listen_addr(&self) -> SocketAddr {
        self.listen
    }

    /// The operators' own address.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The UDP address of each shard.
    pub fn shard_addrs(&self) -> Vec<SocketAddr> {
        self.plane.shard_addrs()
    }

    /// Takes over quotas and tokens that operators have changed. Running jobs are not touched.
    pub fn renew(&self, options: &SwitchOptions) {
        self.plane.renew(options.limits(options.shards as u16));
        self.server.change_access(&options.access());
        tracing::info!(
            quotas = options.quotas.len(),
            tenants = options.tenants().count(),
            "quotas and tokens taken over"
        );
    }

    /// Refuses joins from now on, and waits until nothing is being summed any more, for as long as the timers say or
    /// until `hurry` returns true. True if nothing is being summed.
    pub fn finish(&self, hurry: impl FnMut() -> bool) -> io::Result<bool> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(runtime.block_on(self.plane.finish(hurry)))
    }

    /// Refuses pending joins, removes every job, ends every thread and closes every socket.
    pub fn stop(self) {
        let RunningSwitch { listen, server, plane, .. } = self;
        drop(server);
        drop(plane);
        tracing::info!(%listen, "switch stopped");
    }
}

fn bind_tcp(addr: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(addr).map_err(|source| StartError::new("TCP", addr, flag, source))
}

fn open_shard(
    options: &SwitchOptions,
    shard: TreeId,
    listen: SocketAddr,
    incarnation: u64,
) -> Result<ShardHandle, StartError> {
    let (receive_buffer, send_buffer) = (options.receive_buffer, options.send_buffer);
    // Only parent switches ask for the incarnation.
    let incarnation = options.parent.map(|_| incarnation);
    let switch_options = options.switch_options.clone();
    let shard_options = ShardOptions { shard, listen, receive_buffer, send_buffer, incarnation, switch_options };
    ShardHandle::start(&shard_options).map_err(|error| match error {
        ShardError::Open { listen, source } => StartError::new("UDP", listen, "--listen", source),
        other => StartError::System { addr: listen, source: io::Error::other(other) },
    })
}

/// Opens TCP and UDP at one port. If the system chooses the port for one, the port may be taken for the other.
fn open_pair(options: &SwitchOptions, incarnation: u64) -> Result<(TcpListener, ShardHandle), StartError> {
    const ATTEMPTS: usize = 16;
    let mut attempt = 1;
    loop {
        let tcp = bind_tcp(options.listen, "--listen")?;
        let addr = tcp.local_addr().map_err(|source| StartError::System { addr: options.listen, source })?;
        match open_shard(options, TreeId(0), addr, incarnation) {
            Ok(shard) => return Ok((tcp, shard)),
            Err(StartError::InUse { .. }) if options.listen.port() == 0 && attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}
