//! From lines to a module's text: it finds types, and makes each operator an instruction.
//!
//! The same walk serves one element and, with a [`Shape`] of vectors, several in a vector register.

use super::arithmetic::Arithmetic;
use super::body::{Body, Shape};
use super::error;
use super::math;
use super::parser::Line;
use super::value::Type;
use crate::element::{Element, Field};
use crate::error::OperatorError;
use crate::sections;

/// How many vectors one turn of the loop takes, at most: a turn's own instructions (places, count, fuel) take as long as one vector's
/// sum.
const UNROLLED: usize = 8;
/// The same where a vector takes more instructions than this: the module would grow, and a turn's own instructions weigh less.
const UNROLLED_LONG: usize = 4;
const LONG: usize = 32;
pub const VECTOR_BYTES: usize = 16;

/// What a loop does in a turn.
pub struct Turn {
    pub name: String,
    /// Of each operand.
    pub bytes: usize,
    pub elements: usize,
    pub code: String,
}

pub fn module(lines: &[Line], element: &Element, has_vectors: bool) -> Result<String, OperatorError> {
    for field in element.fields() {
        if Type::of(field.scalar).is_none() {
            return Err(error(format!(
                "expressions cannot compute with {}: take WAT or C, or another type",
                field.scalar
            )));
        }
    }
    let mut single = Body::new(element, Shape::Single);
    single.lines(lines)?;
    let one = vectors(lines, element, 1).filter(|_| has_vectors);
    let several = if one.as_ref().is_some_and(|one| instructions(&one.code) > LONG) { UNROLLED_LONG } else { UNROLLED };
    let step = element.size();
    // First several vectors at a time, then one, then single elements.
    let (locals, turns, section) = if let Some(arithmetic) = Arithmetic::of(lines, element).filter(|_| has_vectors) {
        let turns = vec![arithmetic.vectors(several)?, arithmetic.vectors(1)?, arithmetic.each()?];
        let section = format!("\n  (@custom \"{}\" \"{}\")", sections::EXPRESSION, arithmetic.section());
        (arithmetic.locals(several), turns, section)
    } else {
        let (mut locals, mut turns) = (single.locals.clone(), Vec::new());
        for (number, body) in [(several, vectors(lines, element, several)), (1, one.clone())] {
            let Some(body) = body.filter(|_| one.is_some()) else { continue };
            let bytes = number * VECTOR_BYTES;
            turns.push(Turn { name: format!("vectors_{number}"), bytes, elements: bytes / step, code: body.code });
            if number == several {
                locals += &body.locals;
            }
        }
        turns.push(Turn { name: "each".to_owned(), bytes: step, elements: 1, code: single.code });
        (locals, turns, String::new())
    };
    let combine: String = turns.iter().map(repeated).collect();
    let exp = if single.uses_exp { math::exp() } else { String::new() };
    let log = if single.uses_log { math::log() } else { String::new() };
    Ok(format!(
        "(module
  (memory (export \"memory\") 1)
  (global (export \"tributary_abi\") i32 (i32.const 1))
  (global (export \"element_size\") i32 (i32.const {step}))
  (func (export \"combine\") (param $acc i32) (param $with i32) (param $n i32)
{locals}{combine}  ){exp}{log}{section})\n"
    ))
}

/// How many instructions there are in code: each has its parentheses.
fn instructions(code: &str) -> usize {
    code.matches('(').count()
}

/// A loop over both operands, until fewer elements are left than a turn takes.
fn repeated(turn: &Turn) -> String {
    let Turn { name, bytes, elements, code } = turn;
    let is_over = match elements {
        1 => "(i32.eqz (local.get $n))".to_owned(),
        _ => format!("(i32.lt_u (local.get $n) (i32.const {elements}))"),
    };
    format!(
        "    (block $after_{name} (loop ${name}
      (br_if $after_{name} {is_over})
{code}      (local.set $acc (i32.add (local.get $acc) (i32.const {bytes})))
      (local.set $with (i32.add (local.get $with) (i32.const {bytes})))
      (local.set $n (i32.sub (local.get $n) (i32.const {elements})))
      (br ${name})))\n"
    )
}

/// The body of a loop over so many vectors, if vector instructions can do all that the lines do.
fn vectors(lines: &[Line], element: &Element, number: usize) -> Option<Body> {
    let [Field { scalar, .. }] = element.fields() else { return None };
    let is_stored_as_computed = Type::of(*scalar)?.lanes().is_some() && Type::of(*scalar)?.wasm() == scalar.to_string();
    if !is_stored_as_computed {
        return None;
    }
    let mut whole = Body::new(element, Shape::Single);
    for number in 0..number {
        let mut body = Body::new(element, Shape::Vector { offset: number * VECTOR_BYTES });
        body.lines(lines).ok()?;
        whole.code += &body.code;
        whole.locals = body.locals;
    }
    Some(whole)
}
