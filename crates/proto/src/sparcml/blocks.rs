//! A chunk of a dense tensor, block by block. Fragments are summed and written as they come, so that each packet brings
//! about the same work, and a rank that others wait for never stands still.

use std::ops::Range;

use super::codec::{Codec, Shape};
use crate::aggregation::vector_format::VectorFormat;
use crate::contract::tensor::Tensor;
use crate::contract::values::FINGERPRINT_LEN;

/// The blocks of one chunk: each block is a fragment of a message, and has its own lanes.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    codec: &'a Codec,
    /// The chunk's elements.
    range: Range<usize>,
    /// Elements of a full block, and bytes of its lanes.
    block: usize,
    block_lanes: usize,
}

impl<'a> Blocks<'a> {
    /// The blocks of the chunk with these elements.
    pub fn new(codec: &'a Codec, range: &Range<u32>) -> Blocks<'a> {
        let block = codec.capacity(Shape::Full, VectorFormat::Host);
        let range = range.start as usize..range.end as usize;
        Blocks { codec, range, block, block_lanes: codec.lanes_len(Shape::Full, block) }
    }

    /// Bytes of the lanes of the chunk's first elements: whole blocks, or all elements.
    pub fn lanes_before(&self, elements: usize) -> usize {
        elements / self.block * self.block_lanes + self.codec.lanes_len(Shape::Full, elements % self.block)
    }

    /// Bytes of all lanes.
    pub fn lanes_len(&self) -> usize {
        self.lanes_before(self.range.len())
    }

    /// The elements whose lanes are at these bytes of the chunk's lanes: whole blocks.
    pub fn elements(&self, lanes: &Range<usize>) -> Range<usize> {
        let before = |at: usize| (at.div_ceil(self.block_lanes) * self.block).min(self.range.len());
        self.range.start + before(lanes.start)..self.range.start + before(lanes.end)
    }

    /// How many elements the fragment has whose lanes follow this many bytes of the chunk's lanes.
    pub fn count_after(&self, lanes: usize) -> usize {
        let first = self.elements(&(lanes..lanes)).start;
        self.block.min(self.range.end - first)
    }

    /// Cuts these elements into blocks.
    fn split(&self, elements: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (end, block) = (elements.end, self.block);
        elements.step_by(block).map(move |first| first..(first + block).min(end))
    }

    /// The lanes at these bytes, from this rank's contribution; `read` reads a block of that.
    pub fn brought(
        &self,
        lanes: &Range<usize>,
        tensor: &dyn Tensor,
        read: impl Fn(Range<usize>, &mut [u8]),
    ) -> Vec<u8> {
        let mut all = vec![0; lanes.len()];
        let (mut rest, mut vector) = (all.as_mut_slice(), Vec::new());
        for block in self.split(self.elements(lanes)) {
            vector.resize(tensor.native_len(block.len()), 0);
            let (lane, after) = rest.split_at_mut(self.codec.lanes_len(Shape::Full, block.len()));
            read(block, &mut vector);
            (self.codec.combine.store)(lane, &vector);
            rest = after;
        }
        all
    }

    /// Writes the result whose lanes begin at byte `start` of the chunk's lanes.
    pub fn write(&self, start: usize, lanes: &[u8], tensor: &mut dyn Tensor) {
        let (mut rest, mut vector) = (lanes, Vec::new());
        for block in self.split(self.elements(&(start..start + lanes.len()))) {
            vector.resize(tensor.native_len(block.len()), 0);
            let (lane, after) = rest.split_at(self.codec.lanes_len(Shape::Full, block.len()));
            (self.codec.combine.load)(lane, &mut vector);
            tensor.write(block, &vector);
            rest = after;
        }
    }

    /// Sums the same lanes of several ranks along a balanced tree, into the first rank's.
    pub fn sum(&self, ranks: &mut [&mut [u8]]) {
        let mut distance = 1;
        while distance < ranks.len() {
            for first in (0..ranks.len() - distance).step_by(2 * distance) {
                let (before, after) = ranks.split_at_mut(first + distance);
                self.merge(before[first], after[0]);
            }
            distance *= 2;
        }
    }

    /// Adds lanes: fingerprints are merged one by one, elements all at once.
    fn merge(&self, sum: &mut [u8], more: &[u8]) {
        let combine = self.codec.combine;
        let step = if combine.lane_size == FINGERPRINT_LEN { FINGERPRINT_LEN } else { sum.len().max(1) };
        sum.chunks_mut(step).zip(more.chunks(step)).for_each(|(sum, more)| (combine.merge)(sum, more));
    }
}
