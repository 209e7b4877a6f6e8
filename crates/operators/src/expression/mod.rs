//! A small compiler from expressions, written as in Python, to modules of WebAssembly.
//!
//! `a` is the left element and `b` the right one; `a.v` is a field of an element that has several. An element that is
//! one number takes an expression. An element with fields takes a line `field = expression` for each field, and any
//! line may name a value for the lines below it:
//!
//! ```text
//! first = a.v > b.v or (a.v == b.v and a.i < b.i)
//! v = a.v if first else b.v
//! i = a.i if first else b.i
//! ```
//!
//! There are `+ - * /` (the last for floats), `& | ^ ~ << >>` for integers, comparisons, `and or not`, `x if c else y`,
//! and `abs min max sqrt floor ceil exp log`; `f32(x)`, `f64(x)`, `i32(x)` and `i64(x)` convert a number. Integers of 8
//! and 16 bits are computed with 32 bits, `u32` with 64, and wrap when they are stored. No expression can trap: both
//! sides of an `if` are computed. If the element is one number of `f32`, `f64`, `i32` or `i64`, vector instructions
//! compute several elements at once.

mod body;
mod emit;
mod instructions;
mod lexer;
mod math;
mod parser;
mod value;

use crate::element::Element;
use crate::error::OperatorError;

/// The most characters of a source.
const MOST_CHARS: usize = 8 * 1024;

/// The text (WAT) of the module for an expression over elements of this type.
pub fn to_wat(source: &str, element: &Element) -> Result<String, OperatorError> {
    emitted(source, element, true)
}

fn emitted(source: &str, element: &Element, has_vectors: bool) -> Result<String, OperatorError> {
    if source.len() > MOST_CHARS {
        return Err(error(format!("an expression of {} bytes is too long: {MOST_CHARS} are the most", source.len())));
    }
    let lines = parser::parse(source)?;
    emit::module(&lines, element, has_vectors)
}

/// The module for an expression over elements of this type.
pub fn compile(source: &str, element: &Element) -> Result<Vec<u8>, OperatorError> {
    parsed(&to_wat(source, element)?)
}

/// The same module without vector instructions, for machines that have none.
pub fn compile_without_vectors(source: &str, element: &Element) -> Result<Vec<u8>, OperatorError> {
    parsed(&emitted(source, element, false)?)
}

fn parsed(wat: &str) -> Result<Vec<u8>, OperatorError> {
    wat::parse_str(wat).map_err(|fault| error(format!("the expression gives no module: {fault}")))
}

pub(crate) fn error(sentence: String) -> OperatorError {
    OperatorError::Expression(sentence)
}
