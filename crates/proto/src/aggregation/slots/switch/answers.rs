//! The answers of a switch: the result to all children, or to the one child that it is for; the other children then
//! learn that the block is complete.
//!
//! An answer travels in the packet of the contribution that completed the block. Where that packet has no room, because
//! its sender had nothing to bring, or where there are two answers, one of them waits for a packet of its own.

use super::block::Block;
use super::slot::State;
use super::version::VersionId;
use super::{Answer, SlotSwitch};
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::wire::{Header, Kind, put_word};
use crate::aggregation::vector_format::VectorFormat;
use crate::contract::ids::{ChildId, PortId};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, Verdict};
use crate::contract::tensor::Spec;

impl<D: Dialect> SlotSwitch<D> {
    /// The answer to a complete block: in the packet, if the packet has room for it.
    pub(super) fn answer(&mut self, version: VersionId, packet: &mut PacketMut<'_>) -> Answer {
        let Block { spec, elements, .. } = self.pool.get(version).block;
        let recipient = spec.primitive.sole_recipient().filter(|_| elements > 0);
        if recipient.is_none() && !self.has_capacity(version, packet) {
            self.answers.push_back((version, Verdict::Group(self.group)));
            return Answer::Consume;
        }
        self.write(version, Kind::Result, VectorFormat::Host, packet);
        let Some(recipient) = recipient else { return Answer::Group(self.group) };
        // The other children learn that their slots are free. The recipient, or a switch on the way to it, gets this
        // packet too, and waits for the result itself.
        self.answers.push_back((version, Verdict::Group(self.group)));
        match self.missing_ranks.way_to(recipient) {
            Some(child) => Answer::Port(self.members[child.index()]),
            None => Answer::Consume,
        }
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
            self.write(version, Kind::Result, VectorFormat::Host, packet);
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

    /// True if the packet has room for the result: it has a vector, or the result has none.
    pub(super) fn has_capacity(&mut self, version: VersionId, packet: &PacketMut<'_>) -> bool {
        packet.len > Self::HEADER_LEN || self.pool.get(version).block.elements == 0
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
            match spec.primitive.sole_recipient() {
                Some(_) => self.write_bare(version, &mut packet),
                None => self.write(version, Kind::Result, VectorFormat::Host, &mut packet),
            }
            let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
            return Some(Emission { len, wire_len, ecn, verdict, ingress: None });
        }
    }
}
