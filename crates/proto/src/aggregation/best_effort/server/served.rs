//! A server's state of one block, and the blocks that a server keeps.

use tributary_numeric::BlockExponent;

use super::super::codec::Codec;
use crate::aggregation::missing_ranks::Ranks;
use crate::aggregation::report::Mismatch;
use crate::contract::ids::Rank;
use crate::contract::tensor::Spec;

/// The progress of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Contributions are missing.
    Gathering,
    /// The result is there, and kept for ranks that ask.
    Done,
    /// Ranks disagree.
    Refused(Mismatch),
}

/// One block of a server.
#[derive(Clone, Hash)]
pub struct Served {
    /// The block's number.
    pub block: u64,
    /// How many attempts to sum it failed.
    pub attempt: u8,
    /// How many orders to send a block again its server had given with the order for this attempt; 0 in the first
    /// attempt.
    pub ordered: u64,
    /// Its progress.
    pub state: State,
    /// Its collective, and the rank that named it.
    pub what: Option<(Rank, Spec)>,
    /// Elements of each vector.
    pub elements: usize,
    /// The scale of its vectors; packets that only tell exponents have none.
    pub scale: BlockExponent,
    /// No vector was brought yet: ranks tell exponents.
    pub probe: bool,
    /// Some rank's block did not fit the scale.
    pub overflow: bool,
    /// The largest magnitude of all ranks' blocks.
    pub exponent: BlockExponent,
    /// The ranks, besides the server's own, whose blocks are in the sum.
    pub have: Ranks,
    /// The ranks that are known to have sent their blocks.
    pub has_sent: Ranks,
    /// The server's own rank has come to the block.
    pub own: bool,
    /// How many contributions came singly.
    pub singles: u16,
    /// How many times its position was moved in switches.
    pub index: u32,
    /// A switch had no room for it.
    pub collided: bool,
    /// Some contribution was marked on its way.
    pub ecn: bool,
    /// Some contribution was sent again, by its rank or by a switch that was asked.
    pub resent: bool,
    /// How many later blocks are complete.
    pub later: u32,
    /// After this many later blocks the server asks for what is missing.
    pub patience: u32,
    /// How many questions ranks have asked that wait for others.
    pub questions: u32,
    /// Bytes of the result, as it is sent, at the beginning of the accumulator.
    pub result_len: usize,
    filled: bool,
    lanes: Vec<u8>,
}

/// How many blocks overtake another before the server asks for that one (A7).
const PATIENCE: u32 = 3;

impl Served {
    fn new(world_size: u16, lane_bytes: usize) -> Served {
        Served {
            block: 0,
            attempt: 0,
            ordered: 0,
            state: State::Gathering,
            what: None,
            elements: 0,
            scale: BlockExponent::ZERO,
            probe: false,
            overflow: false,
            exponent: BlockExponent::ZERO,
            have: Ranks::new(world_size),
            has_sent: Ranks::new(world_size),
            own: false,
            singles: 0,
            index: 0,
            collided: false,
            ecn: false,
            resent: false,
            later: 0,
            patience: PATIENCE,
            questions: 0,
            result_len: 0,
            filled: false,
            lanes: vec![0; lane_bytes],
        }
    }

    fn begin(&mut self, block: u64) {
        (self.block, self.attempt, self.ordered) = (block, 0, 0);
        (self.state, self.what) = (State::Gathering, None);
        (self.index, self.collided, self.ecn) = (0, false, false);
        (self.later, self.patience, self.questions, self.result_len) = (0, PATIENCE, 0, 0);
        self.restart();
    }

    /// Forgets all contributions.
    pub fn restart(&mut self) {
        self.have.clear();
        self.has_sent.clear();
        (self.own, self.overflow, self.filled, self.singles, self.resent) = (false, false, false, 0, false);
        (self.elements, self.scale, self.probe, self.exponent) = (0, BlockExponent::ZERO, false, BlockExponent::ZERO);
    }

    /// Forgets the sum: the next contribution replaces it.
    pub fn replace(&mut self) {
        (self.filled, self.singles) = (false, 0);
    }

    /// True if all ranks have sent this block before a later block that is complete and was `ordered` then. Ranks send
    /// blocks in their order, and those that they must send again in the order of the orders, in no order with others.
    pub fn was_sent_before(&self, ordered: u64) -> bool {
        self.ordered == 0 || self.ordered < ordered
    }

    /// True if it contains no rank's part.
    pub fn is_empty(&self) -> bool {
        self.have.is_empty() && !self.own
    }

    /// Adds a rank's vector.
    pub fn add(&mut self, codec: &Codec, vector: &[u8], elements: usize) {
        let fresh = !std::mem::replace(&mut self.filled, true);
        codec.take(&mut self.lanes[..codec.lane_bytes(elements)], fresh, vector);
    }

    /// Adds a switch's sum.
    pub fn add_partial(&mut self, codec: &Codec, vector: &[u8], elements: usize) {
        let fresh = !std::mem::replace(&mut self.filled, true);
        codec.take_partial(&mut self.lanes[..codec.lane_bytes(elements)], fresh, vector);
    }

    /// All contributions are in: writes the result to `vector`, and keeps it in the form in which it is sent.
    pub fn finish(&mut self, codec: &Codec, world_size: u16, vector: &mut [u8]) {
        let elements = self.elements;
        if elements > 0 {
            codec.finish(&mut self.lanes[..codec.lane_bytes(elements)], world_size, vector);
            self.lanes[..vector.len()].copy_from_slice(vector);
        }
        (self.state, self.result_len) = (State::Done, vector.len());
    }

    /// Bytes of its accumulator.
    pub fn lane_bytes(&self) -> usize {
        self.lanes.len()
    }

    /// The result in the form in which it is sent.
    pub fn result(&self) -> &[u8] {
        &self.lanes[..self.result_len]
    }

    /// True if the block may be summed at this scale: the joined exponent is at most two bits below it (A26).
    pub fn fits(&self) -> bool {
        let (joined, scale) = (self.exponent, self.scale);
        let is_near = || i32::from(scale.exponent) - i32::from(joined.exponent) <= 2;
        !self.overflow
            && !self.probe
            && joined.exponent <= scale.exponent
            && joined.non_finite == scale.non_finite
            && (self.attempt > 0 || joined.exponent == BlockExponent::ZERO.exponent || is_near())
    }
}

/// The blocks of one server that some rank may still need.
#[derive(Clone, Hash)]
pub struct Blocks {
    served: Vec<Option<Box<Served>>>,
    servers: u64,
    world_size: u16,
    lane_bytes: usize,
}

impl Blocks {
    /// The blocks of a server, one of `servers`, in a job with a window of this many blocks.
    pub fn new(window: u16, servers: u16, world_size: u16, lane_bytes: usize) -> Blocks {
        // A rank that sends a block has the result of the block a window before. So ranks are within a window of each
        // other, and what the last of them lacks is within another window.
        let topology = 3 * (u64::from(window).div_ceil(u64::from(servers)) + 1);
        Blocks { served: (0..topology).map(|_| None).collect(), servers: servers.into(), world_size, lane_bytes }
    }

    fn index(&self, block: u64) -> usize {
        (block / self.servers) as usize % self.served.len()
    }

    /// The state of a block.
    pub fn get(&self, block: u64) -> Option<&Served> {
        self.served[self.index(block)].as_deref().filter(|served| served.block == block)
    }

    /// The state of a block, mutable.
    pub fn get_mut(&mut self, block: u64) -> Option<&mut Served> {
        let index = self.index(block);
        self.served[index].as_deref_mut().filter(|served| served.block == block)
    }

    /// The same, created if need be in place of a block that no rank needs any more; `None` for a block that no rank
    /// needs.
    pub fn open(&mut self, block: u64) -> Option<&mut Served> {
        let index = self.index(block);
        let (world_size, lane_bytes) = (self.world_size, self.lane_bytes);
        let fresh = || {
            let mut served = Box::new(Served::new(world_size, lane_bytes));
            served.begin(block);
            served
        };
        let served = self.served[index].get_or_insert_with(fresh);
        if served.block > block {
            return None;
        }
        if served.block < block {
            served.begin(block);
        }
        Some(served)
    }
}
