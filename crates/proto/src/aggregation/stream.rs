//! All collectives of a host as one continuous stream of blocks (SwitchML, appendix B, the stream buffer manager).
//!
//! Blocks are numbered through all collectives; block `g` uses slot `g mod s`. A collective of no elements has one
//! block without a vector: a barrier.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use tributary_numeric::{BlockExponent, Scale, prefetch};

use super::stripe::Stripe;
use crate::contract::config::{CoreSlots, JobConfig};
use crate::contract::custom_op::CustomOps;
use crate::contract::ids::{OpId, Rank};
use crate::contract::numbers::{Encoding, NarrowBlocks, Numbers};
use crate::contract::tensor::{Spec, Tensor};
use crate::contract::values::Values;

/// A collective that is not complete.
#[derive(Clone, Hash)]
pub struct Op {
    /// The collective's number.
    pub id: OpId,
    /// The collective's data.
    pub tensor: Box<dyn Tensor>,
    /// The tensor's own description.
    pub spec: Spec,
    /// The number of the collective's first block, or of its stretch's.
    pub first_block: u64,
    /// The number of its blocks, or of its stretch's.
    pub blocks: u64,
    /// Which blocks of the stretch are the collective's, if it shares the stretch with others.
    stripe: Option<Stripe>,
    /// How the elements travel.
    pub encoding: Encoding,
    /// Elements of a full block.
    block_elements: u64,
    /// Blocks of this core whose result has not come yet.
    pub remaining: u64,
    /// The rank whose tensor it is, where blocks are rounded at random.
    rank: Rank,
}

impl Op {
    /// The block's number within the collective.
    pub fn local(&self, block: u64) -> u32 {
        self.stripe.map_or(block - self.first_block, |stripe| stripe.local(block)) as u32
    }

    /// The elements of a block.
    pub fn range(&self, block: u64) -> Range<usize> {
        let start = u64::from(self.local(block)) * self.block_elements;
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

    /// The same for a block that this rank sends: what codes lose of it goes to where the collective's caller wants it. A
    /// block that is sent again loses the same, or with another scale what counts then.
    pub fn send(&mut self, block: u64, agreed: Option<BlockExponent>, world_size: u16, vector: &mut [u8]) {
        match self.scale(block, agreed, world_size) {
            Some(scale) if self.encoding.at_switch.is_none() => {
                self.tensor.encode_with_loss(self.range(block), scale, vector);
            }
            _ => self.read(block, agreed, world_size, vector),
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

/// How many blocks of a stream a core has, which drives some of the slots.
#[derive(Clone)]
pub struct CoreBlocks {
    /// For each slot, how many slots before it the core drives; and at the end, how many it drives of all.
    before: Box<[u16]>,
}

impl CoreBlocks {
    /// The blocks of a core that drives these slots of the job.
    pub fn new(job: &JobConfig, slots: CoreSlots) -> CoreBlocks {
        let count = |sum: &mut u16, slot: u16| {
            let before = *sum;
            *sum += u16::from(slot < job.slots && slots.has(job, slot));
            Some(before)
        };
        CoreBlocks { before: (0..=job.slots).scan(0, count).collect() }
    }

    /// How many blocks of a range the core has.
    fn count(&self, blocks: Range<u64>) -> u64 {
        let pool = self.before.len() as u64 - 1;
        let until = |block: u64| {
            let all = u64::from(self.before[pool as usize]);
            block / pool * all + u64::from(self.before[(block % pool) as usize])
        };
        until(blocks.end) - until(blocks.start)
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
    /// The blocks of this core, if it is one of several.
    core: Option<CoreBlocks>,
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
        let (rank, core) = (Rank(0), None);
        Stream { values, numbers, narrow, payload_bytes, operators, span, rank, core, ops, next_op: 0, next_block: 0 }
    }

    /// The same stream for a rank that draws how it rounds.
    pub fn of_rank(self, rank: Rank) -> Stream {
        Stream { rank, ..self }
    }

    /// The same stream for one of several cores.
    pub fn of_core(self, core: CoreBlocks) -> Stream {
        Stream { core: Some(core), ..self }
    }

    /// The same stream with blocks of this many elements.
    pub fn in_spans(self, span: SpanOf) -> Stream {
        Stream { span: Some(span), ..self }
    }

    /// Appends a collective; returns its number and its blocks.
    pub(super) fn push(&mut self, tensor: Box<dyn Tensor>) -> (OpId, Range<u64>) {
        let op = self.op(tensor);
        let (id, first_block) = (op.id, op.first_block);
        self.next_block += op.blocks;
        self.ops.push_back(op);
        (id, first_block..self.next_block)
    }

    /// Appends collectives that share a stretch, one for each tree; returns their numbers and the stretch.
    pub(super) fn push_striped(
        &mut self,
        tensors: impl Iterator<Item = Box<dyn Tensor>>,
        slots: u64,
    ) -> (Vec<OpId>, Range<u64>) {
        let mut ops: Vec<Op> = tensors.map(|tensor| self.op(tensor)).collect();
        let blocks: Vec<u64> = ops.iter().map(|op| op.blocks).collect();
        let (stripes, len) = Stripe::cut(slots, self.next_block, &blocks);
        for (op, stripe) in ops.iter_mut().zip(stripes) {
            (op.blocks, op.stripe) = (len, Some(stripe));
        }
        let (ids, start) = (ops.iter().map(|op| op.id).collect(), self.next_block);
        self.ops.extend(ops);
        self.next_block += len;
        (ids, start..self.next_block)
    }

    /// The next collective, which begins with the next block.
    fn op(&mut self, tensor: Box<dyn Tensor>) -> Op {
        let (id, spec, first_block) = (OpId(self.next_op), tensor.spec(), self.next_block);
        let encoding = Encoding::of_job(self.values, self.numbers, &spec, &self.operators);
        let encoding = encoding.expect("a driver asks first what a protocol can");
        let block_elements = match &self.span {
            Some(span) => u64::from(span(&spec)),
            None => u64::from(encoding.block_elements(self.payload_bytes, self.narrow)),
        };
        let blocks = u64::from(spec.elements).div_ceil(block_elements).max(1);
        self.next_op += 1;
        let all = first_block..first_block + blocks;
        let (remaining, rank) = (self.core.as_ref().map_or(blocks, |core| core.count(all)), self.rank);
        Op { id, tensor, spec, first_block, blocks, stripe: None, encoding, block_elements, remaining, rank }
    }

    fn index_of(&self, block: u64) -> Option<usize> {
        let front = self.ops.front()?;
        debug_assert!(block >= front.first_block, "a slot works on a block of a collective that is complete");
        let index = if block < front.first_block + front.blocks {
            0
        } else if block < self.next_block {
            self.ops.partition_point(|op| op.first_block <= block) - 1
        } else {
            return None;
        };
        // A collective that shares a stretch was found. The block may be another's, or nobody's.
        let Some(found) = self.ops[index].stripe else { return Some(index) };
        let index = (index + found.tree_of(block) as usize).checked_sub(found.tree as usize)?;
        self.ops[index].stripe.is_some_and(|own| own.has(block)).then_some(index)
    }

    /// The first block of a slot from `block` on that some collective has, or will have; `slots` is the pool's size.
    #[inline]
    pub fn next_in_slot(&self, mut block: u64, slots: u64) -> u64 {
        while block < self.next_block && self.index_of(block).is_none() {
            block += slots;
        }
        block
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
    pub(super) fn pop(&mut self) -> Option<Op> {
        self.ops.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::contract::ids::{JobId, JobKey};
    use crate::contract::options::OptionSet;

    proptest! {
        #[test]
        fn each_slot_is_of_one_core_of_each_worker_and_each_core_counts_its_blocks(
            of_tree in 1..20u16,
            trees in 1..4u16,
            cores in 1..6u16,
            more in 0..4u16,
            start in 0..100u64,
            len in 0..100u64,
        ) {
            let options = OptionSet::none("any").defaults();
            let (slots, shares) = (of_tree * trees, cores + more);
            let job = JobConfig {
                job: JobId(1),
                key: JobKey(1),
                protocol: 1,
                world_size: 2,
                slots,
                elements_per_packet: 8,
                trees,
                levels: false,
                options,
            };
            let of = |core| CoreSlots { core, cores, shares };
            for slot in 0..slots {
                prop_assert_eq!((0..cores).filter(|&core| of(core).has(&job, slot)).count(), 1);
            }
            for core in 0..cores {
                let owned = |&block: &u64| of(core).has(&job, (block % u64::from(slots)) as u16);
                let expected = (start..start + len).filter(owned).count() as u64;
                prop_assert_eq!(CoreBlocks::new(&job, of(core)).count(start..start + len), expected);
            }
        }
    }
}
