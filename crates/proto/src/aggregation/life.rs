//! Collectives from their submission to their end. They complete in the order of submission; where one fails, all later
//! ones fail with it.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use tributary_numeric::{BlockExponent, Scale, prefetch};

use super::report::Mismatch;
use crate::contract::config::JobConfig;
use crate::contract::custom_op::CustomOps;
use crate::contract::host::{Collective, CollectiveError, HostEvent, SubmitError};
use crate::contract::ids::{OpId, Rank};
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::time::Time;
use crate::contract::values::Values;
use crate::reliability::deadlines::{Deadlines, Due};

/// The collectives of a host that have not ended, and the ends that the caller has not been told of.
#[derive(Clone, Hash)]
pub struct Life {
    /// The blocks of the collectives that have not ended.
    pub stream: Stream,
    deadlines: Deadlines,
    /// The collective that must fail as soon as all collectives before it are complete.
    failing: Option<Box<(OpId, CollectiveError)>>,
    broken: Option<Box<CollectiveError>>,
    events: VecDeque<HostEvent>,
}

/// A host whose collectives have a [`Life`]. How they complete and fail is the same for all such hosts.
pub trait LifeCycle {
    /// What waits: a slot, a position of a window, or a block.
    type Waiting;

    /// The host's collectives.
    fn life(&self) -> &Life;
    /// The same, mutable.
    fn life_mut(&mut self) -> &mut Life;
    /// A collective is complete, and goes back to its caller after this.
    fn on_complete(&mut self, _op: &Op) {}
    /// Everything has failed: forgets what is under way.
    fn stop(&mut self);
    /// What waits with the earliest block. It is searched for, because it is needed only when something is wrong.
    fn oldest_waiting(&self) -> Option<Self::Waiting>;
    /// Asks which ranks are missing where something waits.
    fn ask(&mut self, waiting: Option<Self::Waiting>);
    /// Why something waits.
    fn blame(&self, waiting: Self::Waiting) -> CollectiveError;

    /// All collectives that are queued fail, and all later ones.
    fn fail(&mut self, error: CollectiveError) {
        self.life_mut().fail(error);
        self.stop();
    }

    /// Reports collectives that are complete, in their order, and fails the rest if the next one must fail: then it
    /// returns false.
    fn complete_collectives(&mut self) -> bool {
        loop {
            match self.life_mut().take_complete() {
                Ok(Some(op)) => {
                    self.on_complete(&op);
                    self.life_mut().give_back(op);
                }
                Ok(None) => return true,
                Err(error) => {
                    self.fail(error);
                    return false;
                }
            }
        }
    }

    /// Fails everything at the first deadline that has passed, and asks questions before that.
    fn check_deadlines(&mut self, now: Time) {
        match self.life_mut().poll_deadline(now) {
            Some(Due::Failed) => {
                let error = match self.life().failing() {
                    Some(error) => error.clone(),
                    None => self.oldest_waiting().map_or(CollectiveError::Aborted, |waiting| self.blame(waiting)),
                };
                self.fail(error);
            }
            Some(Due::Ask) => {
                let waiting = self.oldest_waiting();
                self.ask(waiting);
            }
            None => {}
        }
    }
}

impl Life {
    /// No collective was submitted yet.
    pub fn new(stream: Stream) -> Life {
        Life { stream, deadlines: Deadlines::default(), failing: None, broken: None, events: VecDeque::new() }
    }

    /// An error if no collective may be submitted any more: an earlier one has failed, or must.
    pub fn may_submit(&self) -> Result<(), SubmitError> {
        match self.broken().or(self.failing()) {
            Some(error) => Err(SubmitError::Broken(error.clone())),
            None => Ok(()),
        }
    }

    /// Submits a collective; returns its number and its blocks.
    pub fn submit(&mut self, now: Time, collective: Collective) -> Result<(OpId, Range<u64>), SubmitError> {
        self.may_submit()?;
        let (id, blocks) = self.stream.push(collective.tensor);
        if let Some(at) = collective.deadline {
            self.deadlines.push(now, id, at);
        }
        Ok((id, blocks))
    }

    /// Ranks disagree on a collective: it must fail as soon as all collectives before it are complete.
    pub fn dispute(&mut self, op: OpId, Mismatch { a, a_spec, b, b_spec }: Mismatch) {
        if self.failing.as_ref().is_none_or(|earlier| op < earlier.0) {
            self.failing = Some(Box::new((op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op })));
        }
    }

    /// The error of the next collective that must fail.
    fn failing(&self) -> Option<&CollectiveError> {
        self.failing.as_ref().map(|failing| &failing.1)
    }

    /// The error with which everything has failed.
    pub fn broken(&self) -> Option<&CollectiveError> {
        self.broken.as_deref()
    }

    /// Takes the oldest collective if all its results have come. An error says that it must fail instead, and all others
    /// with it: see [`Life::fail`].
    fn take_complete(&mut self) -> Result<Option<Op>, CollectiveError> {
        let Some(front) = self.stream.front() else { return Ok(None) };
        if let Some((_, error)) = self.failing.as_deref().filter(|(op, _)| *op == front.id) {
            return Err(error.clone());
        }
        if front.remaining > 0 {
            return Ok(None);
        }
        Ok(self.stream.pop())
    }

    /// Gives a complete collective back to its caller.
    fn give_back(&mut self, Op { id, tensor, .. }: Op) {
        self.deadlines.complete(id);
        self.events.push_back(HostEvent::Done { op: id, tensor });
    }

    /// All collectives that have not ended fail, and all later ones.
    fn fail(&mut self, error: CollectiveError) {
        while let Some(Op { id, tensor, .. }) = self.stream.pop() {
            self.deadlines.complete(id);
            self.events.push_back(HostEvent::Failed { op: id, tensor, error: error.clone() });
        }
        self.broken.get_or_insert_with(|| Box::new(error));
    }

    /// The deadline or question that is due, if any.
    fn poll_deadline(&mut self, now: Time) -> Option<Due> {
        self.deadlines.poll(now)
    }

    /// When the next deadline or question is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// The next end of a collective, for the caller.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.events.pop_front()
    }
}

// All collectives of a host as one continuous stream of blocks (appendix B, the stream buffer manager).
//
// Blocks are numbered through all collectives; block `g` uses slot `g mod s`. A collective of no elements has one
// block without a vector: a barrier.

/// A collective that is not complete.
#[derive(Clone, Hash)]
pub struct Op {
    /// The collective's number.
    pub id: OpId,
    /// The collective's data.
    pub tensor: Box<dyn Tensor>,
    /// The tensor's own description.
    pub spec: Spec,
    /// The number of the collective's first block.
    pub first_block: u64,
    /// The number of its blocks.
    pub blocks: u64,
    /// How the elements travel.
    pub encoding: Encoding,
    /// Elements of a full block.
    block_elements: u64,
    /// Blocks whose result has not come yet.
    pub remaining: u64,
    /// The rank whose tensor it is, where blocks are rounded at random.
    rank: Rank,
}

impl Op {
    /// The block's number within the collective.
    pub fn local(&self, block: u64) -> u32 {
        (block - self.first_block) as u32
    }

    /// The elements of a block.
    pub fn range(&self, block: u64) -> Range<usize> {
        let start = (block - self.first_block) * self.block_elements;
        let end = (start + self.block_elements).min(u64::from(self.spec.elements));
        start as usize..end as usize
    }

    /// True if ranks must agree on an exponent before they can send the block.
    pub fn needs_exponent(&self, block: u64) -> bool {
        self.encoding.is_scaled && !self.range(block).is_empty()
    }

    /// The exponent of the block in this rank's tensor.
    pub fn exponent(&self, block: u64) -> BlockExponent {
        match self.needs_exponent(block) {
            true if self.encoding.is_rotated() => self.tensor.norm(self.range(block)),
            true => self.tensor.exponent(self.range(block)),
            false => BlockExponent::ZERO,
        }
    }

    /// Writes a block of the input into a packet's vector. `agreed` is the exponent that `world_size` ranks have agreed
    /// on for the block.
    pub fn read(&self, block: u64, agreed: Option<BlockExponent>, world_size: u16, vector: &mut [u8]) {
        match self.scale(block, agreed, world_size) {
            Some(scale) if self.encoding.at_switch.is_none() => self.tensor.encode(self.range(block), scale, vector),
            _ => self.tensor.read_input(self.range(block), vector),
        }
    }

    /// Writes a block's result to the output.
    pub fn write(&mut self, block: u64, agreed: Option<BlockExponent>, world_size: u16, vector: &[u8]) {
        let range = self.range(block);
        match self.scale(block, agreed, world_size) {
            Some(scale) if self.encoding.at_switch.is_some() => self.tensor.write_scaled(range, scale, vector),
            Some(scale) => self.tensor.decode(range, scale, vector),
            None => self.tensor.write(range, vector),
        }
    }

    /// Writes to the output a block's result over this many ranks, where that is not all ranks. Not for fixed point.
    pub fn write_partial(&mut self, block: u64, contributors: u16, vector: &[u8]) {
        self.tensor.write_partial(self.range(block), contributors, vector);
    }

    /// How hosts or switches scale a block; `None` where sums are not in fixed point.
    fn scale(&self, block: u64, agreed: Option<BlockExponent>, world_size: u16) -> Option<Scale> {
        let agreed = || agreed.expect("scaled blocks are sent when their exponent is agreed");
        self.encoding.is_scaled.then(|| self.encoding.scale(agreed(), world_size, block, self.rank))
    }
}

/// How many elements a block of a collective has.
pub type SpanOf = Arc<dyn Fn(&Spec) -> u32 + Send + Sync>;

/// The collectives that are not complete, in the order of submission.
#[derive(Clone)]
pub struct Stream {
    values: Values,
    numbers: Numbers,
    narrow: NarrowBlocks,
    payload_bytes: usize,
    operators: CustomOps,
    /// Elements of a block, if blocks are not as large as a packet allows.
    span: Option<SpanOf>,
    rank: Rank,
    ops: VecDeque<Op>,
    next_op: u64,
    next_block: u64,
}

/// Hashes the collectives only: how blocks are cut never changes.
impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.ops, self.next_op, self.next_block).hash(state);
    }
}

impl Stream {
    /// An empty stream of a job's blocks.
    pub fn new(values: Values, numbers: Numbers, narrow: NarrowBlocks, job: &JobConfig) -> Stream {
        let payload_bytes = job.payload_bytes();
        let (operators, span, ops) = (job.options.operators(), None, VecDeque::new());
        let rank = Rank(0);
        Stream { values, numbers, narrow, payload_bytes, operators, span, rank, ops, next_op: 0, next_block: 0 }
    }

    /// The same stream for a rank that draws how it rounds.
    pub fn of_rank(self, rank: Rank) -> Stream {
        Stream { rank, ..self }
    }

    /// The same stream with blocks of this many elements.
    pub fn in_spans(self, span: SpanOf) -> Stream {
        Stream { span: Some(span), ..self }
    }

    /// Appends a collective; returns its number and its blocks.
    fn push(&mut self, tensor: Box<dyn Tensor>) -> (OpId, Range<u64>) {
        let (id, spec, first_block) = (OpId(self.next_op), tensor.spec(), self.next_block);
        let encoding = Encoding::of_job(self.values, self.numbers, &spec, &self.operators);
        let encoding = encoding.expect("a driver asks first what a protocol can");
        let block_elements = match &self.span {
            Some(span) => u64::from(span(&spec)),
            None => u64::from(encoding.block_elements(self.payload_bytes, self.narrow)),
        };
        let blocks = u64::from(spec.elements).div_ceil(block_elements).max(1);
        let (remaining, rank) = (blocks, self.rank);
        self.ops.push_back(Op { id, tensor, spec, first_block, blocks, encoding, block_elements, remaining, rank });
        self.next_op += 1;
        self.next_block += blocks;
        (id, first_block..self.next_block)
    }

    fn index_of(&self, block: u64) -> Option<usize> {
        let front = self.ops.front()?;
        debug_assert!(block >= front.first_block, "a slot works on a block of a collective that is complete");
        if block < front.first_block + front.blocks {
            return Some(0);
        }
        (block < self.next_block).then(|| self.ops.partition_point(|op| op.first_block <= block) - 1)
    }

    /// The collective of a block, if it was submitted.
    pub fn op_of(&self, block: u64) -> Option<&Op> {
        self.index_of(block).map(|index| &self.ops[index])
    }

    /// The collective of a block, to write to.
    pub fn op_of_mut(&mut self, block: u64) -> Option<&mut Op> {
        self.index_of(block).map(|index| &mut self.ops[index])
    }

    /// The oldest collective.
    pub fn front(&self) -> Option<&Op> {
        self.ops.front()
    }

    /// Prefetches the oldest collective, to which most blocks belong.
    pub fn prefetch(&self) {
        if let Some(op) = self.front() {
            prefetch::whole(op);
        }
    }

    /// Prefetches the oldest collective's tensor.
    pub fn prefetch_tensor(&self) {
        if let Some(op) = self.front() {
            prefetch::whole(&*op.tensor);
        }
    }

    /// How many blocks all collectives so far have.
    pub fn blocks(&self) -> u64 {
        self.next_block
    }

    /// Takes the oldest collective out.
    fn pop(&mut self) -> Option<Op> {
        self.ops.pop_front()
    }
}
