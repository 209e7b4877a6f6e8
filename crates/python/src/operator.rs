//! Operators that people write: made, checked, and used as the reference on one machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tributary_operators::element::Element;
use tributary_operators::{OperatorError, Sandbox, UserOperator, expression, reduce, source};
use tributary_proto::contract::operator::{self as contract, Needs, Operator as _};
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::protocols;

/// An operator that passed the self-test.
#[pyclass(frozen, module = "tributary._core")]
pub struct Operator(pub(crate) Arc<UserOperator>);

/// How a collective combines elements: a built-in operator by its name, or a custom one.
#[derive(FromPyObject)]
pub enum Op<'py> {
    Named(String),
    Custom(PyRef<'py, Operator>),
}

fn refused(error: OperatorError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn element(text: Option<&str>) -> PyResult<Option<Element>> {
    text.map(Element::parse).transpose().map_err(refused)
}

fn checked(py: Python<'_>, module: &[u8], name: &str, element: Option<&Element>) -> PyResult<Operator> {
    let operator = py.detach(|| Sandbox::new().load_as(module, name, element));
    operator.map(|operator| Operator(Arc::new(operator))).map_err(refused)
}

/// A job's custom operators, as a group takes them.
pub fn shared(operators: &[PyRef<'_, Operator>]) -> Vec<Arc<dyn contract::Operator>> {
    operators.iter().map(|operator| Arc::clone(&operator.0) as Arc<dyn contract::Operator>).collect()
}

/// The options of a job with these operators.
pub fn options(
    protocol: &Protocol,
    options: BTreeMap<String, String>,
    operators: &[Arc<dyn contract::Operator>],
) -> PyResult<BTreeMap<String, String>> {
    if operators.is_empty() {
        return Ok(options);
    }
    protocol.options.of_own(&options, operators).ok_or_else(|| {
        let able = protocols::ALL.iter().filter(|protocol| protocol.options.own.is_some());
        let able: Vec<&str> = able.map(|protocol| protocol.name).collect();
        PyValueError::new_err(format!("{protocol} takes no custom operators: take protocol=\"{}\"", able.join(" or ")))
    })
}

#[pymethods]
impl Operator {
    /// Makes an operator from an expression over elements of this type.
    #[staticmethod]
    fn expression(py: Python<'_>, text: &str, of: &str, name: &str) -> PyResult<Operator> {
        let element = Element::parse(of).map_err(refused)?;
        let module = expression::compile(text, &element).map_err(refused)?;
        checked(py, &module, name, Some(&element))
    }

    /// Makes an operator from WebAssembly as text.
    #[staticmethod]
    fn wat(py: Python<'_>, text: &str, of: Option<&str>, name: &str) -> PyResult<Operator> {
        checked(py, &source::from_wat(text).map_err(refused)?, name, element(of)?.as_ref())
    }

    /// Makes an operator from a module.
    #[staticmethod]
    fn wasm(py: Python<'_>, module: &[u8], of: Option<&str>, name: &str) -> PyResult<Operator> {
        checked(py, module, name, element(of)?.as_ref())
    }

    /// Makes an operator from a file of any kind, or takes a ready-made one by its name.
    #[staticmethod]
    fn file(py: Python<'_>, path: &str, of: Option<&str>) -> PyResult<Operator> {
        let element = element(of)?;
        let operator = py.detach(|| source::operator(&Sandbox::new(), path, element.as_ref()));
        operator.map(|operator| Operator(Arc::new(operator))).map_err(refused)
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn sha256(&self) -> String {
        self.0.hash().to_string()
    }

    /// The element's type as text.
    #[getter]
    fn element(&self) -> String {
        self.0.element().to_string()
    }

    #[getter]
    fn element_size(&self) -> usize {
        self.0.element_size()
    }

    #[getter]
    fn needs(&self) -> &'static str {
        match self.0.needs() {
            Needs::Nothing => "nothing",
            Needs::Arrangement => "tree",
            Needs::RankOrder => "ranks",
        }
    }

    #[getter]
    fn examples(&self) -> Vec<String> {
        self.0.verdict().examples.clone()
    }

    #[getter]
    fn module<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.module())
    }

    /// What one switch over all ranks makes of their elements, in the order of ranks.
    fn reduce<'py>(&self, py: Python<'py>, vectors: Vec<Vec<u8>>) -> PyResult<Bound<'py, PyBytes>> {
        let world_size = u16::try_from(vectors.len()).map_err(|_| PyValueError::new_err("there are too many ranks"))?;
        let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
        let result = py.detach(|| reduce(&*self.0, &vectors, &SumTree::star(world_size)));
        match result {
            Some(Ok(result)) => Ok(PyBytes::new(py, &result)),
            Some(Err(fault)) => Err(PyValueError::new_err(fault.to_string())),
            None => Err(PyValueError::new_err("there is nothing to reduce")),
        }
    }
}
