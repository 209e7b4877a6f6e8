//! The package's questions about protocols: which exist, what they need, what they can sum.

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

/// True if switches make the protocol's sums, and not hosts.
#[pyfunction]
pub(crate) fn summed_by_switches(protocol: &str) -> bool {
    known::named(protocol).is_some_and(Protocol::sums_in_network)
}

/// True if hosts make the protocol's sums: servers on offer, or the ranks' own hosts.
#[pyfunction]
pub(crate) fn summed_by_servers(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.server.is_some())
}

/// True if every switch on a packet's path handles the protocol's packets, so that in a fabric each rank exchanges packets
/// with the switch next to it.
#[pyfunction]
pub(crate) fn processed_at_every_hop(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.placement == Placement::EveryHop)
}

/// True if a reduce brings its result to its root alone, and a broadcast takes nothing from other ranks.
#[pyfunction]
pub(crate) fn rooted_is_unicast(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.rooted_is_unicast)
}

/// Checks options of a protocol, given by name and as text.
#[pyfunction]
pub(crate) fn check_options(protocol: &str, options: BTreeMap<String, String>) -> PyResult<()> {
    let protocol = named(protocol)?;
    protocol.options.read(&options).map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// True if a worker of a protocol with these options may have several cores, which divide its slots among them.
#[pyfunction]
pub(crate) fn divides_slots(protocol: &str, options: BTreeMap<String, String>) -> PyResult<bool> {
    let protocol = named(protocol)?;
    let options = protocol.options.read(&options).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok((protocol.divides_slots)(&options))
}

/// Why a protocol with these options cannot reduce elements of this type this way, as a sentence; `None` if it can.
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
    let refusal = (protocol.check)(&spec, &options).err();
    Ok(refusal.map(|Refusal { protocol, spec: Spec { dtype, op, .. }, why, instead }| {
        format!("{protocol} cannot do a {op} of {dtype}{why}: {instead}")
    }))
}

/// The options of a protocol's job, changed to those of a job for sparse tensors; `None` if the protocol has no such
/// jobs.
#[pyfunction]
pub(crate) fn sparse_options(
    protocol: &str,
    options: BTreeMap<String, String>,
) -> PyResult<Option<BTreeMap<String, String>>> {
    Ok(named(protocol)?.options.of_sparse(&options, None))
}

/// True if a protocol's jobs may have custom operators.
#[pyfunction]
pub(crate) fn takes_operators(protocol: &str) -> bool {
    known::named(protocol).is_some_and(|protocol| protocol.options.custom_ops.is_some())
}

pub(crate) fn dtype_named(name: &str) -> PyResult<DType> {
    DType::from_name(name).ok_or_else(|| PyValueError::new_err(format!("no type {name}")))
}

pub(crate) fn op_named(name: &str) -> PyResult<ReduceOp> {
    ReduceOp::from_name(name).ok_or_else(|| PyValueError::new_err(format!("no operator {name}")))
}

/// The protocol with this name.
pub(crate) fn named(name: &str) -> PyResult<&'static Protocol> {
    known::named(name).ok_or_else(|| {
        let names: Vec<&str> = known::ALL.iter().map(|protocol| protocol.name).collect();
        PyValueError::new_err(format!("there is no protocol '{name}'; use {}", names.join(" or ")))
    })
}
