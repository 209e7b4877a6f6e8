//! Reports about the ranks for which a sum waits, and about ranks that disagree, through all levels.

use super::Panama;
use super::entries::Entries;
use super::heads::Heads;
use super::notices::{Audience, Notice};
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::report::Report;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::packet::PacketMut;
use crate::contract::switch::{Emission, Verdict};
use crate::panama::vid::near;
use crate::panama::wire::{HEADER_LEN, Header, Kind, Mismatch, put_top};

impl Panama {
    /// A neighbour asks which ranks a VID waits for. This switch tells at once what it knows; other switches may know
    /// more.
    pub(super) fn query(&mut self, by: Neighbour, vid: u32) -> Verdict {
        let question = (self.tid.into(), vid);
        self.missing_ranks.ask(by, question);
        self.notify(Audience::One(by), Kind::Waiting, vid);
        let Panama { notices, heads, entries, missing_ranks, epoch, .. } = self;
        let here = near(heads.expected(), vid);
        for other in missing_ranks.informants(|child| has_contributed(heads, entries, here, child)) {
            if other != by {
                notices.push(Notice { to: Audience::One(other), kind: Kind::Query, vid, epoch: *epoch });
            }
        }
        Verdict::Consume
    }

    /// Another switch says which ranks a VID waits for.
    pub(super) fn waiting(
        &mut self,
        from: Neighbour,
        header: &Header,
        packet: &PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        let report = Report::parse(&packet.bytes[HEADER_LEN..packet.len])?;
        let question = (self.tid.into(), header.vid);
        if self.missing_ranks.on_report(from, question, report) {
            let Panama { notices, missing_ranks, epoch, .. } = self;
            for asker in missing_ranks.askers(question, from) {
                let (to, kind) = (Audience::One(asker), Kind::Waiting);
                notices.push(Notice { to, kind, vid: header.vid, epoch: *epoch });
            }
        }
        Ok(Verdict::Consume)
    }

    /// Ranks below this switch disagree: all of them are told, and the switch above tells all others.
    pub(super) fn mismatch_here(&mut self, vid: u64, header: &Header) -> DropReason {
        let a = self.entries.first(vid).unwrap_or_default();
        // All ranks below a child bring the same collective, or the child would have reported their disagreement.
        let (a, b) = (self.missing_ranks.rank_of(a), self.missing_ranks.rank_of(header.wid));
        let a_spec = self.entries.get(vid).spec;
        self.entries.note(vid, Mismatch { a, a_spec, b, b_spec: header.spec });
        self.notify(Audience::Children, Kind::Mismatch, header.vid);
        self.notify(Audience::One(Neighbour::Parent), Kind::Mismatch, header.vid);
        DropReason::Mismatch
    }

    fn body<'a>(header: &Header, packet: &'a PacketMut<'_>, epoch: u16) -> Result<&'a [u8], DropReason> {
        if header.epoch != epoch {
            return Err(DropReason::StaleEpoch);
        }
        packet.bytes.get(HEADER_LEN..packet.len).ok_or(DropReason::Truncated)
    }

    /// A switch below has found that ranks disagree. It has told the ranks below it; this switch tells all others.
    pub(super) fn mismatch_below(&mut self, header: &Header, packet: &PacketMut<'_>) -> Result<Verdict, DropReason> {
        let mismatch = Mismatch::parse(Panama::body(header, packet, self.epoch)?)?;
        let vid = near(self.heads.expected(), header.vid);
        if !self.heads.has_capacity_for(vid) {
            return Err(DropReason::Unexpected);
        }
        self.entries.note(vid, mismatch);
        self.notify(Audience::One(Neighbour::Parent), Kind::Mismatch, header.vid);
        Ok(Verdict::Group(self.group))
    }

    /// The switch above says that ranks disagree.
    pub(super) fn mismatch_from_parent(
        &mut self,
        header: &Header,
        packet: &PacketMut<'_>,
    ) -> Result<Verdict, DropReason> {
        let mismatch = Mismatch::parse(Panama::body(header, packet, self.epoch)?)?;
        let vid = near(self.heads.expected(), header.vid);
        if self.heads.has_capacity_for(vid) {
            self.entries.note(vid, mismatch);
        }
        Ok(Verdict::Group(self.group))
    }

    /// The next notice.
    pub(super) fn poll_notice(&mut self, buf: &mut [u8]) -> Option<Emission> {
        let Panama { notices, heads, entries, missing_ranks, tid, bases, quorum, .. } = self;
        notices.poll(buf, |notice, body| {
            let Notice { to, kind, vid, .. } = *notice;
            let here = near(heads.expected(), vid);
            match (kind, to) {
                (Kind::Waiting, Audience::One(neighbour)) => {
                    let has = |child| has_contributed(heads, entries, here, child);
                    Some(missing_ranks.report(neighbour, (u16::from(*tid), vid), has, false).emit(body))
                }
                (Kind::Mismatch, _) if heads.has_capacity_for(here) => {
                    entries.mismatch(here).map(|note| note.emit(body))
                }
                (Kind::Mismatch, _) => None,
                (Kind::Base | Kind::Rewind, _) if quorum.is_some() => Some(put_top(bases.top.unwrap_or(vid), body)),
                _ => Some(0),
            }
        })
    }
}

/// True if the child's contribution to a VID was passed or waits.
pub(super) fn has_contributed(heads: &Heads, entries: &Entries, vid: u64, child: ChildId) -> bool {
    vid < heads.expected() || heads.has_capacity_for(vid) && entries.has(vid, child)
}
