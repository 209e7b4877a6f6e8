//! Parameter servers (SwitchML §6.1): the same streaming aggregation, summed by hosts instead of a switch.
//!
//! A worker streams its blocks through slots as under SwitchML, with the same packets; slot by slot they go to one of
//! several servers, each of which owns an equal share of the slots (*uniformly sharded*). A server runs the switch's
//! machine (Algorithm 3, so that losses are recovered) and, since it has no multicast, sends a result to each worker by
//! itself. Servers are *dedicated*, on hosts of their own, or *colocated*, one with every worker, which halves what the
//! worker's link has for its own data.
//!
//! Start with [`PsHost`]; the server's half is in `server.rs`.

mod server;

use self::server::Server;
use crate::collective::values::Values;
use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, Rank, ShardId};
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::time::Time;
use crate::contract::wire::Common;
use crate::protocols::Protocol;
use crate::switchml::SwitchMlHost;
use crate::switchml::wire::Kind;

/// Where a job's servers are. The server of shard `c` has the address `Addr::Worker(first + c)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// With the workers: as many as there are workers, `first` = 0.
    Colocated,
    /// On hosts of their own: `first` = world.
    Dedicated,
}

impl Servers {
    fn first(self, job: &JobConfig) -> u16 {
        match self {
            Servers::Colocated => 0,
            Servers::Dedicated => job.world,
        }
    }
}

/// A worker, a server, or both.
pub struct PsHost<V> {
    job: JobConfig,
    me: Rank,
    /// The address of the first server.
    first: u16,
    worker: Option<SwitchMlHost>,
    server: Option<Server<V>>,
    /// Whose turn it is to send.
    server_next: bool,
    /// Packets from one half to the other, which never leave this host.
    kept: u64,
    stats: HostStats,
}

impl<V: Values> PsHost<V> {
    /// The host with the address `config.rank`. `config.job.shards` is the number of servers.
    pub fn new(config: &HostConfig, servers: Servers) -> PsHost<V> {
        let job = config.job.clone();
        let first = servers.first(&job);
        let shard = config.rank.0.checked_sub(first).filter(|&shard| shard < job.shards).map(ShardId);
        PsHost {
            me: config.rank,
            first,
            worker: (config.rank.0 < job.world).then(|| SwitchMlHost::new(config)),
            server: shard.map(|shard| Server::new(&job, shard)),
            server_next: false,
            kept: 0,
            stats: HostStats::default(),
            job,
        }
    }

    fn receive(&mut self, now: Time, from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let Addr::Worker(from) = from else { return Err(DropReason::NotAMember) };
        Common::parse_kind(packet.bytes, &self.job, Protocol::SwitchMl.code())?;
        match (Kind::of(packet.bytes)?, &mut self.worker, &mut self.server) {
            (Kind::Update | Kind::Probe | Kind::Query, _, Some(server)) if from.0 < self.job.world => {
                server.receive(now, from, packet)
            }
            (Kind::Result | Kind::Report | Kind::Mismatch, Some(worker), _) => {
                let shard = from.0.checked_sub(self.first).ok_or(DropReason::NotAMember)?;
                worker.handle_packet(now, Addr::Switch(ShardId(shard)), packet)
            }
            _ => Err(DropReason::BadKind),
        }
    }

    /// The worker's next packet; what is for this host's own server stays here.
    fn poll_worker(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        loop {
            let sent = self.worker.as_mut()?.poll_transmit(now, buf)?;
            let Addr::Switch(shard) = sent.to else { return Some(sent) };
            let to = Rank(self.first + shard.0);
            if to != self.me {
                return Some(Transmit { to: Addr::Worker(to), ..sent });
            }
            let packet = Packet { bytes: &buf[..sent.len], wire_len: sent.wire_len, ecn: sent.ecn };
            self.kept += 1;
            if let Some(server) = &mut self.server {
                // Its counters tell of packets of no use.
                let _ = server.receive(now, self.me, packet);
            }
        }
    }

    /// The server's next packet; what is for this host's own worker stays here.
    fn poll_server(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        loop {
            let sent = self.server.as_mut()?.poll_transmit(now, buf)?;
            if sent.to != Addr::Worker(self.me) {
                return Some(sent);
            }
            let packet = Packet { bytes: &buf[..sent.len], wire_len: sent.wire_len, ecn: sent.ecn };
            self.kept += 1;
            if let Some(worker) = &mut self.worker {
                let _ = worker.handle_packet(now, Addr::Switch(ShardId(self.me.0 - self.first)), packet);
            }
        }
    }
}

impl<V: Values> Host for PsHost<V> {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        match &mut self.worker {
            Some(worker) => worker.submit(now, collective),
            // A dedicated server brings nothing of its own.
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
    }

    fn abort(&mut self, now: Time) {
        if let Some(worker) = &mut self.worker {
            worker.abort(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        // What one half keeps here may give the other something to send: until both in turn have nothing for anybody.
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
        event
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.worker.as_ref()?.poll_timeout()
    }

    fn max_packet_len(&self) -> usize {
        server::longest::<V>(&self.job)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }
}
