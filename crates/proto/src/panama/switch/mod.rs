//! The accelerator of one switch for one tree of one job (§5): alone, or in levels.

mod entries;
mod heads;
mod notices;
mod quorum;
mod recovery;
mod shutdown;
mod state;
mod sums;

use std::collections::VecDeque;

use self::entries::Entries;
use self::heads::{Heads, Phase};
use self::notices::{Audience, Notice, Notices};
use self::quorum::Quorum;
use self::recovery::Bases;
use self::shutdown::Floors;
use super::wire::{HEADER_LEN, Header, Kind, epoch, near};
use crate::aggregation::block_sizes::BlockSizes;
use crate::aggregation::missing_ranks::{MissingRanks, Neighbour};
use crate::aggregation::ordered::VectorFormat;
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{GroupId, PortId};
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::packet::PacketMut;
use crate::contract::protocol::ShardShape;
use crate::contract::state::SwitchState;
use crate::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;
use crate::heap::heap_bytes;
use crate::reliability::slot_lists;

pub use self::state::Counters;

/// Bytes that a job of this shape takes in one tree at one switch.
pub fn memory(shape: &ShardShape<'_>) -> u64 {
    Entries::memory(shape)
}

/// The full number of the first VID, so high that no rewind leads below zero.
const FIRST: u64 = 1 << 33;

/// One job's part of one accelerator, for one tree.
#[derive(Clone, Hash)]
pub struct Panama {
    common: Common,
    tid: u8,
    members: Vec<PortId>,
    /// How many ranks are below each child.
    below: Vec<u16>,
    group: GroupId,
    parent: Option<Parent>,
    sizes: BlockSizes,
    /// How many packets each port has room for: this accelerator's `wnd_cap`.
    capacity: u16,
    epoch: u16,
    phase: Phase,
    /// The tree must go back and the switch above has not begun to: whenever a child asks this switch, this switch asks
    /// the switch above again.
    asks_parent: bool,
    heads: Heads,
    entries: Entries,
    /// VIDs whose sums must be sent without a packet of the right size at hand, and the ports of their last
    /// contributions.
    unsent: VecDeque<(u64, PortId)>,
    /// The ranks that sums need not wait for; `None` if sums wait for all ranks.
    quorum: Option<Quorum>,
    /// How many ranks the whole job has.
    world_size: u16,
    bases: Bases,
    floors: Floors,
    notices: Notices,
    missing_ranks: MissingRanks,
    counters: Counters,
}

/// The fields of a child's CONTRIBUTION.
#[derive(Clone, Hash)]
struct Contribution {
    header: Header,
    vid: u64,
    elements: u32,
    encoding: Encoding,
    format: VectorFormat,
}

impl Panama {
    /// A machine with all its memory.
    pub fn new(values: Values, config: &SwitchConfig) -> Panama {
        Panama::starting_at(values, config, 0)
    }

    /// The same with another first VID, for tests of what happens where 32 bits end.
    pub fn starting_at(values: Values, config: &SwitchConfig, first: u32) -> Panama {
        let (children, capacity) = (config.members.len(), slot_lists::slots_of(&config.job, config.tree).len());
        let (payload_bytes, narrow) = (config.job.payload_bytes(), NarrowBlocks::fitting(config.job.levels));
        let (quorum, is_root) = (Quorum::new(config), config.parent.is_none());
        Panama {
            common: config.job.common(),
            tid: config.tree.0 as u8,
            members: config.members.clone(),
            below: config.below.iter().map(|below| below.ranks().len() as u16).collect(),
            group: config.group,
            parent: config.parent,
            sizes: BlockSizes::new(values, Numbers::Float, narrow, payload_bytes, HEADER_LEN),
            capacity: capacity as u16,
            // Where sums may lack ranks, an epoch begins before the first sum.
            epoch: u16::from(quorum.is_some() && is_root),
            phase: if quorum.is_some() { Phase::Syncing } else { Phase::Active },
            asks_parent: quorum.is_some() && !is_root,
            heads: Heads::new(children, capacity as u64, FIRST + u64::from(first)),
            entries: Entries::new(values, narrow, payload_bytes, capacity, children),
            unsent: VecDeque::with_capacity(if is_root && quorum.is_none() { 0 } else { capacity }),
            quorum,
            world_size: config.job.world_size,
            bases: Bases::new(children, first),
            floors: Floors::new(children),
            notices: Notices::new(config),
            missing_ranks: MissingRanks::new(config),
            counters: Counters::default(),
        }
    }

    /// The accelerator's counters.
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
        let (child, is_switch) = (header.wid, self.missing_ranks.is_switch(Neighbour::Child(header.wid)));
        match kind {
            Kind::Contribution => self.contribution(kind, &header, packet),
            Kind::Known if self.quorum.is_some() => self.contribution(kind, &header, packet),
            Kind::Lost => self.lost(child, &header),
            Kind::Gone => Ok(self.gone(child, &header)),
            Kind::Base => self.base(child, &header, packet),
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
            Kind::Rewind => self.rewind(header, packet),
            Kind::Waiting => self.waiting(Neighbour::Parent, header, packet),
            Kind::Query => Ok(self.query(Neighbour::Parent, header.vid)),
            Kind::Mismatch => self.mismatch_from_parent(header, packet),
            Kind::FinAsk => Ok(self.fin_ask(header.vid)),
            Kind::FinDone => Ok(self.fin_done(header.vid)),
            _ => Err(DropReason::BadKind),
        }
    }

    /// A result comes down and passes as it is.
    fn result(&mut self, header: &Header) -> Result<Verdict, DropReason> {
        match epoch(header.epoch, self.epoch) {
            std::cmp::Ordering::Less => return Err(DropReason::StaleEpoch),
            std::cmp::Ordering::Greater => return Err(DropReason::Ahead),
            std::cmp::Ordering::Equal => {}
        }
        // The switch above cannot have a sum without this switch's contribution.
        if self.phase == Phase::Syncing || near(self.heads.expected(), header.vid) >= self.heads.expected() {
            return Err(DropReason::Unexpected);
        }
        Ok(Verdict::Group(self.group))
    }

    /// Queues a notice for the current epoch.
    fn notify(&mut self, to: Audience, kind: Kind, vid: u32) {
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
        self.poll_sum(buf).or_else(|| self.poll_notice(buf))
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
            + self.unsent.capacity() * size_of::<(u64, PortId)>()
            + self.quorum.as_ref().map_or(0, Quorum::memory_bytes)
            + self.bases.memory_bytes()
            + self.floors.memory_bytes()
            + self.notices.memory_bytes()
            + self.missing_ranks.memory_bytes()
    }

    fn resize(&mut self, slots: u16) {
        self.set_capacity(slots.max(1));
    }

    fn query_kinds(&self) -> u64 {
        [Kind::Lost, Kind::Gone, Kind::Query, Kind::Fin].into_iter().fold(0, |kinds, kind| kinds | 1 << kind as u8)
    }

    fn report(&self) -> SwitchReport {
        SwitchReport {
            slots: self.capacity.into(),
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
