//! The switch's side: SwitchML's Algorithm 3 for one job in one tree, alone or in levels (§7).

mod answers;
mod charge;
mod notices;
mod pool;
mod positions;
mod slot;

use std::collections::VecDeque;

use self::answers::Partial;
use self::notices::{Audience, Notices};
use self::pool::Pool;
use self::slot::{Action, Block, VersionId, on_contribution};
use super::wire::{Header, Kind, header_len};
use super::{Dialect, Word};
use crate::aggregation::block_sizes::BlockSizes;
use crate::aggregation::missing_ranks::{MissingRanks, Neighbour};
use crate::aggregation::ordered::{Arrangement, VectorFormat};
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, PortId};
use crate::contract::metric::Metric;
use crate::contract::packet::PacketMut;
use crate::contract::protocol::ShardShape;
use crate::contract::seal;
use crate::contract::state::{SwitchState, exclude_from_state};
use crate::contract::switch::{Emission, OperatorStatus, PortView, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;
use crate::contract::work::{Claim, Instrumented, Needs, Work};
use crate::heap::heap_bytes;
use crate::reliability::slot_lists;

pub use self::slot::Relation;

/// Bytes that a job of this shape takes in one tree.
pub fn memory<D: Dialect>(shape: &ShardShape<'_>) -> u64 {
    // A switch with a parent may have to send every version up.
    let versions = 2 * usize::from(shape.slots);
    let partials = if shape.levels { versions * size_of::<Partial>() } else { 0 };
    Pool::<D>::memory(shape) + (partials + versions * size_of::<(VersionId, Verdict)>()) as u64
}

/// One job's slots in one tree of one switch.
#[derive(Clone, Hash)]
pub struct SlotSwitch<D: Dialect> {
    members: Vec<PortId>,
    group: GroupId,
    parent: Option<Parent>,
    sizes: BlockSizes,
    common: Common,
    pool: Pool<D>,
    /// Versions whose partial result waits for a packet of its own, to be sent up.
    partials: VecDeque<Partial>,
    /// Versions whose answer waits for a packet of its own, and where that packet goes.
    answers: VecDeque<(VersionId, Verdict)>,
    notices: Notices<D::Word>,
    missing_ranks: MissingRanks,
    /// The job's packets have a checksum.
    is_sealed: bool,
    counters: Counters,
}

/// What a child's UPDATE or PROBE brings.
struct Contribution<'a, W> {
    header: &'a Header<W>,
    kind: Kind,
    elements: u32,
    format: VectorFormat,
    ingress: PortId,
    position: usize,
}

/// What becomes of a packet: the verdicts that this switch gives. The type is small enough for a register.
#[derive(Clone, Copy, Hash)]
enum Answer {
    Consume,
    Port(PortId),
    Group(GroupId),
}

#[derive(Clone, Default)]
struct Counters {
    blocks_completed: u64,
    contributions: u64,
    unicast_resends: u64,
    lost_results: u64,
    /// When the latest result was complete that a child has answered with its next contribution, by child.
    answered: Vec<Time>,
    /// How the last block was combined, if the protocol's packets tell the order.
    order: Option<u32>,
    work: Work,
}

exclude_from_state!(Counters);

impl Counters {
    /// A child asks for a result again. It has lost it if it has answered a later result: results reach a child in the
    /// order in which they leave. If it has not, its timeout may have come too early.
    fn count_resend(&mut self, child: ChildId, completed_at: Time) {
        self.unicast_resends += 1;
        self.lost_results += u64::from(completed_at < self.answered[child.index()]);
    }

    fn metrics(&self) -> Vec<Metric> {
        let resends = Metric::counter("unicast_resends", self.unicast_resends, "Results sent again to single members.");
        let help = "Results sent again to members that had answered a later one: those were lost.";
        let lost = Metric::counter("lost_results", self.lost_results, help);
        let order = self.order.map(|order| {
            let help =
                "The expression that the last block was summed by, as the number that ranks report in hexadecimal.";
            Metric::gauge("order", order.into(), help)
        });
        [resends, lost].into_iter().chain(order).collect()
    }
}

impl<D: Dialect> SlotSwitch<D> {
    const HEADER_LEN: usize = header_len::<D::Word>();

    /// A machine with all its memory.
    pub fn new(values: Values, config: &SwitchConfig) -> SlotSwitch<D> {
        let slots = slot_lists::slots_of(&config.job, config.tree);
        let dialect = D::of(&config.job.options, config.job.levels, config.job.world_size);
        SlotSwitch {
            members: config.members.clone(),
            group: config.group,
            parent: config.parent,
            sizes: BlockSizes::new(
                values,
                dialect.numbers(),
                dialect.narrow(),
                config.job.payload_bytes(),
                Self::HEADER_LEN,
            )
            .with_operators(config.job.options.operators()),
            common: config.job.common(),
            is_sealed: seal::is_chosen(&config.job.options),
            partials: VecDeque::with_capacity(if config.parent.is_some() { 2 * slots.len() } else { 0 }),
            answers: VecDeque::with_capacity(2 * slots.len()),
            pool: Pool::new(values, config),
            notices: Notices::new(config),
            missing_ranks: MissingRanks::new(config),
            counters: Counters { answered: vec![Time::ZERO; config.members.len()], ..Counters::default() },
        }
    }

    #[inline]
    fn receive(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>) -> Result<Answer, DropReason> {
        if self.pool.fault().is_some() {
            return Err(DropReason::Faulty);
        }
        let mut header = Header::BLANK;
        header.read(&packet.bytes[..packet.len])?;
        let kind = Kind::of(packet.bytes)?;
        let version = self.pool.version(header.idx, header.phase).ok_or(DropReason::BadField)?;
        if self.parent.is_some_and(|parent| parent.port == ingress) {
            return match kind {
                Kind::Result => self.parent_result(now, version, &header, packet),
                Kind::Mismatch => self.mismatch_elsewhere(now, version, &header, packet, true),
                Kind::Report => self.handle_report(Neighbour::Parent, &header, packet),
                Kind::Query => Ok(self.query(Neighbour::Parent, header)),
                Kind::Update | Kind::Probe => Err(DropReason::BadKind),
            };
        }
        if self.members.get(header.wid.index()) != Some(&ingress) {
            return Err(DropReason::WrongWorker);
        }
        let child = Neighbour::Child(header.wid);
        match kind {
            Kind::Probe if !self.pool.dialect.probes() => Err(DropReason::BadKind),
            Kind::Update | Kind::Probe => {
                let format =
                    if self.missing_ranks.is_switch(child) { VectorFormat::Partial } else { VectorFormat::Host };
                let position = self.pool.position(header.wid, header.word.subtree()).ok_or(DropReason::BadField)?;
                let may_lack = kind == Kind::Probe || self.is_spared(&header.spec, header.wid);
                let elements = self.sizes.of(&header.spec)?.elements(format, packet, may_lack)?;
                self.contribution(
                    now,
                    version,
                    &Contribution { header: &header, kind, elements, format, ingress, position },
                    packet,
                )
            }
            Kind::Query => Ok(self.query(child, header)),
            Kind::Mismatch if self.missing_ranks.is_switch(child) => {
                self.mismatch_elsewhere(now, version, &header, packet, false)
            }
            Kind::Report if self.missing_ranks.is_switch(child) => self.handle_report(child, &header, packet),
            _ => Err(DropReason::BadKind),
        }
    }

    /// A contribution whose fields are in range.
    #[inline]
    fn contribution(
        &mut self,
        now: Time,
        version: VersionId,
        brought: &Contribution<'_, D::Word>,
        packet: &mut PacketMut<'_>,
    ) -> Result<Answer, DropReason> {
        let &Contribution { header, kind, elements, ingress, position, .. } = brought;
        let current = self.pool.get(version);
        let (relation, state, completed_at) =
            (Relation::of(header.phase, current.phase), current.state, current.completed_at);
        let same_spec = current.block.spec == header.spec && current.block.kind == kind;
        let lacks =
            |elements: u32| elements == 0 && kind == Kind::Update && header.spec.primitive.sole_source().is_some();
        let same_size = current.block.elements == elements || lacks(elements) || lacks(current.block.elements);
        let same_block = same_spec && same_size;
        let shadow_complete = self.pool.shadow_complete(version, header.phase);
        let seen = self.pool.has_seen(version, position);
        let crossed = relation == Relation::Same && self.pool.crossed(now, version, position);
        match on_contribution(relation, state, seen, shadow_complete, crossed) {
            Action::Begin => {
                let block = Block { kind, spec: header.spec, elements };
                self.pool.begin(now, version, header.phase, block, &self.sizes.of(&header.spec)?.encoding)?;
                Ok(self.add(now, version, brought, packet))
            }
            Action::Add if same_block => Ok(self.add(now, version, brought, packet)),
            Action::Add if same_spec => Err(DropReason::BadLength),
            Action::Add => Err(self.mismatch_here(version, header)),
            Action::NotifyMismatch => {
                let asker = Audience::One(Neighbour::Child(header.wid));
                self.notices.push(asker, Kind::Mismatch, *header);
                self.notices.notify_parent(*header);
                Err(DropReason::Mismatch)
            }
            Action::ResendResult | Action::ResendPartial if !same_block => Err(DropReason::BadLength),
            Action::ResendResult => {
                self.counters.count_resend(header.wid, completed_at);
                Ok(self.answer_again(version, header.wid, ingress, packet))
            }
            // Only the subtree that the child's vector belongs to: where queues are short, a burst of all subtrees
            // would lose the same subtrees each time.
            Action::ResendPartial => {
                let subtree = self.pool.subtree_of(position);
                Ok(self.send_to_parent(version, subtree..subtree + 1, brought, packet))
            }
            Action::Drop(reason) => Err(reason),
        }
    }

    /// Algorithm 3, lines 6 to 17.
    #[inline]
    fn add(
        &mut self,
        now: Time,
        version: VersionId,
        brought: &Contribution<'_, D::Word>,
        packet: &mut PacketMut<'_>,
    ) -> Answer {
        let &Contribution { header, format, position, elements, .. } = brought;
        let count = if elements == 0 && self.is_spared(&header.spec, header.wid) {
            self.pool.excuse(version, header, position)
        } else {
            self.pool.fill(version, elements);
            self.pool.add(version, header, position, &packet.bytes[Self::HEADER_LEN..packet.len], format)
        };
        self.counters.contributions += 1;
        let answered = &mut self.counters.answered[header.wid.index()];
        *answered = self.pool.before(version).max(*answered);
        let work = &mut self.counters.work;
        if count == 1 {
            work.copied += u64::from(elements);
        } else {
            work.combined += u64::from(elements);
        }
        if self.pool.fault().is_some() {
            return Answer::Consume;
        }
        if usize::from(count) < self.pool.positions() {
            return Answer::Consume;
        }
        self.counters.work.completed += 1;
        if self.parent.is_some() {
            self.pool.await_parent(now, version);
            let subtrees = 0..self.pool.subtrees() as u16;
            return self.send_to_parent(version, subtrees, brought, packet);
        }
        self.counters.blocks_completed += 1;
        self.pool.complete(now, version);
        self.counters.order = self.pool.get(version).word.order();
        self.answer(version, packet)
    }
}

impl<D: Dialect> Switch for SlotSwitch<D> {
    fn process(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>, _ports: &dyn PortView) -> Verdict {
        match self.receive(now, ingress, packet) {
            Ok(Answer::Consume) => Verdict::Consume,
            Ok(Answer::Port(port)) => Verdict::Port(port),
            Ok(Answer::Group(group)) => Verdict::Group(group),
            Err(reason) => Verdict::Drop(reason),
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, buf: &mut [u8]) -> Option<Emission> {
        self.poll_answer(buf)
            .or_else(|| self.poll_partial(buf))
            .or_else(|| self.notices.poll(&self.pool, &self.missing_ranks, buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.pool.memory_bytes()
            + self.partials.capacity() * size_of::<Partial>()
            + self.answers.capacity() * size_of::<(VersionId, Verdict)>()
            + heap_bytes(&self.members)
            + heap_bytes(&self.counters.answered)
            + self.notices.memory_bytes()
            + self.missing_ranks.memory_bytes()
    }

    fn query_kinds(&self) -> u64 {
        1 << Kind::Query as u8
    }

    fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    fn report(&self) -> SwitchReport {
        let missing = self.pool.missing();
        SwitchReport {
            slots: self.pool.slots(),
            slots_waiting: self.pool.slots_waiting(),
            missing,
            lag: None,
            blocks_completed: self.counters.blocks_completed,
            contributions: self.counters.contributions,
            metrics: self.counters.metrics(),
            orders: Vec::new(),
        }
    }

    fn operator_status(&self) -> Option<OperatorStatus> {
        let instructions = self.pool.instructions()?;
        Some(OperatorStatus { instructions, fault: self.pool.fault().map(|fault| fault.to_string()) })
    }

    fn instrumented(&mut self) -> Option<&mut dyn Instrumented> {
        Some(self)
    }

    fn state(&self) -> Option<&dyn SwitchState> {
        Some(self)
    }
}

impl<D: Dialect> Instrumented for SlotSwitch<D> {
    /// The versions of a slot follow each other and count as one block here. Only contributions need the block: a
    /// result comes from above when no other handler uses the block.
    fn claim(&mut self, ingress: PortId, packet: &[u8]) -> Claim {
        let mut header = Header::<D::Word>::BLANK;
        let (Ok(()), Ok(kind)) = (header.read(packet), Kind::of(packet)) else { return Claim::nothing(0) };
        let block = u64::from(header.idx);
        let is_from_parent = self.parent.is_some_and(|parent| parent.port == ingress);
        match kind {
            Kind::Update | Kind::Probe if !is_from_parent => {
                let Some(position) = self.pool.position(header.wid, header.word.subtree()) else {
                    return Claim::nothing(block);
                };
                let Ok(sizes) = self.sizes.of(&header.spec) else { return Claim::nothing(block) };
                let needs = match self.pool.arrangement(&header.spec, &sizes.encoding) {
                    Arrangement::Buffers(buffers) => Needs::Buffer(buffers),
                    Arrangement::Tree => Needs::Leaf(position as u16, self.pool.positions() as u16),
                    // Nodes of a larger tree are claimed together, like one buffer.
                    Arrangement::Forest => Needs::Buffer(1),
                };
                Claim { block, needs }
            }
            Kind::Update | Kind::Probe | Kind::Result | Kind::Query | Kind::Report | Kind::Mismatch => {
                Claim::nothing(block)
            }
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.counters.work)
    }
}
