//! Element types and operators, with their codes on the wire.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary16.
    F16 = 2,
    /// bfloat16: binary32 with 7 bits of fraction.
    BF16 = 3,
    /// Two's complement, 32 bits; sums wrap modulo 2^32.
    I32 = 4,
}

impl DType {
    /// Every type, in the order of its code.
    pub const ALL: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::I32];

    /// Bytes of one element in memory.
    pub const fn size(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
        }
    }

    /// True for types that travel as scaled fixed point and so need a block exponent.
    pub const fn is_float(self) -> bool {
        !matches!(self, DType::I32)
    }

    /// The short name, as on the command line and in `docs/wire.md`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
        }
    }

    /// The type with this code on the wire.
    pub fn from_code(code: u8) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| *dtype as u8 == code)
    }

    /// The type with this short name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How elements of the same index on all ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum.
    Sum = 1,
    /// The sum divided by the number of ranks; integers round towards zero.
    Avg = 2,
}

impl ReduceOp {
    /// Every operator, in the order of its code.
    pub const ALL: [ReduceOp; 2] = [ReduceOp::Sum, ReduceOp::Avg];

    /// The short name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
        }
    }

    /// The operator with this code on the wire.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| *op as u8 == code)
    }

    /// The operator with this short name.
    pub fn from_name(name: &str) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
