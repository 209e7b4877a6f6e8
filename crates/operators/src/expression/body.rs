//! The body of a loop: lines become code, and each value gets a type.

use std::fmt::Write as _;

use super::error;
use super::parser::{Line, Node};
use super::value::Type;
use crate::element::{Element, Field, Scalar};
use crate::error::OperatorError;

/// Whether values are single, or several in a vector register.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Single,
    /// Vectors that begin this many bytes behind the address of the operands.
    Vector {
        offset: usize,
    },
}

/// Code that leaves a value on the stack.
#[derive(Clone)]
pub struct Value {
    pub code: String,
    pub of: Type,
}

/// The body of a loop.
pub struct Body {
    fields: Vec<Field>,
    /// The types of written numbers with and without a point, where the context gives no type.
    real: Type,
    whole: Type,
    pub(super) shape: Shape,
    /// The names of lines, with the types of their values.
    names: Vec<(String, Type)>,
    pub locals: String,
    pub code: String,
    pub uses_exp: bool,
    pub uses_log: bool,
}

impl Body {
    pub fn new(element: &Element, shape: Shape) -> Body {
        let has = |of: Type| element.fields().iter().any(|field| Type::of(field.scalar) == Some(of));
        let real = if has(Type::F32) && !has(Type::F64) { Type::F32 } else { Type::F64 };
        let is_all_float = element.fields().iter().all(|field| Type::of(field.scalar).is_some_and(Type::is_float));
        Body {
            fields: element.fields().to_vec(),
            real,
            whole: if is_all_float { real } else { Type::I32 },
            shape,
            names: Vec::new(),
            locals: String::new(),
            code: String::new(),
            uses_exp: false,
            uses_log: false,
        }
    }

    pub fn lines(&mut self, lines: &[Line]) -> Result<(), OperatorError> {
        let is_plain = matches!(&self.fields[..], [only] if only.name.is_empty());
        let (last, before) = lines.split_last().expect("there is a line");
        let mut results: Vec<Option<String>> = vec![None; self.fields.len()];
        for line in before.iter().chain((!is_plain).then_some(last)) {
            let Some(name) = &line.name else {
                return Err(error(match is_plain {
                    true => "only the last line may be without a name".to_owned(),
                    false => {
                        format!("a line without a name: say which field it is, as in \"{} = ...\"", self.fields[0].name)
                    }
                }));
            };
            let field = self.fields.iter().position(|field| field.name == *name && !is_plain);
            let slot = match field {
                Some(number) if results[number].is_some() => {
                    return Err(error(format!("the field {name} is there twice")));
                }
                Some(_) => format!("$field_{name}"),
                None => self.free_name(name)?,
            };
            let value = self.value(&line.value)?;
            let value = match field {
                Some(number) => self.stored_type(value, number)?,
                None => self.decided(value),
            };
            let local = if self.shape == Shape::Single { value.of.wasm() } else { "v128" };
            writeln!(self.locals, "    (local {slot}{} {local})", self.suffix()).expect("text can be written");
            writeln!(self.code, "      (local.set {slot}{} {})", self.suffix(), value.code)
                .expect("text can be written");
            match field {
                Some(number) => results[number] = Some(format!("(local.get {slot}{})", self.suffix())),
                None => self.names.push((name.clone(), value.of)),
            }
        }
        if is_plain {
            if let Some(name) = &last.name {
                return Err(error(format!("the last line is the result: leave \"{name} =\" out")));
            }
            let value = self.value(&last.value)?;
            results[0] = Some(self.stored_type(value, 0)?.code);
        }
        for (number, result) in results.into_iter().enumerate() {
            let Some(code) = result else {
                return Err(error(format!(
                    "the field {} is missing: add a line \"{0} = ...\"",
                    self.fields[number].name
                )));
            };
            let (store, offset) = self.store(number);
            writeln!(self.code, "      ({store} offset={offset} (local.get $acc) {code})")
                .expect("text can be written");
        }
        Ok(())
    }

    /// Locals that hold vectors have names of their own.
    fn suffix(&self) -> &'static str {
        if self.shape == Shape::Single { "" } else { "_v" }
    }

    fn free_name(&self, name: &str) -> Result<String, OperatorError> {
        let is_taken = ["a", "b", "if", "else", "and", "or", "not"].contains(&name);
        match is_taken || self.names.iter().any(|(known, _)| known == name) {
            true => Err(error(format!("the name {name} is taken: choose another"))),
            false => Ok(format!("$name_{name}")),
        }
    }

    fn store(&self, number: usize) -> (&'static str, usize) {
        let Field { scalar, offset, .. } = self.fields[number];
        if let Shape::Vector { offset } = self.shape {
            return ("v128.store", offset);
        }
        let store = match scalar {
            Scalar::Int { bytes: 1, .. } => "i32.store8",
            Scalar::Int { bytes: 2, .. } => "i32.store16",
            Scalar::Int { bytes: 4, signed: true } => "i32.store",
            Scalar::Int { bytes: 4, signed: false } => "i64.store32",
            Scalar::F32 => "f32.store",
            Scalar::F64 => "f64.store",
            _ => "i64.store",
        };
        (store, offset)
    }

    fn operand(&self, side: &str, number: usize) -> Value {
        let Field { scalar, offset, .. } = self.fields[number];
        let (base, of) = (if side == "a" { "$acc" } else { "$with" }, Type::of(scalar).expect("it was checked"));
        if let Shape::Vector { offset } = self.shape {
            return Value { code: format!("(v128.load offset={offset} (local.get {base}))"), of };
        }
        let load = match scalar {
            Scalar::Int { bytes: 1, signed: true } => "i32.load8_s",
            Scalar::Int { bytes: 1, signed: false } => "i32.load8_u",
            Scalar::Int { bytes: 2, signed: true } => "i32.load16_s",
            Scalar::Int { bytes: 2, signed: false } => "i32.load16_u",
            Scalar::Int { bytes: 4, signed: true } => "i32.load",
            Scalar::Int { bytes: 4, signed: false } => "i64.load32_u",
            Scalar::F32 => "f32.load",
            Scalar::F64 => "f64.load",
            _ => "i64.load",
        };
        Value { code: format!("({load} offset={offset} (local.get {base}))"), of }
    }

    /// Converts a value to the type in which a field is stored.
    fn stored_type(&self, value: Value, number: usize) -> Result<Value, OperatorError> {
        let (scalar, wanted) =
            (self.fields[number].scalar, Type::of(self.fields[number].scalar).expect("it was checked"));
        match self.as_type(value.clone(), wanted) {
            Some(value) => Ok(value),
            None if value.of == Type::Bool => Err(error(
                "the result is a comparison: write \"1 if ... else 0\", or the values that it chooses".to_owned(),
            )),
            None => Err(error(format!(
                "the result is {} and the element {scalar}: write {wanted}(...)",
                value.of.name(),
                wanted = wanted.name()
            ))),
        }
    }

    /// Converts a value to a type, if that needs no explicit conversion.
    pub(super) fn as_type(&self, value: Value, wanted: Type) -> Option<Value> {
        let code = match (value.of, wanted) {
            (of, wanted) if of == wanted => value.code,
            (Type::Whole | Type::Real, _) if value.of.meet(wanted) == Some(wanted) => {
                self.constant(&value.code, wanted)?
            }
            (Type::I32, Type::I64) if self.shape == Shape::Single => format!("(i64.extend_i32_s {})", value.code),
            (Type::F32, Type::F64) if self.shape == Shape::Single => format!("(f64.promote_f32 {})", value.code),
            _ => return None,
        };
        Some(Value { code, of: wanted })
    }

    /// The code of a written number, whose code is its text until its type is known.
    fn constant(&self, text: &str, of: Type) -> Option<String> {
        let text = match (of.is_float(), text.parse::<i128>()) {
            (false, Ok(value)) => {
                let (least, most) = match of {
                    Type::I32 => (i128::from(i32::MIN), i128::from(u32::MAX)),
                    _ => (i128::from(i64::MIN), i128::from(u64::MAX)),
                };
                (least..=most).contains(&value).then(|| value.to_string())?
            }
            _ => text.to_owned(),
        };
        let code = format!("({}.const {text})", of.wasm());
        match self.shape {
            Shape::Single => Some(code),
            Shape::Vector { .. } => Some(format!("({}.splat {code})", of.lanes()?)),
        }
    }

    /// Gives a written number its own type.
    pub(super) fn decided(&self, value: Value) -> Value {
        let wanted = match value.of {
            Type::Whole => self.whole,
            Type::Real => self.real,
            _ => return value,
        };
        self.as_type(value.clone(), wanted).unwrap_or(value)
    }

    /// Converts two values to one type.
    pub(super) fn together(
        &self,
        what: &str,
        left: Value,
        right: Value,
    ) -> Result<(Value, Value, Type), OperatorError> {
        let (one, other) = (left.of, right.of);
        let of = one.meet(other).filter(|_| one != Type::Bool);
        let of = of.map(|of| {
            if of == Type::Whole {
                self.whole
            } else if of == Type::Real {
                self.real
            } else {
                of
            }
        });
        let both = of.and_then(|of| Some((self.as_type(left, of)?, self.as_type(right, of)?, of)));
        both.ok_or_else(|| {
            error(format!(
                "\"{what}\" of {} and {}: change one of them, as in f32(x) or i32(x)",
                one.name(),
                other.name()
            ))
        })
    }

    pub(super) fn is_vector(&self) -> bool {
        self.shape != Shape::Single
    }

    /// The prefix of the names of a type's instructions.
    pub(super) fn prefix(&self, of: Type) -> Result<&'static str, OperatorError> {
        match self.shape {
            Shape::Single => Ok(of.wasm()),
            Shape::Vector { .. } => of.lanes().ok_or_else(super::instructions::not_in_vectors),
        }
    }

    pub(super) fn value(&mut self, node: &Node) -> Result<Value, OperatorError> {
        match node {
            Node::Int(value) => Ok(Value { code: value.to_string(), of: Type::Whole }),
            Node::Float(value) => Ok(Value { code: format!("{value:e}"), of: Type::Real }),
            Node::Name(name) => self.name(name),
            Node::Field(side, field) if side == "a" || side == "b" => {
                let number = self.fields.iter().position(|known| known.name == *field && !field.is_empty());
                number.map(|number| self.operand(side, number)).ok_or_else(|| {
                    let known: Vec<&str> = self.fields.iter().map(|field| field.name.as_str()).collect();
                    error(match known[..] {
                        [""] => format!("{side} has no field {field}: it is one number"),
                        _ => format!("{side} has no field {field}: it has {}", known.join(", ")),
                    })
                })
            }
            Node::Field(name, _) => Err(error(format!("{name} has no fields: a and b have"))),
            Node::Unary(sign, value) => {
                let value = self.value(value)?;
                self.unary(sign, value)
            }
            Node::Binary(sign, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                self.binary(sign, left, right)
            }
            Node::If { condition, then, otherwise } => {
                let condition = self.value(condition)?;
                if condition.of != Type::Bool {
                    return Err(error(format!("\"if\" takes a comparison, not {}", condition.of.name())));
                }
                let (then, otherwise) = (self.value(then)?, self.value(otherwise)?);
                let (then, otherwise, of) = self.together("if", then, otherwise)?;
                Ok(Value { code: self.select(&then.code, &otherwise.code, &condition.code), of })
            }
            Node::Call(name, arguments) => self.call(name, arguments),
        }
    }

    fn name(&self, name: &str) -> Result<Value, OperatorError> {
        if let Some((_, of)) = self.names.iter().find(|(known, _)| known == name) {
            return Ok(Value { code: format!("(local.get $name_{name}{})", self.suffix()), of: *of });
        }
        match (name, &self.fields[..]) {
            ("a" | "b", [only]) if only.name.is_empty() => Ok(self.operand(name, 0)),
            ("a" | "b", [first, ..]) => Err(error(format!("{name} has fields: write {name}.{}", first.name))),
            _ => Err(error(format!("nothing is called {name}: the elements are a and b"))),
        }
    }
}
