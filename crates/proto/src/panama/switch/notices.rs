//! Packets that the switch makes itself, where it cannot turn a received packet into them.

use std::collections::VecDeque;

use crate::aggregation::missing_ranks::Neighbour;
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::ids::{ChildId, GroupId, PortId};
use crate::contract::packet::Ecn;
use crate::contract::switch::{Emission, Verdict};
use crate::contract::tensor::Spec;
use crate::contract::wire::Common;
use crate::heap::heap_bytes;
use crate::panama::wire::{HEADER_LEN, Header, Kind, NO_CAP};

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
