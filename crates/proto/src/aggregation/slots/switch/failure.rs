//! What a switch does when a phase cannot end: ranks disagree, or a neighbour asks which ranks are missing.

use super::block::Block;
use super::notices::Audience;
use super::slot::{Relation, on_mismatch};
use super::version::VersionId;
use super::{Answer, SlotSwitch};
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::report::Report;
use crate::aggregation::slots::Dialect;
use crate::aggregation::slots::wire::{Header, Kind, Mismatch};
use crate::contract::drop_reason::DropReason;
use crate::contract::packet::PacketMut;
use crate::contract::time::Time;

impl<D: Dialect> SlotSwitch<D> {
    /// Ranks below this switch disagree: all of them are told, and the switch above tells all others.
    pub(super) fn mismatch_here(&mut self, version: VersionId, header: &Header<D::Word>) -> DropReason {
        let a = self.pool.first_seen(version).expect("somebody began the phase");
        // All ranks below a child bring the same: a switch below reports a disagreement itself.
        let (a, b) = (self.missing_ranks.rank_of(a), self.missing_ranks.rank_of(header.wid));
        let mismatch = Mismatch { a, a_spec: self.pool.get(version).block.spec, b, b_spec: header.spec };
        self.pool.note(version, mismatch);
        self.notices.push(Audience::Children, Kind::Mismatch, *header);
        self.notices.notify_parent(*header);
        DropReason::Mismatch
    }

    /// Another switch has found that ranks disagree.
    pub(super) fn mismatch_elsewhere(
        &mut self,
        now: Time,
        version: VersionId,
        header: &Header<D::Word>,
        packet: &PacketMut<'_>,
        from_parent: bool,
    ) -> Result<Answer, DropReason> {
        let mismatch = Mismatch::parse(packet.bytes.get(Self::HEADER_LEN..packet.len).ok_or(DropReason::Truncated)?)?;
        let current = self.pool.get(version);
        let relation = Relation::of(header.phase, current.phase);
        on_mismatch(relation, current.state, self.pool.shadow_complete(version, header.phase))?;
        if relation == Relation::Next {
            let (block, encoding) =
                (Block { kind: Kind::Probe, spec: header.spec, elements: 0 }, self.sizes.of(&header.spec)?.encoding);
            self.pool.begin(now, version, header.phase, block, &encoding)?;
        }
        self.pool.note(version, mismatch);
        if !from_parent {
            self.notices.notify_parent(*header);
        }
        Ok(Answer::Group(self.group))
    }

    /// Answers which ranks are missing, as far as this switch knows. Other switches may know more, and are asked.
    pub(super) fn query(&mut self, by: Neighbour, header: Header<D::Word>) -> Answer {
        let (pool, question) = (&self.pool, (header.idx, header.phase));
        self.missing_ranks.ask(by, question);
        self.notices.push(Audience::One(by), Kind::Report, header);
        if !pool.is_done(header.idx, header.phase) {
            let has_contributed = |wid| pool.has_contributed(header.idx, header.phase, wid);
            for other in self.missing_ranks.informants(has_contributed).filter(|&other| other != by) {
                self.notices.push(Audience::One(other), Kind::Query, header);
            }
        }
        Answer::Consume
    }

    /// Another switch reports which ranks are missing.
    pub(super) fn handle_report(
        &mut self,
        from: Neighbour,
        header: &Header<D::Word>,
        packet: &PacketMut<'_>,
    ) -> Result<Answer, DropReason> {
        let report = Report::parse(&packet.bytes[Self::HEADER_LEN..packet.len])?;
        let question = (header.idx, header.phase);
        if self.missing_ranks.on_report(from, question, report) {
            for asker in self.missing_ranks.askers(question, from) {
                self.notices.push(Audience::One(asker), Kind::Report, *header);
            }
        }
        Ok(Answer::Consume)
    }
}
