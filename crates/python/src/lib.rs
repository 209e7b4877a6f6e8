//! `tributary._core`: conversion between Python and the crates, and nothing else. The package around it is in
//! `python/tributary`.

mod buffer;
mod connect;
mod errors;
mod group;
mod hosts;
mod local;
mod operator;
mod pending;
mod plan;
mod protocol;
mod recompute;
mod simulation;
mod sparse;
mod sweep;
mod switch;

use std::ffi::OsString;

use pyo3::prelude::*;
use tributary_control::quantity::Bytes;

/// Runs the command line program and returns its exit code.
///
/// `argv` is the program's name and its arguments; `launcher` has the words that start the program again.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<OsString>, launcher: Vec<OsString>) -> i32 {
    py.detach(|| tributary_cli::run(&tributary_cli::Program::launched_by(launcher), argv))
}

/// A number of bytes as flags and files have it: `"1000000"`, `"1 MB"`.
#[pyfunction]
fn read_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    text.parse().map(|Bytes(bytes)| bytes).map_err(|sentence| errors::config(py, sentence))
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(read_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::protocols, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::summed_by_switches, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::summed_by_servers, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::processed_at_every_hop, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::rooted_is_unicast, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::check_options, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::divides_slots, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::refusal, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::sparse_options, module)?)?;
    module.add_function(wrap_pyfunction!(protocol::takes_operators, module)?)?;
    module.add_function(wrap_pyfunction!(plan::plan_sums, module)?)?;
    module.add_function(wrap_pyfunction!(plan::cuts, module)?)?;
    module.add("MAX_CORES", tributary_proto::contract::config::CoreSlots::MAX_CORES)?;
    module.add("LEAST_CUT_ELEMENTS", tributary_control::aggregation_plan::LEAST_CUT_ELEMENTS)?;
    module.add_function(wrap_pyfunction!(plan::large_sums_sentence, module)?)?;
    module.add_function(wrap_pyfunction!(plan::report_large_sums, module)?)?;
    module.add_function(wrap_pyfunction!(recompute::recompute, module)?)?;
    module.add_class::<group::Group>()?;
    module.add_class::<hosts::HostMemory>()?;
    module.add_class::<local::LocalGroup>()?;
    module.add_class::<local::LocalPending>()?;
    module.add_function(wrap_pyfunction!(local::local_refusal, module)?)?;
    module.add_class::<operator::Operator>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<sparse::SparseSum>()?;
    module.add_class::<switch::Switch>()?;
    module.add_function(wrap_pyfunction!(simulation::simulate, module)?)?;
    module.add_class::<simulation::Report>()?;
    module.add_function(wrap_pyfunction!(sweep::run_point, module)?)?;
    module.add_class::<sweep::Sweep>()?;
    Ok(())
}
