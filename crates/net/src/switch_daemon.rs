//! A whole switch: its threads, control plane and control API. The daemon runs one; so does a process that embeds a switch.
//! A switch that stands alone has a thread for each shard, and a switch of a fabric one thread with ports and queues.

mod options;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tributary_operators::Library;
use tributary_proto::contract::ids::{JobId, TreeId};

pub use self::options::{FabricNode, StartError, SwitchOptions};
use crate::client::Token;
use crate::control_plane::ControlPlane;
use crate::fabric::FabricSwitch;
use crate::handover::{Channel, EarlierProgram, Ending, HandoverError, Inheritance, NextProgram};
use crate::http::routes::Role;
use crate::http::view::Viewer;
use crate::http::{Api, HttpServer, Identity};
use crate::shard::{Shard, ShardError, ShardHandle, ShardOptions};

/// A switch that runs until it is stopped or dropped.
pub struct RunningSwitch {
    listen: SocketAddr,
    http: Option<SocketAddr>,
    // The fields are in the order in which they are dropped: the control plane removes the jobs while the shards still
    // run.
    server: HttpServer,
    plane: Arc<ControlPlane>,
    fabric: Option<Arc<FabricSwitch>>,
    earlier: Option<Earlier>,
    /// Learns last that this program has ended, when its sockets are closed.
    next: Mutex<Option<NextProgram>>,
}

impl RunningSwitch {
    /// Opens every socket and starts every thread. If that fails, nothing is left behind.
    pub fn start(options: &SwitchOptions) -> Result<RunningSwitch, StartError> {
        RunningSwitch::start_as(options, None)
    }

    /// Takes the switch over from the program at the other end of the channel, which goes on with its jobs. If that fails,
    /// the other program serves as before.
    pub fn take_over(options: &SwitchOptions, channel: Channel) -> Result<RunningSwitch, StartError> {
        let inheritance = Inheritance::receive(channel)?;
        let (wanted, listen) = (options.listen, inheritance.listen);
        if !is_at(wanted, listen) {
            return Err(StartError::Moved { listen, wanted });
        }
        RunningSwitch::start_as(&SwitchOptions { listen, ..options.clone() }, Some(inheritance))
    }

    fn start_as(options: &SwitchOptions, mut inheritance: Option<Inheritance>) -> Result<RunningSwitch, StartError> {
        const MAX_SHARDS: usize = 256;
        if !(1..=MAX_SHARDS).contains(&options.shards) {
            return Err(StartError::Shards(options.shards));
        }
        let library = Arc::new(Library::new(options.operators.clone()));
        let (tcp, inherited_http) = inheritance.as_mut().map(Inheritance::sockets).unwrap_or_default();
        let Threads { tcp, shards, fabric, incarnation } = match &options.fabric {
            None => Threads::of_star(options, tcp.zip(inheritance.as_ref().map(Inheritance::jobs)))?,
            Some(fabric) => Threads::of_fabric(options, fabric, &library)?,
        };
        let system = |source| StartError::System { addr: options.listen, source };
        let listen = tcp.local_addr().map_err(system)?;
        let former_http = inheritance.as_ref().and_then(|inheritance| inheritance.http);
        let http = match (options.http, inherited_http) {
            (Some(wanted), Some(http)) if former_http.is_some_and(|former| is_at(wanted, former)) => Some(http),
            (wanted, _) => wanted.map(|addr| bind_tcp(addr, options.flag("--http"))).transpose()?,
        };
        let http_addr = http.as_ref().and_then(|http| http.local_addr().ok());
        let limits = options.limits();
        let plane = match options.parent {
            None => ControlPlane::new(limits, shards),
            Some(parent) => {
                let token = Token::of_this_process().map_err(|error| system(io::Error::other(error)))?;
                ControlPlane::below(limits, shards, listen, parent, incarnation, token)
            }
        };
        let plane = Arc::new(plane.serving(library));
        let earlier = inheritance.map(|inheritance| EarlierProgram::new(inheritance, &plane));
        let viewer = Viewer::new(Arc::clone(&plane), Identity { listen, http: http_addr }, fabric.clone());
        let api =
            Api { plane: Arc::clone(&plane), viewer: Arc::new(viewer), listen, fabric, compile_queue: Arc::default() };
        // The second address of a switch of a fabric is for other switches.
        let second = if options.fabric.is_some() { Role::Members } else { Role::Operators };
        let listeners = [(tcp, Role::Members)].into_iter().chain(http.map(|http| (http, second))).collect();
        let server = HttpServer::start(&api, &options.access(), listeners, earlier.clone()).map_err(system)?;
        if let Some(earlier) = &earlier {
            earlier.begin(&plane)?;
        }
        let (shards, memory_bytes) = (options.shards, options.memory_bytes);
        let parent = options.parent.map(|parent| parent.to_string());
        let node = api.fabric.as_ref().map(|switch| switch.layout.name(switch.node));
        tracing::info!(%listen, parent = parent.as_deref(), node, shards, memory_bytes, "switch started");
        let fabric = api.fabric.clone();
        let next = Mutex::default();
        let earlier = earlier.map(Earlier);
        Ok(RunningSwitch { listen, http: http_addr, server, plane, fabric, earlier, next })
    }

    /// The UDP address of shard 0 and the TCP address of the control API.
    pub fn listen_addr(&self) -> SocketAddr {
        self.listen
    }

    /// The operators' own address, or, in a fabric, that for other switches.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The UDP address of each shard.
    pub fn shard_addrs(&self) -> Vec<SocketAddr> {
        self.plane.shard_addrs()
    }

    /// Takes over what operators have changed: see [`SwitchOptions::with_changeable`]. Running jobs are not touched.
    pub fn reload(&self, options: &SwitchOptions) {
        self.plane.reload(options.limits());
        self.server.change_access(&options.access());
        let (quotas, tenants) = (options.quotas.len(), options.tenants().count());
        tracing::info!(
            quotas,
            tenants,
            memory_bytes = options.memory_bytes,
            max_jobs = options.max_jobs,
            "files reloaded"
        );
    }

    /// Notes for operators that files could not be read again, and that nothing has changed.
    pub fn reload_failed(&self, error: &str) {
        self.plane.note_failed_reload();
        tracing::error!(error, "reload failed");
    }

    /// Gives the switch to the program at the other end of the channel. Jobs go on here until they end, and no other
    /// begins here. `on_end` is called, on another thread, when the hand-over is over. After an error it goes on as before.
    pub fn hand_over(
        &self,
        channel: Channel,
        on_end: impl FnOnce(Ending) + Send + 'static,
    ) -> Result<(), HandoverError> {
        match self.begin_handover(channel, Box::new(on_end)) {
            Ok(next) => *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(next),
            Err(error) => {
                tracing::error!(%error, "switch not handed over");
                return Err(error);
            }
        }
        tracing::info!(listen = %self.listen, jobs = self.plane.running_ids().len(), "switch handed over");
        Ok(())
    }

    fn begin_handover(
        &self,
        channel: Channel,
        on_end: Box<dyn FnOnce(Ending) + Send>,
    ) -> Result<NextProgram, HandoverError> {
        if self.fabric.is_some() {
            return Err(HandoverError::Fabric);
        }
        if self.earlier.as_ref().is_some_and(|earlier| !earlier.0.is_over()) {
            return Err(HandoverError::UnderWay(self.plane.earlier_jobs().len()));
        }
        if self.plane.with_control(|control| control.is_handed_over()) {
            return Err(HandoverError::Done);
        }
        let (intake, addresses) = (self.server.intake(), (self.listen, self.http));
        NextProgram::begin(channel, &self.plane, intake, addresses, on_end)
    }

    /// How long ago the control plane and the shards last did their turn: a second at most while they work.
    pub fn last_turn(&self) -> Duration {
        self.plane.last_turn()
    }

    /// Refuses joins from now on, and waits until nothing is being summed any more, for as long as the timers say or
    /// until `hurry` returns true. True if nothing is being summed.
    pub fn finish(&self, hurry: impl FnMut() -> bool) -> io::Result<bool> {
        if let Some(earlier) = &self.earlier {
            earlier.0.stop();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(runtime.block_on(self.plane.finish(hurry)))
    }

    /// Tells the members of the jobs that end with this switch that it stops, so that none has to find out by silence.
    pub fn announce_stop(&self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match &self.fabric {
                Some(fabric) => fabric.announce_stop().await,
                None => self.plane.announce_stop().await,
            }
        });
        Ok(())
    }

    /// Refuses pending joins, removes every job, ends every thread and closes every socket. The jobs of a fabric go on at the
    /// other switches, where a restarted controller finds them.
    pub fn stop(self) {
        let listen = self.listen;
        drop(self);
        tracing::info!(%listen, "switch stopped");
    }
}

/// The channel to the earlier program. It closes when this program takes no connection and no packet any more: the earlier
/// one, if it still has jobs, then takes the switch back.
struct Earlier(Arc<EarlierProgram>);

impl Drop for Earlier {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// True if an address is the wanted one, in which port 0 stands for any.
fn is_at(wanted: SocketAddr, address: SocketAddr) -> bool {
    wanted == address || wanted == SocketAddr::new(address.ip(), 0)
}

/// The threads of a switch, and the socket of its control API at the same address.
struct Threads {
    tcp: TcpListener,
    shards: Vec<Box<dyn Shard>>,
    fabric: Option<Arc<FabricSwitch>>,
    /// The incarnation by which parent switches know this one.
    incarnation: u64,
}

impl Threads {
    /// `inherited`: the socket at the switch's address, and the jobs whose packets an earlier program takes.
    fn of_star(options: &SwitchOptions, inherited: Option<(TcpListener, Vec<JobId>)>) -> Result<Threads, StartError> {
        let limits = options.limits();
        limits.shared.check(&options.switch_options, limits.memory_bytes)?;
        let random = getrandom::u64().map_err(|error| io::Error::other(error.to_string()));
        let incarnation = random.map_err(|source| StartError::System { addr: options.listen, source })?;
        let open = |shard, addr, beside| open_shard(options, TreeId(shard), addr, incarnation, beside);
        let (tcp, first) = match inherited {
            None => open_pair(options, |addr| open(0, addr, false))?,
            Some((tcp, jobs)) => {
                let first = open(0, options.listen, true)?;
                let system = |source| StartError::System { addr: options.listen, source };
                first.leave_to_earlier(&jobs).map_err(system)?;
                (tcp, first)
            }
        };
        let mut shards: Vec<Box<dyn Shard>> = vec![Box::new(first)];
        for shard in 1..options.shards as u16 {
            let addr = SocketAddr::new(options.listen.ip(), 0);
            shards.push(Box::new(open(shard, addr, false)?));
        }
        Ok(Threads { tcp, shards, fabric: None, incarnation })
    }

    fn of_fabric(
        options: &SwitchOptions,
        FabricNode { layout, node }: &FabricNode,
        library: &Arc<Library>,
    ) -> Result<Threads, StartError> {
        let buffers = [options.receive_buffer, options.send_buffer];
        let (tcp, switch) = open_pair(options, |addr| {
            let switch = FabricSwitch::start(Arc::clone(layout), *node, buffers, library);
            switch.map_err(|source| StartError::new("UDP", addr, options.flag("--listen"), source))
        })?;
        let shards = vec![switch.shard()];
        // Only switches that stand alone have parent switches.
        Ok(Threads { tcp, shards, fabric: Some(Arc::new(switch)), incarnation: 0 })
    }
}

/// Listens with the longest queue that the system allows: all ranks of a job may come, or leave, at one moment.
fn bind_tcp(addr: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&addr.into())?;
        socket.listen(i32::MAX)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|source| StartError::new("TCP", addr, flag, source))
}

fn open_shard(
    options: &SwitchOptions,
    shard: TreeId,
    listen: SocketAddr,
    incarnation: u64,
    beside: bool,
) -> Result<ShardHandle, StartError> {
    let (receive_buffer, send_buffer) = (options.receive_buffer, options.send_buffer);
    // Only parent switches ask for the incarnation.
    let incarnation = options.parent.map(|_| incarnation);
    let switch_options = options.switch_options.clone();
    let shard_options = ShardOptions { shard, listen, receive_buffer, send_buffer, incarnation, switch_options };
    ShardHandle::start_as(&shard_options, beside).map_err(|error| match error {
        ShardError::Open { listen, source } => StartError::new("UDP", listen, "--listen", source),
        other => StartError::System { addr: listen, source: io::Error::other(other) },
    })
}

/// Opens TCP and UDP at one port. If the system chooses the port for one, the port may be taken for the other.
fn open_pair<T>(
    options: &SwitchOptions,
    open_udp: impl Fn(SocketAddr) -> Result<T, StartError>,
) -> Result<(TcpListener, T), StartError> {
    const ATTEMPTS: usize = 16;
    let mut attempt = 1;
    loop {
        let tcp = bind_tcp(options.listen, options.flag("--listen"))?;
        let addr = tcp.local_addr().map_err(|source| StartError::System { addr: options.listen, source })?;
        match open_udp(addr) {
            Ok(udp) => return Ok((tcp, udp)),
            Err(StartError::InUse { .. }) if options.listen.port() == 0 && attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}
