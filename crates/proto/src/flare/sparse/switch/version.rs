//! One version of a slot: the phase of a block that a switch works on, or the one before, which some child may still ask about.

use crate::contract::ids::ChildId;
use crate::contract::tensor::Spec;
use crate::flare::sparse::block::Block;
use crate::flare::sparse::layout::Layout;
use crate::flare::sparse::shards::{Lacking, Received, Sent};
use crate::parts::form::Form;
use crate::parts::memory::heap_bytes;
use crate::parts::mismatch::Mismatch;
use crate::parts::slots::switch::Relation;

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

/// What of a child's a switch keeps for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfChild {
    /// Which of its shards have come.
    pub received: Received,
    /// It has the sum's shards below.
    pub has: u32,
    /// There was no room for a shard of its.
    pub refused: bool,
    /// It is to be told which of its shards have come; and to send all others again.
    pub owed: Option<Resume>,
}

/// Whether a child that is told what has come is to send the rest again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Only what later shards have overtaken.
    Gaps,
    /// All: there was no room for it.
    All,
}

/// Who gets shards again.
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
    /// The collective that the block is of.
    pub spec: Spec,
    /// How its pairs travel; of no collective, none.
    pub layout: Option<Layout>,
    /// The elements.
    pub block: Block,
    /// By child.
    pub children: Vec<OfChild>,
    /// Children all of whose shards are here.
    pub complete: u16,
    /// Shards that went on: up, or from the root to all children.
    pub sent: Sent,
    /// The switch above has said which of them it has: it knows of the block, and can be asked without sending it anything.
    pub is_known_above: bool,
    /// Those that go again, and to whom.
    pub again: Option<(Again, Lacking)>,
    /// Some child is owed an answer.
    pub owes: bool,
    /// The switch above is to be told up to where all children have the sum.
    pub tells_have: bool,
    /// A child lacks shards of the sum: up to where it has them, and which beyond.
    pub wants: Option<(u32, u64)>,
    /// It waits to send something.
    pub is_queued: bool,
    /// What ranks disagree on.
    pub mismatch: Option<Mismatch>,
}

impl Version {
    /// New, of the even or the odd phases.
    pub fn new(parity: u32, children: usize, block: Block) -> Version {
        Version {
            // Phases 0 and 1 come next.
            phase: parity.wrapping_sub(2),
            state: State::Unused,
            spec: Spec::NOTHING,
            layout: None,
            block,
            children: vec![OfChild::default(); children],
            complete: 0,
            sent: Sent::default(),
            is_known_above: false,
            again: None,
            owes: false,
            tells_have: false,
            wants: None,
            is_queued: false,
            mismatch: None,
        }
    }

    /// Takes the version for a new phase.
    pub fn begin(&mut self, phase: u32, spec: Spec, layout: Layout) {
        self.block.clear();
        self.children.fill(OfChild::default());
        (self.phase, self.state, self.spec, self.layout) = (phase, State::Open, spec, Some(layout));
        (self.complete, self.sent, self.again, self.wants) = (0, Sent::default(), None, None);
        (self.is_known_above, self.owes, self.tells_have, self.mismatch) = (false, false, false, None);
    }

    /// All children's shards are here, or the slot is new.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closed | State::Unused)
    }

    /// The form in which shards go on, and whether they are the result. The root's are, unless some spilled: then hosts combine.
    pub fn form(&self, is_root: bool) -> (Form, bool) {
        let is_finished = is_root && self.state == State::Closed && !self.block.has_spilled();
        (if is_finished { Form::Host } else { Form::Partial }, is_finished)
    }

    /// Shards that there are to go on.
    pub fn available(&self, is_root: bool) -> u32 {
        match (&self.layout, self.state) {
            (Some(layout), State::Open | State::Closed) => {
                self.block.available(layout, self.state == State::Closed, self.form(is_root).0)
            }
            _ => 0,
        }
    }

    /// The receiver of what goes on has all shards below; true if that is news, and there is room for more.
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

    /// Children for whose shards there was no room bring them again.
    pub fn resume(&mut self) {
        for child in self.children.iter_mut().filter(|child| child.refused) {
            (child.refused, child.owed) = (false, Some(Resume::All));
            self.owes = true;
        }
    }

    /// A child is to be told what has come.
    pub fn owe(&mut self, child: usize, resume: Resume) {
        let owed = &mut self.children[child].owed;
        *owed = if *owed == Some(Resume::All) { *owed } else { Some(resume) };
        self.owes = true;
    }

    /// Shards go again, besides those that do already.
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

    /// What some child has of the sum, all children have.
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
