//! Packets that a switch sends about its blocks: shards as they become ready, shards once more, and notices that say
//! which shards have come.

use std::collections::VecDeque;

use super::version::{Again, Resume, State};
use super::{Relation, SparseSwitch, Version};
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::report::{Mismatch, Report};
use crate::contract::config::SwitchConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::packet::Ecn;
use crate::contract::switch::{Emission, Verdict};
use crate::contract::wire::Common;
use crate::flare::sparse::wire::{HEADER_LEN, Header, Kind, put_bits};

/// After this many shards each, the receiver is asked which have come, so that the window moves before it is used up.
const QUERY_EVERY: u32 = 32;

impl SparseSwitch {
    /// The next packet of any version that has something to send.
    pub(super) fn poll_answer(&mut self, buf: &mut [u8]) -> Option<Emission> {
        loop {
            let at = *self.ready.front()?;
            if let Some(emission) = self.answer(at, buf) {
                return Some(emission);
            }
            self.versions[at].is_queued = false;
            self.ready.pop_front();
        }
    }

    fn answer(&mut self, at: usize, buf: &mut [u8]) -> Option<Emission> {
        if let Some((child, resume)) = self.next_owed(at) {
            let version = &self.versions[at];
            let (received, is_finished) = (version.children[child].received, version.state == State::Closed);
            let asks = resume == Resume::All;
            let header = Header { shard: received.next, asks, is_finished, ..self.blank(at, ChildId(child as u16)) };
            return Some(self.notify(Kind::Taken, header, received.bits, Verdict::Port(self.members[child]), buf));
        }
        if let Some((to, shard)) = self.next_again(at) {
            self.counters.shards_sent_again += 1;
            return Some(self.send(at, shard, Some(to), buf));
        }
        let available = self.versions[at].available(self.is_root());
        if self.versions[at].sent.may_go_on(available) {
            let (shard, _) = self.versions[at].sent.advance();
            return Some(self.send(at, shard, None, buf));
        }
        let parent = self.parent?;
        let version = &mut self.versions[at];
        if std::mem::take(&mut version.owes_have) {
            let header = Header { shard: version.all_have(), ..self.blank(at, parent.child) };
            return Some(self.notify(Kind::Have, header, 0, Verdict::Port(parent.port), buf));
        }
        let (next, bits) = version.wants.take()?;
        let header = Header { shard: next, ..self.blank(at, parent.child) };
        Some(self.notify(Kind::Want, header, bits, Verdict::Port(parent.port), buf))
    }

    /// The next child that is to be told what has come.
    fn next_owed(&mut self, at: usize) -> Option<(usize, Resume)> {
        let version = &mut self.versions[at];
        if !version.owes {
            return None;
        }
        let mut children = version.children.iter_mut().enumerate();
        let next = children.find_map(|(child, of_child)| of_child.owed.take().map(|resume| (child, resume)));
        version.owes = next.is_some();
        next
    }

    /// The next shard to be sent again, and its receiver.
    fn next_again(&mut self, at: usize) -> Option<(Again, u32)> {
        let Version { again, sent, .. } = &mut self.versions[at];
        let (to, lacking) = again.as_mut()?;
        let next = lacking.pop().filter(|shard| (sent.released..sent.next).contains(shard));
        let next = next.map(|shard| (*to, shard));
        if next.is_none() {
            *again = None;
        }
        next
    }

    fn blank(&self, at: usize, wid: ChildId) -> Header {
        let Version { phase, spec, .. } = self.versions[at];
        let idx = self.slot_of(at);
        Header { wid, idx, phase, shard: 0, count: 0, asks: false, is_finished: false, spec }
    }

    /// Writes a notice that says which shards have come.
    fn notify(&self, kind: Kind, header: Header, bits: u64, verdict: Verdict, buf: &mut [u8]) -> Emission {
        Common { kind: kind as u8, ..self.common }.emit(buf);
        header.emit(buf);
        let len = put_bits(buf, bits);
        Emission { len, wire_len: len, ecn: Ecn::NotCapable, verdict, ingress: None }
    }

    /// Writes a shard, for the first time or again.
    fn send(&mut self, at: usize, shard: u32, again: Option<Again>, buf: &mut [u8]) -> Emission {
        let is_root = self.is_root();
        let (kind, wid, verdict) = match (self.parent, again) {
            (Some(parent), _) => (Kind::Shard, parent.child, Verdict::Port(parent.port)),
            (None, Some(Again::Child(child))) => {
                (Kind::Sum, ChildId(child), Verdict::Port(self.members[usize::from(child)]))
            }
            (None, _) => (Kind::Sum, ChildId(0), Verdict::Group(self.group)),
        };
        let blank = self.blank(at, wid);
        let version = &mut self.versions[at];
        let layout = version.layout.expect("the version has begun");
        let (format, is_finished) = version.format(is_root);
        let contents = version.block.contents(&layout, shard, version.is_over(), format);
        let asks = again.is_some()
            || (shard + 1).is_multiple_of(QUERY_EVERY)
            || contents.count == 0 && version.block.fills(&layout);
        Common { kind: kind as u8, ..self.common }.emit(buf);
        Header { shard, count: contents.count, asks, is_finished, ..blank }.emit(buf);
        let pairs = contents.pairs();
        let len = HEADER_LEN + layout.buffer_len(pairs, format);
        version.block.write(&layout, &contents, format, &mut self.scratch, &mut buf[HEADER_LEN..len]);
        let wire_len = HEADER_LEN + layout.wire_len(pairs, format);
        self.counters.elements_out += pairs as u64;
        if again.is_some() {
            self.counters.work.emitted += 1;
            self.counters.work.unfilled += if pairs < layout.capacity(format) { pairs as u64 } else { 0 };
        }
        self.counters.shards_spilled += u64::from(again.is_none() && !version.is_over());
        Emission { len, wire_len, ecn: Ecn::NotCapable, verdict, ingress: None }
    }
}

// A block that cannot complete: ranks disagree, or a host asks which ranks are missing.

/// The receivers of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    One(Neighbour),
    Children,
}

/// Notices that wait to be sent: at most one of each kind for each audience, so that memory stays bounded. A later
/// notice replaces an earlier one: a neighbour that still needs the earlier one asks again.
pub(super) struct Notices(VecDeque<(Audience, Kind, Header)>);

impl Notices {
    /// None yet, and room for one of each kind to each neighbour and to all children.
    pub(super) fn new(config: &SwitchConfig) -> Notices {
        const KINDS: usize = 3;
        Notices(VecDeque::with_capacity(KINDS * (config.members.len() + 2)))
    }

    fn push(&mut self, to: Audience, kind: Kind, header: Header) {
        self.0.retain(|(other_to, other_kind, _)| (*other_to, *other_kind) != (to, kind));
        self.0.push_back((to, kind, header));
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Audience, Kind, Header)>()
    }
}

impl SparseSwitch {
    /// Writes the next notice.
    pub(super) fn poll_notice(&mut self, buf: &mut [u8]) -> Option<Emission> {
        loop {
            let (to, kind, header) = self.notices.0.pop_front()?;
            let way = match to {
                Audience::Children => Some((Verdict::Group(self.group), header.wid)),
                Audience::One(Neighbour::Child(child)) => {
                    self.members.get(child.index()).map(|&port| (Verdict::Port(port), header.wid))
                }
                Audience::One(Neighbour::Parent) => {
                    self.parent.map(|parent| (Verdict::Port(parent.port), parent.child))
                }
            };
            let (Some((verdict, wid)), Some(len)) = (way, self.write_body(to, kind, &header, buf)) else { continue };
            Common { kind: kind as u8, ..self.common }.emit(buf);
            Header { wid, ..header }.emit(buf);
            return Some(Emission { len, wire_len: len, ecn: Ecn::NotCapable, verdict, ingress: None });
        }
    }

    /// Writes what follows a notice's header; returns the packet's length.
    fn write_body(&self, to: Audience, kind: Kind, header: &Header, buf: &mut [u8]) -> Option<usize> {
        let (idx, phase) = (header.idx, header.phase);
        let version = &self.versions[self.version(idx, phase)?];
        let body = &mut buf[HEADER_LEN..];
        let len = match (kind, to) {
            (Kind::Report, Audience::One(neighbour)) => {
                // A switch below the root does not keep the sum, and never knows whether all other switches have
                // contributed.
                let is_done = self.is_root() && version.phase == phase && version.state == State::Closed;
                let has_contributed = |wid| version.has_contributed(phase, wid);
                self.missing_ranks.report(neighbour, (idx, phase), has_contributed, is_done).emit(body)
            }
            (Kind::Query, _) => 0,
            _ => version.mismatch.filter(|_| version.phase == phase)?.emit(body),
        };
        Some(HEADER_LEN + len)
    }

    /// A child that goes on with a block on which ranks disagree is told again, and so is the switch above.
    pub(super) fn notify_mismatch(&mut self, header: &Header) {
        self.notices.push(Audience::One(Neighbour::Child(header.wid)), Kind::Mismatch, *header);
        self.notify_parent(header);
    }

    fn notify_parent(&mut self, header: &Header) {
        if self.parent.is_some() {
            self.notices.push(Audience::One(Neighbour::Parent), Kind::Mismatch, *header);
        }
    }

    fn note(&mut self, at: usize, mismatch: Mismatch) {
        let version = &mut self.versions[at];
        (version.state, version.mismatch) = (State::Mismatched, Some(mismatch));
        (version.again, version.wants, version.owes_have) = (None, None, false);
    }

    /// Ranks below this switch disagree: all of them are told, and the switch above tells all others.
    pub(super) fn mismatch_here(&mut self, at: usize, header: &Header) -> DropReason {
        let version = &self.versions[at];
        let brought = |child: &ChildId| version.children[child.index()].received != Default::default();
        let a = (0..self.members.len() as u16).map(ChildId).find(brought).expect("somebody began the phase");
        // All ranks below a child bring the same collective, or the child would have reported their disagreement.
        let (a, b) = (self.missing_ranks.rank_of(a), self.missing_ranks.rank_of(header.wid));
        self.note(at, Mismatch { a, a_spec: self.versions[at].spec, b, b_spec: header.spec });
        self.notices.push(Audience::Children, Kind::Mismatch, *header);
        self.notify_parent(header);
        DropReason::Mismatch
    }

    /// Another switch has found that ranks disagree.
    pub(super) fn mismatch_elsewhere(
        &mut self,
        at: usize,
        header: &Header,
        body: &[u8],
        from_parent: bool,
    ) -> Result<Verdict, DropReason> {
        let mismatch = Mismatch::parse(body)?;
        let before_is_over = self.before_is_over(at, header.phase);
        let version = &self.versions[at];
        match (Relation::of(header.phase, version.phase), version.state) {
            (Relation::Earlier, _) | (Relation::Same, State::Unused) => return Err(DropReason::Stale),
            (Relation::Same, State::Mismatched) => return Err(DropReason::Duplicate),
            (Relation::Same, State::Open | State::Closed) => {}
            (Relation::Next, State::Unused | State::Closed) if before_is_over => {
                let layout = self.layout(&header.spec)?;
                self.versions[at].begin(header.phase, header.spec, layout);
            }
            (Relation::Next | Relation::Later, _) => return Err(DropReason::Ahead),
        }
        self.note(at, mismatch);
        if !from_parent {
            self.notify_parent(header);
        }
        Ok(Verdict::Group(self.group))
    }

    /// A neighbour asks which ranks are missing. This switch tells at once what it knows; other switches may know more.
    pub(super) fn query(&mut self, by: Neighbour, header: Header) -> Result<Verdict, DropReason> {
        let question = (header.idx, header.phase);
        self.missing_ranks.ask(by, question);
        self.notices.push(Audience::One(by), Kind::Report, header);
        let version = self.version(header.idx, header.phase).map(|at| &self.versions[at]);
        let has_contributed = |wid| version.is_some_and(|version| version.has_contributed(header.phase, wid));
        for other in self.missing_ranks.informants(has_contributed).filter(|&other| other != by) {
            self.notices.push(Audience::One(other), Kind::Query, header);
        }
        Ok(Verdict::Consume)
    }

    /// Another switch says which ranks are missing.
    pub(super) fn handle_report(
        &mut self,
        from: Neighbour,
        header: &Header,
        body: &[u8],
    ) -> Result<Verdict, DropReason> {
        let report = Report::parse(body)?;
        let question = (header.idx, header.phase);
        if self.missing_ranks.on_report(from, question, report) {
            for asker in self.missing_ranks.askers(question, from) {
                self.notices.push(Audience::One(asker), Kind::Report, *header);
            }
        }
        Ok(Verdict::Consume)
    }
}
