//! How a worker becomes a member: it looks up the path, joins, and tests the path with a packet of full length.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_proto::contract::config::{CoreSlots, FabricPlan, HostConfig, JobConfig, TimerConfig, TreeLeaf};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::packet::Addr;
use tributary_proto::contract::protocol::Placement;
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::contract::values::Values;
use tributary_proto::contract::wire::Common;

use super::core::Core;
use super::driver::{Driver, Identity};
use super::engine::{Engine, SharedFailure};
use super::error::ConnectError;
use super::link::{Link, Trees};
use super::options::{ConnectOptions, GroupInfo};
use crate::challenge;
use crate::client;
use crate::os::{self, Clock, Waker};
use crate::pool_size;
use crate::rendezvous::{JoinAnswer, JoinError, JoinRequest, Rendezvous};
use crate::udp::UdpPort;
use crate::udp::path::{self, Path, SHORTEST_PING};

/// Bytes that a worker asks the kernel for, for its receive buffer and for its send buffer.
pub(super) const SOCKET_BUFFER: usize = 8 << 20;
/// The time between two pings.
const PING_AGAIN: Span = Span::from_millis(100);
/// How long the path is tried with packets of full length, and after that with short ones.
const PING_TIMEOUT: Span = Span::from_millis(2_000);
/// How long each length is tried if the longest does not pass.
const LADDER_TIMEOUT: Span = Span::from_millis(250);

/// Joins a job.
pub fn connect(
    options: &ConnectOptions,
    rendezvous: Arc<dyn Rendezvous>,
) -> Result<(Arc<Driver>, GroupInfo), ConnectError> {
    options.check()?;
    let switch = resolve(&options.switch)?;
    let socket_error = |source| ConnectError::Socket { switch, source };
    let path = Path::to(switch).map_err(socket_error)?;
    let mut sockets = open_sockets(options, &path).map_err(socket_error)?;
    let local = sockets[0].local_addr();
    let handshake = control_round_trip(switch);
    let wish = request(options, handshake, &path, &sockets);
    let answer = join(&*rendezvous, &wish, &sockets).map_err(socket_error)??;

    let (key, job) = (answer.key, answer.job_id);
    let leave = || rendezvous.leave(job, key, options.rank, Some(0));
    check(options, &answer).inspect_err(|_| leave())?;
    if answer.fabric.is_some() {
        sockets.truncate(1);
    }
    let of_worker = sockets.len() as u16;
    let full = pool_size::packet_bytes(options.protocol, answer.elements_per_packet);
    let (clock, mut round_trip) = (Clock::start(), Duration::ZERO);
    let wakers = sockets.iter().map(|_| Waker::new().map(Arc::new)).collect::<io::Result<Vec<_>>>();
    let wakers = wakers.map_err(socket_error)?;
    let failure = (of_worker > 1).then(|| Arc::new(SharedFailure::new(wakers.clone())));
    let mut cores = Vec::new();
    for (core, (udp, waker)) in sockets.into_iter().zip(wakers).enumerate() {
        let slots = CoreSlots { core: core as u16, cores: of_worker, shares: answer.most_cores };
        let config = host_config(options, handshake, &answer, slots);
        let host = options.protocol.host(Values::Elements, &config);
        let header = Common { protocol: options.protocol.code, kind: 0, job, key };
        let socket = udp.socket();
        let link = Link::new(udp, header, &answer, full, Trees::of(options.protocol, &config));
        let mut engine = Engine::new(config.rank, clock, link, host).on_core(core, failure.clone());
        let of_core = try_path(&mut engine, &waker, full, options, &answer, path.mtu).inspect_err(|_| leave())?;
        round_trip = round_trip.max(of_core);
        cores.push(Core::new(engine, socket, waker, format!("worker-{}", options.rank)));
    }

    let identity = identity(options, &answer);
    let info = GroupInfo {
        switch: options.switch.clone(),
        job: options.job.clone(),
        rank: options.rank,
        world_size: options.world_size,
        protocol: options.protocol,
        options: options.options.clone(),
        slots: answer.slots,
        elements_per_packet: answer.elements_per_packet,
        mtu: path.mtu,
        shards: answer.shards,
        servers: if answer.serves.is_none() { answer.servers } else { Vec::new() },
        local,
        cores: of_worker,
        round_trip,
    };
    Ok((Arc::new(Driver::new(identity, rendezvous, cores)), info))
}

/// A socket for each core.
fn open_sockets(options: &ConnectOptions, path: &Path) -> io::Result<Vec<UdpPort>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = 0..options.cores_on(path.link_bits_per_s, processors);
    cores.map(|_| UdpPort::open((path.local, 0).into(), SOCKET_BUFFER, SOCKET_BUFFER)).collect()
}

/// How messages and the control plane name this worker.
fn identity(options: &ConnectOptions, answer: &JoinAnswer) -> Identity {
    Identity {
        switch: options.switch.clone(),
        job: options.job.clone(),
        job_id: answer.job_id,
        key: answer.key,
        rank: options.rank,
        world_size: options.world_size,
        switches: answer.switches.clone(),
        servers: answer.servers.clone(),
        in_fabric: answer.fabric.is_some(),
    }
}

/// Joins, and meanwhile answers the switch's challenges to the sockets.
pub(super) fn join(
    rendezvous: &dyn Rendezvous,
    request: &JoinRequest,
    sockets: &[UdpPort],
) -> io::Result<Result<JoinAnswer, JoinError>> {
    let Some(incarnation) = rendezvous.incarnation() else { return Ok(rendezvous.join(request)) };
    let clone = |udp: &UdpPort| udp.as_fd().try_clone_to_owned().map(UdpSocket::from);
    let sockets = sockets.iter().map(clone).collect::<io::Result<Vec<_>>>()?;
    challenge::answering(&sockets, incarnation, || rendezvous.join(request))
}

/// The address of the switch.
pub fn resolve(switch: &str) -> Result<SocketAddr, ConnectError> {
    client::resolve(switch).map_err(|source| ConnectError::Resolve { switch: switch.to_string(), source })
}

/// The request of a worker with these sockets, one a core.
pub(super) fn request(options: &ConnectOptions, round_trip: Duration, path: &Path, sockets: &[UdpPort]) -> JoinRequest {
    let max_elements =
        pool_size::elements_in(options.protocol, Path { mtu: path.mtu.min(pool_size::MAX_MTU), ..*path }.max_payload());
    let elements = options.elements_per_packet.unwrap_or(max_elements);
    let packet_bytes = pool_size::packet_bytes(options.protocol, elements);
    let for_link = pool_size::suggested(path.link_bits_per_s, round_trip, packet_bytes);
    // If each worker is also a server, contributions of others come to the same socket.
    let senders = if options.protocol.server.is_some() { 2 } else { 1 };
    let (udp, further) = sockets.split_first().expect("a worker has a core");
    let buffers = sockets.iter().map(|udp| udp.counters().receive_buffer).sum();
    let for_socket = pool_size::largest(buffers, 1, senders, packet_bytes);
    JoinRequest {
        job: options.job.clone(),
        rank: options.rank,
        world_size: options.world_size,
        protocol: options.protocol,
        udp: udp.local_addr(),
        core_ports: further.iter().map(|udp| udp.local_addr().port()).collect(),
        elements_per_packet: options.elements_per_packet,
        max_elements_per_packet: max_elements,
        slots: options.slots,
        trees: options.trees,
        suggested_slots: for_link.min(for_socket),
        options: options.options.clone(),
        timeout: options.timeout,
    }
}

/// The time of the fastest of some TCP handshakes with the control API, because a busy machine delays most of them.
/// Zero if nobody answers, since the join will then say why.
pub(super) fn control_round_trip(switch: SocketAddr) -> Duration {
    const HANDSHAKES: usize = 4;
    let handshake = || {
        let start = Instant::now();
        TcpStream::connect_timeout(&switch, Duration::from_secs(1)).map(|_| start.elapsed())
    };
    (0..HANDSHAKES).map_while(|_| handshake().ok()).min().unwrap_or(Duration::ZERO)
}

/// A protocol that addresses nodes must know the node of every rank. A fabric's answer has it; in a star it is the rank.
fn check_fabric(options: &ConnectOptions, answer: &JoinAnswer) -> Result<(), JoinError> {
    let endpoints = usize::from(options.world_size) + answer.servers.len();
    let is_known = match &answer.fabric {
        Some(fabric) => fabric.hosts.len() == endpoints && fabric.leaves.len() == endpoints,
        None => answer.switches.len() <= 1 && answer.shards.len() == 1,
    };
    if options.protocol.placement != Placement::EveryHop || is_known {
        return Ok(());
    }
    Err(JoinError::Refused(format!(
        "{} needs one switch or a fabric of switches, and the switch {} does not say where the ranks are in one: name a \
         switch that stands alone, or one of a fabric",
        options.protocol.name, options.switch
    )))
}

/// A protocol with servers must know where they are.
fn check_servers(options: &ConnectOptions, answer: &JoinAnswer) -> Result<(), JoinError> {
    let number = answer.servers.len();
    let shared = number > 0 && usize::from(answer.slots).is_multiple_of(number);
    // Without dedicated servers, ranks also act as servers for protocols in which a switch does most of the work.
    if options.protocol.server.is_none() || shared {
        return Ok(());
    }
    Err(JoinError::Refused(format!(
        "{} needs servers, and the switch {} does not say where they are: take another protocol, or install the same \
         version of Tributary there",
        options.protocol.name, options.switch
    )))
}

/// What a worker cannot take of an answer.
fn check(options: &ConnectOptions, answer: &JoinAnswer) -> Result<(), JoinError> {
    check_servers(options, answer)?;
    check_fabric(options, answer)?;
    check_operators(options, answer)?;
    check_cores(options, answer)
}

/// The switches of a fabric send what is for a rank to one address.
fn check_cores(options: &ConnectOptions, answer: &JoinAnswer) -> Result<(), JoinError> {
    match options.cores.is_some_and(|cores| cores > 1) && answer.fabric.is_some() {
        false => Ok(()),
        true => Err(JoinError::Refused(format!(
            "a fabric of switches, as that of {}, serves a worker on one core: leave the number of cores out",
            options.switch
        ))),
    }
}

/// A packet must hold an element of each of the job's own operators.
fn check_operators(options: &ConnectOptions, answer: &JoinAnswer) -> Result<(), JoinError> {
    let (largest, bytes) = (options.options.operators().largest_element(), 4 * usize::from(answer.elements_per_packet));
    match largest <= bytes {
        true => Ok(()),
        false => Err(JoinError::Refused(format!(
            "an operator's elements of {largest} bytes do not fit into packets of {bytes}: ask for at least {} elements per \
             packet",
            largest.div_ceil(4)
        ))),
    }
}

/// Timers until round trips are measured: so long that no packet is repeated before its answer can arrive.
fn timers(round_trip: Duration) -> TimerConfig {
    let usual = TimerConfig::default();
    let of_path = |times: u128| Span::from_micros((round_trip.as_micros() * times) as u64);
    TimerConfig { initial_rto: usual.initial_rto.max(of_path(4)), max_rto: usual.max_rto.max(of_path(16)), ..usual }
}

fn host_config(options: &ConnectOptions, round_trip: Duration, answer: &JoinAnswer, slots: CoreSlots) -> HostConfig {
    let trees = answer.fabric.as_ref().map_or(&[][..], |fabric| &fabric.trees);
    let in_levels = answer.fabric.as_ref().map_or(answer.switches.len() > 1, |fabric| fabric.levels);
    HostConfig {
        job: JobConfig {
            job: answer.job_id,
            key: answer.key,
            protocol: options.protocol.code,
            world_size: options.world_size,
            slots: answer.slots,
            elements_per_packet: answer.elements_per_packet,
            // Each tree owns the slots of a shard.
            trees: match options.protocol.server.is_some() {
                true => answer.servers.len(),
                false => answer.shards.len().max(trees.len()),
            } as u16,
            // Servers get the contributions of the ranks themselves and no partial sums.
            levels: in_levels && answer.servers.is_empty(),
            options: options.options.clone(),
        },
        rank: Rank(options.rank),
        trees: if trees.is_empty() { vec![TreeLeaf { child: answer.wid }] } else { trees.to_vec() },
        serves: answer.serves,
        slots,
        timers: timers(round_trip),
        fabric: match &answer.fabric {
            Some(fabric) => FabricPlan {
                hosts: fabric.hosts.as_slice().into(),
                switches: fabric.leaves.as_slice().into(),
                roots: [].into(),
            },
            None if options.protocol.placement == Placement::EveryHop => {
                FabricPlan::star_with_servers(options.world_size, answer.servers.len() as u16)
            }
            None => FabricPlan::default(),
        },
    }
}

/// Sends pings of full length until every shard and every server has answered. Returns the round trip, or an error that
/// says what is wrong if one does not answer.
fn try_path(
    engine: &mut Engine,
    waker: &Waker,
    full: usize,
    options: &ConnectOptions,
    answer: &JoinAnswer,
    mtu: u32,
) -> Result<Duration, ConnectError> {
    let silent = match ping_all(engine, waker, full, PING_TIMEOUT) {
        Ok(round_trip) => {
            engine.link.watch_paths(full);
            return Ok(round_trip);
        }
        Err(silent) => silent,
    };
    let address_of = |addr: Addr| match addr {
        Addr::Server(server) => answer.servers[server.index()],
        Addr::Switch(shard) => answer.shards[shard.index()],
        Addr::Worker(_) | Addr::Node(_) => unreachable!("only shards and servers are pinged"),
    };
    let shard = address_of(silent);
    if let Err(silent) = ping_all(engine, waker, SHORTEST_PING, PING_TIMEOUT) {
        let (switch, job, addr) = (options.switch.clone(), options.job.clone(), address_of(silent));
        return Err(match silent {
            Addr::Server(server) => ConnectError::ServerSilent { switch, job, server, addr },
            _ => ConnectError::UdpSilent { switch, job, shard: addr },
        });
    }
    let found = path::ladder(full).find_map(|limit| {
        let round_trip = ping_all(engine, waker, limit, LADDER_TIMEOUT).ok()?;
        Some((limit, round_trip))
    });
    let Some((limit, round_trip)) = found.filter(|_| answer.fabric.is_none()) else {
        return Err(ConnectError::PathTooNarrow { shard, bytes: full, mtu });
    };
    tracing::warn!(
        job = options.job, rank = options.rank, %shard, full, limit,
        "the path to the switch holds shorter packets than the job's: they travel in fragments; ask for fewer elements per \
         packet, or mend the MTU on the path"
    );
    engine.link.watch_paths(limit);
    Ok(round_trip)
}

/// The last round trip, or the first address that has not answered.
fn ping_all(engine: &mut Engine, waker: &Waker, len: usize, timeout: Span) -> Result<Duration, Addr> {
    let clock = engine.clock;
    let deadline = clock.now() + timeout;
    let (mut sent, mut again) = (Time::ZERO, Time::ZERO);
    loop {
        let silent = engine.link.pongs(len).find(|(_, at)| at.is_none());
        let Some((silent, _)) = silent else {
            let last = engine.link.pongs(len).filter_map(|(_, at)| at).max().unwrap_or(sent);
            return Ok(os::to_duration(last.since(sent)));
        };
        let now = clock.now();
        if now >= deadline {
            return Err(silent);
        }
        if again <= now {
            engine.link.ping(now, len);
            (sent, again) = (now, now + PING_AGAIN);
        }
        let ready = os::wait(engine.link.as_fd(), waker, Some(os::to_duration(again.since(now))));
        engine.turn(ready.packets);
    }
}
