//! The elements of an array, of each type that can be reduced, and their bytes in a file.

use half::{bf16, f16};
use tributary_numeric::{DType, Element, round_to_odd};

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
    /// IEEE 754 binary64.
    F64(Vec<f64>),
    /// Two's complement, 8 bits.
    I8(Vec<i8>),
    /// Two's complement, 16 bits.
    I16(Vec<i16>),
    /// Two's complement, 64 bits.
    I64(Vec<i64>),
    /// Unsigned, 8 bits.
    U8(Vec<u8>),
}

/// Evaluates an expression for elements of any type: `each!(data, values => expression)`.
macro_rules! each {
    ($data:expr, $values:ident => $do:expr) => {
        match $data {
            $crate::npy::Data::F32($values) => $do,
            $crate::npy::Data::F16($values) => $do,
            $crate::npy::Data::BF16($values) => $do,
            $crate::npy::Data::I32($values) => $do,
            $crate::npy::Data::F64($values) => $do,
            $crate::npy::Data::I8($values) => $do,
            $crate::npy::Data::I16($values) => $do,
            $crate::npy::Data::I64($values) => $do,
            $crate::npy::Data::U8($values) => $do,
        }
    };
}
pub(crate) use each;

/// Makes data of a type that is known only at run time: `of_type!(dtype, expression)`, where the expression is a vector
/// of any requested element type.
macro_rules! of_type {
    ($dtype:expr, $make:expr) => {
        match $dtype {
            tributary_numeric::DType::F32 => $crate::npy::Data::F32($make),
            tributary_numeric::DType::F16 => $crate::npy::Data::F16($make),
            tributary_numeric::DType::BF16 => $crate::npy::Data::BF16($make),
            tributary_numeric::DType::I32 => $crate::npy::Data::I32($make),
            tributary_numeric::DType::F64 => $crate::npy::Data::F64($make),
            tributary_numeric::DType::I8 => $crate::npy::Data::I8($make),
            tributary_numeric::DType::I16 => $crate::npy::Data::I16($make),
            tributary_numeric::DType::I64 => $crate::npy::Data::I64($make),
            tributary_numeric::DType::U8 => $crate::npy::Data::U8($make),
        }
    };
}
pub(crate) use of_type;

/// An element type with its place in [`Data`] and its bytes in a file.
pub trait Stored: Element {
    /// Data of this type.
    fn wrap(values: Vec<Self>) -> Data;
    /// The elements in a file's bytes.
    fn read(bytes: &[u8], big_endian: bool) -> Vec<Self>;
    /// Adds the element to a file's bytes.
    fn write(self, bytes: &mut Vec<u8>, big_endian: bool);
}

macro_rules! stored {
    ($($type:ty => $variant:ident),*) => {
        $(impl Stored for $type {
            fn wrap(values: Vec<$type>) -> Data {
                Data::$variant(values)
            }

            fn read(bytes: &[u8], big_endian: bool) -> Vec<$type> {
                let one = |chunk: &[u8]| {
                    let chunk = chunk.try_into().expect("the chunk is one element");
                    if big_endian { <$type>::from_be_bytes(chunk) } else { <$type>::from_le_bytes(chunk) }
                };
                bytes.chunks_exact(size_of::<$type>()).map(one).collect()
            }

            fn write(self, bytes: &mut Vec<u8>, big_endian: bool) {
                bytes.extend_from_slice(&if big_endian { self.to_be_bytes() } else { self.to_le_bytes() });
            }
        })*
    };
}

stored!(
    f32 => F32, f16 => F16, bf16 => BF16, i32 => I32, f64 => F64, i8 => I8, i16 => I16, i64 => I64, u8 => U8
);

impl Data {
    /// The elements' type.
    pub fn dtype(&self) -> DType {
        fn of<T: Element>(_: &[T]) -> DType {
            T::DTYPE
        }
        each!(self, values => of(values))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        each!(self, values => values.len())
    }

    /// The elements in a file's bytes.
    pub(super) fn from_bytes(bytes: &[u8], dtype: DType, big_endian: bool) -> Data {
        of_type!(dtype, Stored::read(bytes, big_endian))
    }

    /// The elements as a file's bytes.
    pub fn to_bytes(&self, big_endian: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len() * self.dtype().size());
        each!(self, values => values.iter().for_each(|&value| value.write(&mut bytes, big_endian)));
        bytes
    }

    /// The same values in another float type, rounded once, to nearest even; `None` between integers and floats, and
    /// between integers.
    pub(super) fn converted(self, dtype: DType) -> Option<Data> {
        if self.dtype() == dtype {
            return Some(self);
        }
        let floats: Vec<f64> = match self {
            Data::F64(values) => values,
            Data::F32(values) => values.into_iter().map(f64::from).collect(),
            Data::F16(values) => values.into_iter().map(f64::from).collect(),
            Data::BF16(values) => values.into_iter().map(f64::from).collect(),
            _ => return None,
        };
        let floats = floats.into_iter();
        match dtype {
            DType::F64 => Some(Data::F64(floats.collect())),
            DType::F32 => Some(Data::F32(floats.map(|value| value as f32).collect())),
            // On some processors library conversions from 64 to 16 bits round twice.
            DType::F16 => Some(Data::F16(floats.map(|value| f16::from_f32(round_to_odd(value))).collect())),
            DType::BF16 => Some(Data::BF16(floats.map(|value| bf16::from_f32(round_to_odd(value))).collect())),
            _ => None,
        }
    }
}
