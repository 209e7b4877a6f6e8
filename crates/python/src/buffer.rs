//! The memory of a collective: a NumPy array, or a tensor of a library that the package vouches for.

use std::ops::Range;

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_numeric::DType;

/// Contiguous memory, and the object that owns it. The object must be held until the collective has ended.
pub struct Buffer {
    address: usize,
    pub bytes: usize,
    /// True unless it is a NumPy array that is read-only.
    writable: bool,
    pub owner: Py<PyAny>,
}

impl<'py> FromPyObject<'_, 'py> for Buffer {
    type Error = PyErr;

    /// A NumPy array in C order; or `(address, bytes, owner)`, where the package takes the numbers from a contiguous
    /// tensor that `owner` keeps alive.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Buffer> {
        let Ok(array) = object.cast::<PyUntypedArray>() else {
            let (address, bytes, owner) = object.extract()?;
            return Ok(Buffer { address, bytes, writable: true, owner });
        };
        // SAFETY: a bound array's object is alive, and its fields are only read.
        let (data, flags) = unsafe { ((*array.as_array_ptr()).fields.data, (*array.as_array_ptr()).fields.flags) };
        if !array.is_c_contiguous() {
            return Err(PyValueError::new_err("the array is not in C order"));
        }
        Ok(Buffer {
            address: data as usize,
            bytes: array.len() * array.dtype().itemsize(),
            writable: flags & numpy::npyffi::NPY_ARRAY_WRITEABLE != 0,
            owner: object.to_owned().unbind(),
        })
    }
}

impl Buffer {
    /// No memory.
    pub fn nothing(py: Python<'_>) -> Buffer {
        Buffer { address: 0, bytes: 0, writable: false, owner: py.None() }
    }

    /// Some bytes of it, from the byte `start` on.
    pub fn fragment(&self, py: Python<'_>, start: usize, bytes: usize) -> PyResult<Buffer> {
        match start.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            true => {
                Ok(Buffer { address: self.address + start, bytes, writable: false, owner: self.owner.clone_ref(py) })
            }
            false => Err(PyValueError::new_err(format!("{bytes} bytes from {start} are not in {}", self.bytes))),
        }
    }

    /// The number of elements of a type that the memory holds, if it is aligned for them.
    pub fn elements(&self, dtype: DType) -> PyResult<usize> {
        let size = dtype.size();
        let fits = self.bytes == 0 || self.address != 0 && self.address.is_multiple_of(size);
        match fits && self.bytes.is_multiple_of(size) {
            true => Ok(self.bytes / size),
            false => Err(PyValueError::new_err(format!("{} bytes here are not {dtype} elements", self.bytes))),
        }
    }

    /// The address, for reading.
    pub fn source(&self) -> *const u8 {
        self.address as *const u8
    }

    /// The address, for writing.
    pub fn target(&self) -> PyResult<*mut u8> {
        match self.writable && (self.bytes == 0 || self.address != 0) {
            true => Ok(self.address as *mut u8),
            false => Err(PyValueError::new_err("the array is read-only")),
        }
    }
}

/// The range from the first number to before the second, or all.
pub fn within(range: Option<(usize, usize)>, all: usize) -> PyResult<Range<usize>> {
    match range {
        None => Ok(0..all),
        Some((start, end)) if start <= end && end <= all => Ok(start..end),
        Some((start, end)) => Err(PyValueError::new_err(format!("{start} to {end} is not within 0 to {all}"))),
    }
}
