//! A collective under way, and the objects that own its memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tributary_net::group::GroupError;

use crate::errors;

/// How often a wait checks whether Python has a signal to handle.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A collective and its memory: when the last reference is dropped, the collective has completed.
pub struct Flight {
    /// What was submitted.
    pub started: tributary_net::group::Pending,
    /// The objects that own the memory that the machine reads and writes until the collective completes. They are held,
    /// and never used.
    pub _owners: [Py<PyAny>; 2],
}

impl Flight {
    /// True when the memory belongs to the caller again.
    pub fn is_done(&self) -> bool {
        self.started.is_done()
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<(), GroupError> {
        self.started.wait(timeout)
    }
}

/// Python's handle of a collective.
#[pyclass(frozen, module = "tributary._core")]
pub struct Pending {
    flight: Arc<Flight>,
}

impl Pending {
    pub fn new(flight: Arc<Flight>) -> Pending {
        Pending { flight }
    }
}

#[pymethods]
impl Pending {
    /// True when the collective is complete, false if `timeout` seconds passed first; raises an exception if it failed.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let deadline =
            timeout.map(errors::seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        while !self.flight.is_done() {
            let left = deadline.map_or(SIGNAL_INTERVAL, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            // The outcome is read below; an error here only means that the slice of time is over.
            let _ = py.detach(|| self.flight.wait(Some(left.min(SIGNAL_INTERVAL))));
            py.check_signals()?;
        }
        self.flight.wait(None).map_err(|error| errors::of_group(py, &error))?;
        Ok(true)
    }

    fn is_done(&self) -> bool {
        self.flight.is_done()
    }
}
