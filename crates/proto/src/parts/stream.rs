//! All collectives of a host as one continuous stream of blocks (appendix B, the stream buffer manager).
//!
//! Blocks are numbered through all collectives; block `g` uses slot `g mod s`. A collective of no elements has one
//! block without a vector: a barrier.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use tributary_numeric::{BlockExponent, Scale, prefetch};

use crate::contract::config::JobConfig;
use crate::contract::ids::OpId;
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::operator::Operators;
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::values::Values;

/// A collective that is not complete.
#[derive(Clone, Hash)]
pub struct Op {
    /// Its number.
    pub id: OpId,
    /// Its data.
    pub tensor: Box<dyn Tensor>,
    /// What the tensor says of itself.
    pub spec: Spec,
    /// The number of its first block.
    pub first_block: u64,
    /// How many blocks it has.
    pub blocks: u64,
    /// How its elements travel.
    pub encoding: Encoding,
    /// Elements of a full block.
    block_elements: u64,
    /// Blocks whose result has not come.
    pub remaining: u64,
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

    /// What this rank says about the block's magnitude.
    pub fn exponent(&self, block: u64) -> BlockExponent {
        if self.needs_exponent(block) { self.tensor.exponent(self.range(block)) } else { BlockExponent::ZERO }
    }

    /// Writes a block of the input as it travels; `agreed` is the exponent that `world` ranks have agreed on for it.
    pub fn read(&self, block: u64, agreed: Option<BlockExponent>, world: u16, vector: &mut [u8]) {
        match self.scale(agreed, world) {
            Some(scale) if self.encoding.at_switch.is_none() => self.tensor.encode(self.range(block), scale, vector),
            _ => self.tensor.read_input(self.range(block), vector),
        }
    }

    /// Writes a block's result to the output.
    pub fn write(&mut self, block: u64, agreed: Option<BlockExponent>, world: u16, vector: &[u8]) {
        let range = self.range(block);
        match self.scale(agreed, world) {
            Some(scale) if self.encoding.at_switch.is_some() => self.tensor.write_scaled(range, scale, vector),
            Some(scale) => self.tensor.decode(range, scale, vector),
            None => self.tensor.write(range, vector),
        }
    }

    /// Writes a block's result over so many ranks, and not over all, to the output; not in fixed point.
    pub fn write_partial(&mut self, block: u64, contributors: u16, vector: &[u8]) {
        self.tensor.write_partial(self.range(block), contributors, vector);
    }

    /// How a block is scaled, at hosts or at switches; not at all where sums are no fixed point.
    fn scale(&self, agreed: Option<BlockExponent>, world: u16) -> Option<Scale> {
        let agreed = || agreed.expect("scaled blocks are sent when their exponent is agreed");
        self.encoding.is_scaled.then(|| Scale::new(agreed(), world))
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
    operators: Operators,
    /// Elements of a block, where they are not as many as fill a packet.
    span: Option<SpanOf>,
    ops: VecDeque<Op>,
    next_op: u64,
    next_block: u64,
}

/// The collectives: how blocks are cut never changes.
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
        Stream { values, numbers, narrow, payload_bytes, operators, span, ops, next_op: 0, next_block: 0 }
    }

    /// The same with blocks of so many elements.
    pub fn in_spans(self, span: SpanOf) -> Stream {
        Stream { span: Some(span), ..self }
    }

    /// Appends a collective; gives its number and its blocks.
    pub fn push(&mut self, tensor: Box<dyn Tensor>) -> (OpId, Range<u64>) {
        let (id, spec, first_block) = (OpId(self.next_op), tensor.spec(), self.next_block);
        let encoding = Encoding::of_job(self.values, self.numbers, &spec, &self.operators);
        let encoding = encoding.expect("a driver asks first what a protocol can");
        let block_elements = match &self.span {
            Some(span) => u64::from(span(&spec)),
            None => u64::from(encoding.block_elements(self.payload_bytes, self.narrow)),
        };
        let blocks = u64::from(spec.elements).div_ceil(block_elements).max(1);
        let remaining = blocks;
        self.ops.push_back(Op { id, tensor, spec, first_block, blocks, encoding, block_elements, remaining });
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

    /// The same, to write to.
    pub fn op_of_mut(&mut self, block: u64) -> Option<&mut Op> {
        self.index_of(block).map(|index| &mut self.ops[index])
    }

    /// The oldest collective.
    pub fn front(&self) -> Option<&Op> {
        self.ops.front()
    }

    /// Asks for the memory of the oldest collective, where most blocks belong.
    pub fn prefetch(&self) {
        if let Some(op) = self.front() {
            prefetch::whole(op);
        }
    }

    /// Asks for the memory of that collective's tensor.
    pub fn prefetch_tensor(&self) {
        if let Some(op) = self.front() {
            prefetch::whole(&*op.tensor);
        }
    }

    /// Takes the oldest collective out.
    pub fn pop(&mut self) -> Option<Op> {
        self.ops.pop_front()
    }
}
