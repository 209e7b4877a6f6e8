//! Finds, compiles and tests the custom operator of a job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tributary_operators::element::Element;
use tributary_operators::source::{self, Language};
use tributary_operators::{OperatorError, Sandbox, UserOperator, describe, expression, shipped};
use tributary_proto::contract::custom_op::CustomOp as _;
use tributary_proto::protocols;

use crate::config::{ExpressionSource, JobSection, OperatorSource};
use crate::engine::{CustomOp, Data};

/// The operator of a section, if it has one. An error is a sentence without the job's name.
pub(super) fn custom_op(section: &JobSection) -> Result<Option<CustomOp>, String> {
    let Some(given) = &section.operator else {
        return match section.data {
            Data::Fingerprints => Ok(None),
            Data::Real => {
                Err("data = \"real\" is for jobs with a custom operator: add operator, or leave data out".into())
            }
        };
    };
    if section.protocol.options.custom_ops.is_none() {
        let able = protocols::ALL.iter().filter(|protocol| protocol.options.custom_ops.is_some());
        let able: Vec<&str> = able.map(|protocol| protocol.name).collect();
        let (protocol, able) = (section.protocol.name, able.join(" or "));
        return Err(format!("operator: {protocol} takes no custom operators; take {able}"));
    }
    if section.op != JobSection::OP {
        return Err(format!("op = \"{}\" beside operator: a job has one of the two", section.op));
    }
    let operator = Arc::new(load(given, section)?);
    let (size, packet) = (operator.element_size(), 4 * usize::from(section.elements_per_packet));
    if size > packet {
        return Err(format!(
            "operator {}: its elements of {size} bytes do not fit into packets of {packet}: elements_per_packet = {} at \
             least",
            operator.name(),
            size.div_ceil(4)
        ));
    }
    Ok(Some(CustomOp { operator, data: section.data, cycles: None }))
}

fn load(given: &OperatorSource, section: &JobSection) -> Result<UserOperator, String> {
    let sandbox = Sandbox::new();
    let text = match given {
        OperatorSource::Text(text) => text,
        OperatorSource::Expression(ExpressionSource { expression, element }) => {
            let element = Element::parse(element).map_err(|error| format!("operator: {error}"))?;
            return compile(&sandbox, expression, &element).map_err(|error| format!("operator: {error}"));
        }
    };
    if names_operator(text) {
        return source::operator(&sandbox, text, None).map_err(|error| format!("operator: {error}"));
    }
    let element = Element::parse(section.dtype.name()).map_err(|error| format!("operator: {error}"))?;
    compile(&sandbox, text, &element).map_err(|error| {
        let known = shipped::ALL.map(|shipped| shipped.name).join(", ");
        format!(
            "operator = \"{text}\" is not an expression: {error}; nor is it a file (.expr, .wat, .c or .wasm) or one of {known}"
        )
    })
}

/// The file that has a section's operator.
pub(super) fn file(section: &JobSection) -> Option<PathBuf> {
    let Some(OperatorSource::Text(text)) = &section.operator else { return None };
    (names_operator(text) && shipped::named(text).is_none()).then(|| PathBuf::from(text))
}

/// True for a file's name, or the name of a ready-made operator.
fn names_operator(text: &str) -> bool {
    let is_name = || !text.contains(char::is_whitespace) || Path::new(text).exists();
    shipped::named(text).is_some() || Language::of(Path::new(text)).is_ok() && is_name()
}

fn compile(sandbox: &Sandbox, text: &str, element: &Element) -> Result<UserOperator, OperatorError> {
    let module = expression::compile(text, element)?;
    sandbox.load(&describe(&module, Some("expression"), Some(&element.to_string())))
}
