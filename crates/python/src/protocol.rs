//! What the package asks of protocols by name: which there are, what they need, what they can.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::protocol::{Placement, Protocol, Refusal};
use tributary_proto::contract::tensor::Spec;
use tributary_proto::protocols as known;

/// The protocols' names.
#[pyfunction]
pub(crate) fn protocols() -> Vec<&'static str> {
    known::names().collect()
}

/// Whether switches make its sums, and not hosts.
#[pyfunction]
pub(crate) fn sums_in_network(protocol: &str) -> bool {
    known::named(protocol).is_some_and(Protocol::sums_in_network)
}

/// Whether every switch on the way handles a protocol's packets, so that in a fabric each rank speaks to the switch next to
/// it.
#[pyfunction]
pub(crate) fn sums_on_the_way(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.placement == Placement::EveryHop)
}

/// Whether a reduce brings its result to its root alone, and a broadcast takes nothing from the others.
#[pyfunction]
pub(crate) fn spares_others(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.spares_others)
}

/// Checks options of a protocol, by name, as text.
#[pyfunction]
pub(crate) fn check_options(protocol: &str, options: BTreeMap<String, String>) -> PyResult<()> {
    let protocol = named(protocol)?;
    protocol.options.read(&options).map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Why a protocol with these options cannot reduce elements of this type so, as a sentence; None where it can.
#[pyfunction]
pub(crate) fn refusal(
    protocol: &str,
    options: BTreeMap<String, String>,
    dtype: &str,
    op: &str,
) -> PyResult<Option<String>> {
    let protocol = named(protocol)?;
    let options = protocol.options.read(&options).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let spec = Spec::allreduce(1, dtype_named(dtype)?, op_named(op)?);
    let refusal = (protocol.can)(&spec, &options).err();
    Ok(refusal.map(|Refusal { protocol, spec: Spec { dtype, op, .. }, why, instead }| {
        format!("{protocol} cannot do a {op} of {dtype}{why}: {instead}")
    }))
}

/// Options of a job of a protocol's, made those of one for sparse tensors; None where the protocol has no such jobs.
#[pyfunction]
pub(crate) fn sparse_options(
    protocol: &str,
    options: BTreeMap<String, String>,
) -> PyResult<Option<BTreeMap<String, String>>> {
    Ok(named(protocol)?.options.of_sparse(&options, None))
}

/// Whether a protocol has jobs with operators of their own.
#[pyfunction]
pub(crate) fn takes_operators(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.options.own.is_some())
}

pub(crate) fn dtype_named(name: &str) -> PyResult<DType> {
    DType::from_name(name).ok_or_else(|| PyValueError::new_err(format!("no type {name}")))
}

pub(crate) fn op_named(name: &str) -> PyResult<ReduceOp> {
    // A job's own operators go by their number.
    let own = name.strip_prefix("own:").and_then(|number| number.parse().ok());
    let own = own.filter(|&number| number < ReduceOp::MOST_OWN).map(ReduceOp::Own);
    own.or_else(|| ReduceOp::from_name(name)).ok_or_else(|| PyValueError::new_err(format!("no operator {name}")))
}

/// The protocol of this name.
pub(crate) fn named(name: &str) -> PyResult<&'static Protocol> {
    known::named(name).ok_or_else(|| {
        let names: Vec<&str> = known::ALL.iter().map(|protocol| protocol.name).collect();
        PyValueError::new_err(format!("there is no protocol '{name}'; use {}", names.join(" or ")))
    })
}
