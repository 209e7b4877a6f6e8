//! A connect that Ctrl-C interrupts, or the caller.

use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use tributary_net::group::{ConnectOptions, Group};

use crate::errors;

/// How often a connect checks whether Python has a signal to handle, and asks the caller whether to go on.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Connects in a thread of its own, so that Ctrl-C reaches Python meanwhile. `check` is called now and then; an exception
/// that it raises ends the wait. A connect that was given up finishes in that thread and leaves the job at once.
pub(crate) fn connect_interruptibly(
    py: Python<'_>,
    options: ConnectOptions,
    check: Option<Py<PyAny>>,
) -> PyResult<Group> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Fails if the receiver is gone; the group comes back in the error and is dropped.
        let _ = sender.send(Group::connect(&options));
    });
    let receiver = Mutex::new(receiver);
    loop {
        let answer = py.detach(|| receiver.lock().expect("one thread").recv_timeout(CHECK_INTERVAL));
        match answer {
            Ok(outcome) => return outcome.map_err(|error| errors::of_connect(py, &error)),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                check.as_ref().map_or(Ok(()), |check| check.call0(py).map(drop))?;
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the connecting thread panicked"),
        }
    }
}
