//! The host: it sends its blocks towards their leaders, and leads some blocks itself (§3.1.4).
//!
//! Blocks of all collectives are one stream. Block `g` uses position `g mod s` of a window of `s` positions, is led by
//! rank `g mod n` and completed in root `g mod roots`. A position goes on to its next block when its sum comes, so
//! the sums clock the sending. A packet carries the exponent of the next block of its position (SwitchML §4.6). Before
//! the first blocks of floats comes a phase in which ranks only agree on exponents. Where a collective fits into the
//! window, that phase carries the block too, scaled by the position's last exponent.
//!
//! One more position carries the notices that collectives are complete (§3.3), so that leaders need not keep sums that
//! no rank will ask for.

mod following;
mod lead;
mod leading;
mod notices;
mod transmit;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;

use tributary_numeric::prefetch;

use self::following::Claims;
use self::lead::Leads;
use self::notices::{LastReport, Notices};
use self::transmit::Outgoing;
use self::window::{Entry, Step, Steps, Way};
use super::vector::Codec;
use super::wire::{HEADER_LEN, Header, Kind, RankProof, id_of};
use crate::aggregation::agreement::{ExponentHint, Stage};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::report::Mismatch;
use crate::aggregation::stream::Stream;
use crate::contract::config::{HostConfig, JobConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{Collective, CollectiveError, Host, HostEvent, HostStats, SubmitError, Upcoming};
use crate::contract::ids::{NodeId, OpId, Rank};
use crate::contract::numbers::{NarrowBlocks, Numbers};
use crate::contract::options::TO_THE_LETTER;
use crate::contract::packet::{Addr, Packet, Transmit};
use crate::contract::state::HostState;
use crate::contract::tensor::Spec;
use crate::contract::time::Time;
use crate::contract::values::{FINGERPRINT_LEN, Values};
use crate::contract::wire::{COMMON_LEN, Common};
use crate::reliability::recovery::{Order, Recovery};
use crate::reliability::slot_lists::SendQueue;

/// The `Spec` in a notice of completion.
const NOTICE: Spec = Spec::NOTHING;

/// A worker's machine.
#[derive(Clone, Hash)]
pub struct CanaryHost {
    values: Values,
    config: HostConfig,
    /// A block that failed so often is summed by its leader alone.
    reissues: u8,
    /// True if an issue fails at the first request, as in the paper.
    fails_at_once: bool,
    /// The switches in which trees end. Blocks use them round robin.
    roots: Arc<[NodeId]>,
    /// Every way to a block's leader passes the block's root. Packets are then routed to the leader, as in §4.1, so
    /// that packets to different leaders behind one root take different ways to that root.
    roots_on_way: bool,
    common: [u8; COMMON_LEN],
    life: Life,
    steps: Steps,
    /// The window, and the notices' position behind it.
    entries: Vec<Entry>,
    /// Positions whose contribution or request is to be sent.
    queue: SendQueue,
    recovery: Recovery,
    leads: Leads,
    /// Steps to look at: their block may be complete, or ranks disagree on it.
    ready: VecDeque<Step>,
    outbox: VecDeque<Outgoing>,
    notices: Notices,
    claims: Claims,
    /// The proofs of all other ranks.
    others_proof: RankProof,
    /// The position about which the next query asks.
    question: Option<u16>,
    last_report: Option<LastReport>,
    stats: HostStats,
    vector: Vec<u8>,
}

impl CanaryHost {
    /// A worker that has nothing to do. The plan of the fabric names every rank's node and its switch. Where no roots
    /// were chosen, each block's tree ends in the switch next to its leader. That leaves every way between switches
    /// open (§3.1.4, figure 3): a host has one cable, so every way to the leader passes that switch.
    pub fn new(values: Values, config: &HostConfig) -> CanaryHost {
        let job = &config.job;
        assert_eq!(config.fabric.hosts.len(), usize::from(job.world_size), "every rank has a node");
        let fabric = &config.fabric;
        let roots_on_way = fabric.roots.is_empty();
        let roots = Arc::clone(if roots_on_way { &fabric.switches } else { &fabric.roots });
        assert!(!roots.is_empty(), "a tree ends somewhere");
        let mut common = [0; COMMON_LEN];
        job.common().emit(&mut common);
        let window = job.slots.clamp(1, u16::MAX - 2);
        let others = (0..job.world_size).map(Rank).filter(|&rank| rank != config.rank);
        CanaryHost {
            values,
            reissues: job.options.count("reissues") as u8,
            fails_at_once: job.options.has_choice("fails", TO_THE_LETTER),
            roots,
            roots_on_way,
            common,
            life: Life::new(Stream::new(values, Numbers::Fixed, NarrowBlocks::Half, job)),
            steps: Steps::new(window + 1),
            entries: (0..u64::from(window)).chain([0]).map(Entry::new).collect(),
            queue: SendQueue::new(window + 1),
            recovery: Recovery::new(
                &JobConfig { slots: window + 1, trees: 1, ..job.clone() },
                config.rank,
                config.timers,
                Order::Any,
            ),
            leads: Leads::new(values, usize::from(window) + 1, job.world_size, job.elements_per_packet),
            ready: VecDeque::new(),
            outbox: VecDeque::new(),
            notices: Notices::default(),
            claims: Claims::default(),
            others_proof: others.map(RankProof::of).sum(),
            question: None,
            last_report: None,
            stats: HostStats::default(),
            vector: vec![0; (4 * usize::from(job.elements_per_packet)).max(FINGERPRINT_LEN)],
            config: config.clone(),
        }
    }

    /// Starts a position whose block was submitted.
    fn start(&mut self, position: u16, in_step: bool) {
        let window = u64::from(self.window());
        let is_notice = self.is_notice(position);
        let state = &mut self.entries[usize::from(position)];
        (state.attempt, state.contributed, state.in_step) = (0, false, in_step);
        state.stage = if is_notice {
            if self.notices.is_due(state.block) { Stage::Update } else { Stage::Idle }
        } else {
            match self.life.stream.op_of(state.block) {
                None => Stage::Idle,
                Some(op) => state.agreement.begin(op, state.block, window),
            }
        };
        if state.stage == Stage::Idle {
            return;
        }
        if self.leader_of(position) == self.config.rank {
            self.begin_lead(position);
        } else {
            self.begin_following(position);
        }
    }

    /// Takes the sum of a position's phase, whichever way it came, and begins the next phase.
    fn conclude(
        &mut self,
        now: Time,
        position: u16,
        exponent_hint: ExponentHint,
        vector: &[u8],
        way: Way,
    ) -> Result<(), DropReason> {
        let (world_size, stride) = (self.world_size(), u64::from(self.window()));
        let is_notice = self.is_notice(position);
        let state = &mut self.entries[usize::from(position)];
        let summed_with = state.agreement.conclude(state.stage, exponent_hint.agreed())?;
        if is_notice {
            let end = self.notices.complete();
            self.leads.close_before(end);
            state.block += 1;
        } else if let Some(exponent) = summed_with {
            let op = self.life.stream.op_of_mut(state.block).expect("a place that waits has a block");
            let range = op.range(state.block);
            if !range.is_empty() && op.spec.primitive.receives(self.config.rank) {
                op.write(state.block, exponent, world_size, vector);
            }
            op.remaining -= 1;
            let direct = state.attempt >= self.reissues;
            self.stats.blocks_at_hosts += u64::from(direct);
            self.stats.blocks_in_network += u64::from(!direct);
            state.block += stride;
        }
        // All ranks have contributed to this phase, so all have the sum of the phase before.
        let phase = state.phase;
        state.phase = self.steps.after(phase);
        self.leads.close(position, self.steps.before(phase));
        match way {
            Way::Tree => {
                self.recovery.answered(now, position, &mut self.queue);
            }
            Way::Answer => self.recovery.recovered(now, position),
            Way::Own => {}
        }
        self.start(position, true);
        self.complete_or_finish(now);
        Ok(())
    }

    /// Reports complete collectives, and gives the last notice when no more will come.
    fn complete_or_finish(&mut self, now: Time) {
        if self.complete_collectives() && self.life.stream.front().is_none() {
            self.finish_if_done(now);
        }
    }

    fn receive(&mut self, now: Time, packet: Packet<'_>) -> Result<(), DropReason> {
        Common::parse_kind(packet.bytes, &self.config.job.common())?;
        let header = Header::parse(packet.bytes)?;
        let step = self.steps.of(header.id).ok_or(DropReason::BadField)?;
        if header.hosts != self.world_size() || header.wid.0 >= self.world_size() {
            return Err(DropReason::BadField);
        }
        let kind = Kind::of(packet.bytes)?;
        if (kind.is_for_leader() || kind == Kind::Claim) && self.notify_mismatch(step, &header) {
            return Err(DropReason::Mismatch);
        }
        let received = match kind {
            Kind::Reduce => self.contribution(step, &header, packet),
            Kind::Request => self.request(step, &header),
            Kind::Query => self.query(step, &header),
            Kind::Broadcast => self.sum(now, step, &header, packet),
            Kind::Failure => self.failed(now, step, &header),
            Kind::Report => self.report(step, &header, packet),
            Kind::Mismatch => self.mismatch(step, &header, packet),
            Kind::Claim => self.claim(step, &header),
        };
        self.complete_ready(now);
        received
    }

    /// The first of the timers that are not of single positions.
    fn other_timers(&self) -> Option<Time> {
        let timers = [self.life.next_deadline(), self.notices.next_timeout(), self.claims.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    /// The number of elements of a packet's vector; an error if the packet's length fits no vector.
    fn vector_elements(&self, header: &Header, packet: &Packet<'_>) -> Result<usize, DropReason> {
        Codec::of(self.values, header).elements(packet.bytes.len(), packet.wire_len)
    }
}

impl Host for CanaryHost {
    fn submit(&mut self, now: Time, collective: Collective) -> Result<OpId, SubmitError> {
        self.life.may_submit()?;
        if self.world_size() > 1 && collective.tensor.spec().primitive.root() == Some(self.config.rank) {
            self.claims.begin(now, self.config.timers);
        }
        let (id, blocks) = self.life.submit(now, collective)?;
        let window = u64::from(self.window());
        for block in blocks.take(self.entries.len() - 1) {
            let position = (block % window) as u16;
            let state = &self.entries[usize::from(position)];
            if state.stage == Stage::Idle && state.block == block {
                self.start(position, false);
            }
        }
        self.complete_ready(now);
        Ok(id)
    }

    fn handle_packet(&mut self, now: Time, _from: Addr, packet: Packet<'_>) -> Result<(), DropReason> {
        let received = self.receive(now, packet);
        self.stats.count_received(received);
        received
    }

    fn handle_timeout(&mut self, now: Time) {
        self.recovery.handle_timeout(now, &mut self.queue);
        self.check_deadlines(now);
        self.notices.handle_timeout(now);
        self.claim_if_due(now);
    }

    fn abort(&mut self, _now: Time) {
        self.fail(CollectiveError::Aborted);
    }

    fn finish(&mut self, now: Time) {
        self.notices.finish(now, self.config.timers);
        self.finish_if_done(now);
        self.complete_ready(now);
    }

    fn may_leave(&self) -> bool {
        self.world_size() == 1 || self.notices.may_leave()
    }

    fn poll_transmit(&mut self, now: Time, buf: &mut [u8]) -> Option<Transmit> {
        self.next_packet(now, buf)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.life.poll_event()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.recovery.poll_timeout().into_iter().chain(self.other_timers()).min()
    }

    fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        let others = self.other_timers().filter(|&due| due < limit);
        self.recovery.poll_timeout_before(limit).into_iter().chain(others).min()
    }

    fn max_packet_len(&self) -> usize {
        let vector = (4 * usize::from(self.config.job.elements_per_packet)).max(FINGERPRINT_LEN);
        HEADER_LEN + vector.max(usize::from(self.world_size()).div_ceil(8)).max(Mismatch::LEN)
    }

    fn stats(&self) -> &HostStats {
        &self.stats
    }

    fn prefetch(&self, upcoming: Upcoming<'_>) {
        let position = match upcoming {
            Upcoming::Something => {
                self.recovery.prefetch();
                self.queue.prefetch();
                return self.life.stream.prefetch();
            }
            Upcoming::Packet(packet) => id_of(packet).and_then(|id| self.steps.of(id)).map(|step| step.position),
            Upcoming::Transmit => self.queue.front(),
        };
        self.life.stream.prefetch_tensor();
        if let Some(position) = position
            && let Some(state) = self.entries.get(usize::from(position))
        {
            prefetch::whole(state);
            self.recovery.prefetch_slot(position);
            self.queue.prefetch_slot(position);
            self.leads.prefetch(position);
        }
    }

    fn state(&self) -> Option<&dyn HostState> {
        Some(self)
    }
}
