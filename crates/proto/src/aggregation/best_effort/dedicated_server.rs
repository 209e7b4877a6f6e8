//! A server on a host of its own: it has no rank, contributes nothing to the sums, and needs no results.

use super::Rules;
use super::codec::Codec;
use super::host::vector_capacity;
use super::server::{Server, Standing};
use super::topology::Topology;
use super::wire::{HEADER_LEN, Header, Kind, bitmap_len, block_near};
use crate::aggregation::report::Report;
use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;

/// The machine of one server of a job.
#[derive(Clone, Hash)]
pub struct ServerHost {
    values: Values,
    job: JobConfig,
    topology: Topology,
    own: Rank,
    server: Server,
    stats: HostStats,
    /// Room for a result.
    vector: Vec<u8>,
}

impl ServerHost {
    /// The server that `config.rank` names: servers are numbered after the job's ranks, and the plan has their nodes.
    pub fn new(values: Values, rules: Rules, config: &HostConfig) -> ServerHost {
        let job = config.job.clone();
        let topology = Topology::new(&job, &config.fabric);
        assert!(
            topology.serves(config.rank) && config.rank.0 >= job.world_size,
            "the plan has a node for it after the ranks'"
        );
        ServerHost {
            values,
            server: Server::new(values, rules, config, &topology),
            own: config.rank,
            vector: vec![0; vector_capacity(&job)],
            stats: HostStats::default(),
            topology,
            job,
        }
    }

    fn receive(&mut self, packet: Packet<'_>) -> Result<(), DropReason> {
        Common::parse_kind(packet.bytes, &self.job.common())?;
        let header = Header::parse(packet.bytes)?;
        let kind = Kind::of(packet.bytes)?;
        if packet.wire_len < HEADER_LEN {
            return Err(DropReason::BadLength);
        }
        let open = self.server.first_open();
        let block = block_near(open, header.seq).ok_or(DropReason::Stale)?;
        if self.topology.server_of_block(block) != self.own {
            return Err(DropReason::NotAMember);
        }
        // No rank sends a block before it has the result of the block a window earlier.
        if block >= open + u64::from(self.job.slots.max(1)) {
            return Err(DropReason::Ahead);
        }
        match kind {
            Kind::Gradient | Kind::Sum => self.server.contribution(block, kind, &header, packet, &self.topology),
            Kind::Query if header.wid.0 >= self.job.world_size => Err(DropReason::BadField),
            Kind::Query => self.server.query(block, &header),
            _ => Err(DropReason::BadKind),
        }
    }

    /// Finishes the blocks that are complete.
    fn complete_ready(&mut self) {
        while let Some(block) = self.server.ready.pop_front() {
            if self.server.standing(block) == Standing::Complete {
                self.complete(block);
            }
        }
    }

    /// All ranks have contributed to a block: finishes it.
    fn complete(&mut self, block: u64) {
        let Some(served) = self.server.get(block) else { return };
        let Some((_, spec)) = served.what else { return };
        let Ok(codec) = Codec::new(self.values, &spec, served.scale, self.job.world_size) else { return };
        let is_empty = served.elements == 0 && !served.probe && !served.overflow;
        if codec.is_scaled() && !is_empty && !served.fits() {
            self.stats.reissues += u64::from(self.server.again(block, &self.topology).is_some());
            return;
        }
        let len = codec.buffer_len(served.elements);
        self.stats.blocks_at_hosts += u64::from(served.singles > 0);
        self.stats.blocks_in_network += u64::from(served.singles == 0);
        self.server.finish(block, &codec, None, &mut self.vector[..len], &self.topology);
    }
}

impl Host for ServerHost {
    fn submit(&mut self, _now: Time, _collective: Collective) -> Result<OpId, SubmitError> {
        Err(SubmitError::Broken(CollectiveError::Aborted))
    }

    fn handle_packet(&mut self, _now: Time, _from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(packet);
        self.complete_ready();
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn abort(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let sent = self.server.next_packet(&self.topology, buf)?;
        self.stats.packets_sent += 1;
        Some(sent)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn max_packet_len(&self) -> usize {
        HEADER_LEN + self.vector.len().max(Report::MAX_LEN) + bitmap_len(self.job.world_size)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}
