//! A collective under way, and the arrays that it must not lose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use numpy::PyUntypedArray;
use pyo3::prelude::*;

use crate::errors;

/// How often a wait looks whether Python has a signal to handle.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A collective and its memory: whoever drops the last reference knows that it has completed.
pub struct Flight {
    pub pending: tributary_net::Pending,
    /// Held, never read: the machine reads this memory until the collective completes.
    pub _input: Py<PyUntypedArray>,
    /// Held, never read: the machine writes this memory until the collective completes.
    pub _output: Py<PyUntypedArray>,
}

/// What Python holds of a collective.
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
    /// True when the collective is complete, false when `timeout` seconds passed first; raises why it failed.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let deadline =
            timeout.map(errors::seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
        while !self.flight.pending.is_done() {
            let left = deadline.map_or(SIGNAL_INTERVAL, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            // The outcome is read below; here an error only says that the slice is over.
            let _ = py.detach(|| self.flight.pending.wait(Some(left.min(SIGNAL_INTERVAL))));
            py.check_signals()?;
        }
        self.flight.pending.wait(None).map_err(|error| errors::of_group(py, &error))?;
        Ok(true)
    }

    fn is_done(&self) -> bool {
        self.flight.pending.is_done()
    }
}
