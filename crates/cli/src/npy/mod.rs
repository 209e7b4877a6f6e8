//! Arrays in `.npy` files: read, checked, converted, and written back as they came.
//!
//! Start with [`Array::read`]. Own code rather than a crate: the header is one fixed form, and a wrong file must be a
//! sentence whatever is wrong with it (the crates parse all Python literals by recursion, and multiply shapes unchecked).

mod header;
mod layout;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use tributary_numeric::DType;

pub use header::Header;

/// Why a file is no array that can be summed.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The system said no.
    #[error("cannot {verb} '{}': {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("'{}' {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// The elements of an array, in C order (the last index runs fastest) whatever the file's order.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// IEEE 754 binary32.
    F32(Vec<f32>),
    /// IEEE 754 binary16.
    F16(Vec<f16>),
    /// bfloat16.
    BF16(Vec<bf16>),
    /// Two's complement, 32 bits.
    I32(Vec<i32>),
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

/// A file that will be written: opened first, so that a wrong path is told before anybody waits for the result.
pub struct Destination {
    path: PathBuf,
    file: File,
}

impl Destination {
    /// Opens the file without touching what is in it.
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

impl Data {
    /// The elements' type.
    pub fn dtype(&self) -> DType {
        match self {
            Data::F32(_) => DType::F32,
            Data::F16(_) => DType::F16,
            Data::BF16(_) => DType::BF16,
            Data::I32(_) => DType::I32,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Data::F32(values) => values.len(),
            Data::F16(values) => values.len(),
            Data::BF16(values) => values.len(),
            Data::I32(values) => values.len(),
        }
    }

    fn from_bytes(bytes: &[u8], dtype: DType, big_endian: bool) -> Data {
        match dtype {
            DType::F32 => Data::F32(words(bytes, big_endian).map(f32::from_bits).collect()),
            DType::F16 => Data::F16(half_words(bytes, big_endian).map(f16::from_bits).collect()),
            DType::BF16 => Data::BF16(half_words(bytes, big_endian).map(bf16::from_bits).collect()),
            DType::I32 => Data::I32(words(bytes, big_endian).map(|word| word as i32).collect()),
            other => unreachable!("no header is read as {other}"),
        }
    }

    /// The elements as they are in a file.
    pub fn to_bytes(&self, big_endian: bool) -> Vec<u8> {
        let word = |word: u32| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        let half_word = |word: u16| if big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
        match self {
            Data::F32(values) => values.iter().flat_map(|value| word(value.to_bits())).collect(),
            Data::F16(values) => values.iter().flat_map(|value| half_word(value.to_bits())).collect(),
            Data::BF16(values) => values.iter().flat_map(|value| half_word(value.to_bits())).collect(),
            Data::I32(values) => values.iter().flat_map(|&value| word(value as u32)).collect(),
        }
    }

    /// The same values in another float type, rounded to nearest even; `None` between integers and floats.
    fn converted(self, dtype: DType) -> Option<Data> {
        if self.dtype() == dtype {
            return Some(self);
        }
        let floats: Vec<f32> = match self {
            Data::F32(values) => values,
            Data::F16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Data::BF16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Data::I32(_) => return None,
        };
        match dtype {
            DType::F32 => Some(Data::F32(floats)),
            DType::F16 => Some(Data::F16(floats.iter().map(|&value| f16::from_f32(value)).collect())),
            DType::BF16 => Some(Data::BF16(floats.iter().map(|&value| bf16::from_f32(value)).collect())),
            _ => None,
        }
    }
}

fn words(bytes: &[u8], big_endian: bool) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(move |chunk| {
        let chunk = chunk.try_into().expect("4 bytes");
        if big_endian { u32::from_be_bytes(chunk) } else { u32::from_le_bytes(chunk) }
    })
}

fn half_words(bytes: &[u8], big_endian: bool) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(move |chunk| {
        let chunk = chunk.try_into().expect("2 bytes");
        if big_endian { u16::from_be_bytes(chunk) } else { u16::from_le_bytes(chunk) }
    })
}

#[cfg(test)]
mod tests;
