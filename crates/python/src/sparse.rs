//! Sparse all-reduces between Python and a group: indices and values come in and go out as flat arrays. Values are
//! big-endian bytes, as in packets.

use std::time::Duration;

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_net::group::{Drive, Group, GroupError, Pending};
use tributary_numeric::{DType, Element, ReduceOp, bf16, codec, f16};
use tributary_proto::tensors::SparseResult;

/// The result of a sparse all-reduce.
#[pyclass(frozen, module = "tributary._core")]
pub struct SparseSum {
    result: Box<dyn Landed + Send + Sync>,
}

#[pymethods]
impl SparseSum {
    /// Ascending indices, and the bytes of their values. To be called once, when the collective is done.
    fn take<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u8>>) {
        self.result.take(py)
    }
}

/// A result of any type.
trait Landed {
    fn take<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u8>>);
}

impl<T: Element> Landed for SparseResult<T> {
    fn take<'py>(&self, py: Python<'py>) -> (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u8>>) {
        let (indices, bytes) = py.detach(|| {
            let (indices, values) = SparseResult::take(self);
            let mut bytes = vec![0; values.len() * T::DTYPE.size()];
            codec::write_native(&values, &mut bytes);
            (indices, bytes)
        });
        (PyArray1::from_iter(py, indices.into_iter().map(i64::from)), PyArray1::from_slice(py, &bytes))
    }
}

/// What a rank brings: indices, and the bytes of one value for each.
pub struct Brought<'py> {
    pub indices: PyReadonlyArray1<'py, i64>,
    pub values: PyReadonlyArray1<'py, u8>,
    pub dtype: DType,
    pub size: usize,
}

impl Brought<'_> {
    /// Copies the arrays and starts the all-reduce of the copies. Fails with a Python error or with the group's.
    pub fn submit(
        &self,
        group: &Group,
        op: ReduceOp,
        timeout: Duration,
    ) -> PyResult<Result<(Pending, SparseSum), GroupError>> {
        match self.dtype {
            DType::F32 => self.submit_as::<f32>(group, op, timeout),
            DType::F16 => self.submit_as::<f16>(group, op, timeout),
            DType::BF16 => self.submit_as::<bf16>(group, op, timeout),
            DType::I32 => self.submit_as::<i32>(group, op, timeout),
            DType::F64 => self.submit_as::<f64>(group, op, timeout),
            DType::I8 => self.submit_as::<i8>(group, op, timeout),
            DType::I16 => self.submit_as::<i16>(group, op, timeout),
            DType::I64 => self.submit_as::<i64>(group, op, timeout),
            DType::U8 => self.submit_as::<u8>(group, op, timeout),
        }
    }

    fn submit_as<T: Element>(
        &self,
        group: &Group,
        op: ReduceOp,
        timeout: Duration,
    ) -> PyResult<Result<(Pending, SparseSum), GroupError>> {
        let flat = || PyValueError::new_err("the arrays are not flat memory");
        let indices = self.indices.as_slice().map_err(|_| flat())?;
        let bytes = self.values.as_slice().map_err(|_| flat())?;
        if !bytes.len().is_multiple_of(T::DTYPE.size()) {
            return Err(PyValueError::new_err(format!("{} bytes are not {} elements", bytes.len(), self.dtype)));
        }
        let mut values = vec![T::default(); bytes.len() / T::DTYPE.size()];
        codec::read_native(bytes, &mut values);
        let started = group.submit_sparse(indices, values, self.size, op, timeout, Drive::Background);
        Ok(started.map(|(pending, result)| (pending, SparseSum { result: Box::new(result) })))
    }
}
