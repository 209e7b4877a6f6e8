//! A run of the simulator, and its report as arrays.

use std::ops::ControlFlow;
use std::path::PathBuf;

use numpy::PyArray1;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tributary_proto::contract::time::Time;
use tributary_sim::config::Config;
use tributary_sim::experiment::RunError;
use tributary_sim::table::{Format, Table, Values};

use crate::errors;

/// Runs the experiment that a file's text or a JSON object describes. `progress` is called some times a second with the
/// simulated seconds, the events, and how many of all collectives are open. An exception that it raises, or that a
/// signal's handler raises, ends the run.
#[pyfunction]
pub fn simulate(
    py: Python<'_>,
    text: &str,
    json: bool,
    seed: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Report> {
    let read = if json { Config::parse_json(text) } else { Config::parse(text) };
    let mut config = read.map_err(|error| errors::of_config(py, &error))?;
    config.seed = seed.unwrap_or(config.seed);
    let mut raised = None;
    let outcome = py.detach(|| {
        tributary_sim::run_watched(&config, &mut |state| {
            let seen = Python::attach(|py| {
                py.check_signals()?;
                let Some(progress) = &progress else { return Ok(()) };
                let seconds = state.now.since(Time::ZERO).as_secs_f64();
                progress.call1(py, (seconds, state.events, state.open, state.total)).map(|_| ())
            });
            seen.map_or_else(
                |error| {
                    raised = Some(error);
                    ControlFlow::Break(())
                },
                ControlFlow::Continue,
            )
        })
    });
    match (raised, outcome) {
        (Some(error), _) => Err(error),
        (None, Ok(report)) => Ok(Report { report: report.of_file(text) }),
        (None, Err(RunError::Config(error))) => Err(errors::of_config(py, &error)),
        (None, Err(error)) => Err(errors::of_simulation(py, error.to_string())),
    }
}

/// The result of a run.
#[pyclass(frozen, module = "tributary._core")]
pub struct Report {
    report: tributary_sim::report::Report,
}

#[pymethods]
impl Report {
    /// The object that `--json` prints.
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.report).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The report as text for people.
    fn text(&self) -> String {
        self.report.to_string()
    }

    /// Why the run is wrong, if it is, in a sentence.
    fn failure(&self) -> Option<String> {
        self.report.failure()
    }

    /// What `tributary.plots` draws, as JSON.
    fn figures(&self) -> PyResult<String> {
        serde_json::to_string(&self.report.figures()).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Each table's columns by name.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tables = PyDict::new(py);
        for table in py.detach(|| self.report.tables()) {
            tables.set_item(table.name, columns(py, table)?)?;
        }
        Ok(tables)
    }

    /// The files that `--out` writes.
    fn write(&self, py: Python<'_>, directory: PathBuf, format: &str) -> PyResult<()> {
        let known = Format::ALL.into_iter().find(|known| known.name() == format);
        let format = known.ok_or_else(|| {
            let names = Format::ALL.map(Format::name).join(" or ");
            PyValueError::new_err(format!("there is no form '{format}'; use {names}"))
        })?;
        py.detach(|| self.report.write_files(&directory, format)).map_err(|error| PyOSError::new_err(error.to_string()))
    }
}

/// A table's columns by name: arrays, and lists of words.
pub fn columns(py: Python<'_>, table: Table) -> PyResult<Bound<'_, PyDict>> {
    let columns = PyDict::new(py);
    for column in table.columns {
        let values = match column.values {
            Values::Whole(values) => PyArray1::from_vec(py, values).into_any(),
            Values::Real(values) => PyArray1::from_vec(py, values).into_any(),
            Values::Flag(values) => PyArray1::from_vec(py, values).into_any(),
            Values::Text(values) => PyList::new(py, values)?.into_any(),
        };
        columns.set_item(column.name, values)?;
    }
    Ok(columns)
}
