//! One version of a slot: the phase that a switch works on, or the phase before, about which some child may still ask.

use crate::aggregation::block_sizes::VectorFormat;
use crate::aggregation::report::Mismatch;
use crate::aggregation::slots::switch::Relation;
use crate::contract::ids::ChildId;
use crate::contract::tensor::Spec;
use crate::flare::sparse::block::Block;
use crate::flare::sparse::layout::Layout;
use crate::flare::sparse::shards::{Lacking, Received, Sent};
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
