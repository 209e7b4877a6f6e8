//! The types of values in expressions, and the meaning of operators for them.

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
    /// The result of a comparison.
    Bool,
    /// A written number, which takes the type of its context.
    Whole,
    /// A written number with a point, which takes the type of its context.
    Real,
}

impl Type {
    /// The type in which an element's number is computed; `None` if expressions cannot compute with it.
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

    /// The type of a vector of several such values, if vector instructions do the same as ordinary ones.
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

    /// The common type of two numbers; `None` if one of them must be converted explicitly.
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
