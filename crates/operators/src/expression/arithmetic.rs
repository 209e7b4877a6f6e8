//! Arithmetic on floats (`+ - * /`), whose modules take care of NaN themselves.
//!
//! Every processor has to give the same bits, so there is one NaN. For most modules the sandbox's compiler makes it, after
//! each instruction on floats. In arithmetic, though, the bits of a NaN on the way decide about nothing but the bits of a
//! result that is NaN. So the loop here makes the one NaN of results only, and looks for NaN once for several vectors. The
//! module carries its expression in a section, which proves to the sandbox that it may leave NaN to the module
//! ([`is_own`](super::is_own)).

use super::body::{Body, Shape};
use super::emit::{Turn, VECTOR_BYTES};
use super::parser::{self, Line, Node};
use super::value::Type;
use crate::element::{Element, Field};
use crate::error::OperatorError;
use crate::sections;

/// The longest expression that a module carries.
const MOST_CHARS: usize = sections::MOST_CHARS - 8;

/// An expression that is arithmetic alone, over elements that are one float.
pub struct Arithmetic<'a> {
    element: &'a Element,
    of: Type,
    lanes: &'static str,
    value: &'a Node,
    text: String,
}

impl<'a> Arithmetic<'a> {
    /// `None` if a NaN could show elsewhere: in a comparison, in a sign, or in a conversion. A result that no instruction has
    /// computed keeps an operand's NaN, so it does not belong here either.
    pub fn of(lines: &'a [Line], element: &'a Element) -> Option<Arithmetic<'a>> {
        let ([line @ Line { name: None, value }], [Field { scalar, name, .. }]) = (lines, element.fields()) else {
            return None;
        };
        let of = Type::of(*scalar).filter(|of| of.is_float() && name.is_empty())?;
        let text = text(value).filter(|text| matches!(value, Node::Binary(..)) && text.len() <= MOST_CHARS)?;
        let is_whole = parser::parse(&text).is_ok_and(|again| again == [line.clone()]);
        is_whole.then_some(Arithmetic { element, of, lanes: of.lanes()?, value, text })
    }

    /// What the module carries: the element and the expression.
    pub fn section(&self) -> String {
        format!("{} {}", self.element, self.text)
    }

    pub fn locals(&self, several: usize) -> String {
        let vectors: String = (0..several).map(|number| format!("    (local $result_{number} v128)\n")).collect();
        format!("{vectors}    (local $all v128)\n    (local $result {})\n", self.of.wasm())
    }

    /// A turn of the loop that takes so many vectors.
    pub fn vectors(&self, number: usize) -> Result<Turn, OperatorError> {
        let (lanes, of) = (self.lanes, self.of.wasm());
        let get = |number: usize| format!("(local.get $result_{number})");
        let mut code = String::new();
        for number in 0..number {
            let value = self.value(Shape::Vector { offset: number * VECTOR_BYTES })?;
            code += &format!("      (local.set $result_{number} {value})\n");
        }
        // A sum is NaN if an operand is. It may be NaN without (infinities), which costs time and changes nothing.
        let sum = balanced(&(0..number).map(get).collect::<Vec<_>>(), lanes);
        code += &format!(
            "      (local.set $all {sum})
      (if (v128.any_true ({lanes}.ne (local.get $all) (local.get $all))) (then\n"
        );
        for number in 0..number {
            let result = get(number);
            code += &format!(
                "        (local.set $result_{number} (v128.bitselect {result} ({lanes}.splat ({of}.const nan)) ({lanes}.eq {result} {result})))\n"
            );
        }
        code += "      ))\n";
        for number in 0..number {
            let offset = number * VECTOR_BYTES;
            code += &format!("      (v128.store offset={offset} (local.get $acc) {})\n", get(number));
        }
        let bytes = number * VECTOR_BYTES;
        Ok(Turn { name: format!("vectors_{number}"), bytes, elements: bytes / self.element.size(), code })
    }

    /// A turn of the loop that takes one element.
    pub fn each(&self) -> Result<Turn, OperatorError> {
        let (of, value) = (self.of.wasm(), self.value(Shape::Single)?);
        let code = format!(
            "      (local.set $result {value})
      (if ({of}.ne (local.get $result) (local.get $result)) (then (local.set $result ({of}.const nan))))
      ({of}.store (local.get $acc) (local.get $result))\n"
        );
        Ok(Turn { name: "each".to_owned(), bytes: self.element.size(), elements: 1, code })
    }

    fn value(&self, shape: Shape) -> Result<String, OperatorError> {
        let mut body = Body::new(self.element, shape);
        let value = body.value(self.value)?;
        Ok(body.stored_type(value, 0)?.code)
    }
}

/// Arithmetic as text with all its parentheses; `None` for anything else.
fn text(node: &Node) -> Option<String> {
    Some(match node {
        Node::Int(value) => value.to_string(),
        Node::Float(value) => format!("{value:e}"),
        Node::Name(name) if name == "a" || name == "b" => name.clone(),
        Node::Unary("-", value) => format!("(-{})", text(value)?),
        Node::Binary(sign @ ("+" | "-" | "*" | "/"), left, right) => {
            format!("({} {sign} {})", text(left)?, text(right)?)
        }
        _ => return None,
    })
}

/// The sum of all, as a tree: additions of one level need not wait for each other.
fn balanced(values: &[String], lanes: &str) -> String {
    match values {
        [only] => only.clone(),
        _ => {
            let (left, right) = values.split_at(values.len() / 2);
            format!("({lanes}.add {} {})", balanced(left, lanes), balanced(right, lanes))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::describe;
    use crate::element::Element;
    use crate::expression::{compile, is_own};
    use crate::sections::{EXPRESSION, Outline};

    fn module(source: &str, element: &str) -> Vec<u8> {
        compile(source, &Element::parse(element).unwrap()).unwrap()
    }

    fn is_trusted(module: &[u8]) -> bool {
        is_own(module, &Outline::of(module).unwrap())
    }

    fn carried(module: &[u8]) -> Option<String> {
        Outline::of(module).unwrap().expression
    }

    /// The module with another text in its section.
    fn forged(of: &[u8], text: &str) -> Vec<u8> {
        let length = |text: &str| u8::try_from(text.len()).ok().filter(|length| *length < 128).unwrap();
        let mut whole = of.to_vec();
        whole.push(0);
        whole.push(1 + length(EXPRESSION) + length(text));
        whole.push(length(EXPRESSION));
        whole.extend([EXPRESSION.as_bytes(), text.as_bytes()].concat());
        whole
    }

    #[test]
    fn arithmetic_carries_its_expression_whatever_its_spaces_and_comments() {
        for source in ["a + b", "a+b", "(a) + b # a sum"] {
            let module = module(source, "f32");
            assert_eq!(carried(&module).as_deref(), Some("f32 (a + b)"));
            assert!(is_trusted(&module), "{source}");
            assert!(is_trusted(&describe(&module, Some("sum"), Some("f32"))), "a name changes no code");
        }
        for (source, text) in [
            ("a * 0.5 + b * 0.5", "f64 ((a * 5e-1) + (b * 5e-1))"),
            ("-a / b - 3", "f64 (((-a) / b) - 3)"),
            ("1e-300 * a + b", "f64 ((1e-300 * a) + b)"),
        ] {
            let module = module(source, "f64");
            assert_eq!(carried(&module).as_deref(), Some(text));
            assert!(is_trusted(&module), "{source}");
        }
    }

    #[test]
    fn where_a_nan_could_show_elsewhere_nothing_is_carried() {
        let long = format!("a{}", " + b".repeat(60));
        for source in [
            "a",
            "-(a + b)",
            "abs(a) + b",
            "max(a, b)",
            "a + b if a < b else b",
            "c = a + b; c * c",
            "sqrt(a + b)",
            &long,
        ] {
            let module = module(source, "f32");
            assert_eq!(carried(&module), None, "{source}");
            assert!(!is_trusted(&module), "{source}");
        }
        assert!(!is_trusted(&module("a + b", "i32")) && !is_trusted(&module("v = a.v + b.v", "v:f32")));
    }

    #[test]
    fn a_section_that_somebody_wrote_gains_nothing() {
        let (sum, other) = (module("a + b", "f32"), module("-(a + b)", "f32"));
        assert!(is_trusted(&sum));
        for (module, text) in [
            // Of another expression, of another element, of what is not arithmetic, and of nothing at all.
            (&sum, "f32 (a - b)"),
            (&sum, "f64 (a + b)"),
            (&other, "f32 (a + b)"),
            (&other, "f32 (-(a + b))"),
            (&other, "f32 "),
            (&other, ""),
        ] {
            assert!(!is_trusted(&forged(module, text)), "{text}");
        }
        // One instruction is another: NaN is looked for where there is none (f32x4.eq instead of f32x4.ne).
        let place = sum.windows(2).position(|code| code == [0xfd, 0x42]).expect("it looks for NaN");
        let mut changed = sum.clone();
        changed[place + 1] = 0x41;
        assert!(!is_trusted(&changed));
    }
}
