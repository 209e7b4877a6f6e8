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
    /// IEEE 754 binary64.
    F64 = 5,
    /// Two's complement, 8 bits.
    I8 = 6,
    /// Two's complement, 16 bits.
    I16 = 7,
    /// Two's complement, 64 bits.
    I64 = 8,
    /// Unsigned, 8 bits.
    U8 = 9,
}

impl DType {
    /// Every type, in the order of its code.
    pub const ALL: [DType; 9] =
        [DType::F32, DType::F16, DType::BF16, DType::I32, DType::F64, DType::I8, DType::I16, DType::I64, DType::U8];

    /// The types that can travel as 32-bit fixed point, in the order of their codes.
    pub const FIXED: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::I32];

    /// Bytes of one element in memory.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 | DType::I16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// True for floats, whatever their width. As fixed point they travel scaled, and so need a block exponent.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }

    /// True for integers, signed or not.
    pub const fn is_integer(self) -> bool {
        !self.is_float()
    }

    /// The short name, as on the command line and in `docs/wire.md`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I64 => "i64",
            DType::U8 => "u8",
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

/// How the elements of the same index on all ranks are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum; integers wrap.
    Sum = 1,
    /// The sum divided by the number of ranks; integers round towards zero.
    Avg = 2,
    /// The minimum; for floats IEEE 754's `minimum`: a NaN wins, and -0 is less than +0.
    Min = 3,
    /// The maximum; for floats IEEE 754's `maximum`: a NaN wins, and +0 is greater than -0.
    Max = 4,
    /// The product; integers wrap.
    Prod = 5,
    /// The bitwise and of integers.
    Band = 6,
    /// The bitwise or of integers.
    Bor = 7,
    /// The bitwise exclusive or of integers.
    Bxor = 8,
    /// One of the job's own operators, by its number in the job. Its elements are opaque: bytes ([`DType::U8`]), as
    /// many for each element as the operator says.
    Custom(u8) = 128,
}

impl ReduceOp {
    /// The most operators that a job may have of its own.
    pub const MAX_CUSTOM: u8 = 8;
    /// The code of a job's first own operator.
    const FIRST_CUSTOM: u8 = 128;

    /// Every operator but a job's own, in the order of its code.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Avg,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Prod,
        ReduceOp::Band,
        ReduceOp::Bor,
        ReduceOp::Bxor,
    ];

    /// The operators that fixed point can serve.
    pub const FIXED: [ReduceOp; 2] = [ReduceOp::Sum, ReduceOp::Avg];

    /// The short name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Avg => "avg",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Prod => "prod",
            ReduceOp::Band => "band",
            ReduceOp::Bor => "bor",
            ReduceOp::Bxor => "bxor",
            ReduceOp::Custom(_) => "own",
        }
    }

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            ReduceOp::Sum => 1,
            ReduceOp::Avg => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Prod => 5,
            ReduceOp::Band => 6,
            ReduceOp::Bor => 7,
            ReduceOp::Bxor => 8,
            ReduceOp::Custom(number) => ReduceOp::FIRST_CUSTOM + number,
        }
    }

    /// True for the operators on bits, which only integers have.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor)
    }

    /// True if the operator has a meaning for elements of this type.
    pub const fn takes(self, dtype: DType) -> bool {
        match self {
            ReduceOp::Custom(_) => matches!(dtype, DType::U8),
            _ => dtype.is_integer() || !self.is_bitwise(),
        }
    }

    /// The operator with this code on the wire.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        match code.checked_sub(ReduceOp::FIRST_CUSTOM) {
            Some(number) => (number < ReduceOp::MAX_CUSTOM).then_some(ReduceOp::Custom(number)),
            None => ReduceOp::ALL.into_iter().find(|op| op.code() == code),
        }
    }

    /// The operator with this short name. A job's own operators have none.
    pub fn from_name(name: &str) -> Option<ReduceOp> {
        ReduceOp::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReduceOp::Custom(number) => write!(f, "job's operator {number}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// True if `codec::encode` and `codec::decode` serve the type and the operator: sums and averages of the types of
/// [`DType::FIXED`]. Code that accepts a collective in fixed point checks this first.
pub fn has_fixed_point(dtype: DType, op: ReduceOp) -> bool {
    DType::FIXED.contains(&dtype) && ReduceOp::FIXED.contains(&op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_those_of_the_wire() {
        for (at, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, at + 1, "{dtype}");
            assert_eq!(DType::from_code(dtype as u8), Some(dtype));
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        for (at, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(op.code()), at + 1, "{op}");
            assert_eq!(ReduceOp::from_code(op.code()), Some(op));
            assert_eq!(ReduceOp::from_name(op.name()), Some(op));
        }
        assert_eq!((DType::from_code(0), DType::from_code(10)), (None, None));
        assert_eq!((ReduceOp::from_code(0), ReduceOp::from_code(9)), (None, None));
        for number in 0..ReduceOp::MAX_CUSTOM {
            let own = ReduceOp::Custom(number);
            assert_eq!((own.code(), ReduceOp::from_code(own.code())), (128 + number, Some(own)));
        }
        assert_eq!(ReduceOp::from_code(128 + ReduceOp::MAX_CUSTOM), None);
    }

    #[test]
    fn fixed_point_serves_sums_and_averages_of_four_types() {
        let served =
            |dtype| ReduceOp::ALL.into_iter().filter(move |&op| has_fixed_point(dtype, op)).collect::<Vec<_>>();
        for dtype in DType::ALL {
            let expected: &[_] = if DType::FIXED.contains(&dtype) { &ReduceOp::FIXED } else { &[] };
            assert_eq!(served(dtype), expected, "{dtype}");
        }
    }

    #[test]
    fn floats_have_no_bitwise_operators() {
        assert!(!ReduceOp::Bxor.takes(DType::F64));
        assert!(ReduceOp::Bxor.takes(DType::U8) && ReduceOp::Max.takes(DType::F64));
    }
}
