//! Packets that the switch makes itself, where it cannot turn a received packet into them.

use std::collections::VecDeque;

use super::Panama;
use super::entries::Entries;
use super::heads::Heads;
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::report::Report;
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, PortId};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::switch::{Emission, Verdict};
use crate::contract::tensor::Spec;
use crate::contract::wire::Common;
use crate::heap::heap_bytes;
use crate::panama::wire::{HEADER_LEN, Header, Kind, Mismatch, NO_CAP, near, put_top};

/// The receivers of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// One neighbour.
    One(Neighbour),
    /// All children.
    Children,
}

/// A notice about a VID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// The receivers.
    pub to: Audience,
    /// What it says.
    pub kind: Kind,
    /// The VID that it is about.
    pub vid: u32,
    /// The epoch in which it is valid.
    pub epoch: u16,
}

/// A number for what a notice is about. Of notices with the same number only the latest is sent.
fn subject(kind: Kind) -> u8 {
    match kind {
        Kind::Contribution | Kind::Known | Kind::Result | Kind::Lost | Kind::Query | Kind::Gone => 0,
        Kind::Waiting | Kind::Resend | Kind::Passed | Kind::Mismatch => 1,
        Kind::Sync | Kind::Base | Kind::Rewind => 2,
        Kind::Fin | Kind::FinAsk | Kind::FinDone => 3,
    }
}
const SUBJECTS: usize = 4;

/// Notices that wait to be sent: at most one of each subject for each audience, so that memory stays bounded. A later
/// notice replaces an earlier one: a neighbour that still needs the earlier one asks again.
#[derive(Clone, Hash)]
pub struct Notices {
    waiting: VecDeque<Notice>,
    common: Common,
    tid: u8,
    members: Vec<PortId>,
    group: GroupId,
    parent: Option<Parent>,
}

impl Notices {
    /// No notices, and room for one of each subject to each neighbour and to the group.
    pub fn new(config: &SwitchConfig) -> Notices {
        Notices {
            waiting: VecDeque::with_capacity(SUBJECTS * (config.members.len() + 2)),
            common: config.job.common(),
            tid: config.tree.0 as u8,
            members: config.members.clone(),
            group: config.group,
            parent: config.parent,
        }
    }

    /// Queues a notice.
    pub fn push(&mut self, notice: Notice) {
        let about = |notice: &Notice| (notice.to, subject(notice.kind));
        self.waiting.retain(|waiting| about(waiting) != about(&notice));
        self.waiting.push_back(notice);
    }

    /// Forgets notices of an epoch that is over.
    pub fn begin_epoch(&mut self) {
        self.waiting.retain(|waiting| matches!(subject(waiting.kind), 3));
    }

    /// The way of a notice, and the `wid` by which its receiver knows this switch.
    fn way(&self, to: Audience) -> Option<(Verdict, ChildId)> {
        match to {
            Audience::Children => Some((Verdict::Group(self.group), ChildId(0))),
            Audience::One(Neighbour::Child(child)) => Some((Verdict::Port(*self.members.get(child.index())?), child)),
            Audience::One(Neighbour::Parent) => self.parent.map(|parent| (Verdict::Port(parent.port), parent.child)),
        }
    }

    /// Writes the next notice. `body` writes what follows the notice's header and returns its length, or `None` if the
    /// notice is outdated.
    pub fn poll(
        &mut self,
        buf: &mut [u8],
        mut body: impl FnMut(&Notice, &mut [u8]) -> Option<usize>,
    ) -> Option<Emission> {
        loop {
            let notice = self.waiting.pop_front()?;
            let Some((verdict, wid)) = self.way(notice.to) else { continue };
            let Some(body) = body(&notice, &mut buf[HEADER_LEN..]) else { continue };
            let len = HEADER_LEN + body;
            Common { kind: notice.kind as u8, ..self.common }.emit(buf);
            let Notice { vid, epoch, .. } = notice;
            Header { vid, tid: self.tid, wnd_cap: NO_CAP, epoch, wid, spec: Spec::NOTHING, contributors: 0 }.emit(buf);
            return Some(Emission { len, wire_len: len, ecn: Ecn::NotCapable, verdict, ingress: None });
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Notice>() + heap_bytes(&self.members)
    }
}

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
