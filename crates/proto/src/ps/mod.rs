//! Parameter servers (SwitchML §6.1): the same streaming aggregation, summed by hosts instead of a switch.
//!
//! A worker streams its blocks through slots as under SwitchML, with the same packets. Each slot belongs to one of
//! several servers, which own equal shares of the slots (*uniformly sharded*). A server runs the switch's machine
//! (Algorithm 3, so that losses are recovered). It has no multicast, so it sends a result to each worker by itself.
//! Servers are *dedicated*, on hosts of their own, or *colocated*, one with every worker, which halves the capacity of
//! the worker's link for its own data.
//!
//! Start with [`PsHost`]; the server's half is in `server.rs`, with the packets by which colocated servers leave.
//! Packets and machines are SwitchML's: this folder needs SwitchML's folder.

mod server;

use self::server::{LEAVING, LEAVING_LEN, PARTED, Server, emit_leaving, is_needed, parse_leaving, word_of};
use crate::aggregation::shutdown::Shutdown;
use crate::aggregation::slots;
use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, Rank, ServerId, TreeId};
use crate::contract::numbers::Numbers;
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::protocol::{Description, Protocol};
use crate::contract::state::HostState;
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::{Common, kind};
use crate::switchml::wire::{HEADER_LEN, Kind, describe as describe_packet};
use crate::switchml::{SLOT_SPECS, SwitchMlHost, options};

/// A worker, a server, or both. The server of tree `c` is server `c`.
#[derive(Clone, Hash)]
pub struct PsHost {
    values: Values,
    job: JobConfig,
    rank: Rank,
    serves: Option<ServerId>,
    worker: Option<SwitchMlHost>,
    server: Option<Server>,
    /// Set if worker and server are on one host.
    shutdown: Option<Shutdown>,
    /// True if it is the server's turn to send.
    server_next: bool,
    /// Packets from one half to the other, which never leave this host.
    kept: u64,
    stats: HostStats,
}

impl PsHost {
    /// A worker, which is also a server if `config.serves` says so. `config.job.trees` is the number of servers.
    pub fn worker(values: Values, config: &HostConfig) -> PsHost {
        let shutdown = is_needed(&config.job, config).then(|| Shutdown::new(config));
        PsHost {
            worker: Some(SwitchMlHost::new(values, config).among_servers()),
            shutdown,
            ..PsHost::server(values, config)
        }
    }

    /// A server that is not a worker.
    pub fn server(values: Values, config: &HostConfig) -> PsHost {
        let job = config.job.clone();
        let tree = config.serves.filter(|server| server.0 < job.trees).map(|server| TreeId(server.0));
        PsHost {
            values,
            rank: config.rank,
            serves: config.serves,
            worker: None,
            server: tree.map(|tree| Server::new(values, &job, tree)),
            shutdown: None,
            server_next: false,
            kept: 0,
            stats: HostStats::default(),
            job,
        }
    }

    fn receive(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let code = Common::parse_kind(packet.bytes, &self.job.common())?;
        if let (Some(word), Some(shutdown)) = (word_of(code), &mut self.shutdown) {
            let (rank, count) = parse_leaving(from, packet.bytes)?;
            return shutdown.receive(now, word, rank, count);
        }
        let kind = Kind::of(packet.bytes)?;
        let is_answer = matches!(kind, Kind::Result | Kind::Report | Kind::Mismatch);
        let from = match from {
            // If every rank's host is a server, an answer comes from the server half of that host.
            Addr::Worker(rank) if is_answer && self.shutdown.is_some() => Addr::Server(ServerId(rank.0)),
            from => from,
        };
        match (is_answer, from, &mut self.worker, &mut self.server) {
            (false, Addr::Worker(rank), _, Some(server)) if rank.0 < self.job.world_size => {
                server.receive(now, rank, packet)
            }
            (true, Addr::Server(server), Some(worker), _) => {
                worker.handle_packet(now, Addr::Switch(TreeId(server.0)), packet)
            }
            (_, Addr::Worker(_) | Addr::Server(_), _, _) => Err(DropReason::BadKind),
            _ => Err(DropReason::NotAMember),
        }
    }

    /// True if these are collectives with each rank as root in turn, and each rank's host has a server: the root's own
    /// then sums, so that results stay there, or sources need not bring their blocks to another.
    fn are_for_all_servers(&self, collectives: &[Collective]) -> bool {
        let is_for_its_rank = |(rank, one): (u16, &Collective)| one.tensor.spec().primitive.root() == Some(Rank(rank));
        let (servers, slots) = (self.job.trees, self.job.slots);
        self.serves.is_some()
            && servers == self.job.world_size
            && slots.is_multiple_of(servers)
            && collectives.len() == usize::from(servers)
            && (0..servers).zip(collectives).all(is_for_its_rank)
    }

    /// The worker's next packet. Packets for this host's own server stay here.
    fn poll_worker(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        loop {
            let sent = self.worker.as_mut()?.poll_transmit(now, buf)?;
            let Addr::Switch(tree) = sent.to else { return Some(sent) };
            let to = ServerId(tree.0);
            if Some(to) != self.serves {
                return Some(Transmit { to: Addr::Server(to), ..sent });
            }
            let packet = Packet { bytes: &buf[..sent.len], wire_len: sent.wire_len, ecn: sent.ecn };
            self.kept += 1;
            if let Some(server) = &mut self.server {
                // The server's counters count dropped packets.
                let _ = server.receive(now, self.rank, packet);
            }
        }
    }

    /// The server's next packet. Packets for this host's own worker stay here.
    fn poll_server(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        loop {
            let sent = self.server.as_mut()?.poll_transmit(now, buf)?;
            if self.worker.is_none() || sent.to != Addr::Worker(self.rank) {
                return Some(sent);
            }
            let packet = Packet { bytes: &buf[..sent.len], wire_len: sent.wire_len, ecn: sent.ecn };
            self.kept += 1;
            if let (Some(worker), Some(own)) = (&mut self.worker, self.serves) {
                let _ = worker.handle_packet(now, Addr::Switch(TreeId(own.0)), packet);
            }
        }
    }
}

impl Host for PsHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        match &mut self.worker {
            Some(worker) => worker.submit(now, collective).map_err(refused_by_servers),
            // A dedicated server has no data of its own.
            None => Err(SubmitError::Broken(CollectiveError::Aborted)),
        }
    }

    fn submit_together(&mut self, now: Time, collectives: Vec<Collective>) -> Result<Vec<OpId>, SubmitError> {
        if !self.are_for_all_servers(&collectives) {
            return collectives.into_iter().map(|collective| self.submit(now, collective)).collect();
        }
        match &mut self.worker {
            Some(worker) => worker.submit_striped(now, collectives).map_err(refused_by_servers),
            None => Err(SubmitError::Broken(CollectiveError::Aborted)),
        }
    }

    fn handle_packet(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(now, from, packet);
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(worker) = &mut self.worker {
            worker.handle_timeout(now);
        }
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.handle_timeout(now);
        }
    }

    fn abort(&mut self, now: Time) {
        if let Some(worker) = &mut self.worker {
            worker.abort(now);
        }
    }

    fn finish(&mut self, now: Time) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.begin(now);
        }
    }

    fn may_leave(&self) -> bool {
        self.shutdown.as_ref().is_none_or(Shutdown::may_leave)
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        if let Some(said) = self.shutdown.as_mut().and_then(Shutdown::poll) {
            self.stats.packets_sent += 1;
            return Some(emit_leaving(&self.job, said, buf));
        }
        // A packet that one half keeps here may give the other half something to send. The loop ends when both in turn
        // have nothing to send.
        let mut idle = 0;
        while idle < 2 {
            let kept = self.kept;
            self.server_next = !self.server_next;
            let sent = if self.server_next { self.poll_server(now, buf) } else { self.poll_worker(now, buf) };
            if sent.is_some() {
                self.stats.packets_sent += 1;
                self.stats.retransmissions = self.worker.as_ref().map_or(0, |worker| worker.stats().retransmissions);
                return sent;
            }
            idle = if self.kept == kept { idle + 1 } else { 0 };
        }
        None
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        let event = self.worker.as_mut()?.poll_event();
        self.stats.blocks_at_hosts = self.worker.as_ref()?.stats().blocks_in_network;
        match event? {
            HostEvent::Failed { op, tensor, error } => {
                self.shutdown.iter_mut().for_each(Shutdown::fail);
                Some(HostEvent::Failed { op, tensor, error: of_servers(error) })
            }
            done => {
                self.shutdown.iter_mut().for_each(Shutdown::complete);
                Some(done)
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let shutdown = self.shutdown.as_ref().and_then(Shutdown::poll_timeout);
        self.worker.as_ref()?.poll_timeout().into_iter().chain(shutdown).min()
    }

    fn max_packet_len(&self) -> usize {
        server::longest(self.values, &self.job)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}

/// Replaces a worker's error about a part of its switch: that part is a server here.
fn of_servers(error: CollectiveError) -> CollectiveError {
    match error {
        CollectiveError::SwitchSilent { tree, block, op } => {
            CollectiveError::ServerSilent { server: ServerId(tree.0), block, op }
        }
        error => error,
    }
}

fn refused_by_servers(SubmitError::Broken(error): SubmitError) -> SubmitError {
    SubmitError::Broken(of_servers(error))
}

/// Parameter servers (SwitchML §6.1): hosts sum, slot by slot.
pub static PROTOCOL: Protocol = Protocol {
    code: 4,
    name: "ps",
    about: "parameter servers sum, on hosts of their own or one with each worker",
    header_len: HEADER_LEN,
    rooted_is_unicast: true,
    options: options("ps", &SLOT_SPECS),
    numbers: Numbers::chosen,
    check: |spec, options| slots::check("ps", spec, options),
    host: |values, config| Box::new(PsHost::worker(values, config)),
    server: Some(|values, config| Box::new(PsHost::server(values, config))),
    describe,
    ..Protocol::BASE
};

fn describe(bytes: &[u8]) -> Description {
    let kind = match bytes.get(kind::AT) {
        Some(&LEAVING) => "Leaving",
        Some(&PARTED) => "Parted",
        _ => return describe_packet(bytes),
    };
    Description { kind, slot: None, header_len: LEAVING_LEN, has_vector: false }
}
