//! `tributary._core`: conversion between Python and the crates, and nothing else. The package around it is in
//! `python/tributary`.

mod errors;
mod group;
mod pending;
mod simulation;
mod sweep;
mod switch;

use std::collections::BTreeMap;
use std::ffi::OsString;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tributary_proto::contract::protocol::Placement;

/// Runs the command line program and returns its exit code.
///
/// `argv` is the program's name and its arguments, `launcher` the words that start the program again.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<OsString>, launcher: Vec<OsString>) -> i32 {
    py.detach(|| tributary_cli::run(&tributary_cli::Program::launched_by(launcher), argv))
}

/// The protocols' names.
#[pyfunction]
fn protocols() -> Vec<&'static str> {
    tributary_proto::protocols::names().collect()
}

/// Whether a protocol needs a fabric of switches, each of which handles its packets.
#[pyfunction]
fn needs_fabric(protocol: &str) -> bool {
    let known = tributary_proto::protocols::named(protocol);
    known.is_some_and(|protocol| protocol.placement == Placement::EveryHop)
}

/// Checks options of a protocol, by name, as text.
#[pyfunction]
fn check_options(protocol: &str, options: BTreeMap<String, String>) -> PyResult<()> {
    let protocol = tributary_proto::protocols::named(protocol).ok_or_else(|| group::unknown_protocol(protocol))?;
    protocol.options.read(&options).map(drop).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(protocols, module)?)?;
    module.add_function(wrap_pyfunction!(needs_fabric, module)?)?;
    module.add_function(wrap_pyfunction!(check_options, module)?)?;
    module.add_function(wrap_pyfunction!(group::refusal, module)?)?;
    module.add_class::<group::Group>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<switch::Switch>()?;
    module.add_function(wrap_pyfunction!(simulation::simulate, module)?)?;
    module.add_class::<simulation::Report>()?;
    module.add_function(wrap_pyfunction!(sweep::run_point, module)?)?;
    module.add_class::<sweep::Sweep>()?;
    Ok(())
}
