//! The types of values in expressions, and what each operator is for them.

use crate::element::Scalar;

/// A value's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    I32,
    I64,
    /// 64 bits without a sign.
    U64,
    F32,
    F64,
    /// Of a comparison.
    Bool,
    /// A number that was written down and takes the type of its surroundings.
    Whole,
    /// The same of one with a point.
    Real,
}

impl Type {
    /// What a number of an element is computed as; `None` of what expressions cannot compute with.
    pub fn of(scalar: Scalar) -> Option<Type> {
        Some(match scalar {
            Scalar::Int { bytes: 1 | 2, .. } | Scalar::Int { bytes: 4, signed: true } => Type::I32,
            Scalar::Int { bytes: 4, signed: false } | Scalar::Int { signed: true, .. } => Type::I64,
            Scalar::Int { .. } => Type::U64,
            Scalar::F32 => Type::F32,
            Scalar::F64 => Type::F64,
            Scalar::F16 | Scalar::Bf16 | Scalar::Opaque(_) => return None,
        })
    }

    pub fn is_float(self) -> bool {
        matches!(self, Type::F32 | Type::F64 | Type::Real)
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Type::I32 | Type::I64 | Type::U64 | Type::Whole)
    }

    pub fn is_literal(self) -> bool {
        matches!(self, Type::Whole | Type::Real)
    }

    /// The type in WebAssembly.
    pub fn wasm(self) -> &'static str {
        match self {
            Type::I32 | Type::Bool | Type::Whole => "i32",
            Type::I64 | Type::U64 => "i64",
            Type::F32 => "f32",
            Type::F64 | Type::Real => "f64",
        }
    }

    /// Several of them in a vector, where vector instructions do what ordinary ones do.
    pub fn lanes(self) -> Option<&'static str> {
        match self {
            Type::I32 => Some("i32x4"),
            Type::I64 => Some("i64x2"),
            Type::F32 => Some("f32x4"),
            Type::F64 => Some("f64x2"),
            Type::U64 | Type::Bool | Type::Whole | Type::Real => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::U64 => "u64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Bool => "a comparison",
            Type::Whole => "a whole number",
            Type::Real => "a number with a point",
        }
    }

    /// The type that two numbers meet in; `None` where one must be changed by hand.
    pub fn meet(self, other: Type) -> Option<Type> {
        use Type::*;
        match (self, other) {
            (a, b) if a == b => Some(a),
            (Whole, b) | (b, Whole) if b != Bool => Some(b),
            (Real, F32 | F64) => Some(other),
            (F32 | F64, Real) => Some(self),
            (I32, I64) | (I64, I32) => Some(I64),
            (F32, F64) | (F64, F32) => Some(F64),
            _ => None,
        }
    }
}
