//! CustomOps and functions: the instruction of each for the types of its operands.

use super::body::{Body, Shape, Value};
use super::error;
use super::parser::Node;
use super::value::Type;
use crate::error::OperatorError;

impl Body {
    pub(super) fn select(&self, then: &str, otherwise: &str, condition: &str) -> String {
        match self.shape {
            Shape::Single => format!("(select {then} {otherwise} {condition})"),
            Shape::Vector { .. } => format!("(v128.bitselect {then} {otherwise} {condition})"),
        }
    }

    pub(super) fn unary(&mut self, sign: &str, value: Value) -> Result<Value, OperatorError> {
        let value = if sign == "not" { value } else { self.decided(value) };
        let Value { code, of } = value;
        let code = match (sign, of) {
            ("not", Type::Bool) if self.is_vector() => format!("(v128.not {code})"),
            ("not", Type::Bool) => format!("(i32.eqz {code})"),
            ("-", of) if of.is_float() || (of.is_integer() && self.is_vector()) => {
                format!("({}.neg {code})", self.prefix(of)?)
            }
            ("-", of) if of.is_integer() => format!("({0}.sub ({0}.const 0) {code})", of.wasm()),
            ("~", of) if of.is_integer() && self.is_vector() => format!("(v128.not {code})"),
            ("~", of) if of.is_integer() => format!("({0}.xor ({0}.const -1) {code})", of.wasm()),
            _ => return Err(error(format!("\"{sign}\" of {} has no meaning", of.name()))),
        };
        Ok(Value { code, of })
    }

    pub(super) fn binary(&mut self, sign: &'static str, left: Value, right: Value) -> Result<Value, OperatorError> {
        if matches!(sign, "and" | "or") {
            if left.of != Type::Bool || right.of != Type::Bool {
                return Err(error(format!("\"{sign}\" takes comparisons; of numbers there are & and |")));
            }
            let prefix = if self.is_vector() { "v128" } else { "i32" };
            return Ok(Value { code: format!("({prefix}.{sign} {} {})", left.code, right.code), of: Type::Bool });
        }
        if matches!(sign, "<<" | ">>") {
            return self.shift(sign, left, right);
        }
        let (left, right, of) = self.together(sign, left, right)?;
        let unsigned = of == Type::U64;
        let signed = |name: &str| match of.is_float() {
            true => name.to_owned(),
            false => format!("{name}_{}", if unsigned { "u" } else { "s" }),
        };
        let bits = |name: &str| if of.is_integer() { Some(name.to_owned()) } else { None };
        let (instruction, is_comparison) = match sign {
            "+" => (Some("add".to_owned()), false),
            "-" => (Some("sub".to_owned()), false),
            "*" => (Some("mul".to_owned()), false),
            "/" if of.is_float() => (Some("div".to_owned()), false),
            "/" => return Err(error("\"/\" is for floats: integers have >>, or write f64(x)".to_owned())),
            "&" => (bits("and"), false),
            "|" => (bits("or"), false),
            "^" => (bits("xor"), false),
            "<" => (Some(signed("lt")), true),
            ">" => (Some(signed("gt")), true),
            "<=" => (Some(signed("le")), true),
            ">=" => (Some(signed("ge")), true),
            "==" => (Some("eq".to_owned()), true),
            _ => (Some("ne".to_owned()), true),
        };
        let instruction = instruction
            .ok_or_else(|| error(format!("\"{sign}\" of {} has no meaning: it is for integers", of.name())))?;
        let prefix = if matches!(sign, "&" | "|" | "^") && self.is_vector() { "v128" } else { self.prefix(of)? };
        let of = if is_comparison { Type::Bool } else { of };
        Ok(Value { code: format!("({prefix}.{instruction} {} {})", left.code, right.code), of })
    }

    /// A shift by a written number or, for single values, by any value.
    fn shift(&mut self, sign: &str, left: Value, right: Value) -> Result<Value, OperatorError> {
        let (left, count) = (self.decided(left), right);
        if !left.of.is_integer() || !count.of.is_integer() {
            return Err(error(format!(
                "\"{sign}\" is for integers, not for {} and {}",
                left.of.name(),
                count.of.name()
            )));
        }
        let instruction = match (sign, left.of) {
            ("<<", _) => "shl",
            (_, Type::U64) => "shr_u",
            _ => "shr_s",
        };
        let code = match self.shape {
            Shape::Vector { .. } if count.of != Type::Whole => return Err(not_in_vectors()),
            Shape::Vector { .. } => {
                format!("({}.{instruction} {} (i32.const {}))", self.prefix(left.of)?, left.code, count.code)
            }
            Shape::Single => {
                let (left, count, of) = self.together(sign, left.clone(), count)?;
                return Ok(Value { code: format!("({}.{instruction} {} {})", of.wasm(), left.code, count.code), of });
            }
        };
        Ok(Value { code, of: left.of })
    }

    pub(super) fn call(&mut self, name: &str, arguments: &[Node]) -> Result<Value, OperatorError> {
        let values = arguments.iter().map(|node| self.value(node)).collect::<Result<Vec<_>, _>>()?;
        let expects = |count: usize| match values.len() == count {
            true => Ok(()),
            false => Err(error(format!(
                "{name} takes {count} value{}, not {}",
                if count == 1 { "" } else { "s" },
                values.len()
            ))),
        };
        match name {
            "min" | "max" => {
                expects(2)?;
                let [left, right] = [values[0].clone(), values[1].clone()];
                self.extreme(name, left, right)
            }
            "abs" => {
                expects(1)?;
                let value = self.decided(values[0].clone());
                if value.of.is_float() || (self.is_vector() && value.of.is_integer()) {
                    return Ok(Value { code: format!("({}.abs {})", self.prefix(value.of)?, value.code), ..value });
                }
                let negative = self.unary("-", value.clone())?;
                let zero = Value { code: "0".to_owned(), of: Type::Whole };
                let condition = self.binary("<", value.clone(), zero)?;
                Ok(Value { code: self.select(&negative.code, &value.code, &condition.code), ..value })
            }
            "sqrt" | "floor" | "ceil" => {
                expects(1)?;
                let value = self.decided(values[0].clone());
                if !value.of.is_float() {
                    return Err(error(format!("{name} of {}: write {name}(f64(x))", value.of.name())));
                }
                Ok(Value { code: format!("({}.{name} {})", self.prefix(value.of)?, value.code), ..value })
            }
            "exp" | "log" => {
                expects(1)?;
                let value = self.decided(values[0].clone());
                self.transcendental(name, value)
            }
            "f32" | "f64" | "i32" | "i64" => {
                expects(1)?;
                let value = values[0].clone();
                self.cast(name, value)
            }
            _ => Err(error(format!(
                "there is no function {name}: there are abs, min, max, sqrt, floor, ceil, exp, log, f32, f64, i32 and i64"
            ))),
        }
    }

    /// For floats IEEE 754's minimum and maximum: a NaN wins.
    fn extreme(&mut self, name: &str, left: Value, right: Value) -> Result<Value, OperatorError> {
        let (left, right, of) = self.together(name, left, right)?;
        if of.is_float() {
            return Ok(Value { code: format!("({}.{name} {} {})", self.prefix(of)?, left.code, right.code), of });
        }
        let condition = self.binary(if name == "min" { "<" } else { ">" }, left.clone(), right.clone())?;
        Ok(Value { code: self.select(&left.code, &right.code, &condition.code), of })
    }

    fn transcendental(&mut self, name: &str, value: Value) -> Result<Value, OperatorError> {
        if self.is_vector() {
            return Err(not_in_vectors());
        }
        self.uses_exp |= name == "exp";
        self.uses_log |= name == "log";
        match value.of {
            Type::F64 => Ok(Value { code: format!("(call ${name} {})", value.code), of: Type::F64 }),
            Type::F32 => {
                let code = format!("(f32.demote_f64 (call ${name} (f64.promote_f32 {})))", value.code);
                Ok(Value { code, of: Type::F32 })
            }
            of => Err(error(format!("{name} of {}: write {name}(f64(x))", of.name()))),
        }
    }

    fn cast(&mut self, name: &str, value: Value) -> Result<Value, OperatorError> {
        if self.is_vector() && !value.of.is_literal() {
            return Err(not_in_vectors());
        }
        let to = match name {
            "f32" => Type::F32,
            "f64" => Type::F64,
            "i32" => Type::I32,
            _ => Type::I64,
        };
        let value = if value.of.meet(to) == Some(to) {
            self.as_type(value.clone(), to).unwrap_or(value)
        } else {
            self.decided(value)
        };
        let sign = if value.of == Type::U64 { "u" } else { "s" };
        let (from, code) = (value.of.wasm(), &value.code);
        let code = match (value.of, to) {
            (of, to) if of == to => code.clone(),
            (Type::Bool, Type::I32) => code.clone(),
            (Type::Bool, Type::I64) => format!("(i64.extend_i32_u {code})"),
            (Type::I64 | Type::U64, Type::I32) => format!("(i32.wrap_i64 {code})"),
            (Type::U64, Type::I64) => code.clone(),
            (Type::F64, Type::F32) => format!("(f32.demote_f64 {code})"),
            (of, to) if of.is_integer() && to.is_float() => format!("({}.convert_{from}_{sign} {code})", to.wasm()),
            (of, to) if of.is_float() && to.is_integer() => format!("({}.trunc_sat_{from}_s {code})", to.wasm()),
            (of, _) => return Err(error(format!("{name}(...) of {} has no meaning", of.name()))),
        };
        Ok(Value { code, of: to })
    }
}

/// The error that makes elements be computed one by one.
pub(super) fn not_in_vectors() -> OperatorError {
    error("not in vectors".to_owned())
}
