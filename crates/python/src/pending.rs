//! A collective under way, and the objects whose memory it must not lose.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tributary_net::group::GroupError;

use crate::errors;

/// How often a wait looks whether Python has a signal to handle.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A collective and its memory: whoever drops the last reference knows that it has completed.
pub struct Flight {
    /// One for all but the largest tensors.
    pub parts: Vec<tributary_net::group::Pending>,
    /// The objects that own the memory which the machine reads and writes until the collective completes: held, never
    /// looked at.
    pub _owners: [Py<PyAny>; 2],
}

impl Flight {
    /// True when the memory is the caller's again.
    pub fn is_done(&self) -> bool {
        self.parts.iter().all(|part| part.is_done())
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<(), GroupError> {
        // The first part that fails tells why; those behind it fail with it.
        self.parts.iter().try_for_each(|part| part.wait(timeout))
    }
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
        while !self.flight.is_done() {
            let left = deadline.map_or(SIGNAL_INTERVAL, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            // The outcome is read below; here an error only says that the slice is over.
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
