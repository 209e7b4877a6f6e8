//! A collective under way, and the objects that own its memory.

use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tributary_net::group::{GroupError, Pending as Collective};

use crate::errors;

/// How often a wait checks whether Python has a signal to handle.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// What `wait` returns within this many seconds, or whenever it does; Ctrl-C interrupts it. Something that has ended is
/// returned even if there is no time.
pub(crate) fn wait_in_slices<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    wait: impl Fn(Duration) -> Option<T> + Sync,
) -> PyResult<Option<T>> {
    let deadline = timeout.map(errors::seconds).transpose()?.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map_or(SIGNAL_INTERVAL, |deadline| deadline.saturating_duration_since(Instant::now()));
        match py.detach(|| wait(left.min(SIGNAL_INTERVAL))) {
            None if left.is_zero() => return Ok(None),
            None => py.check_signals()?,
            outcome => return Ok(outcome),
        }
    }
}

/// Python's handle of a collective. Its group holds it until the collective has ended, even if Python has dropped it,
/// since the machine reads and writes the owners' memory until then.
#[pyclass(frozen, module = "tributary._core")]
pub struct Pending {
    collective: Collective,
    /// Kept alive, and never used.
    _owners: Vec<Py<PyAny>>,
}

impl Pending {
    pub fn new(collective: Collective, owners: Vec<Py<PyAny>>) -> Pending {
        Pending { collective, _owners: owners }
    }

    /// Waits until the collective has ended, successfully or not; Ctrl-C interrupts it.
    pub fn await_end(&self, py: Python<'_>) -> PyResult<()> {
        while !self.is_done() {
            let _ = py.detach(|| self.collective.wait(Some(SIGNAL_INTERVAL)));
            py.check_signals()?;
        }
        Ok(())
    }
}

#[pymethods]
impl Pending {
    /// True when the collective is complete, false if `timeout` seconds passed first; raises an exception if it failed.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let wait = |timeout| match self.collective.wait(Some(timeout)) {
            Err(GroupError::StillRunning { .. }) => None,
            outcome => Some(outcome),
        };
        match wait_in_slices(py, timeout, wait)? {
            Some(outcome) => outcome.map(|()| true).map_err(|error| errors::of_group(py, &error)),
            None => Ok(false),
        }
    }

    /// True when the memory belongs to the caller again.
    pub fn is_done(&self) -> bool {
        self.collective.is_done()
    }
}
