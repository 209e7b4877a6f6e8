//! A block that cannot complete: ranks disagree, or a host asks which ranks are missing.

use std::collections::VecDeque;

use super::version::State;
use super::{Relation, SparseSwitch};
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::report::{Mismatch, Report};
use crate::contract::config::SwitchConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::ChildId;
use crate::contract::packet::Ecn;
use crate::contract::switch::{Emission, Verdict};
use crate::contract::wire::Common;
use crate::flare::sparse::wire::{HEADER_LEN, Header, Kind};

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
