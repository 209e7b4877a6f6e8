//! From lines to a module's text: it finds types, and makes each operator an instruction.
//!
//! The same walk serves one element and, with a [`Shape`] of vectors, several in a vector register.

use super::body::{Body, Shape};
use super::error;
use super::math;
use super::parser::Line;
use super::value::Type;
use crate::element::{Element, Field};
use crate::error::OperatorError;

/// How many vectors one turn of the loop takes, at most: a turn's own instructions (addresses, count, fuel) take as long as one vector's
/// sum.
const UNROLLED: usize = 8;
/// The same where an element takes more instructions than this: the module would grow, and a turn's own instructions weigh less.
const UNROLLED_LONG: usize = 4;
const LONG: usize = 32;
const VECTOR_BYTES: usize = 16;

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
    let step = element.size();
    let (mut locals, mut combine) = (single.locals.clone(), String::new());
    // First several vectors at a time, then one, then single elements.
    let several = if instructions(&single.code) > LONG { UNROLLED_LONG } else { UNROLLED };
    for number in [several, 1] {
        if let Some(vectors) = vectors(lines, element, number).filter(|_| has_vectors) {
            let bytes = number * VECTOR_BYTES;
            let count = bytes / step;
            let is_over = format!("(i32.lt_u (local.get $n) (i32.const {count}))");
            combine += &repeated(&format!("vectors_{number}"), &is_over, &vectors.code, bytes, count);
            if number == several {
                locals += &vectors.locals;
            }
        }
    }
    combine += &repeated("each", "(i32.eqz (local.get $n))", &single.code, step, 1);
    let exp = if single.uses_exp { math::exp() } else { String::new() };
    let log = if single.uses_log { math::log() } else { String::new() };
    Ok(format!(
        "(module
  (memory (export \"memory\") 1)
  (global (export \"tributary_abi\") i32 (i32.const 1))
  (global (export \"element_size\") i32 (i32.const {step}))
  (func (export \"combine\") (param $acc i32) (param $with i32) (param $n i32)
{locals}{combine}  ){exp}{log})\n"
    ))
}

/// How many instructions there are in code: each has its parentheses.
fn instructions(code: &str) -> usize {
    code.matches('(').count()
}

/// A loop that takes this many bytes, or elements, of both operands each turn, until it is over.
fn repeated(name: &str, is_over: &str, body: &str, bytes: usize, elements: usize) -> String {
    format!(
        "    (block $after_{name} (loop ${name}
      (br_if $after_{name} {is_over})
{body}      (local.set $acc (i32.add (local.get $acc) (i32.const {bytes})))
      (local.set $with (i32.add (local.get $with) (i32.const {bytes})))
      (local.set $n (i32.sub (local.get $n) (i32.const {elements})))
      (br ${name})))\n"
    )
}

/// The body of a loop over this many vectors, if vector instructions can do all that the lines do.
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
