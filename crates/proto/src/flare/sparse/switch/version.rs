//! One version of a slot: the phase that a switch works on, or the phase before, about which some child may still ask.

use super::SparseSwitch;
use crate::aggregation::missing_ranks::Neighbour;
use crate::aggregation::ordered::VectorFormat;
use crate::aggregation::report::Mismatch;
use crate::aggregation::slots::switch::Relation;
use crate::contract::drop_reason::DropReason;
use crate::contract::ids::{ChildId, PortId};
use crate::contract::switch::Verdict;
use crate::contract::tensor::Spec;
use crate::contract::work::{Claim, Instrumented, Needs, Work};
use crate::flare::sparse::block::Block;
use crate::flare::sparse::layout::{Layout, Pairs, Storage};
use crate::flare::sparse::shards::{Lacking, Received, Sent};
use crate::flare::sparse::wire::{Header, Kind};
use crate::heap::heap_bytes;

/// What a version holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing: the slot is new.
    Unused,
    /// Shards of some children.
    Open,
    /// All shards of all children.
    Closed,
    /// A note that ranks disagree.
    Mismatched,
}

/// What a switch keeps of one child for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfChild {
    /// Which of the child's shards have come.
    pub received: Received,
    /// The child has all shards of the sum below this one.
    pub has: u32,
    /// There was no room for a shard of the child.
    pub refused: bool,
    /// The child must be told which of its shards have come, and which others to send again.
    pub owed: Option<Resume>,
}

/// Which shards a child sends again when it is told which have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Only missing shards of which later ones have come.
    Gaps,
    /// All others: there was no room for them.
    All,
}

/// The receivers of shards that are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The switch above.
    Parent,
    /// This child.
    Child(u16),
    /// Several children.
    Children,
}

/// One version of a slot.
pub struct Version {
    /// The phase.
    pub phase: u32,
    /// What it holds.
    pub state: State,
    /// The collective that the block belongs to.
    pub spec: Spec,
    /// How the block's pairs travel; `None` before the first collective.
    pub layout: Option<Layout>,
    /// The elements.
    pub block: Block,
    /// The state of each child.
    pub children: Vec<OfChild>,
    /// How many children have brought all their shards.
    pub complete: u16,
    /// Shards that were sent: to the switch above, or from the root to all children.
    pub sent: Sent,
    /// The switch above has said which of these shards it has. So it knows of the block, and `Want` needs no shard
    /// before it.
    pub is_known_to_parent: bool,
    /// The shards that go again, and their receivers.
    pub again: Option<(Again, Lacking)>,
    /// Some child is owed an answer.
    pub owes: bool,
    /// The switch above must be told how much of the sum all children have.
    pub owes_have: bool,
    /// A child lacks shards of the sum: the first that it lacks, and which of the later ones it has.
    pub wants: Option<(u32, u64)>,
    /// The version is queued to send something.
    pub is_queued: bool,
    /// What ranks disagree on.
    pub mismatch: Option<Mismatch>,
}

impl Version {
    /// A new version, for even or for odd phases.
    pub fn new(parity: u32, children: usize, block: Block) -> Version {
        Version {
            // Its first phase is 0 or 1.
            phase: parity.wrapping_sub(2),
            state: State::Unused,
            spec: Spec::NOTHING,
            layout: None,
            block,
            children: vec![OfChild::default(); children],
            complete: 0,
            sent: Sent::default(),
            is_known_to_parent: false,
            again: None,
            owes: false,
            owes_have: false,
            wants: None,
            is_queued: false,
            mismatch: None,
        }
    }

    /// Starts a new phase in this version.
    pub fn begin(&mut self, phase: u32, spec: Spec, layout: Layout) {
        self.block.clear();
        self.children.fill(OfChild::default());
        (self.phase, self.state, self.spec, self.layout) = (phase, State::Open, spec, Some(layout));
        (self.complete, self.sent, self.again, self.wants) = (0, Sent::default(), None, None);
        (self.is_known_to_parent, self.owes, self.owes_have, self.mismatch) = (false, false, false, None);
    }

    /// True if all children's shards are here, or the slot is new.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closed | State::Unused)
    }

    /// The form of the shards that are sent, and whether they are finished results. The root's shards are, unless pairs
    /// spilled: then hosts combine them.
    pub fn format(&self, is_root: bool) -> (VectorFormat, bool) {
        let is_finished = is_root && self.state == State::Closed && !self.block.has_spilled();
        (if is_finished { VectorFormat::Host } else { VectorFormat::Partial }, is_finished)
    }

    /// How many shards may be sent.
    pub fn available(&self, is_root: bool) -> u32 {
        match (&self.layout, self.state) {
            (Some(layout), State::Open | State::Closed) => {
                self.block.available(layout, self.state == State::Closed, self.format(is_root).0)
            }
            _ => 0,
        }
    }

    /// The receiver has all shards below `next`; true if that is news, which also makes room for more pairs.
    pub fn release(&mut self, next: u32) -> bool {
        let is_news = self.sent.release(next);
        if let (true, Some(layout)) = (is_news, &self.layout) {
            self.block.release(layout, next);
            if let Some((_, lacking)) = &mut self.again {
                *lacking = lacking.from(next);
            }
        }
        is_news
    }

    /// Children whose shards found no room are asked to bring them again.
    pub fn resume(&mut self) {
        for child in self.children.iter_mut().filter(|child| child.refused) {
            (child.refused, child.owed) = (false, Some(Resume::All));
            self.owes = true;
        }
    }

    /// Notes that a child must be told which shards have come.
    pub fn owe(&mut self, child: usize, resume: Resume) {
        let owed = &mut self.children[child].owed;
        *owed = if *owed == Some(Resume::All) { *owed } else { Some(resume) };
        self.owes = true;
    }

    /// Adds shards to those that go again.
    pub fn send_again(&mut self, to: Again, lacking: Lacking) {
        let lacking = lacking.from(self.sent.released);
        if lacking.is_empty() {
            return;
        }
        self.again = Some(match self.again {
            Some((other, before)) if !before.is_empty() => {
                (if other == to { to } else { Again::Children }, before.and(lacking))
            }
            _ => (to, lacking),
        });
    }

    /// All children have at least the shards of the sum below this one.
    pub fn all_have(&self) -> u32 {
        self.children.iter().map(|child| child.has).min().unwrap_or(0)
    }

    /// True if the child has contributed to this phase of the slot, as far as the slot remembers.
    pub fn has_contributed(&self, phase: u32, wid: ChildId) -> bool {
        match Relation::of(phase, self.phase) {
            Relation::Same => self.children[wid.index()].received.is_complete(),
            Relation::Earlier => true,
            Relation::Next | Relation::Later => false,
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.block.memory_bytes() + heap_bytes(&self.children)
    }
}

// How a switch takes a child's shard: it adds the shard once, answers it, or refuses it for lack of room.

impl SparseSwitch {
    /// Takes in the pairs of a child's shard.
    pub(super) fn shard(
        &mut self,
        at: usize,
        header: &Header,
        body: &[u8],
        wire_len: usize,
    ) -> Result<Verdict, DropReason> {
        let layout = self.layout(&header.spec)?;
        let format = if self.missing_ranks.is_switch(Neighbour::Child(header.wid)) {
            VectorFormat::Partial
        } else {
            VectorFormat::Host
        };
        let pairs = layout.parse(body, wire_len, format, layout.span)?;
        let child = header.wid.index();
        let before_is_over = self.before_is_over(at, header.phase);
        let version = &mut self.versions[at];
        match (Relation::of(header.phase, version.phase), version.state) {
            (Relation::Earlier, _) | (Relation::Same, State::Unused) => return Err(DropReason::Stale),
            (Relation::Next, State::Closed | State::Unused) if before_is_over => {
                Received::check(&Received::default(), header.shard, header.count)?;
                version.begin(header.phase, header.spec, layout);
            }
            (Relation::Next | Relation::Later, _) => return Err(DropReason::Ahead),
            (Relation::Same, State::Mismatched) => {
                self.notify_mismatch(header);
                return Err(DropReason::Mismatch);
            }
            (Relation::Same, _) if version.spec != header.spec => return Err(self.mismatch_here(at, header)),
            (Relation::Same, _) => {}
        }
        let checked = self.versions[at].children[child].received.check(header.shard, header.count);
        match checked {
            Ok(()) if !self.versions[at].block.has_capacity(&layout, pairs.len()) => {
                self.refuse(at, child);
                Err(DropReason::Overflow)
            }
            Ok(()) => {
                self.take(at, header, &pairs, format);
                Ok(Verdict::Consume)
            }
            Err(DropReason::Duplicate) => {
                self.answer_again(at, header);
                Err(DropReason::Duplicate)
            }
            Err(reason) => Err(reason),
        }
    }

    /// True if every child has the whole sum of the phase before the previous one: the other version holds the previous
    /// phase, and that phase is complete.
    pub(super) fn before_is_over(&self, at: usize, phase: u32) -> bool {
        let shadow = &self.versions[at ^ 1];
        shadow.phase == phase.wrapping_sub(1) && shadow.is_over()
    }

    /// Adds a shard that is new and has room.
    fn take(&mut self, at: usize, header: &Header, pairs: &Pairs<'_>, format: VectorFormat) {
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        let layout = version.layout.expect("the version has begun");
        let (before, ready) = (version.block.occupied(), version.available(is_root));
        let spilled = version.block.add(&layout, pairs, format, &mut self.scratch);
        let inserted = u64::from(version.block.occupied() - before);
        let child = &mut version.children[header.wid.index()];
        child.received.take(header.shard, header.count);
        let counters = &mut self.counters;
        counters.shards += 1;
        counters.empty_shards += u64::from(pairs.is_empty());
        counters.elements_in += pairs.len() as u64;
        counters.elements_spilled += spilled as u64;
        counters.work.inserted += inserted;
        counters.work.spilled += spilled as u64;
        counters.work.hit += pairs.len() as u64 - spilled as u64 - inserted;
        if child.received.is_complete() {
            version.complete += 1;
        } else if header.asks {
            version.owe(header.wid.index(), Resume::Gaps);
        }
        if usize::from(version.complete) == version.children.len() {
            version.state = State::Closed;
            counters.blocks_completed += 1;
            let (kept, positions) = (version.block.occupied(), version.block.positions(&layout));
            counters.elements_kept += u64::from(kept);
            counters.work.completed += 1;
            counters.work.closed += version.children.len() as u64;
            counters.work.scanned_full += u64::from(kept);
            counters.work.scanned_empty += u64::from(positions - kept);
            let (format, is_finished) = version.format(is_root);
            counters.work.unfilled += u64::from(version.block.unfilled(&layout, format));
            if is_finished {
                version.block.finish(&layout, self.world_size);
            }
        }
        // A child that fills a packet has caused that packet, even if it can leave only later.
        counters.work.emitted += u64::from(version.available(is_root) - ready);
        self.queue(at);
    }

    /// A child repeats a shard. If the shard asks, the child is told which shards have come, or gets the sum again if
    /// the sum is one packet.
    fn answer_again(&mut self, at: usize, header: &Header) {
        if !header.asks {
            return;
        }
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        match is_root && version.state == State::Closed && version.sent.next == 1 && version.available(true) == 1 {
            true => version.send_again(Again::Child(header.wid.0), version.sent.lacking(0, 0)),
            false => version.owe(header.wid.index(), Resume::Gaps),
        }
        self.queue(at);
    }

    /// There is no room for pairs that may collide until the spilled pairs have arrived. So spilled pairs go again,
    /// since their receiver may not know that they are missing.
    fn refuse(&mut self, at: usize, child: usize) {
        self.counters.shards_refused += 1;
        let is_root = self.is_root();
        let version = &mut self.versions[at];
        version.children[child].refused = true;
        if is_root {
            let has = version.children[child].has;
            version.send_again(Again::Child(child as u16), version.sent.lacking(has, 0));
        } else {
            version.send_again(Again::Parent, version.sent.last());
        }
        self.queue(at);
    }
}

impl Instrumented for SparseSwitch {
    /// A packet about a block needs the whole block to itself; a sum on its way down does not.
    fn claim(&mut self, _ingress: PortId, packet: &[u8]) -> Claim {
        let (Ok(kind), Ok(header)) = (Kind::of(packet), Header::parse(packet)) else { return Claim::nothing(0) };
        let block = u64::from(header.idx);
        match kind {
            Kind::Shard | Kind::Taken | Kind::Have | Kind::Want => {
                let needs = match self.storage {
                    Storage::Hash => Needs::Table,
                    Storage::Array => Needs::Array,
                };
                Claim { block, needs }
            }
            Kind::Sum | Kind::Query | Kind::Report | Kind::Mismatch => Claim::nothing(block),
        }
    }

    fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.counters.work)
    }
}
