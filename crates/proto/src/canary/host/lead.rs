//! What a leader knows of one block (§3.1.4, §3.3): the sum so far, the subtrees to restore, the ranks that wait.

use tributary_numeric::{BlockExponent, ReduceOp, prefetch};

use crate::aggregation::agreement::ExponentHint;
use crate::aggregation::missing_ranks::Ranks;
use crate::aggregation::report::Mismatch;
use crate::canary::vector::Codec;
use crate::canary::wire::NO_SWITCH;
use crate::contract::ids::{NodeId, PortId, Rank};
use crate::contract::tensor::Spec;
use crate::contract::values::Values;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Contributions are missing, perhaps the leader's own.
    Gathering,
    /// The sum is complete, and kept for ranks that ask.
    Done,
    /// Ranks disagree.
    Refused(Mismatch),
}

/// One block that this host leads, or that another rank takes it to lead.
#[derive(Clone, Hash)]
pub struct Lead {
    /// The phase of the block's position in the window.
    pub phase: u32,
    /// How often the block was issued before.
    pub attempt: u8,
    /// The block's state.
    pub state: State,
    /// The collective, and the rank that named it.
    pub what: Option<(Rank, Spec)>,
    /// Elements of each contribution's vector; once the block is done, of the result's.
    pub elements: usize,
    /// The block of the stream, once the leader has come to it.
    pub block: Option<u64>,
    /// The switch in which the block's tree ends, as packets say.
    pub root: NodeId,
    /// Contributions summed.
    pub counter: u16,
    /// The sum of their proofs.
    pub contributors: u32,
    /// What the contributions say of the next block.
    pub exponent_hint: ExponentHint,
    /// Some contributions came along a tree that ends in the root.
    pub has_tree: bool,
    /// Where contributions collided on the way.
    pub collisions: Vec<(NodeId, PortId)>,
    /// Ranks that have asked for the sum of this issue, or have sent their contribution straight to the leader.
    pub requested: Ranks,
    /// Ranks that were heard of at all.
    pub seen: Ranks,
    /// Where this host sums alone: the first rank whose contribution was not called for yet.
    pub next_call: Rank,
    /// Once the block is done: the exponent of a result of 16-bit floats.
    pub scale: Option<BlockExponent>,
    /// The sum so far; once the block is done, the result as it travels.
    lanes: Vec<u8>,
    filled: bool,
}

impl Lead {
    fn begin(&mut self, phase: u32) {
        self.phase = phase;
        (self.attempt, self.state, self.what, self.elements, self.block) = (0, State::Gathering, None, 0, None);
        self.root = NO_SWITCH;
        self.seen.clear();
        self.restart();
    }

    /// Forgets all contributions.
    pub fn restart(&mut self) {
        (self.counter, self.contributors, self.has_tree, self.filled) = (0, 0, false, false);
        self.exponent_hint = ExponentHint::known(tributary_numeric::BlockExponent::ZERO);
        self.collisions.clear();
        self.requested.clear();
        self.next_call = Rank(0);
    }

    /// Adds a vector.
    pub fn add(&mut self, codec: Codec, vector: &[u8]) {
        let lanes = &mut self.lanes[..codec.lane_bytes(vector.len())];
        match std::mem::replace(&mut self.filled, true) {
            false => codec.store(lanes, vector),
            true => codec.add(lanes, vector),
        }
    }

    /// Writes the sum of all contributions.
    pub fn load(&self, codec: Codec, op: ReduceOp, vector: &mut [u8]) {
        codec.load(&self.lanes[..codec.lane_bytes(vector.len())], vector, op);
    }

    /// Keeps the result, as it travels, in place of the sum.
    pub fn keep(&mut self, scale: Option<BlockExponent>, vector: &[u8]) {
        self.scale = scale;
        self.lanes[..vector.len()].copy_from_slice(vector);
    }

    /// The first bytes of the result.
    pub fn result(&self, len: usize) -> &[u8] {
        &self.lanes[..len]
    }
}

/// The blocks that a host leads. At each position of the window there are at most two: the current one, and the last or
/// the next one.
#[derive(Clone, Hash)]
pub struct Leads {
    leads: Vec<Option<Box<Lead>>>,
    spare: Vec<Lead>,
    world_size: u16,
    lane_bytes: usize,
}

impl Leads {
    /// For a window of this many positions.
    pub fn new(values: Values, window: usize, world_size: u16, elements_per_packet: u16) -> Leads {
        Leads {
            leads: (0..2 * window).map(|_| None).collect(),
            spare: Vec::new(),
            world_size,
            lane_bytes: values.buffer_len(4, elements_per_packet.into()),
        }
    }

    fn index(position: u16, phase: u32) -> usize {
        2 * usize::from(position) + (phase % 2) as usize
    }

    /// Prefetches what is known of the blocks at a position.
    pub fn prefetch(&self, position: u16) {
        prefetch::first_line(&self.leads[Self::index(position, 0)]);
    }

    /// What is known of a block.
    pub fn get(&self, position: u16, phase: u32) -> Option<&Lead> {
        self.leads[Self::index(position, phase)].as_deref().filter(|lead| lead.phase == phase)
    }

    /// What is known of a block, to write to.
    pub fn get_mut(&mut self, position: u16, phase: u32) -> Option<&mut Lead> {
        self.leads[Self::index(position, phase)].as_deref_mut().filter(|lead| lead.phase == phase)
    }

    /// What is known of a block, to write to. A block that is not known yet replaces an older one, whose sum
    /// every rank has.
    pub fn open(&mut self, position: u16, phase: u32) -> &mut Lead {
        let entry = &mut self.leads[Self::index(position, phase)];
        let (world_size, lanes) = (self.world_size, self.lane_bytes);
        let fresh = || Lead {
            phase,
            attempt: 0,
            state: State::Gathering,
            what: None,
            elements: 0,
            block: None,
            root: NO_SWITCH,
            counter: 0,
            contributors: 0,
            exponent_hint: ExponentHint::known(tributary_numeric::BlockExponent::ZERO),
            has_tree: false,
            collisions: Vec::new(),
            requested: Ranks::new(world_size),
            seen: Ranks::new(world_size),
            next_call: Rank(0),
            scale: None,
            lanes: vec![0; lanes],
            filled: false,
        };
        let spare = &mut self.spare;
        let fits = entry.as_ref().is_some_and(|lead| lead.phase == phase);
        let lead = entry.get_or_insert_with(|| Box::new(spare.pop().unwrap_or_else(fresh)));
        if !fits {
            lead.begin(phase);
        }
        lead
    }

    /// No rank needs the block any more.
    pub fn close(&mut self, position: u16, phase: u32) {
        let entry = &mut self.leads[Self::index(position, phase)];
        if entry.as_ref().is_some_and(|lead| lead.phase == phase) {
            self.spare.extend(entry.take().map(|lead| *lead));
        }
    }

    /// All ranks have all blocks before `end` (§3.3's notice of completion).
    pub fn close_before(&mut self, end: u64) {
        for entry in &mut self.leads {
            let over = |lead: &Lead| lead.state == State::Done && lead.block.is_some_and(|block| block < end);
            if entry.as_deref().is_some_and(over) {
                self.spare.extend(entry.take().map(|lead| *lead));
            }
        }
    }
}
