//! The accelerator of one switch for one tree of one job (§5): alone, or in levels.

mod counters;
mod entries;
mod farewell;
mod heads;
mod notices;
mod recovery;
mod resize;
mod state;
mod trouble;

use std::collections::VecDeque;

pub use self::counters::Counters;
use self::entries::{Entries, Entry};
use self::farewell::Floors;
use self::heads::{Heads, Phase, on_contribution};
use self::notices::{Audience, Notice, Notices};
use self::recovery::Bases;
use super::vid::{epoch, near};
use super::wire::{HEADER_LEN, Header, Kind};
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, PortId};
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::packet::{Ecn, PacketMut};
use crate::contract::protocol::JobShape;
use crate::contract::state::SwitchState;
use crate::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;
use crate::parts::block_sizes::BlockSizes;
use crate::parts::form::Form;
use crate::parts::inquiry::{Inquiry, Neighbour};
use crate::parts::layout;
use crate::parts::memory::heap_bytes;

/// Bytes that a job of this shape takes in one tree at one switch.
pub fn memory(shape: &JobShape<'_>) -> u64 {
    Entries::memory(shape)
}

/// VIDs are counted from here, so that no rewind leads below zero.
const FIRST: u64 = 1 << 33;

/// One job's part of one accelerator, for one tree.
#[derive(Clone, Hash)]
pub struct Panama {
    common: Common,
    tid: u8,
    members: Vec<PortId>,
    /// Ranks below each child.
    below: Vec<u16>,
    group: GroupId,
    parent: Option<Parent>,
    sizes: BlockSizes,
    /// Packets that each port has room for: what this accelerator says in `wnd_cap`.
    room: u16,
    epoch: u16,
    phase: Phase,
    /// The tree must go back and the switch above has not begun to: it is asked again whenever somebody asks here.
    asks_above: bool,
    heads: Heads,
    entries: Entries,
    /// VIDs whose sums are to be sent up, though no packet of the right size is at hand, and the ports of the last
    /// contributions.
    partials: VecDeque<(u64, PortId)>,
    bases: Bases,
    floors: Floors,
    notices: Notices,
    inquiry: Inquiry,
    counters: Counters,
}

/// What a child's CONTRIBUTION brings.
#[derive(Clone, Hash)]
struct Contribution {
    header: Header,
    vid: u64,
    elements: u32,
    encoding: Encoding,
    form: Form,
}

impl Panama {
    /// A machine with all its memory.
    pub fn new(values: Values, config: &SwitchConfig) -> Panama {
        Panama::starting_at(values, config, 0)
    }

    /// The same with another first VID, for those who want to see what happens where 32 bits end.
    pub fn starting_at(values: Values, config: &SwitchConfig, first: u32) -> Panama {
        let (children, room) = (config.members.len(), layout::slots_of(&config.job, config.tree).len());
        let (payload_bytes, narrow) = (config.job.payload_bytes(), NarrowBlocks::fitting(config.job.levels));
        Panama {
            common: config.job.common(),
            tid: config.tree.0 as u8,
            members: config.members.clone(),
            below: config.below.iter().map(|below| below.ranks().len() as u16).collect(),
            group: config.group,
            parent: config.parent,
            sizes: BlockSizes::new(values, Numbers::Float, narrow, payload_bytes, HEADER_LEN),
            room: room as u16,
            epoch: 0,
            phase: Phase::Active,
            asks_above: false,
            heads: Heads::new(children, room as u64, FIRST + u64::from(first)),
            entries: Entries::new(values, narrow, payload_bytes, room, children),
            partials: VecDeque::with_capacity(if config.parent.is_some() { room } else { 0 }),
            bases: Bases::new(children, first),
            floors: Floors::new(children),
            notices: Notices::new(config),
            inquiry: Inquiry::new(config),
            counters: Counters::default(),
        }
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// `Expected_VID`, modulo 2^32.
    pub fn expected(&self) -> u32 {
        self.heads.expected() as u32
    }

    fn receive(&mut self, ingress: PortId, packet: &mut PacketMut<'_>) -> Result<Verdict, DropReason> {
        let header = Header::parse(&packet.bytes[..packet.len])?;
        let kind = Kind::of(packet.bytes)?;
        if header.tid != self.tid {
            return Err(DropReason::BadField);
        }
        if self.parent.is_some_and(|parent| parent.port == ingress) {
            return self.parents(kind, &header, packet);
        }
        if self.members.get(header.wid.index()) != Some(&ingress) {
            return Err(DropReason::WrongWorker);
        }
        let (child, is_switch) = (header.wid, self.inquiry.is_switch(Neighbour::Child(header.wid)));
        match kind {
            Kind::Contribution => self.contribution(&header, packet),
            Kind::Lost => self.lost(child, &header),
            Kind::Gone => Ok(self.gone(child, &header)),
            Kind::Base => self.base(child, &header),
            Kind::Fin => Ok(self.fin(child, header.vid)),
            Kind::Waiting if is_switch => self.waiting(Neighbour::Child(child), &header, packet),
            Kind::Query if is_switch => Ok(self.query(Neighbour::Child(child), header.vid)),
            Kind::Mismatch if is_switch => self.mismatch_below(&header, packet),
            _ => Err(DropReason::BadKind),
        }
    }

    fn parents(&mut self, kind: Kind, header: &Header, packet: &PacketMut<'_>) -> Result<Verdict, DropReason> {
        match kind {
            Kind::Result => self.result(header),
            Kind::Passed if header.epoch == self.epoch => Ok(Verdict::Group(self.group)),
            Kind::Passed => Err(DropReason::StaleEpoch),
            Kind::Sync => self.sync(header.epoch),
            Kind::Rewind => self.rewind(header),
            Kind::Waiting => self.waiting(Neighbour::Parent, header, packet),
            Kind::Query => Ok(self.query(Neighbour::Parent, header.vid)),
            Kind::Mismatch => self.mismatch_above(header, packet),
            Kind::FinAsk => Ok(self.fin_ask(header.vid)),
            Kind::FinDone => Ok(self.fin_done(header.vid)),
            _ => Err(DropReason::BadKind),
        }
    }

    /// A packet joins its port's FIFO, if its fields are in range.
    #[inline]
    fn contribution(&mut self, header: &Header, packet: &mut PacketMut<'_>) -> Result<Verdict, DropReason> {
        let child = header.wid;
        let vid = near(self.heads.expected(), header.vid);
        let place = self.heads.place(child, vid);
        on_contribution(epoch(header.epoch, self.epoch), self.phase, place, self.heads.is_new())?;
        let form = if self.inquiry.is_switch(Neighbour::Child(child)) { Form::Partial } else { Form::Host };
        let &sizes = self.sizes.of(&header.spec)?;
        if header.contributors != self.below[child.index()] {
            return Err(DropReason::BadField);
        }
        let (encoding, elements) = (sizes.encoding, sizes.elements(form, packet, false)?);
        let held = *self.entries.get(vid);
        if self.entries.mismatch(vid).is_some() {
            self.tell(Audience::One(Neighbour::Child(child)), Kind::Mismatch, header.vid);
            return Err(DropReason::Mismatch);
        }
        if held.count > 0 && held.spec != header.spec {
            return Err(self.mismatch_here(vid, header));
        }
        if held.count > 0 && held.elements != elements {
            return Err(DropReason::BadLength);
        }
        if held.count == 0 && self.partials.iter().any(|&(waiting, _)| waiting + u64::from(self.room) == vid) {
            // Its child cannot have the result of the one that lies there, and so may not send it.
            return Err(DropReason::Ahead);
        }
        let brought = Contribution { header: *header, vid, elements, encoding, form };
        Ok(self.queue(&brought, packet))
    }

    #[inline]
    fn queue(&mut self, brought: &Contribution, packet: &mut PacketMut<'_>) -> Verdict {
        let Contribution { header, vid, elements, encoding, form } = brought;
        // After RESEND a vector comes a second time that was combined already: the port's FIFO alone is filled again.
        if !self.entries.has(*vid, header.wid) {
            let (block, vector) = ((*elements, encoding, *form), &packet.bytes[HEADER_LEN..packet.len]);
            self.entries.add(*vid, header, block, packet.ecn, vector);
            self.counters.contributions += 1;
        }
        self.heads.push(header.wid, *vid);
        self.advance(brought, packet)
    }

    /// §5, ②: as long as every port has a packet, the expected VID is summed or lost. Before this packet came its port had
    /// none, or nothing would have waited: so its VID alone is in all FIFOs. (Another one may have all its vectors, where
    /// the port was to send it again and this packet has overtaken it: it is lost like any other.)
    #[inline]
    fn advance(&mut self, brought: &Contribution, packet: &mut PacketMut<'_>) -> Verdict {
        let mut verdict = Verdict::Consume;
        while self.heads.are_all_there() {
            let expected = self.heads.expected();
            if self.entries.mismatch(expected).is_some() {
                break;
            }
            if expected == brought.vid && usize::from(self.entries.get(expected).count) == self.members.len() {
                verdict = self.emit(brought, packet);
            } else {
                self.counters.lost_vids += 1;
                if expected == brought.vid {
                    verdict = Verdict::Drop(DropReason::Incomplete);
                }
            }
            // What waits to be written is not begun anew: see `contribution`.
            self.entries.free(expected);
            self.heads.pass();
        }
        verdict
    }

    /// All have contributed: the packet becomes the result, or the contribution to the switch above.
    #[inline]
    fn emit(&mut self, brought: &Contribution, packet: &mut PacketMut<'_>) -> Verdict {
        let (vid, entry) = (brought.vid, *self.entries.get(brought.vid));
        self.counters.blocks_completed += 1;
        self.counters.marks += u64::from(entry.ecn == Ecn::CongestionExperienced);
        let Some(parent) = self.parent else {
            self.entries.finish(vid);
            self.write(vid, &entry, Kind::Result, brought, packet);
            return Verdict::Group(self.group);
        };
        if brought.form == Form::Host && brought.encoding.is_wide() {
            self.partials.push_back((vid, self.members[brought.header.wid.index()]));
            return Verdict::Consume;
        }
        self.write(vid, &entry, Kind::Contribution, brought, packet);
        Verdict::Port(parent.port)
    }

    /// Makes the packet, which is no shorter, one that carries a VID's sum.
    #[inline]
    fn write(
        &self,
        vid: u64,
        entry: &Entry,
        kind: Kind,
        Contribution { encoding, .. }: &Contribution,
        packet: &mut PacketMut<'_>,
    ) {
        let form = if kind == Kind::Result { Form::Host } else { Form::Partial };
        kind.put(packet.bytes);
        self.header(vid, entry).emit(packet.bytes);
        packet.ecn = entry.ecn;
        packet.len = HEADER_LEN + form.buffer_len(encoding, entry.elements);
        packet.wire_len = HEADER_LEN + form.wire_len(encoding, entry.elements);
        self.entries.load(vid, &mut packet.bytes[HEADER_LEN..packet.len], form);
    }

    fn header(&self, vid: u64, entry: &Entry) -> Header {
        Header {
            vid: vid as u32,
            tid: self.tid,
            wnd_cap: entry.wnd_cap.min(self.room).max(1),
            epoch: self.epoch,
            wid: self.parent.map_or(ChildId(0), |parent| parent.child),
            spec: entry.spec,
            contributors: entry.contributors,
        }
    }

    /// The next sum for which no packet was at hand. Its entry is free, and as it was: nobody may take it before.
    fn poll_partial(&mut self, buf: &mut [u8]) -> Option<Emission> {
        let parent = self.parent?;
        let (vid, ingress) = self.partials.pop_front()?;
        let entry = *self.entries.get(vid);
        let encoding = self.sizes.of(&entry.spec).ok()?.encoding;
        self.common.emit(buf);
        let header = self.header(vid, &entry);
        let brought = Contribution { header, vid, elements: entry.elements, encoding, form: Form::Partial };
        let mut packet = PacketMut::new(buf, entry.ecn);
        self.write(vid, &entry, Kind::Contribution, &brought, &mut packet);
        let (len, wire_len, ecn) = (packet.len, packet.wire_len, packet.ecn);
        Some(Emission { len, wire_len, ecn, verdict: Verdict::Port(parent.port), ingress: Some(ingress) })
    }

    /// A result comes down: it passes as it is.
    fn result(&mut self, header: &Header) -> Result<Verdict, DropReason> {
        match epoch(header.epoch, self.epoch) {
            std::cmp::Ordering::Less => return Err(DropReason::StaleEpoch),
            std::cmp::Ordering::Greater => return Err(DropReason::Ahead),
            std::cmp::Ordering::Equal => {}
        }
        // The switch above cannot have a sum without ours.
        if self.phase == Phase::Syncing || near(self.heads.expected(), header.vid) >= self.heads.expected() {
            return Err(DropReason::Unexpected);
        }
        Ok(Verdict::Group(self.group))
    }

    /// A notice in the current epoch.
    fn tell(&mut self, to: Audience, kind: Kind, vid: u32) {
        self.notices.push(Notice { to, kind, vid, epoch: self.epoch });
    }
}

impl Switch for Panama {
    fn process(&mut self, _now: Time, ingress: PortId, packet: &mut PacketMut<'_>, _ports: &dyn PortView) -> Verdict {
        self.receive(ingress, packet).unwrap_or_else(Verdict::Drop)
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, buf: &mut [u8]) -> Option<Emission> {
        // Sums first: an answer about one must not overtake it.
        self.poll_partial(buf).or_else(|| self.poll_notice(buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + heap_bytes(&self.members)
            + heap_bytes(&self.below)
            + self.heads.memory_bytes()
            + self.entries.memory_bytes()
            + self.partials.capacity() * size_of::<(u64, PortId)>()
            + self.bases.memory_bytes()
            + self.floors.memory_bytes()
            + self.notices.memory_bytes()
            + self.inquiry.memory_bytes()
    }

    fn resize(&mut self, slots: u16) {
        self.set_room(slots.max(1));
    }

    fn questions(&self) -> u64 {
        [Kind::Lost, Kind::Gone, Kind::Query, Kind::Fin].into_iter().fold(0, |kinds, kind| kinds | 1 << kind as u8)
    }

    fn report(&self) -> SwitchReport {
        SwitchReport {
            slots: self.room.into(),
            slots_waiting: self.heads.waiting() as u32,
            missing: self.heads.missing().collect(),
            lag: None,
            blocks_completed: self.counters.blocks_completed,
            contributions: self.counters.contributions,
            metrics: self.metrics(),
            orders: vec![self.order()],
        }
    }

    fn state(&self) -> Option<&dyn SwitchState> {
        Some(self)
    }
}
