//! Arrays in `.npy` files: read, checked, converted, and written back in the form in which they came.
//!
//! Start with [`Array::read`]. This is our own code rather than a crate: the header has one fixed form, and every error
//! in a file must become a sentence (the crates parse all Python literals by recursion, and multiply shapes unchecked).

mod data;
mod header;
mod layout;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use tributary_numeric::DType;

pub use data::{Data, Stored};
pub(crate) use data::{each, of_type};
pub use header::Header;

/// Why a file is not an array that can be summed.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// A system call failed.
    #[error("cannot {verb} '{}': {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file's content is wrong.
    #[error("'{}' {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// An array and the file form that it came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Type, order and shape in the file.
    pub header: Header,
    /// The elements, of the type that they are summed in.
    pub data: Data,
}

impl Array {
    /// Reads a file, and converts its elements to `dtype` where one is given.
    pub fn read(path: &Path, dtype: Option<DType>) -> Result<Array, NpyError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.map_err(|source| NpyError::Io { verb: "read", path: path.into(), source })?;
        Array::parse(&bytes, dtype).map_err(|problem| NpyError::Content { path: path.into(), problem })
    }

    /// Parses a file's bytes; the error completes a sentence that begins with the file's name.
    pub fn parse(bytes: &[u8], dtype: Option<DType>) -> Result<Array, String> {
        let (header, body) = Header::parse(bytes)?;
        let stored = header.dtype;
        let elements = header.elements().ok_or("names a shape that no memory holds")?;
        let expected = elements.checked_mul(stored.size()).ok_or("names a shape that no memory holds")?;
        if body.len() != expected {
            return Err(format!(
                "holds {} bytes of elements where its shape ({elements} of {stored}) needs {expected}: \
                 it is cut off or damaged",
                body.len()
            ));
        }
        let in_order = layout::to_c_order(body, &header);
        let data = Data::from_bytes(&in_order, stored, header.big_endian);
        let data = data.converted(dtype.unwrap_or(stored)).ok_or_else(|| {
            format!("holds {stored} and --dtype asks for {}; only floats become other floats", dtype.unwrap_or(stored))
        })?;
        Ok(Array { header, data })
    }

    /// The array as a file's bytes, in the type and order that it came in.
    pub fn to_bytes(&self) -> Vec<u8> {
        let stored = self.data.clone().converted(self.header.dtype).expect("it was converted from there");
        let body = stored.to_bytes(self.header.big_endian);
        let mut bytes = self.header.to_bytes();
        bytes.extend_from_slice(&layout::from_c_order(&body, &self.header));
        bytes
    }
}

/// A file that will be written. It is opened early, so that a wrong path is reported before any rank waits for the
/// result.
pub struct Destination {
    path: PathBuf,
    file: File,
}

impl Destination {
    /// Opens the file without changing its content.
    pub fn open(path: &Path) -> Result<Destination, NpyError> {
        match OpenOptions::new().write(true).create(true).truncate(false).open(path) {
            Ok(file) => Ok(Destination { path: path.into(), file }),
            Err(source) => Err(NpyError::Io { verb: "write", path: path.into(), source }),
        }
    }

    /// Replaces the file's content.
    pub fn write(mut self, array: &Array) -> Result<(), NpyError> {
        let bytes = array.to_bytes();
        // A device or a pipe has no length to set.
        let truncated = match self.file.metadata() {
            Ok(metadata) if metadata.is_file() => self.file.set_len(0),
            _ => Ok(()),
        };
        truncated.and_then(|()| self.file.write_all(&bytes)).map_err(|source| NpyError::Io {
            verb: "write",
            path: self.path,
            source,
        })
    }
}

#[cfg(test)]
mod tests;
