//! How a server adds contributions: its own rank's, single contributions of other ranks, and sums of switches.

use std::ops::Range;

use super::served::State;
use super::{Outgoing, Server};
use crate::aggregation::best_effort::codec::Codec;
use crate::aggregation::best_effort::topology::Topology;
use crate::aggregation::best_effort::wire::{Flags, HEADER_LEN, Header, Kind, bitmap_len};
use crate::aggregation::report::Mismatch;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::Rank;
use crate::contract::packet::{Ecn, Packet};

/// The vector of a contribution.
#[derive(Clone, Hash)]
struct VectorShape {
    codec: Codec,
    elements: usize,
    range: Range<usize>,
}

impl Server {
    /// The server's own rank contributes to a block.
    pub fn bring(&mut self, block: u64, header: &Header, elements: usize) {
        let own = self.own;
        let Some(served) = self.blocks.open(block) else { return };
        if let Some((rank, other)) = served.what.filter(|&(_, other)| other != header.spec)
            && served.state == State::Gathering
        {
            return self.dispute(block, Mismatch { a: rank, a_spec: other, b: own, b_spec: header.spec });
        }
        let (lacks, probe) = (header.flags.has(Flags::OVERFLOW), header.flags.has(Flags::PROBE));
        let elements = if probe { 0 } else { elements };
        let agrees = (served.probe, served.scale) == (probe, header.scale)
            && (served.overflow || served.elements == elements || lacks);
        if !served.have.is_empty() && !agrees && served.state == State::Gathering {
            // What has come did not belong to this block, whoever sent it: the ranks that know the block are asked.
            served.restart();
            self.ask(block);
        }
        let Some(served) = self.blocks.get_mut(block) else { return };
        served.what = Some((own, header.spec));
        (served.own, served.elements, served.probe, served.scale) = (true, elements, probe, header.scale);
        served.overflow |= lacks;
        served.exponent = served.exponent.join(header.exponent);
        served.index = served.index.max(header.index);
        self.ready.push_back(block);
    }

    /// Takes in a rank's single contribution, or a switch's sum, to the block that the header means.
    pub fn contribution(
        &mut self,
        block: u64,
        kind: Kind,
        header: &Header,
        packet: Packet<'_>,
        topology: &Topology,
    ) -> Result<(), DropReason> {
        if header.flags.has(Flags::COLLISION) && header.flags.has(Flags::EDGE) {
            self.received = self.received.wrapping_add(1);
        }
        let is_resent = header.flags.has(Flags::RESEND);
        let speaks = kind == Kind::Gradient || is_resent;
        let range = self.read_contributors(kind, header, &packet, topology)?;
        self.may_gather(block, speaks, header)?;
        let shape = self.check_vector(block, kind, header, &packet, range)?;
        let marked = packet.ecn == Ecn::CongestionExperienced || header.flags.has(Flags::ECN);
        let merged = self.merge(block, kind, header, &packet.bytes[shape.range.clone()], &shape, marked);
        let was_taken = merged.is_ok() || kind == Kind::Gradient;
        if self.rules.acknowledges && speaks && was_taken {
            self.outbox.push_back(Outgoing::Gack { header: *header, marked });
        }
        merged
    }

    /// Notes the ranks whose blocks are in a packet; returns the place of its vector.
    fn read_contributors(
        &mut self,
        kind: Kind,
        header: &Header,
        packet: &Packet<'_>,
        topology: &Topology,
    ) -> Result<Range<usize>, DropReason> {
        let (own, world_size) = (self.own, self.world_size);
        self.scratch.clear();
        if header.wid.0 >= world_size || header.wid == own {
            return Err(DropReason::BadField);
        }
        let mut end = packet.bytes.len();
        let is_all = header.count == self.expected;
        if kind == Kind::Gradient {
            self.scratch.insert(header.wid);
        } else if header.flags.has(Flags::FULL) {
            let here = topology.switch_of(header.wid);
            for rank in self.others().filter(|&rank| is_all || topology.switch_of(rank) == here) {
                self.scratch.insert(rank);
            }
        } else {
            end = end
                .checked_sub(bitmap_len(world_size))
                .filter(|&end| end >= HEADER_LEN)
                .ok_or(DropReason::BadLength)?;
            let bitmap = &packet.bytes[end..];
            for bit in 0..8 * bitmap.len() as u16 {
                if bitmap[usize::from(bit / 8)] >> (bit % 8) & 1 == 0 {
                    continue;
                }
                if bit >= world_size || Rank(bit) == own {
                    return Err(DropReason::BadField);
                }
                self.scratch.insert(Rank(bit));
            }
        }
        if header.count == 0 || self.scratch.len() != header.count {
            return Err(DropReason::BadField);
        }
        Ok(HEADER_LEN..end)
    }

    /// Checks that a contribution to a block is still wanted; a rank that asks too late is answered.
    fn may_gather(&mut self, block: u64, speaks: bool, header: &Header) -> Result<(), DropReason> {
        let served = self.blocks.open(block).ok_or(DropReason::Stale)?;
        match served.state {
            State::Refused(_) => {
                self.outbox.push_back(Outgoing::Mismatch(block, header.wid));
                return Err(DropReason::Mismatch);
            }
            State::Done => {
                self.outbox.extend(speaks.then_some(Outgoing::Answer(block, header.wid)));
                return Err(DropReason::Duplicate);
            }
            State::Gathering if header.attempt > served.attempt => return Err(DropReason::Ahead),
            State::Gathering if header.attempt < served.attempt => {
                self.outbox.extend(speaks.then_some(Outgoing::Answer(block, header.wid)));
                return Err(DropReason::Stale);
            }
            State::Gathering => {}
        }
        if let Some((a, a_spec)) = served.what.filter(|&(_, spec)| spec != header.spec) {
            self.dispute(block, Mismatch { a, a_spec, b: header.wid, b_spec: header.spec });
            return Err(DropReason::Mismatch);
        }
        Ok(())
    }

    /// Checks that the vector is as long as the vectors before it.
    fn check_vector(
        &self,
        block: u64,
        kind: Kind,
        header: &Header,
        packet: &Packet<'_>,
        range: Range<usize>,
    ) -> Result<VectorShape, DropReason> {
        let served = self.blocks.get(block).ok_or(DropReason::Stale)?;
        let codec = Codec::new(self.values, &header.spec, header.scale, self.world_size)?;
        let wire_len = packet.wire_len.checked_sub(packet.bytes.len() - range.len()).ok_or(DropReason::BadLength)?;
        let elements = match kind {
            Kind::Sum => codec.partial_elements(range.len(), wire_len)?,
            _ => codec.elements(range.len(), wire_len)?,
        };
        let lacks = !header.has_vector();
        if codec.lane_bytes(elements) > served.lane_bytes() || lacks && elements > 0 {
            return Err(DropReason::BadLength);
        }
        if served.is_empty() {
            return Ok(VectorShape { codec, elements, range });
        }
        let probe = header.flags.has(Flags::PROBE);
        let as_others = lacks || served.overflow || served.elements == elements;
        if (served.probe, served.scale) != (probe, header.scale) || !as_others {
            return Err(DropReason::BadLength);
        }
        Ok(VectorShape { codec, elements, range })
    }

    /// Adds a contribution of the ranks in `scratch`, or replaces what is there with it.
    fn merge(
        &mut self,
        block: u64,
        kind: Kind,
        header: &Header,
        vector: &[u8],
        shape: &VectorShape,
        marked: bool,
    ) -> Result<(), DropReason> {
        let served = self.blocks.get_mut(block).ok_or(DropReason::Stale)?;
        if self.scratch.overlaps(&served.have) {
            if kind == Kind::Gradient {
                return Err(DropReason::Duplicate);
            }
            if !self.scratch.contains_all(&served.have) {
                // Some of these ranks' blocks came singly, and others' did not: the others are asked by name (A10).
                self.ask(block);
                return Err(DropReason::Duplicate);
            }
            served.replace();
        }
        let lacks = header.flags.has(Flags::OVERFLOW);
        served.what.get_or_insert((header.wid, header.spec));
        (served.probe, served.scale) = (header.flags.has(Flags::PROBE), header.scale);
        if shape.elements > 0 {
            served.elements = shape.elements;
            match kind {
                Kind::Sum => served.add_partial(&shape.codec, vector, shape.elements),
                _ => served.add(&shape.codec, vector, shape.elements),
            }
        }
        served.have.insert_all(&self.scratch);
        served.singles += u16::from(kind == Kind::Gradient);
        served.overflow |= lacks;
        served.exponent = served.exponent.join(header.exponent);
        served.index = served.index.max(header.index);
        served.collided |= header.flags.has(Flags::COLLISION);
        served.resent |= header.flags.has(Flags::RESEND) || kind == Kind::Sum && header.flags.has(Flags::AT_SWITCH);
        served.ecn |= marked && !(self.rules.acknowledges && kind == Kind::Gradient);
        if served.have.len() == self.expected {
            self.ready.push_back(block);
        } else if kind == Kind::Gradient && header.flags.has(Flags::RESEND) {
            self.prompt_next(block);
        }
        Ok(())
    }
}
