//! A server's knowledge of one block, and the blocks that it knows.

use tributary_numeric::BlockExponent;

use super::super::form::Form;
use crate::contract::ids::Rank;
use crate::contract::tensor::Spec;
use crate::parts::mismatch::Mismatch;
use crate::parts::ranks::Ranks;

/// How far a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Contributions are missing.
    Gathering,
    /// The result is there, and kept for those who ask.
    Done,
    /// Ranks disagree.
    Refused(Mismatch),
}

/// One block of a server's.
#[derive(Clone, Hash)]
pub struct Served {
    /// Which.
    pub block: u64,
    /// How often it was summed in vain.
    pub attempt: u8,
    /// How far it is.
    pub state: State,
    /// What it is, and who says so.
    pub what: Option<(Rank, Spec)>,
    /// Elements of each vector.
    pub elements: usize,
    /// What vectors are scaled by; ranks that only tell exponents say so.
    pub scale: BlockExponent,
    /// No vector was brought yet: ranks tell exponents.
    pub probe: bool,
    /// Somebody's block did not fit the scale.
    pub overflow: bool,
    /// The largest magnitude of all.
    pub exponent: BlockExponent,
    /// The ranks, besides the server's own, whose blocks are in the sum.
    pub have: Ranks,
    /// The ranks that have sent theirs, as far as is known.
    pub heard: Ranks,
    /// The server's own rank has come to the block.
    pub own: bool,
    /// Contributions that came by themselves.
    pub singles: u16,
    /// Moves of its position in switches.
    pub index: u32,
    /// A switch had no place for it.
    pub collided: bool,
    /// Some contribution was marked on its way.
    pub ecn: bool,
    /// Blocks after it that are complete ...
    pub later: u32,
    /// ... and as many of them make it ask for what is missing.
    pub patience: u32,
    /// Questions of ranks that wait for others.
    pub questions: u32,
    /// Bytes of the result, as it travels, at the beginning of the accumulator.
    pub result_len: usize,
    filled: bool,
    lanes: Vec<u8>,
}

/// Blocks that overtake another before that one is asked for (A7).
const PATIENCE: u32 = 3;

impl Served {
    fn new(world: u16, lane_bytes: usize) -> Served {
        Served {
            block: 0,
            attempt: 0,
            state: State::Gathering,
            what: None,
            elements: 0,
            scale: BlockExponent::ZERO,
            probe: false,
            overflow: false,
            exponent: BlockExponent::ZERO,
            have: Ranks::new(world),
            heard: Ranks::new(world),
            own: false,
            singles: 0,
            index: 0,
            collided: false,
            ecn: false,
            later: 0,
            patience: PATIENCE,
            questions: 0,
            result_len: 0,
            filled: false,
            lanes: vec![0; lane_bytes],
        }
    }

    fn begin(&mut self, block: u64) {
        (self.block, self.attempt, self.state, self.what) = (block, 0, State::Gathering, None);
        (self.index, self.collided, self.ecn) = (0, false, false);
        (self.later, self.patience, self.questions, self.result_len) = (0, PATIENCE, 0, 0);
        self.restart();
    }

    /// Forgets all contributions.
    pub fn restart(&mut self) {
        self.have.clear();
        self.heard.clear();
        (self.own, self.overflow, self.filled, self.singles) = (false, false, false, 0);
        (self.elements, self.scale, self.probe, self.exponent) = (0, BlockExponent::ZERO, false, BlockExponent::ZERO);
    }

    /// Forgets the sum; what comes next replaces it.
    pub fn replace(&mut self) {
        (self.filled, self.singles) = (false, 0);
    }

    /// True if nobody's part is in it.
    pub fn is_empty(&self) -> bool {
        self.have.is_empty() && !self.own
    }

    /// Adds a rank's vector.
    pub fn add(&mut self, form: &Form, vector: &[u8], elements: usize) {
        let fresh = !std::mem::replace(&mut self.filled, true);
        form.take(&mut self.lanes[..form.lane_bytes(elements)], fresh, vector);
    }

    /// Adds a switch's sum.
    pub fn add_partial(&mut self, form: &Form, vector: &[u8], elements: usize) {
        let fresh = !std::mem::replace(&mut self.filled, true);
        form.take_partial(&mut self.lanes[..form.lane_bytes(elements)], fresh, vector);
    }

    /// All is in: the result, written to `vector` and kept as it travels.
    pub fn finish(&mut self, form: &Form, world: u16, vector: &mut [u8]) {
        let elements = self.elements;
        if elements > 0 {
            form.finish(&mut self.lanes[..form.lane_bytes(elements)], world, vector);
            self.lanes[..vector.len()].copy_from_slice(vector);
        }
        (self.state, self.result_len) = (State::Done, vector.len());
    }

    /// Bytes of its accumulator.
    pub fn lane_bytes(&self) -> usize {
        self.lanes.len()
    }

    /// The result as it travels.
    pub fn result(&self) -> &[u8] {
        &self.lanes[..self.result_len]
    }

    /// The joined exponent is one that the block may be summed with at this scale: at most two bits below it (A26).
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

/// The blocks of one server that somebody may need still.
#[derive(Clone, Hash)]
pub struct Blocks {
    served: Vec<Option<Box<Served>>>,
    servers: u64,
    world: u16,
    lane_bytes: usize,
}

impl Blocks {
    /// Of a server, one of `servers`, of a job with a window of so many blocks.
    pub fn new(window: u16, servers: u16, world: u16, lane_bytes: usize) -> Blocks {
        // Who sends a block has the result of a window before. So ranks are within a window of each other, and what the
        // last of them lacks is within another one.
        let places = 3 * (u64::from(window).div_ceil(u64::from(servers)) + 1);
        Blocks { served: (0..places).map(|_| None).collect(), servers: servers.into(), world, lane_bytes }
    }

    fn index(&self, block: u64) -> usize {
        (block / self.servers) as usize % self.served.len()
    }

    /// What is known of a block.
    pub fn get(&self, block: u64) -> Option<&Served> {
        self.served[self.index(block)].as_deref().filter(|served| served.block == block)
    }

    /// The same, to write to.
    pub fn get_mut(&mut self, block: u64) -> Option<&mut Served> {
        let index = self.index(block);
        self.served[index].as_deref_mut().filter(|served| served.block == block)
    }

    /// The same, from nothing if need be, in place of a block that nobody needs any more; none if it is such a block itself.
    pub fn open(&mut self, block: u64) -> Option<&mut Served> {
        let index = self.index(block);
        let (world, lane_bytes) = (self.world, self.lane_bytes);
        let fresh = || {
            let mut served = Box::new(Served::new(world, lane_bytes));
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
