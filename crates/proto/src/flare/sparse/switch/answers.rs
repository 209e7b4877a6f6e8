//! Packets that a switch sends about its blocks: shards as they become ready, shards once more, and notices that say
//! which shards have come.

use super::version::{Again, Resume, State};
use super::{SparseSwitch, Version};
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
