//! What a switch does when a phase cannot end: ranks disagree, or a neighbour asks which ranks are missing. No packet
//! that came in can become these packets (QUERY, REPORT and MISMATCH), so the switch makes them itself.

use std::collections::VecDeque;

use super::pool::Pool;
use super::slot::{Block, Relation, VersionId, on_mismatch};
use super::{Answer, SlotSwitch};
use crate::aggregation::missing_ranks::{MissingRanks, Neighbour};
use crate::aggregation::report::Report;
use crate::aggregation::slots::wire::{Header, Kind, Mismatch, header_len};
use crate::aggregation::slots::{Dialect, Word};
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, PortId};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, Verdict};
use crate::contract::time::Time;
use crate::contract::wire::Common;
use crate::heap::heap_bytes;

/// The receivers of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// One neighbour.
    One(Neighbour),
    /// All children.
    Children,
}

#[derive(Clone, Hash)]
struct Notice<W> {
    to: Audience,
    kind: Kind,
    header: Header<W>,
}

/// Notices that wait to be sent: at most one of each kind for each audience, so that memory stays bounded. A later
/// notice replaces an earlier one; a neighbour that still needs the earlier one asks again.
#[derive(Clone, Hash)]
pub struct Notices<W> {
    waiting: VecDeque<Notice<W>>,
    common: Common,
    members: Vec<PortId>,
    group: GroupId,
    parent: Option<Parent>,
}

impl<W: Word> Notices<W> {
    /// No notices, and room for one of each kind for each neighbour and for the group.
    pub fn new(config: &SwitchConfig) -> Notices<W> {
        const KINDS: usize = 3;
        Notices {
            waiting: VecDeque::with_capacity(KINDS * (config.members.len() + 2)),
            common: config.job.common(),
            members: config.members.clone(),
            group: config.group,
            parent: config.parent,
        }
    }

    /// Queues a notice about the slot and phase of `header`, which is the header of the packet that made the notice
    /// necessary.
    pub fn push(&mut self, to: Audience, kind: Kind, header: Header<W>) {
        self.waiting.retain(|waiting| (waiting.to, waiting.kind) != (to, kind));
        self.waiting.push_back(Notice { to, kind, header });
    }

    /// Tells the parent that ranks disagree, if there is one.
    pub fn notify_parent(&mut self, header: Header<W>) {
        if self.parent.is_some() {
            self.push(Audience::One(Neighbour::Parent), Kind::Mismatch, header);
        }
    }

    /// The way that a notice takes, and the `wid` by which its receiver knows this switch.
    fn way(&self, to: Audience, wid: ChildId) -> Option<(Verdict, ChildId)> {
        match to {
            Audience::Children => Some((Verdict::Group(self.group), wid)),
            Audience::One(Neighbour::Child(child)) => Some((Verdict::Port(*self.members.get(child.index())?), wid)),
            Audience::One(Neighbour::Parent) => self.parent.map(|parent| (Verdict::Port(parent.port), parent.child)),
        }
    }

    /// Writes the next notice.
    pub fn poll<D: Dialect<Word = W>>(
        &mut self,
        pool: &Pool<D>,
        missing_ranks: &MissingRanks,
        buf: &mut [u8],
    ) -> Option<Emission> {
        let header_len = header_len::<W>();
        loop {
            let Notice { to, kind, header } = self.waiting.pop_front()?;
            let Some((verdict, wid)) = self.way(to, header.wid) else { continue };
            let (idx, phase) = (header.idx, header.phase);
            let len = match (kind, to) {
                (Kind::Report, Audience::One(neighbour)) => {
                    let has_contributed = |wid| pool.has_contributed(idx, phase, wid);
                    let report =
                        missing_ranks.report(neighbour, (idx, phase), has_contributed, pool.is_done(idx, phase));
                    header_len + report.emit(&mut buf[header_len..])
                }
                (Kind::Query, _) => header_len,
                _ => match pool.mismatch(idx, phase) {
                    Some(mismatch) => header_len + mismatch.emit(&mut buf[header_len..]),
                    None => continue,
                },
            };
            Common { kind: kind as u8, ..self.common }.emit(buf);
            Header { wid, ..header }.emit(buf);
            return Some(Emission { len, wire_len: len, ecn: Ecn::NotCapable, verdict, ingress: None });
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Notice<W>>() + heap_bytes(&self.members)
    }
}

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
