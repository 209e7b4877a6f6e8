//! A host: a worker, and one of the job's servers.
//!
//! Blocks of all collectives are one stream. A worker sends as far as its windows let it, and keeps every block until
//! its result has come, even if its gradient was acknowledged before. To a block that its own host serves a worker
//! contributes without a packet. Floats are scaled by a guess, so that no rank waits until others have named a block's
//! magnitude (`scaling.rs`).

mod conclude;
mod receive;
mod recovery;
mod send;
mod window;

use std::collections::VecDeque;

use self::recovery::Recovery;
use self::window::Window;
use super::Rules;
use super::server::Server;
use super::topology::Topology;
use super::wire::{HEADER_LEN, bitmap_len};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::report::Report;
use crate::aggregation::shutdown::Shutdown;
use crate::aggregation::stream::Stream;
use crate::congestion::lead_limit::LeadLimit;
use crate::congestion::{Controller, Progress, RttEstimator};
use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::metric::Metric;
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::time::Time;
use crate::contract::values::{FINGERPRINT_LEN, Values};
use crate::contract::wire::COMMON_LEN;

/// The machine of a worker and its server.
#[derive(Clone, Hash)]
pub struct BestEffortHost {
    values: Values,
    config: HostConfig,
    rules: Rules,
    topology: Topology,
    common: [u8; COMMON_LEN],
    life: Life,
    /// How many blocks all collectives so far have.
    submitted: u64,
    window: Window,
    congestion: Box<dyn Controller>,
    /// `None`: the congestion window also limits how far this worker may be ahead.
    lead_limit: Option<LeadLimit>,
    /// The newest PROG, if any has come.
    prog: Option<u32>,
    rtt: RttEstimator,
    recovery: Recovery,
    /// Blocks to ask about.
    questions: VecDeque<u64>,
    server: Server,
    shutdown: Shutdown,
    /// What a server last said about a block that waits: the ranks that it misses.
    last_report: Option<(u64, Report)>,
    stats: HostStats,
    /// Room for a vector and for a result.
    vectors: [Vec<u8>; 2],
}

impl BestEffortHost {
    /// A host that has no collectives. The plan of the fabric names every rank's node and its switch.
    pub fn new(values: Values, rules: Rules, config: &HostConfig) -> BestEffortHost {
        let job = &config.job;
        assert!(config.fabric.hosts.len() >= usize::from(job.world_size), "every rank has a node");
        assert_eq!(config.fabric.switches.len(), config.fabric.hosts.len(), "every node has a switch");
        let topology = Topology::new(job, &config.fabric);
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        let capacity = vector_capacity(job);
        BestEffortHost {
            values,
            rules,
            common,
            life: Life::new(Stream::new(values, Numbers::Fixed, NarrowBlocks::Half, job)),
            submitted: 0,
            window: Window::new(job.slots),
            congestion: (rules.congestion)(job),
            lead_limit: (rules.lead_limit)(job),
            prog: None,
            rtt: RttEstimator::new(config.timers),
            recovery: Recovery::new(config.timers),
            questions: VecDeque::new(),
            server: Server::new(values, rules, config, &topology),
            shutdown: Shutdown::new(config),
            last_report: None,
            stats: HostStats::default(),
            vectors: [vec![0; capacity], vec![0; capacity]],
            topology,
            config: config.clone(),
        }
    }

    /// How far this worker and the other ranks are beyond the last result, as far as this host knows (section III-B2).
    fn progress(&self) -> Progress {
        let (world_size, last) = (u32::from(self.config.job.world_size), self.window.first as u32);
        let ahead = self.prog.map_or(0, |prog| {
            let ahead = prog.wrapping_sub(world_size.wrapping_mul(last)) & super::wire::PROG_MASK;
            // A PROG from before the last result says nothing.
            if ahead > super::wire::PROG_MASK / 2 { 0 } else { ahead }
        });
        let own = (self.window.acked - self.window.first) as f64;
        let limit = self.lead_limit.as_ref().map_or_else(|| self.congestion.window() as f64, LeadLimit::size);
        Progress { own, average: f64::from(ahead) / f64::from(world_size), limit }
    }

    /// How many blocks beyond the last result may be sent.
    fn reach(&self) -> u64 {
        self.lead_limit.as_ref().map_or_else(|| self.congestion.window(), LeadLimit::blocks)
    }

    fn own(&self) -> Rank {
        self.config.rank
    }

    fn world_size(&self) -> u16 {
        self.config.job.world_size
    }

    /// True if this host serves the block itself.
    fn serves(&self, block: u64) -> bool {
        self.topology.server_of_block(block) == self.own()
    }
}

/// Bytes of the longest vector of a job.
pub(super) fn vector_capacity(job: &JobConfig) -> usize {
    job.payload_bytes().max(size_of::<u64>()).max(FINGERPRINT_LEN)
}

impl Host for BestEffortHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        let (id, blocks) = self.life.submit(now, collective)?;
        self.submitted = blocks.end;
        self.bring_served(now);
        Ok(id)
    }

    fn handle_packet(&mut self, now: Time, _from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(now, packet);
        self.bring_served(now);
        self.window.oldest_flying();
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, now: Time) {
        self.resend_lost(now);
        self.ask_if_passed(now);
        self.ask_if_silent(now);
        self.check_deadlines(now);
        self.shutdown.handle_timeout(now);
        self.window.oldest_flying();
    }

    fn abort(&mut self, _now: Time) {
        self.fail(CollectiveError::Aborted);
    }

    fn finish(&mut self, now: Time) {
        // Servers on hosts of their own stay until they are removed.
        if self.world_size() > 1 && !self.topology.has_dedicated_servers() {
            self.shutdown.begin(now);
        }
    }

    fn may_leave(&self) -> bool {
        self.shutdown.may_leave()
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        let sent = self.next_packet(now, buf)?;
        self.stats.packets_sent += 1;
        Some(sent)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.life.poll_event()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timers =
            [self.loss_due(), self.pace_due(), self.passed_due(), self.silence_due(), self.life.next_deadline()];
        timers.into_iter().flatten().chain(self.shutdown.poll_timeout()).min()
    }

    fn max_packet_len(&self) -> usize {
        HEADER_LEN + vector_capacity(&self.config.job).max(Report::MAX_LEN) + bitmap_len(self.world_size())
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn metrics(&self) -> Vec<Metric> {
        let Progress { own, average, .. } = self.progress();
        let (packets, ahead) = (self.congestion.window() as f64, self.reach() as f64);
        vec![
            Metric::gauge("window_packets", packets, "Packets that may be without any acknowledgement: CWD."),
            Metric::gauge("ahead_blocks", ahead, "Blocks beyond the last result that may be sent: AWD."),
            Metric::gauge("leads_blocks", own, "Blocks beyond the last result that have arrived: the paper's p_l."),
            Metric::gauge("average_blocks", average, "The same of all ranks on average, as far as is known: p_avg."),
        ]
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}
