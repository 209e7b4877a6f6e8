//! Sparse allreduces: the indices and values of a rank, and those of the result.

use std::sync::Arc;
use std::time::Duration;

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::tensor::{Spec, Tensor};
use tributary_proto::tensors::{SparseElements, SparseResult};

use super::{Group, GroupError, Pending};

/// The result of a sparse allreduce: ascending indices, and a value for each.
pub type SparseSum<T> = (Vec<u32>, Vec<T>);

impl Group {
    /// At each index that any rank brings, the result of the operator over the values of all ranks. Averages are
    /// divided by the number of all ranks. Indices are ascending, distinct, and below `size`, which is the same on all
    /// ranks. Works only in a job of sparse tensors. Blocks, for about `timeout` at most.
    pub fn allreduce_sparse<T: Element>(
        &self,
        indices: &[i64],
        values: &[T],
        size: usize,
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<SparseSum<T>, GroupError> {
        let (pending, result) = self.start_sparse(indices, values.to_vec(), size, op, timeout, false)?;
        pending.wait(None)?;
        Ok(result.take())
    }

    /// Starts [`Group::allreduce_sparse`] and returns at once. The result is there once the collective is done.
    pub fn submit_sparse<T: Element>(
        &self,
        indices: &[i64],
        values: Vec<T>,
        size: usize,
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(Pending, SparseResult<T>), GroupError> {
        self.start_sparse(indices, values, size, op, timeout, true)
    }

    /// True in a job of sparse tensors: all its tensors are sparse.
    pub fn is_sparse(&self) -> bool {
        self.check_sparse(&Spec::NOTHING).is_ok()
    }

    fn start_sparse<T: Element>(
        &self,
        indices: &[i64],
        values: Vec<T>,
        size: usize,
        op: ReduceOp,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<(Pending, SparseResult<T>), GroupError> {
        self.check_sparse(&Spec::allreduce(0, T::DTYPE, op))?;
        let tensor = SparseElements::new(indices, values, size, op).map_err(GroupError::Sparse)?;
        self.check_sparse(&tensor.spec())?;
        let result = tensor.result();
        let completion = self.shared.submit(Box::new(tensor), timeout, hand_over)?;
        Ok((Pending { shared: Arc::clone(&self.shared), completion }, result))
    }

    fn check_sparse(&self, spec: &Spec) -> Result<(), GroupError> {
        self.info.protocol.check_sparse(spec, &self.info.options).map_err(GroupError::Refused)
    }
}
