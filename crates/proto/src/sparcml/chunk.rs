//! The stream of a chunk of the indices: what a rank holds of it, as pairs or as dense elements (SparCML §5.1).
//!
//! Values are accumulators (*lanes*), so that 16-bit floats are rounded once, at the end.

use std::ops::Range;

use tributary_numeric::Combine;

use super::codec::{Codec, Shape};
use crate::aggregation::block_sizes::VectorFormat;
use crate::contract::tensor::Tensor;
use crate::contract::values::FINGERPRINT_LEN;

/// A chunk of the indices, and the elements that a rank holds there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The indices of the chunk.
    pub range: Range<u32>,
    /// The elements.
    pub data: Data,
}

/// The form in which a rank holds elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// Ascending indices, and a lane for each.
    Sparse {
        /// The indices.
        indices: Vec<u32>,
        /// The lanes.
        lanes: Vec<u8>,
    },
    /// A lane for each index of the chunk, and a bit that says whether it counts: an element that cancels to zero
    /// counts, and one that no rank brings does not, whatever the operator.
    Dense {
        /// A bit for each index.
        present: Vec<u64>,
        /// The lanes; zero where the bit is clear.
        lanes: Vec<u8>,
    },
    /// The lanes of a dense tensor's blocks.
    Full {
        /// The lanes.
        lanes: Vec<u8>,
    },
    /// The rank's own contribution, which is still in the dense tensor.
    Brought,
}

/// True if an element of a dense chunk counts.
pub fn is_present(present: &[u64], at: usize) -> bool {
    present[at / 64] >> (at % 64) & 1 == 1
}

impl Chunk {
    /// How many indices have an element.
    pub fn count(&self) -> usize {
        match &self.data {
            Data::Sparse { indices, .. } => indices.len(),
            Data::Dense { present, .. } => present.iter().map(|word| word.count_ones() as usize).sum(),
            Data::Full { .. } | Data::Brought => self.range.len(),
        }
    }

    /// The same chunk, dense.
    pub fn densified(self, combine: &Combine) -> Chunk {
        let Data::Sparse { indices, lanes } = self.data else { return self };
        let (size, len) = (combine.lane_size, self.range.len());
        let (mut present, mut dense) = (vec![0; len.div_ceil(64)], vec![0; len * size]);
        for (index, lane) in indices.iter().zip(lanes.chunks_exact(size)) {
            let at = (index - self.range.start) as usize;
            present[at / 64] |= 1 << (at % 64);
            dense[at * size..][..size].copy_from_slice(lane);
        }
        Chunk { range: self.range, data: Data::Dense { present, lanes: dense } }
    }

    /// Combines two chunks; `None` if they are not of sparse tensors, or not of the same indices.
    pub fn combined(self, other: &Chunk, combine: &Combine) -> Option<Chunk> {
        if self.range != other.range {
            return None;
        }
        let data = match (self.data, &other.data) {
            (Data::Sparse { indices, lanes }, Data::Sparse { indices: more, lanes: theirs }) => {
                sparse((&indices, &lanes), (more, theirs), combine)
            }
            (Data::Dense { present, lanes }, Data::Sparse { .. }) => {
                let mut sum = Chunk { range: self.range.clone(), data: Data::Dense { present, lanes } };
                sum.add_pairs(other, combine);
                sum.data
            }
            (data @ Data::Sparse { .. }, Data::Dense { .. }) => {
                // Every operator is commutative to the bit.
                let mut sum = other.clone();
                sum.add_pairs(&Chunk { range: self.range.clone(), data }, combine);
                sum.data
            }
            (Data::Dense { mut present, mut lanes }, Data::Dense { present: more, lanes: theirs }) => {
                dense((&mut present, &mut lanes), (more, theirs), combine);
                Data::Dense { present, lanes }
            }
            _ => return None,
        };
        Some(Chunk { range: self.range, data })
    }

    /// Adds pairs to a dense chunk.
    fn add_pairs(&mut self, pairs: &Chunk, combine: &Combine) {
        let (Data::Dense { present, lanes }, Data::Sparse { indices, lanes: theirs }) = (&mut self.data, &pairs.data)
        else {
            return;
        };
        let size = combine.lane_size;
        for (index, lane) in indices.iter().zip(theirs.chunks_exact(size)) {
            let at = (index - self.range.start) as usize;
            let sum = &mut lanes[at * size..][..size];
            if is_present(present, at) {
                (combine.merge)(sum, lane);
            } else {
                sum.copy_from_slice(lane);
                present[at / 64] |= 1 << (at % 64);
            }
        }
    }

    /// Finishes a sum over all ranks; called once. Averages are divided here.
    pub fn finish(&mut self, combine: &Combine, world_size: u16) {
        if let Data::Sparse { lanes, .. } | Data::Dense { lanes, .. } | Data::Full { lanes } = &mut self.data {
            (combine.finish)(lanes, world_size);
        }
    }
}

/// Merges pairs.
fn sparse(a: (&[u32], &[u8]), b: (&[u32], &[u8]), combine: &Combine) -> Data {
    match combine.lane_size {
        1 => sparse_lanes::<1>(a, b, combine),
        2 => sparse_lanes::<2>(a, b, combine),
        4 => sparse_lanes::<4>(a, b, combine),
        8 => sparse_lanes::<8>(a, b, combine),
        other => unreachable!("a lane of a sparse tensor has 1, 2, 4 or 8 bytes, not {other}"),
    }
}

fn sparse_lanes<const SIZE: usize>(a: (&[u32], &[u8]), b: (&[u32], &[u8]), combine: &Combine) -> Data {
    let most = a.0.len() + b.0.len();
    let (mut indices, mut lanes) = (Vec::with_capacity(most), Vec::<[u8; SIZE]>::with_capacity(most));
    let mut left = a.0.iter().zip(a.1.as_chunks::<SIZE>().0).peekable();
    let mut right = b.0.iter().zip(b.1.as_chunks::<SIZE>().0).peekable();
    loop {
        let (index, lane) = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(&(i, _)), Some(&(j, theirs))) if i == j => {
                let (&index, &mine) = left.next().expect("it was peeked at");
                let (mut sum, theirs) = (mine, *theirs);
                right.next();
                (combine.merge)(&mut sum, &theirs);
                (index, sum)
            }
            (Some(&(i, _)), Some(&(j, _))) if i > j => right.next().map(|(i, lane)| (*i, *lane)).expect("peeked at"),
            (None, Some(_)) => right.next().map(|(i, lane)| (*i, *lane)).expect("peeked at"),
            (Some(_), _) => left.next().map(|(i, lane)| (*i, *lane)).expect("peeked at"),
        };
        indices.push(index);
        lanes.push(lane);
    }
    Data::Sparse { indices, lanes: lanes.as_flattened().to_vec() }
}

/// Adds dense lanes to dense lanes: 64 at once where both have all of them.
fn dense(sum: (&mut [u64], &mut [u8]), other: (&[u64], &[u8]), combine: &Combine) {
    let size = combine.lane_size;
    let words = sum.0.iter_mut().zip(other.0);
    let lanes = sum.1.chunks_mut(64 * size).zip(other.1.chunks(64 * size));
    for ((present, &more), (sum, lanes)) in words.zip(lanes) {
        if *present & more == u64::MAX {
            (combine.merge)(sum, lanes);
            continue;
        }
        for (at, (sum, lane)) in sum.chunks_exact_mut(size).zip(lanes.chunks_exact(size)).enumerate() {
            match (*present >> at & 1, more >> at & 1) {
                (1, 1) => (combine.merge)(sum, lane),
                (_, 1) => sum.copy_from_slice(lane),
                _ => {}
            }
        }
        *present |= more;
    }
}

// A chunk of a dense tensor, block by block. Fragments are summed and written as they come, so that each packet brings
// about the same work, and a rank that others wait for never stands still.

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use tributary_numeric::{DType, ReduceOp, native};

    use super::*;

    const RANGE: Range<u32> = 100..400;

    fn chunk(elements: &BTreeMap<u32, i32>) -> Chunk {
        let lanes = elements.values().flat_map(|value| value.to_ne_bytes()).collect();
        Chunk { range: RANGE, data: Data::Sparse { indices: elements.keys().copied().collect(), lanes } }
    }

    fn pairs() -> impl Strategy<Value = BTreeMap<u32, i32>> {
        proptest::collection::btree_map(RANGE, any::<i32>(), 0..300)
    }

    proptest! {
        #[test]
        fn chunks_are_combined_alike_whether_they_are_pairs_or_dense(a in pairs(), b in pairs(), is_min: bool) {
            let op = if is_min { ReduceOp::Min } else { ReduceOp::Sum };
            let combine = native(DType::I32, op).unwrap();
            let mut expected = a.clone();
            for (&index, &value) in &b {
                let sum = |mine: i32| if is_min { mine.min(value) } else { mine.wrapping_add(value) };
                expected.entry(index).and_modify(|mine| *mine = sum(*mine)).or_insert(value);
            }
            let expected = chunk(&expected);
            let (dense_a, dense_b) = (chunk(&a).densified(combine), chunk(&b).densified(combine));
            prop_assert_eq!(&chunk(&a).combined(&chunk(&b), combine).unwrap(), &expected);
            let expected = expected.densified(combine);
            prop_assert_eq!(&chunk(&a).combined(&dense_b, combine).unwrap(), &expected);
            prop_assert_eq!(&dense_a.clone().combined(&chunk(&b), combine).unwrap(), &expected);
            prop_assert_eq!(&dense_a.combined(&dense_b, combine).unwrap(), &expected);
            prop_assert_eq!(expected.count(), a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>().len());
        }
    }
}
