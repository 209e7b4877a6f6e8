//! Contributions, and the sums that they complete (§5 ②, ③).

use super::entries::Entry;
use super::heads::{FifoPosition, on_contribution};
use super::{Audience, Contribution, Panama};
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::ordered::VectorFormat;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, PortId};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, Verdict};
use crate::panama::wire::{HEADER_LEN, Header, Kind, epoch, near};

impl Panama {
    /// Adds a packet to its port's FIFO, if its fields are in range.
    #[inline]
    pub(super) fn contribution(
        &mut self,
        kind: Kind,
        header: &Header,
        packet: &mut PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        let child = header.wid;
        let vid = near(self.heads.expected(), header.vid);
        let position = self.heads.position(child, vid);
        let age = epoch(header.epoch, self.epoch);
        if let Err(reason) = on_contribution(age, self.phase, position, self.heads.is_new()) {
            return Err(if self.quorum.is_some() { self.untimely(kind, header, vid, reason) } else { reason });
        }
        let format = match kind {
            Kind::Contribution if self.missing_ranks.is_switch(Neighbour::Child(child)) => VectorFormat::Partial,
            _ => VectorFormat::Host,
        };
        let &sizes = self.sizes.of(&header.spec)?;
        if !self.may_hold(kind, header, vid) {
            return Err(DropReason::BadField);
        }
        let (encoding, elements) = (sizes.encoding, sizes.elements(format, packet, false)?);
        let entry = *self.entries.get(vid);
        if self.entries.mismatch(vid).is_some() {
            self.notify(Audience::One(Neighbour::Child(child)), Kind::Mismatch, header.vid);
            return Err(DropReason::Mismatch);
        }
        if entry.count > 0 && entry.spec != header.spec {
            return Err(self.mismatch_here(vid, header));
        }
        if entry.count > 0 && entry.elements != elements {
            return Err(DropReason::BadLength);
        }
        if entry.count == 0 && self.unsent.iter().any(|&(waiting, _)| waiting + u64::from(self.capacity) == vid) {
            // The child cannot have the result of the VID whose sum still lies there, so it must not send this VID.
            return Err(DropReason::Ahead);
        }
        let brought = Contribution { header: *header, vid, elements, encoding, format };
        Ok(self.queue(kind, &brought, packet))
    }

    /// True if the vector may contain as many ranks' data as its header says.
    #[inline]
    fn may_hold(&self, kind: Kind, header: &Header, vid: u64) -> bool {
        let below = self.below[header.wid.index()];
        match (&self.quorum, kind) {
            (None, _) => header.contributors == below,
            (Some(quorum), Kind::Known) => {
                vid < quorum.open_from && (1..=self.world_size).contains(&header.contributors)
            }
            (Some(_), _) => (1..=below).contains(&header.contributors),
        }
    }

    #[inline]
    fn queue(&mut self, kind: Kind, brought: &Contribution, packet: &mut PacketMut<'_>) -> Verdict {
        let Contribution { header, vid, elements, encoding, format } = brought;
        // After RESEND a vector may come that was combined already: then it only joins the port's FIFO again.
        if !self.entries.has(*vid, header.wid) {
            let (block, vector) = ((*elements, encoding, *format), &packet.bytes[HEADER_LEN..packet.len]);
            match kind {
                Kind::Known => self.entries.adopt(*vid, header, block, packet.ecn, vector),
                _ => self.entries.add(*vid, header, block, packet.ecn, vector),
            }
            self.counters.contributions += 1;
        }
        self.heads.push(header.wid, *vid);
        if let Some(quorum) = self.quorum.as_mut().filter(|_| kind == Kind::Contribution) {
            quorum.note(header.wid, *vid);
        }
        self.advance(brought, packet)
    }

    /// §5, ②: as long as every port has a packet, the expected VID is summed or lost. The port of this packet had none
    /// before, or nothing would have waited: so only this packet's VID is in all FIFOs. (Another VID may have all its
    /// vectors if the port was asked to send it again and this packet has overtaken it. That VID counts as lost.) Where
    /// sums may lack ranks, a packet may complete several.
    #[inline]
    fn advance(&mut self, brought: &Contribution, packet: &mut PacketMut<'_>) -> Verdict {
        let mut verdict = Verdict::Consume;
        while self.heads.are_all_there() || self.has_quorum() {
            let expected = self.heads.expected();
            if self.entries.mismatch(expected).is_some() {
                break;
            }
            let is_whole = usize::from(self.entries.get(expected).count) == self.members.len();
            if expected == brought.vid && (is_whole || self.has_quorum()) {
                verdict = self.emit(brought, packet);
            } else if self.quorum.is_some() && (is_whole || self.has_quorum()) {
                self.emit_later(expected, self.members[brought.header.wid.index()]);
            } else {
                self.counters.lost_vids += 1;
                if expected == brought.vid {
                    verdict = Verdict::Drop(DropReason::Incomplete);
                }
            }
            // `contribution` keeps the memory of a sum that waits to be written from being used again.
            self.entries.free(expected);
            self.heads.pass();
        }
        verdict
    }

    /// All contributions that the sum waits for are here: the packet becomes the result, or the contribution to the
    /// switch above.
    #[inline]
    fn emit(&mut self, brought: &Contribution, packet: &mut PacketMut<'_>) -> Verdict {
        let vid = brought.vid;
        let is_wide = self.parent.is_some() && brought.format == VectorFormat::Host && brought.encoding.is_wide();
        if is_wide && !self.entries.get(vid).is_known || !self.unsent.is_empty() {
            self.emit_later(vid, self.members[brought.header.wid.index()]);
            return Verdict::Consume;
        }
        self.complete(vid);
        let entry = *self.entries.get(vid);
        self.write(vid, &entry, brought, packet);
        self.way_out()
    }

    /// Completes a sum that leaves later, because no packet is at hand or another sum must leave first.
    pub(super) fn emit_later(&mut self, vid: u64, ingress: PortId) {
        self.complete(vid);
        self.unsent.push_back((vid, ingress));
    }

    fn complete(&mut self, vid: u64) {
        let entry = *self.entries.get(vid);
        let left_out = self.members.len() as u64 - u64::from(entry.count);
        self.counters.blocks_completed += 1;
        self.counters.marks += u64::from(entry.ecn == Ecn::CongestionExperienced);
        self.counters.partial_sums += u64::from(left_out > 0);
        self.counters.left_out += left_out;
        self.entries.finish(vid, self.parent.is_none());
    }

    fn way_out(&self) -> Verdict {
        self.parent.map_or(Verdict::Group(self.group), |parent| Verdict::Port(parent.port))
    }

    /// Makes the packet carry a VID's sum. The packet is at least as long as it needs to be.
    #[inline]
    fn write(&self, vid: u64, entry: &Entry, Contribution { encoding, .. }: &Contribution, packet: &mut PacketMut<'_>) {
        let (kind, format) = match (self.parent.is_some(), entry.is_known) {
            (false, _) => (Kind::Result, VectorFormat::Host),
            (true, true) => (Kind::Known, VectorFormat::Host),
            (true, false) => (Kind::Contribution, VectorFormat::Partial),
        };
        kind.put(packet.bytes);
        self.header(vid, entry).emit(packet.bytes);
        packet.ecn = entry.ecn;
        packet.len = HEADER_LEN + format.buffer_len(encoding, entry.elements);
        packet.wire_len = HEADER_LEN + format.wire_len(encoding, entry.elements);
        self.entries.load(vid, &mut packet.bytes[HEADER_LEN..packet.len], format);
    }

    fn header(&self, vid: u64, entry: &Entry) -> Header {
        Header {
            vid: vid as u32,
            tid: self.tid,
            wnd_cap: entry.wnd_cap.min(self.capacity).max(1),
            epoch: self.epoch,
            wid: self.parent.map_or(ChildId(0), |parent| parent.child),
            spec: entry.spec,
            contributors: entry.contributors,
        }
    }

    /// Writes the next sum for which no packet was at hand. Its entry is free but unchanged: `contribution` lets no
    /// other VID take it.
    pub(super) fn poll_sum(&mut self, buf: &mut [u8]) -> Option<Emission> {
        let (vid, ingress) = self.unsent.pop_front()?;
        let entry = *self.entries.get(vid);
        let encoding = self.sizes.of(&entry.spec).ok()?.encoding;
        self.common.emit(buf);
        let header = self.header(vid, &entry);
        let brought = Contribution { header, vid, elements: entry.elements, encoding, format: VectorFormat::Partial };
        let mut packet = PacketMut::new(buf, entry.ecn);
        self.write(vid, &entry, &brought, &mut packet);
        let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
        Some(Emission { len, wire_len, ecn, verdict: self.way_out(), ingress: Some(ingress) })
    }

    /// True if the child's contribution to a VID is in its FIFO, and need not come again.
    pub(super) fn holds(&self, child: ChildId, vid: u64) -> bool {
        self.heads.position(child, vid) == FifoPosition::Queued && self.entries.has(vid, child)
    }
}
