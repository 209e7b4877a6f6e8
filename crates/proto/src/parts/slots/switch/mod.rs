//! The switch's side: SwitchML's Algorithm 3 for one job in one tree, alone or in levels (§7).

mod notices;
mod places;
mod pool;
mod slot;
mod trouble;

use std::collections::VecDeque;
use std::ops::Range;

use self::notices::{Audience, Notices};
use self::pool::{Block, Pool, VersionId};
pub use self::slot::Relation;
use self::slot::{Action, State, on_contribution, on_parent_result};
use super::wire::{Header, Kind, header_len, put_wid, put_word};
use super::{Dialect, Word};
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{GroupId, PortId};
use crate::contract::metric::Metric;
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::protocol::JobShape;
use crate::contract::state::{SwitchState, not_acted_upon};
use crate::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;
use crate::parts::block_sizes::{BlockSizes, Sizes};
use crate::parts::form::Form;
use crate::parts::inquiry::{Inquiry, Neighbour};
use crate::parts::layout;
use crate::parts::memory::heap_bytes;

/// Bytes that a job of this shape takes in one tree.
pub fn memory<D: Dialect>(shape: &JobShape<'_>) -> u64 {
    // A switch of a tree may have to send every version up.
    let partials = if shape.levels { 2 * usize::from(shape.slots) * size_of::<Partial>() } else { 0 };
    Pool::<D>::memory(shape) + partials as u64
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
    /// Versions whose partial result is to be sent up, though no packet of the right size is at hand.
    partials: VecDeque<Partial>,
    notices: Notices<D::Word>,
    inquiry: Inquiry,
    counters: Counters,
}

/// A partial result that is to be sent up.
#[derive(Clone, Copy, Hash)]
struct Partial {
    version: VersionId,
    /// Where the packet came in that completed it.
    ingress: PortId,
    /// The next of its parts, and the end.
    part: u16,
    end: u16,
}

/// What a child's UPDATE or PROBE brings.
struct Contribution<'a, W> {
    header: &'a Header<W>,
    kind: Kind,
    elements: u32,
    form: Form,
    ingress: PortId,
    place: usize,
}

/// What becomes of a packet: the verdicts that this switch gives, small enough to stay in a register.
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
    /// How the last block was combined, where its packets say so.
    order: Option<u32>,
}

not_acted_upon!(Counters);

impl Counters {
    fn metrics(&self) -> Vec<Metric> {
        let resends = Metric::counter("unicast_resends", self.unicast_resends, "Results sent again to single members.");
        let order = self.order.map(|order| {
            let help =
                "The expression that the last block was summed by, as the number that ranks report in hexadecimal.";
            Metric::gauge("order", order.into(), help)
        });
        [resends].into_iter().chain(order).collect()
    }
}

impl<D: Dialect> SlotSwitch<D> {
    const HEADER_LEN: usize = header_len::<D::Word>();

    /// A machine with all its memory.
    pub fn new(values: Values, config: &SwitchConfig) -> SlotSwitch<D> {
        let slots = layout::slots_of(&config.job, config.tree);
        let dialect = D::of(&config.job.options, config.job.levels, config.job.world);
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
            ),
            common: config.job.common(),
            partials: VecDeque::with_capacity(if config.parent.is_some() { 2 * slots.len() } else { 0 }),
            pool: Pool::new(values, config),
            notices: Notices::new(config),
            inquiry: Inquiry::new(config),
            counters: Counters::default(),
        }
    }

    #[inline]
    fn receive(&mut self, now: Time, ingress: PortId, packet: &mut PacketMut<'_>) -> Result<Answer, DropReason> {
        let mut header = Header::BLANK;
        header.read(&packet.bytes[..packet.len])?;
        let kind = Kind::of(packet.bytes)?;
        let version = self.pool.version(header.idx, header.phase).ok_or(DropReason::BadField)?;
        if self.parent.is_some_and(|parent| parent.port == ingress) {
            return match kind {
                Kind::Result => self.parent_result(now, version, &header, packet),
                Kind::Mismatch => self.mismatch_elsewhere(now, version, &header, packet, true),
                Kind::Report => self.hear_report(Neighbour::Parent, &header, packet),
                Kind::Query => Ok(self.query(Neighbour::Parent, header)),
                Kind::Update | Kind::Probe => Err(DropReason::BadKind),
            };
        }
        if self.members.get(header.wid.index()) != Some(&ingress) {
            return Err(DropReason::WrongWorker);
        }
        let child = Neighbour::Child(header.wid);
        match kind {
            Kind::Update | Kind::Probe if D::sends(kind) => {
                let form = if self.inquiry.is_switch(child) { Form::Partial } else { Form::Host };
                let place = self.pool.place(header.wid, header.word.part()).ok_or(DropReason::BadField)?;
                let elements = self.sizes.of(&header.spec)?.elements(form, packet, kind == Kind::Probe)?;
                self.contribution(
                    now,
                    version,
                    &Contribution { header: &header, kind, elements, form, ingress, place },
                    packet,
                )
            }
            Kind::Query => Ok(self.query(child, header)),
            Kind::Mismatch if self.inquiry.is_switch(child) => {
                self.mismatch_elsewhere(now, version, &header, packet, false)
            }
            Kind::Report if self.inquiry.is_switch(child) => self.hear_report(child, &header, packet),
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
        let &Contribution { header, kind, elements, ingress, place, .. } = brought;
        let held = self.pool.get(version);
        let (relation, state) = (Relation::of(header.phase, held.phase), held.state);
        let same_spec = held.block.spec == header.spec && held.block.kind == kind;
        let same_block = same_spec && held.block.elements == elements;
        let shadow_complete = self.pool.shadow_complete(version, header.phase);
        let seen = self.pool.has_seen(version, place);
        let crossed = relation == Relation::Same && self.pool.crossed(now, version, place);
        match on_contribution(relation, state, seen, shadow_complete, crossed) {
            Action::Begin => {
                let block = Block { kind, spec: header.spec, elements };
                self.pool.begin(now, version, header.phase, block, &self.sizes.of(&header.spec)?.encoding)?;
                Ok(self.add(now, version, brought, packet))
            }
            Action::Add if same_block => Ok(self.add(now, version, brought, packet)),
            Action::Add if same_spec => Err(DropReason::BadLength),
            Action::Add => Err(self.mismatch_here(version, header)),
            Action::TellMismatch => {
                let asker = Audience::One(Neighbour::Child(header.wid));
                self.notices.push(asker, Kind::Mismatch, *header);
                self.notices.tell_parent(*header);
                Err(DropReason::Mismatch)
            }
            Action::ResendResult | Action::ResendPartial if !same_block => Err(DropReason::BadLength),
            Action::ResendResult => {
                self.counters.unicast_resends += 1;
                self.write(version, Kind::Result, Form::Host, packet);
                Ok(Answer::Port(ingress))
            }
            // Its own part alone: a burst of all parts, where queues are short, would lose the same ones each time.
            Action::ResendPartial => {
                let part = self.pool.part_of(place);
                Ok(self.send_to_parent(version, part..part + 1, brought, packet))
            }
            Action::Drop(reason) => Err(reason),
        }
    }

    /// Lines 6 to 17.
    #[inline]
    fn add(
        &mut self,
        now: Time,
        version: VersionId,
        brought: &Contribution<'_, D::Word>,
        packet: &mut PacketMut<'_>,
    ) -> Answer {
        let &Contribution { header, form, place, .. } = brought;
        let count = self.pool.add(version, header, place, &packet.bytes[Self::HEADER_LEN..packet.len], form);
        self.counters.contributions += 1;
        if usize::from(count) < self.pool.places() {
            return Answer::Consume;
        }
        if self.parent.is_some() {
            self.pool.await_parent(now, version);
            let parts = 0..self.pool.parts() as u16;
            return self.send_to_parent(version, parts, brought, packet);
        }
        self.counters.blocks_completed += 1;
        self.pool.complete(now, version);
        self.counters.order = self.pool.get(version).word.order();
        self.write(version, Kind::Result, Form::Host, packet);
        Answer::Group(self.group)
    }

    /// Makes the packet, which is no shorter, one that carries what the version holds.
    fn write(&mut self, version: VersionId, kind: Kind, form: Form, packet: &mut PacketMut<'_>) {
        let held = self.pool.get(version);
        let Sizes { encoding, .. } = self.sizes.of(&held.block.spec).expect("a block that is held can be summed");
        kind.put(packet.bytes);
        put_word(packet.bytes, held.word);
        packet.len = Self::HEADER_LEN + form.buffer_len(encoding, held.block.elements);
        packet.wire_len = Self::HEADER_LEN + form.wire_len(encoding, held.block.elements);
        self.pool.load(version, &mut packet.bytes[Self::HEADER_LEN..packet.len], form);
    }

    /// Sends parts of the partial result up: in the packet, where there is one part and the packet is of the same size.
    fn send_to_parent(
        &mut self,
        version: VersionId,
        parts: Range<u16>,
        brought: &Contribution<'_, D::Word>,
        packet: &mut PacketMut<'_>,
    ) -> Answer {
        let &Contribution { header, form, ingress, .. } = brought;
        let parent = self.parent.expect("only a switch with a parent awaits it");
        let mut is_wide = || self.sizes.of(&header.spec).is_ok_and(|sizes| sizes.encoding.is_wide());
        if self.pool.parts() > 1 || form == Form::Host && is_wide() {
            self.queue_partial(Partial { version, ingress, part: parts.start, end: parts.end });
            return Answer::Consume;
        }
        self.write(version, self.pool.get(version).block.kind, Form::Partial, packet);
        put_wid(packet.bytes, parent.child);
        Answer::Port(parent.port)
    }

    /// One entry a version, so that memory stays bounded.
    fn queue_partial(&mut self, partial: Partial) {
        match self.partials.iter_mut().find(|waiting| waiting.version == partial.version) {
            Some(waiting) => {
                (waiting.part, waiting.end) = (waiting.part.min(partial.part), waiting.end.max(partial.end));
            }
            None => self.partials.push_back(partial),
        }
    }

    /// The next partial result for which no packet was at hand.
    fn poll_partial(&mut self, buf: &mut [u8]) -> Option<Emission> {
        let parent = self.parent?;
        loop {
            let parts = self.pool.parts();
            let front = self.partials.front_mut()?;
            let Partial { version, ingress, part, end } = *front;
            front.part += 1;
            let held = *self.pool.get(version);
            if held.state != State::AwaitsParent || part + 1 >= end {
                self.partials.pop_front();
            }
            if held.state != State::AwaitsParent {
                continue;
            }
            self.common.emit(buf);
            let (idx, spec) = (self.pool.slot_of(version), held.block.spec);
            Header { wid: parent.child, idx, word: held.word, phase: held.phase, spec }.emit(buf);
            let mut packet = PacketMut::new(buf, Ecn::NotCapable);
            self.write(version, held.block.kind, Form::Partial, &mut packet);
            if parts > 1 {
                put_word(packet.bytes, held.word.with_part(part));
                self.pool.load_part(version, part.into(), &mut packet.bytes[Self::HEADER_LEN..packet.len]);
            }
            let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
            return Some(Emission { len, wire_len, ecn, verdict: Verdict::Port(parent.port), ingress: Some(ingress) });
        }
    }

    /// The final sum comes down: it takes the partial sum's place, so that children who ask again get it from here.
    fn parent_result(
        &mut self,
        now: Time,
        version: VersionId,
        header: &Header<D::Word>,
        packet: &PacketMut<'_>,
    ) -> Result<Answer, DropReason> {
        let held = self.pool.get(version);
        on_parent_result(Relation::of(header.phase, held.phase), held.state)?;
        if header.spec != held.block.spec {
            return Err(DropReason::Mismatch);
        }
        let (elements, encoding) = (held.block.elements as usize, self.sizes.of(&header.spec)?.encoding);
        if packet.len != Self::HEADER_LEN + encoding.buffer_len(elements)
            || packet.wire_len != Self::HEADER_LEN + encoding.wire_len(elements)
        {
            return Err(DropReason::BadLength);
        }
        self.pool.finish(now, version, header.word, &packet.bytes[Self::HEADER_LEN..packet.len]);
        self.counters.blocks_completed += 1;
        self.counters.order = header.word.order();
        Ok(Answer::Group(self.group))
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
        self.poll_partial(buf).or_else(|| self.notices.poll(&self.pool, &self.inquiry, buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.pool.memory_bytes()
            + self.partials.capacity() * size_of::<Partial>()
            + heap_bytes(&self.members)
            + self.notices.memory_bytes()
            + self.inquiry.memory_bytes()
    }

    fn questions(&self) -> u64 {
        1 << Kind::Query as u8
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

    fn state(&self) -> Option<&dyn SwitchState> {
        Some(self)
    }
}
