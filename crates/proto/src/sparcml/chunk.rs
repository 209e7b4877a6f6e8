//! The stream of a chunk of the indices: what a rank holds of it, as pairs or as dense elements (SparCML §5.1).
//!
//! Values are accumulators (*lanes*), so that 16-bit floats are rounded once, at the end.

use std::ops::Range;

use tributary_numeric::Combine;

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
