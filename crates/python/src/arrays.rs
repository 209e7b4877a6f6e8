//! The memory of NumPy arrays.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_numeric::DType;

/// The array's memory, if the machine can work on it. The package ensures that; this checks it.
pub(crate) fn memory(
    array: &Bound<'_, PyUntypedArray>,
    dtype: DType,
    elements: usize,
    write: bool,
) -> PyResult<*mut u8> {
    const ALIGNED: i32 = numpy::npyffi::NPY_ARRAY_ALIGNED;
    const WRITEABLE: i32 = numpy::npyffi::NPY_ARRAY_WRITEABLE;
    // SAFETY: a bound array's object is alive, and its fields are only read.
    let (data, flags) = unsafe { ((*array.as_array_ptr()).fields.data, (*array.as_array_ptr()).fields.flags) };
    let fits = array.is_c_contiguous()
        && flags & ALIGNED != 0
        && (!write || flags & WRITEABLE != 0)
        && array.len() == elements
        && array.dtype().itemsize() == dtype.size();
    if fits {
        Ok(data.cast())
    } else {
        Err(PyValueError::new_err(format!("the array is not {elements} {dtype} elements of flat memory")))
    }
}

/// The memory of an array of any type.
pub(crate) fn bytes_of(array: &Bound<'_, PyUntypedArray>, is_written: bool) -> PyResult<(*mut u8, usize)> {
    // SAFETY: a bound array's object is alive, and its fields are only read.
    let (data, flags) = unsafe { ((*array.as_array_ptr()).fields.data, (*array.as_array_ptr()).fields.flags) };
    if !array.is_c_contiguous() || is_written && flags & numpy::npyffi::NPY_ARRAY_WRITEABLE == 0 {
        return Err(PyValueError::new_err("the array is not flat memory that may be written"));
    }
    Ok((data.cast(), array.len() * array.dtype().itemsize()))
}
