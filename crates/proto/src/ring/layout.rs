//! How a tensor is cut: into `world_size` chunks that differ by at most one element, and into blocks of one packet
//! each.

use std::ops::Range;

use crate::contract::config::JobConfig;
use crate::contract::tensor::Spec;

/// A block's number: chunk by chunk, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block(pub u32);

/// The blocks of one tensor. A tensor of no elements has one empty block, in chunk 0, which carries the agreement of
/// all ranks round the ring; its other chunks have no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    elements: u64,
    world_size: u64,
    /// Elements of a full block.
    block_elements: u64,
    /// Block numbers that each chunk takes up. The last number of a chunk may be unused.
    stride: u64,
}

impl Layout {
    /// The layout that every rank of the job computes for such a tensor. Packets of narrow types carry more elements,
    /// so that all packets are equally long.
    pub fn new(spec: &Spec, job: &JobConfig) -> Layout {
        let world_size = u64::from(job.world_size);
        let block_elements = (job.payload_bytes() as u64 / spec.dtype.size() as u64).max(1);
        let elements = u64::from(spec.elements);
        let stride = elements.div_ceil(world_size).div_ceil(block_elements).max(1);
        Layout { elements, world_size, block_elements, stride }
    }

    /// The elements of a chunk.
    fn chunk(&self, chunk: u64) -> Range<u64> {
        chunk * self.elements / self.world_size..(chunk + 1) * self.elements / self.world_size
    }

    /// The number of blocks of a chunk.
    pub fn blocks_in(&self, chunk: u16) -> u32 {
        if self.elements == 0 {
            return u32::from(chunk == 0);
        }
        let range = self.chunk(u64::from(chunk));
        (range.end - range.start).div_ceil(self.block_elements) as u32
    }

    /// The blocks of a chunk.
    pub fn blocks(&self, chunk: u16) -> impl Iterator<Item = Block> + use<> {
        let first = u64::from(chunk) * self.stride;
        (0..self.blocks_in(chunk)).map(move |index| Block(first as u32 + index))
    }

    /// The number of blocks of the tensor.
    pub fn total_blocks(&self) -> u32 {
        (0..self.world_size).map(|chunk| self.blocks_in(chunk as u16)).sum()
    }

    /// One more than the highest block number.
    pub fn number_space(&self) -> usize {
        (self.stride * self.world_size) as usize
    }

    /// The chunk of a block.
    pub fn chunk_of(&self, block: Block) -> u16 {
        (u64::from(block.0) / self.stride) as u16
    }

    /// The elements of a block.
    pub fn range(&self, block: Block) -> Range<usize> {
        let chunk = self.chunk(u64::from(self.chunk_of(block)));
        let start = chunk.start + u64::from(block.0) % self.stride * self.block_elements;
        start as usize..(start + self.block_elements).min(chunk.end) as usize
    }

    /// The block that begins with this element, if there is one.
    pub fn block_at(&self, offset: u32) -> Option<Block> {
        let offset = u64::from(offset);
        if self.elements == 0 {
            return (offset == 0).then_some(Block(0));
        }
        if offset >= self.elements {
            return None;
        }
        // The last chunk that begins at or before the element.
        let chunk = ((offset + 1) * self.world_size - 1) / self.elements;
        let within = offset - self.chunk(chunk).start;
        within
            .is_multiple_of(self.block_elements)
            .then(|| Block((chunk * self.stride + within / self.block_elements) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::{JobId, JobKey};
    use proptest::prelude::*;
    use tributary_numeric::{DType, ReduceOp};

    fn layout(elements: u32, world_size: u16, k: u16, dtype: DType) -> Layout {
        let job = JobConfig {
            job: JobId(1),
            key: JobKey(1),
            protocol: 2,
            world_size,
            slots: 1,
            elements_per_packet: k,
            trees: 1,
            levels: false,
            options: Default::default(),
        };
        Layout::new(&Spec::allreduce(elements, dtype, ReduceOp::Sum), &job)
    }

    proptest! {
        #[test]
        fn blocks_cover_every_element_once_in_order(elements in 0u32..5000, world_size in 1u16..70, k in 1u16..400) {
            let layout = layout(elements, world_size, k, DType::F32);
            let blocks: Vec<Block> = (0..world_size).flat_map(|chunk| layout.blocks(chunk)).collect();
            prop_assert_eq!(blocks.len(), layout.total_blocks() as usize);
            let mut next = 0;
            for block in blocks {
                prop_assert!((block.0 as usize) < layout.number_space());
                let range = layout.range(block);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.len() <= usize::from(k) && (!range.is_empty() || elements == 0));
                prop_assert_eq!(layout.block_at(range.start as u32), Some(block));
                next = range.end;
            }
            prop_assert_eq!(next, elements as usize);
        }

        #[test]
        fn offsets_between_blocks_name_none(elements in 0u32..5000, world_size in 1u16..70, k in 1u16..400, offset: u32) {
            let layout = layout(elements, world_size, k, DType::I32);
            if let Some(block) = layout.block_at(offset) {
                prop_assert_eq!(layout.range(block).start, offset as usize);
            }
        }
    }

    #[test]
    fn narrow_types_fill_packets_as_well() {
        let layout = layout(10_000, 2, 360, DType::BF16);
        assert_eq!(layout.range(Block(0)), 0..720);
        assert_eq!(layout.total_blocks(), 14);
    }

    #[test]
    fn nothing_is_one_empty_block() {
        let layout = layout(0, 4, 64, DType::F32);
        assert_eq!((layout.total_blocks(), layout.blocks_in(0), layout.blocks_in(3)), (1, 1, 0));
        assert_eq!(layout.range(Block(0)), 0..0);
    }

    #[test]
    fn the_largest_tensor_has_blocks_too() {
        let layout = layout(u32::MAX, 1023, 64, DType::F32);
        let last = layout.blocks(1022).last().unwrap();
        assert_eq!(layout.range(last).end, u32::MAX as usize);
    }
}
