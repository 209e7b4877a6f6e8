//! A switch in threads of the Python process.

use std::net::SocketAddr;
use std::sync::Mutex;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use tributary_net::os::OwnerProcess;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};

/// A running switch; it stops at the latest when it is collected.
#[pyclass(frozen, module = "tributary._core")]
pub struct Switch {
    owner: OwnerProcess,
    running: Mutex<Option<RunningSwitch>>,
    address: String,
    http_address: Option<String>,
}

#[pymethods]
impl Switch {
    #[new]
    fn new(py: Python<'_>, listen: &str, cores: u16, memory: Option<&str>, http: Option<&str>) -> PyResult<Switch> {
        let mut options = SwitchOptions::new(address(listen)?);
        options.shards = cores.into();
        if let Some(memory) = memory {
            options.memory_bytes = tributary_cli::parse_memory(memory).map_err(PyValueError::new_err)?.0 as usize;
        }
        options.http = http.map(address).transpose()?;
        let running = py.detach(|| RunningSwitch::start(&options)).map_err(|e| PyOSError::new_err(e.to_string()))?;
        let address = running.listen_addr().to_string();
        let http_address = running.http_addr().map(|http| http.to_string());
        Ok(Switch { owner: OwnerProcess::current(), running: Mutex::new(Some(running)), address, http_address })
    }

    fn address(&self) -> &str {
        &self.address
    }

    fn http_address(&self) -> Option<&str> {
        self.http_address.as_deref()
    }

    fn stop(&self, py: Python<'_>) {
        let running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(running) = running {
            match self.owner.is_current() {
                true => py.detach(|| running.stop()),
                // The switch runs on in the parent process; its threads do not exist here and cannot be joined.
                false => std::mem::forget(running),
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        Python::attach(|py| self.stop(py));
    }
}

fn address(text: &str) -> PyResult<SocketAddr> {
    text.parse().map_err(|_| PyValueError::new_err(format!("'{text}' is not ADDR:PORT, for example 127.0.0.1:17777")))
}
