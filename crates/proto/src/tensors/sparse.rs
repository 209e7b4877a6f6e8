//! Sparse tensors in memory: indices that were checked, and their values.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tributary_numeric::{BlockExponent, Element, ReduceOp, Scale, codec};

use crate::contract::tensor::{SparseTensor, Spec, Tensor};

/// Why indices and values do not make a sparse tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SparseError {
    /// There is not one value for each index.
    #[error("there are {indices} indices and {values} values: give one value for each index")]
    Lengths {
        /// The number of indices.
        indices: usize,
        /// The number of values.
        values: usize,
    },
    /// The tensor has more elements than a collective may have.
    #[error("a tensor of {size} elements is too long: a sparse allreduce has at most {}", u32::MAX)]
    TooLong {
        /// The number of elements.
        size: usize,
    },
    /// An index is below 0.
    #[error("index {index}, number {at}, is negative: indices count from 0")]
    Negative {
        /// The index.
        index: i64,
        /// The index's position in the list.
        at: usize,
    },
    /// An index is not below the size.
    #[error("index {index}, number {at}, is beyond the tensor's {size} elements")]
    Beyond {
        /// The index.
        index: i64,
        /// The index's position in the list.
        at: usize,
        /// The tensor's size.
        size: u32,
    },
    /// An index is less than the one before it.
    #[error("index {index}, number {at}, is less than the one before it: sort the indices")]
    Unsorted {
        /// The index.
        index: i64,
        /// The index's position in the list.
        at: usize,
    },
    /// An index occurs twice.
    #[error("index {index} is there twice, the second time as number {at}: combine the values of equal indices first")]
    Doubled {
        /// The index.
        index: i64,
        /// The position of its second occurrence.
        at: usize,
    },
}

/// Real elements at some indices, for an allreduce.
#[derive(Clone, Debug)]
pub struct SparseElements<T> {
    indices: Vec<u32>,
    values: Vec<T>,
    size: u32,
    op: ReduceOp,
    result: SparseResult<T>,
}

/// The result of a sparse collective, for the caller that has handed the tensor over.
#[derive(Clone, Debug, Default)]
pub struct SparseResult<T>(Arc<Mutex<Blocks<T>>>);

/// Indices and values, by the first index of their block.
type Blocks<T> = BTreeMap<u32, (Vec<u32>, Vec<T>)>;

impl<T> SparseResult<T> {
    /// Takes the result out once the collective is complete: ascending indices, and their values.
    pub fn take(&self) -> (Vec<u32>, Vec<T>) {
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        for (more_indices, more_values) in std::mem::take(&mut *self.lock()).into_values() {
            indices.extend(more_indices);
            values.extend(more_values);
        }
        (indices, values)
    }

    /// After a panic elsewhere, all blocks in the map are whole.
    fn lock(&self) -> MutexGuard<'_, Blocks<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element> SparseElements<T> {
    /// Checks that the indices are ascending, distinct, and from 0 to `size` - 1.
    pub fn new(indices: &[i64], values: Vec<T>, size: usize, op: ReduceOp) -> Result<SparseElements<T>, SparseError> {
        let size = u32::try_from(size).map_err(|_| SparseError::TooLong { size })?;
        if indices.len() != values.len() {
            return Err(SparseError::Lengths { indices: indices.len(), values: values.len() });
        }
        let mut before = None;
        for (at, &index) in indices.iter().enumerate() {
            match before {
                _ if index < 0 => return Err(SparseError::Negative { index, at }),
                _ if index >= i64::from(size) => return Err(SparseError::Beyond { index, at, size }),
                Some(before) if index < before => return Err(SparseError::Unsorted { index, at }),
                Some(before) if index == before => return Err(SparseError::Doubled { index, at }),
                _ => before = Some(index),
            }
        }
        let indices = indices.iter().map(|&index| index as u32).collect();
        Ok(SparseElements { indices, values, size, op, result: SparseResult::default() })
    }

    /// A handle to the result.
    pub fn result(&self) -> SparseResult<T> {
        SparseResult(Arc::clone(&self.result.0))
    }

    /// The tensor that a machine has handed back, if it is of this type.
    pub fn from_tensor(tensor: Box<dyn Tensor>) -> Option<SparseElements<T>> {
        (tensor as Box<dyn Any>).downcast().ok().map(|elements| *elements)
    }
}

impl<T: Element> SparseTensor for SparseElements<T> {
    fn indices(&self) -> &[u32] {
        &self.indices
    }
    fn read_values(&self, positions: Range<usize>, values: &mut [u8]) {
        codec::write_native(&self.values[positions], values);
    }
    fn write_block(&mut self, block: Range<u32>, indices: &[u32], values: &[u8]) {
        let mut read = vec![T::default(); indices.len()];
        codec::read_native(values, &mut read);
        self.result.lock().insert(block.start, (indices.to_vec(), read));
    }
}

/// The answer to a call of a machine of dense tensors. Drivers check beforehand what a protocol can do.
pub(super) fn not_dense() -> ! {
    unreachable!("a machine of dense tensors got a sparse one")
}

/// All calls of [`Tensor`] but `spec`, for a sparse tensor.
macro_rules! only_sparse {
    () => {
        fn vector_len(&self, _elements: usize) -> usize {
            not_dense()
        }
        fn exponent(&self, _block: Range<usize>) -> BlockExponent {
            not_dense()
        }
        fn encode(&self, _block: Range<usize>, _scale: Scale, _vector: &mut [u8]) {
            not_dense()
        }
        fn decode(&mut self, _block: Range<usize>, _scale: Scale, _vector: &[u8]) {
            not_dense()
        }
        fn native_len(&self, _elements: usize) -> usize {
            not_dense()
        }
        fn read_input(&self, _block: Range<usize>, _bytes: &mut [u8]) {
            not_dense()
        }
        fn read_output(&self, _block: Range<usize>, _bytes: &mut [u8]) {
            not_dense()
        }
        fn accumulate(&mut self, _block: Range<usize>, _bytes: &[u8]) {
            not_dense()
        }
        fn write(&mut self, _block: Range<usize>, _bytes: &[u8]) {
            not_dense()
        }
        fn divide(&mut self, _block: Range<usize>, _world_size: u16) {
            not_dense()
        }
        fn sparse(&self) -> Option<&dyn SparseTensor> {
            Some(self)
        }
        fn sparse_mut(&mut self) -> Option<&mut dyn SparseTensor> {
            Some(self)
        }
    };
}
pub(super) use only_sparse;

impl<T: Element> Tensor for SparseElements<T> {
    fn spec(&self) -> Spec {
        Spec::allreduce(self.size, T::DTYPE, self.op)
    }
    only_sparse!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_that_are_not_ascending_or_not_there_are_refused_before_anything_is_sent() {
        let refused =
            |indices: &[i64]| SparseElements::new(indices, vec![1.0f32; indices.len()], 10, ReduceOp::Sum).err();
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&[0, 4, 9]), None);
        assert_eq!(refused(&[0, 4, 3]), Some(SparseError::Unsorted { index: 3, at: 2 }));
        assert_eq!(refused(&[0, 4, 4]), Some(SparseError::Doubled { index: 4, at: 2 }));
        assert_eq!(refused(&[-1, 4]), Some(SparseError::Negative { index: -1, at: 0 }));
        assert_eq!(refused(&[0, 10]), Some(SparseError::Beyond { index: 10, at: 1, size: 10 }));
        assert_eq!(refused(&[i64::MAX]), Some(SparseError::Beyond { index: i64::MAX, at: 0, size: 10 }));
        let lengths = SparseElements::new(&[1, 2], vec![1i32], 10, ReduceOp::Sum).err();
        assert_eq!(lengths, Some(SparseError::Lengths { indices: 2, values: 1 }));
    }

    #[test]
    fn blocks_of_the_result_may_come_in_any_order() {
        let mut tensor = SparseElements::new(&[3], vec![7i16], 10, ReduceOp::Sum).unwrap();
        assert_eq!((tensor.positions(0..3), tensor.positions(0..4), tensor.positions(4..10)), (0..0, 0..1, 1..1));
        tensor.write_block(4..8, &[5], &[0, 2]);
        tensor.write_block(0..4, &[1, 3], &[0, 1, 255, 255]);
        assert_eq!(tensor.result().take(), (vec![1, 3, 5], vec![1, -1, 2]));
        assert_eq!(tensor.result().take(), (vec![], vec![]), "it was taken");
        tensor.write_block(0..4, &[0], &[0, 7]);
        tensor.write_block(4..8, &[], &[]);
        tensor.write_block(8..10, &[9], &[0, 8]);
        assert_eq!(tensor.result().take(), (vec![0, 9], vec![7, 8]));
        tensor.write_block(0..4, &[0], &[0, 7]);
        tensor.write_block(0..4, &[1], &[0, 6]);
        assert_eq!(tensor.result().take(), (vec![1], vec![6]), "the last one counts");
    }
}
