//! The switch's side of sparse allreduces: one job in one shard of one switch, alone or in levels.
//!
//! `version.rs` takes in a child's shard, and `notices.rs` sends. The switch sets no
//! timer: a host that waits for a sum asks again, and each switch passes on questions that it cannot answer.

mod notices;
mod version;

use std::collections::VecDeque;
use std::ops::Range;

use self::notices::Notices;
use self::version::{Again, OfChild, Resume, State, Version};
use super::block::{Block, Scratch, Sizes};
use super::layout::{Choices, Layout, Storage};
use super::wire::{HEADER_LEN, Header, Kind, bits};
use crate::aggregation::missing_ranks::{MissingRanks, Neighbour};
use crate::aggregation::slots::switch::Relation;
use crate::contract::config::{Parent, SwitchConfig};
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, GroupId, PortId};
use crate::contract::metric::Metric;
use crate::contract::packet::PacketMut;
use crate::contract::protocol::ShardShape;
use crate::contract::switch::{Emission, PortView, Switch, SwitchReport, Verdict};
use crate::contract::tensor::Spec;
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::contract::wire::Common;
use crate::contract::work::{Instrumented, Work};
use crate::heap::heap_bytes;
use crate::reliability::slot_lists;

/// Bytes that a job of this shape takes in one shard.
pub fn memory(shape: &ShardShape<'_>, choices: &Choices) -> u64 {
    let children = usize::from(shape.children) * size_of::<OfChild>();
    let (block, shared) = Sizes::most(shape, choices);
    let version = size_of::<Version>() + size_of::<usize>() + block + children;
    (2 * usize::from(shape.slots) * version + shared) as u64
}

/// One job's slots in one shard of one switch.
pub struct SparseSwitch {
    values: Values,
    choices: Choices,
    storage: Storage,
    payload_bytes: usize,
    world_size: u16,
    members: Vec<PortId>,
    group: GroupId,
    parent: Option<Parent>,
    common: Common,
    slots: Range<u16>,
    versions: Vec<Version>,
    /// Versions that have something to send, each listed once.
    ready: VecDeque<usize>,
    notices: Notices,
    missing_ranks: MissingRanks,
    /// The layout of the collective whose packet came last.
    known: Option<(Spec, Layout)>,
    scratch: Scratch,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    blocks_completed: u64,
    shards: u64,
    empty_shards: u64,
    elements_in: u64,
    elements_out: u64,
    elements_kept: u64,
    elements_spilled: u64,
    shards_spilled: u64,
    shards_sent_again: u64,
    shards_refused: u64,
    work: Work,
}

impl Counters {
    fn metrics(&self) -> Vec<Metric> {
        vec![
            Metric::counter("elements_in", self.elements_in, "Elements of shards that children have brought."),
            Metric::counter("elements_kept", self.elements_kept, "Elements that blocks' tables held when all were in."),
            Metric::counter("elements_out", self.elements_out, "Elements of shards that went on, sent again or not."),
            Metric::counter("elements_spilled", self.elements_spilled, "Elements that collided in a hash table."),
            Metric::counter("shards_spilled", self.shards_spilled, "Packets of elements that collided."),
            Metric::counter("empty_shards", self.empty_shards, "Packets of children that had no element of the block."),
            Metric::counter("shards_sent_again", self.shards_sent_again, "Packets that went on once more."),
            Metric::counter("shards_refused", self.shards_refused, "Packets for whose collisions there was no room."),
        ]
    }
}

impl SparseSwitch {
    /// A machine with all its memory.
    pub fn new(values: Values, config: &SwitchConfig, choices: Choices) -> SparseSwitch {
        let (job, children) = (&config.job, config.members.len());
        let slots = slot_lists::slots_of(job, config.tree);
        let storage = choices.storage(config.parent.is_none());
        let sizes = Sizes::new(values, job.payload_bytes(), &choices, storage);
        let versions = 2 * slots.len();
        SparseSwitch {
            values,
            choices,
            storage,
            payload_bytes: job.payload_bytes(),
            world_size: job.world_size,
            members: config.members.clone(),
            group: config.group,
            parent: config.parent,
            common: job.common(),
            slots,
            versions: (0..versions)
                .map(|version| Version::new(version as u32 % 2, children, Block::new(storage, &sizes)))
                .collect(),
            ready: VecDeque::with_capacity(versions),
            notices: Notices::new(config),
            missing_ranks: MissingRanks::new(config),
            known: None,
            scratch: Scratch::new(&sizes),
            counters: Counters::default(),
        }
    }

    fn receive(&mut self, ingress: PortId, packet: &PacketMut<'_>) -> Result<Verdict, DropReason> {
        let bytes = &packet.bytes[..packet.len];
        let (kind, header) = (Kind::of(bytes)?, Header::parse(bytes)?);
        let at = self.version(header.idx, header.phase).ok_or(DropReason::BadField)?;
        if self.parent.is_some_and(|parent| parent.port == ingress) {
            return match kind {
                Kind::Sum => self.sum_from_parent(at, &header),
                Kind::Taken => self.taken(at, &header, bits(&bytes[HEADER_LEN..])?),
                Kind::Mismatch => self.mismatch_elsewhere(at, &header, &bytes[HEADER_LEN..], true),
                Kind::Query => self.query(Neighbour::Parent, header),
                Kind::Report => self.handle_report(Neighbour::Parent, &header, &bytes[HEADER_LEN..]),
                Kind::Shard | Kind::Have | Kind::Want => Err(DropReason::BadKind),
            };
        }
        if self.members.get(header.wid.index()) != Some(&ingress) {
            return Err(DropReason::WrongWorker);
        }
        let child = Neighbour::Child(header.wid);
        let is_switch = self.missing_ranks.is_switch(child);
        match kind {
            Kind::Shard => self.shard(at, &header, &bytes[HEADER_LEN..], packet.wire_len.saturating_sub(HEADER_LEN)),
            Kind::Have | Kind::Want => self.has(at, &header, kind, bits(&bytes[HEADER_LEN..])?),
            Kind::Query => self.query(child, header),
            Kind::Mismatch if is_switch => self.mismatch_elsewhere(at, &header, &bytes[HEADER_LEN..], false),
            Kind::Report if is_switch => self.handle_report(child, &header, &bytes[HEADER_LEN..]),
            _ => Err(DropReason::BadKind),
        }
    }

    /// The index of the version that serves this phase of this slot, if this switch has the slot.
    fn version(&self, idx: u16, phase: u32) -> Option<usize> {
        self.slots.contains(&idx).then(|| 2 * usize::from(idx - self.slots.start) + (phase % 2) as usize)
    }

    fn slot_of(&self, at: usize) -> u16 {
        self.slots.start + (at / 2) as u16
    }

    fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    fn layout(&mut self, spec: &Spec) -> Result<Layout, DropReason> {
        if let Some((known, layout)) = &self.known
            && known == spec
        {
            return Ok(*layout);
        }
        let layout = Layout::new(self.values, self.payload_bytes, &self.choices, spec).ok_or(DropReason::BadField)?;
        self.known = Some((*spec, layout));
        Ok(layout)
    }

    /// Notes that the version has something to send.
    fn queue(&mut self, at: usize) {
        if !std::mem::replace(&mut self.versions[at].is_queued, true) {
            self.ready.push_back(at);
        }
    }

    /// The switch above says which shards of this switch it has.
    fn taken(&mut self, at: usize, header: &Header, bits: u64) -> Result<Verdict, DropReason> {
        let version = &mut self.versions[at];
        match (Relation::of(header.phase, version.phase), version.state) {
            (Relation::Earlier, _) | (Relation::Same, State::Unused) => return Err(DropReason::Stale),
            (Relation::Next | Relation::Later, _) => return Err(DropReason::Ahead),
            (Relation::Same, State::Mismatched) => return Err(DropReason::Mismatch),
            (Relation::Same, _) if header.shard > version.sent.next => return Err(DropReason::BadField),
            (Relation::Same, _) => {}
        }
        version.is_known_to_parent = true;
        if version.release(header.shard) {
            version.resume();
        }
        let sent = version.sent;
        let lacking = if header.asks { sent.lacking(header.shard, bits) } else { sent.overtaken(header.shard, bits) };
        version.send_again(Again::Parent, lacking);
        self.queue(at);
        Ok(Verdict::Consume)
    }

    /// A child says which shards of the sum it has, or which it lacks.
    fn has(&mut self, at: usize, header: &Header, kind: Kind, bits: u64) -> Result<Verdict, DropReason> {
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        match (Relation::of(header.phase, version.phase), version.state) {
            (Relation::Earlier, _) | (Relation::Same, State::Unused) => return Err(DropReason::Stale),
            (Relation::Next | Relation::Later, _) => return Err(DropReason::Ahead),
            (Relation::Same, State::Mismatched) => {
                self.notify_mismatch(header);
                return Err(DropReason::Mismatch);
            }
            (Relation::Same, _) if is_root && header.shard > version.sent.next => return Err(DropReason::BadField),
            (Relation::Same, _) => {}
        }
        let (child, before) = (header.wid.index(), version.all_have());
        // A switch sends `Want` for one of its children, but `Have` for all of them.
        let has = &mut version.children[child].has;
        // A child that repeats `Have` was asked again: the switch above has not heard of it.
        let is_repeated = kind == Kind::Have && header.shard <= *has;
        if kind == Kind::Have || !self.missing_ranks.is_switch(Neighbour::Child(header.wid)) {
            *has = header.shard.max(*has);
        }
        let all_have = version.all_have();
        if kind == Kind::Want && !version.children[child].received.is_complete() {
            // The sum waits for shards that this child's packets lost on their way here.
            version.owe(child, Resume::All);
        }
        if is_root {
            if version.release(all_have) {
                version.resume();
            }
            if kind == Kind::Want {
                version.send_again(Again::Child(header.wid.0), version.sent.lacking(header.shard, bits));
            }
        } else {
            // The child may wait because an earlier `Have` was lost.
            version.owes_have |= all_have > before || is_repeated || kind == Kind::Want;
            if kind == Kind::Want {
                if !version.is_known_to_parent {
                    version.send_again(Again::Parent, version.sent.last());
                }
                let earlier = version.wants.filter(|&(next, _)| next < header.shard);
                version.wants = Some(earlier.unwrap_or((header.shard, bits)));
            }
        }
        self.queue(at);
        Ok(Verdict::Consume)
    }

    /// A shard of the sum comes down and goes to all children as it is: only the root keeps it.
    fn sum_from_parent(&self, at: usize, header: &Header) -> Result<Verdict, DropReason> {
        let version = &self.versions[at];
        match (Relation::of(header.phase, version.phase), version.state) {
            (Relation::Earlier, _) | (Relation::Same, State::Unused) => Err(DropReason::Stale),
            (Relation::Next | Relation::Later, _) => Err(DropReason::Ahead),
            (Relation::Same, State::Mismatched) => Err(DropReason::Mismatch),
            (Relation::Same, _) if version.spec != header.spec => Err(DropReason::Mismatch),
            (Relation::Same, _) => Ok(Verdict::Group(self.group)),
        }
    }
}

impl Switch for SparseSwitch {
    fn process(&mut self, _now: Time, ingress: PortId, packet: &mut PacketMut<'_>, _ports: &dyn PortView) -> Verdict {
        self.receive(ingress, packet).unwrap_or_else(Verdict::Drop)
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, _now: Time, buf: &mut [u8]) -> Option<Emission> {
        self.poll_answer(buf).or_else(|| self.poll_notice(buf))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn memory_bytes(&self) -> usize {
        let versions: usize = self.versions.iter().map(Version::memory_bytes).sum();
        size_of::<SparseSwitch>()
            + versions
            + heap_bytes(&self.versions)
            + heap_bytes(&self.members)
            + self.ready.capacity() * size_of::<usize>()
            + self.scratch.memory_bytes()
            + self.notices.memory_bytes()
            + self.missing_ranks.memory_bytes()
    }

    fn report(&self) -> SwitchReport {
        let waiting = || self.versions.iter().filter(|version| version.state == State::Open);
        let waits_for =
            |child: &ChildId| waiting().any(|version| !version.children[child.index()].received.is_complete());
        SwitchReport {
            slots: self.slots.len() as u32,
            slots_waiting: waiting().count() as u32,
            missing: (0..self.members.len() as u16).map(ChildId).filter(waits_for).collect(),
            lag: None,
            blocks_completed: self.counters.blocks_completed,
            contributions: self.counters.shards,
            metrics: self.counters.metrics(),
            orders: Vec::new(),
        }
    }

    fn query_kinds(&self) -> u64 {
        1 << Kind::Query as u8
    }

    fn instrumented(&mut self) -> Option<&mut dyn Instrumented> {
        Some(self)
    }
}
