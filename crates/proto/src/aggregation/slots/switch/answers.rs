//! The answers of a switch: the result to all children, or to the one child that it is for; the other children then
//! learn that the block is complete.
//!
//! An answer travels in the packet of the contribution that completed the block. Where that packet has no room, because
//! its sender had nothing to bring, or where there are two answers, one of them waits for a packet of its own.

use std::ops::Range;

use super::slot::{Block, Relation, State, VersionId, on_parent_result};
use super::{Answer, Contribution, SlotSwitch};
use crate::aggregation::block_sizes::Sizes;
use crate::aggregation::ordered::VectorFormat;
use crate::aggregation::slots::wire::{Header, Kind, put_wid, put_word};
use crate::aggregation::slots::{Dialect, Word};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, PortId};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, Verdict};
use crate::contract::tensor::Spec;
use crate::contract::time::Time;

impl<D: Dialect> SlotSwitch<D> {
    /// The answer to a complete block: in the packet, if the packet has room for it.
    pub(super) fn answer(&mut self, version: VersionId, packet: &mut PacketMut<'_>) -> Answer {
        let Block { spec, elements, .. } = self.pool.get(version).block;
        let recipient = spec.primitive.sole_recipient().filter(|_| elements > 0);
        if recipient.is_none() && !self.has_capacity(version, packet) {
            self.answers.push_back((version, Verdict::Group(self.group)));
            return Answer::Consume;
        }
        let Some(recipient) = recipient else {
            self.write_result(version, packet);
            return Answer::Group(self.group);
        };
        // The other children learn that their slots are free. The recipient, or a switch on the way to it, gets this
        // packet too, and waits for the result itself.
        self.answers.push_back((version, Verdict::Group(self.group)));
        let Some(child) = self.missing_ranks.way_to(recipient) else { return Answer::Consume };
        let port = self.members[child.index()];
        if !self.has_capacity(version, packet) {
            self.answers.push_back((version, Verdict::Port(port)));
            return Answer::Consume;
        }
        self.write_result(version, packet);
        Answer::Port(port)
    }

    /// The answer to one child that asks again.
    pub(super) fn answer_again(
        &mut self,
        version: VersionId,
        wid: ChildId,
        ingress: PortId,
        packet: &mut PacketMut<'_>,
    ) -> Answer {
        let Block { spec, elements, .. } = self.pool.get(version).block;
        let is_elsewhere = |root| elements > 0 && !self.missing_ranks.leads_to(wid, root);
        if spec.primitive.sole_recipient().is_some_and(is_elsewhere) {
            self.write_bare(version, packet);
        } else if self.has_capacity(version, packet) {
            self.write_result(version, packet);
        } else {
            // Drivers take waiting answers after each packet. If a driver does not, an answer is lost, as on a link.
            if self.answers.len() < self.answers.capacity() {
                self.answers.push_back((version, Verdict::Port(ingress)));
            }
            return Answer::Consume;
        }
        Answer::Port(ingress)
    }

    /// True if the child need not bring a vector: the collective is a broadcast whose root is not below the child.
    #[inline]
    pub(super) fn is_spared(&self, spec: &Spec, child: ChildId) -> bool {
        let elsewhere = |root| self.pool.spares() && !self.missing_ranks.leads_to(child, root);
        spec.primitive.sole_source().is_some_and(elsewhere)
    }

    /// True if the packet can hold the result, whose vector must not be longer than the packet's.
    pub(super) fn has_capacity(&mut self, version: VersionId, packet: &PacketMut<'_>) -> bool {
        let Block { spec, elements, .. } = self.pool.get(version).block;
        let needed = |sizes: &Sizes| Self::HEADER_LEN + sizes.encoding.result_wire_len(elements as usize);
        elements == 0 || self.sizes.of(&spec).is_ok_and(|sizes| packet.wire_len >= needed(sizes))
    }

    /// Overwrites the packet, which must be long enough, with the result that the version holds.
    fn write_result(&mut self, version: VersionId, packet: &mut PacketMut<'_>) {
        let current = self.pool.get(version);
        let encoding = &self.sizes.of(&current.block.spec).expect("a block that is held can be summed").encoding;
        let elements = current.block.elements as usize;
        let lengths = (encoding.result_buffer_len(elements), encoding.result_wire_len(elements));
        self.write(version, Kind::Result, VectorFormat::Host, lengths, packet);
    }

    /// Overwrites the packet, which must be long enough, with the partial result that the version holds.
    fn write_partial(&mut self, version: VersionId, packet: &mut PacketMut<'_>) {
        let current = self.pool.get(version);
        let encoding = &self.sizes.of(&current.block.spec).expect("a block that is held can be summed").encoding;
        let elements = current.block.elements as usize;
        let lengths = (encoding.partial_buffer_len(elements), encoding.partial_wire_len(elements));
        self.write(version, current.block.kind, VectorFormat::Partial, lengths, packet);
    }

    fn write(
        &mut self,
        version: VersionId,
        kind: Kind,
        format: VectorFormat,
        (len, wire_len): (usize, usize),
        packet: &mut PacketMut<'_>,
    ) {
        kind.put(packet.bytes);
        put_word(packet.bytes, self.pool.get(version).word);
        (packet.len, packet.wire_len) = (Self::HEADER_LEN + len, Self::HEADER_LEN + wire_len);
        self.pool.load(version, &mut packet.bytes[Self::HEADER_LEN..packet.len], format);
        self.counters.work.emitted += 1;
    }

    /// Makes the packet a result without a vector, which says only that the block is complete.
    fn write_bare(&mut self, version: VersionId, packet: &mut PacketMut<'_>) {
        Kind::Result.put(packet.bytes);
        put_word(packet.bytes, self.pool.get(version).word);
        (packet.len, packet.wire_len) = (Self::HEADER_LEN, Self::HEADER_LEN);
    }

    /// The next answer that waits for a packet of its own.
    pub(super) fn poll_answer(&mut self, buf: &mut [u8]) -> Option<Emission> {
        loop {
            let (version, verdict) = self.answers.pop_front()?;
            let current = *self.pool.get(version);
            if current.state != State::Complete {
                continue;
            }
            let spec = current.block.spec;
            self.common.emit(buf);
            let idx = self.pool.slot_of(version);
            Header { wid: ChildId(0), idx, word: current.word, phase: current.phase, spec }.emit(buf);
            let mut packet = PacketMut::new(buf, Ecn::NotCapable);
            // Of a reduce, only the recipient gets the result.
            match (spec.primitive.sole_recipient(), verdict) {
                (Some(_), Verdict::Group(_)) => self.write_bare(version, &mut packet),
                _ => self.write_result(version, &mut packet),
            }
            let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
            return Some(Emission { len, wire_len, ecn, verdict, ingress: None });
        }
    }
}

/// A partial result that is to be sent up.
#[derive(Clone, Copy, Hash)]
pub(super) struct Partial {
    version: VersionId,
    /// The port of the packet that completed the partial result.
    ingress: PortId,
    /// The next subtree to send, and the end.
    subtree: u16,
    end: u16,
}

impl<D: Dialect> SlotSwitch<D> {
    /// Sends subtrees of the partial result up: in the packet, if there is one subtree and the packet has its size.
    pub(super) fn send_to_parent(
        &mut self,
        version: VersionId,
        subtrees: Range<u16>,
        brought: &Contribution<'_, D::Word>,
        packet: &mut PacketMut<'_>,
    ) -> Answer {
        let &Contribution { header, format, ingress, .. } = brought;
        let parent = self.parent.expect("only a switch with a parent awaits it");
        let mut is_wide = || self.sizes.of(&header.spec).is_ok_and(|sizes| sizes.encoding.is_wide());
        if self.pool.subtrees() > 1 || format == VectorFormat::Host && is_wide() || !self.has_capacity(version, packet)
        {
            self.queue_partial(Partial { version, ingress, subtree: subtrees.start, end: subtrees.end });
            return Answer::Consume;
        }
        self.write_partial(version, packet);
        put_wid(packet.bytes, parent.child);
        Answer::Port(parent.port)
    }

    /// Queues a partial result. Each version has at most one entry, so that memory stays bounded.
    fn queue_partial(&mut self, partial: Partial) {
        match self.partials.iter_mut().find(|waiting| waiting.version == partial.version) {
            Some(waiting) => {
                (waiting.subtree, waiting.end) = (waiting.subtree.min(partial.subtree), waiting.end.max(partial.end));
            }
            None => self.partials.push_back(partial),
        }
    }

    /// The next partial result that waits for a packet of its own.
    pub(super) fn poll_partial(&mut self, buf: &mut [u8]) -> Option<Emission> {
        let parent = self.parent?;
        loop {
            let subtrees = self.pool.subtrees();
            let front = self.partials.front_mut()?;
            let Partial { version, ingress, subtree, end } = *front;
            front.subtree += 1;
            let current = *self.pool.get(version);
            if current.state != State::AwaitsParent || subtree + 1 >= end {
                self.partials.pop_front();
            }
            if current.state != State::AwaitsParent {
                continue;
            }
            self.common.emit(buf);
            let (idx, spec) = (self.pool.slot_of(version), current.block.spec);
            Header { wid: parent.child, idx, word: current.word, phase: current.phase, spec }.emit(buf);
            let mut packet = PacketMut::new(buf, Ecn::NotCapable);
            self.write_partial(version, &mut packet);
            if subtrees > 1 {
                put_word(packet.bytes, current.word.with_subtree(subtree));
                self.pool.load_subtree(version, subtree.into(), &mut packet.bytes[Self::HEADER_LEN..packet.len]);
            }
            let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
            return Some(Emission { len, wire_len, ecn, verdict: Verdict::Port(parent.port), ingress: Some(ingress) });
        }
    }

    /// The final sum comes down. It replaces the partial sum, so that children that ask again get it from this
    /// switch.
    pub(super) fn parent_result(
        &mut self,
        now: Time,
        version: VersionId,
        header: &Header<D::Word>,
        packet: &mut PacketMut<'_>,
    ) -> Result<Answer, DropReason> {
        let current = self.pool.get(version);
        on_parent_result(Relation::of(header.phase, current.phase), current.state)?;
        if header.spec != current.block.spec {
            return Err(DropReason::Mismatch);
        }
        let (elements, is_bare) = (current.block.elements, packet.wire_len == Self::HEADER_LEN);
        if let Some(root) = header.spec.primitive.sole_recipient().filter(|_| elements > 0) {
            match (self.missing_ranks.way_to(root).is_some(), is_bare) {
                // The result itself is on its way.
                (true, true) => return Ok(Answer::Consume),
                (false, true) => {
                    self.pool.finish_elsewhere(now, version, header.word);
                    self.counters.blocks_completed += 1;
                    return Ok(Answer::Group(self.group));
                }
                (true, false) => {}
                (false, false) => return Err(DropReason::BadLength),
            }
        }
        if elements == 0 && header.spec.primitive.sole_source().is_some() {
            // No child of this switch has brought a vector: the root's vector is as long as a block of the collective.
            let whole = self.sizes.of(&header.spec)?.elements(VectorFormat::Host, packet, false)?;
            self.pool.fill(version, whole);
        }
        let current = self.pool.get(version);
        let (elements, encoding) = (current.block.elements as usize, self.sizes.of(&header.spec)?.encoding);
        if packet.len != Self::HEADER_LEN + encoding.result_buffer_len(elements)
            || packet.wire_len != Self::HEADER_LEN + encoding.result_wire_len(elements)
        {
            return Err(DropReason::BadLength);
        }
        self.pool.finish(now, version, header.word, &packet.bytes[Self::HEADER_LEN..packet.len]);
        self.counters.work.copied += elements as u64;
        self.counters.blocks_completed += 1;
        self.counters.order = header.word.order();
        Ok(self.answer(version, packet))
    }
}
