//! One worker of a job.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use numpy::{PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tributary_net::group::{ConnectOptions, Drive, GroupError, Pending as Started, Submission};
use tributary_net::os::OwnerProcess;
use tributary_numeric::{DType, ReduceOp};

use crate::arrays::{bytes_of, memory};
use crate::connect::connect_interruptibly;
use crate::errors;
use crate::operator::{self, Operator};
use crate::pending::{Flight, Pending};
use crate::protocol::{dtype_named, named, op_named};
use crate::sparse::{Brought, SparseSum};

/// A worker; it leaves the job at the latest when it is collected.
#[pyclass(frozen, module = "tributary._core")]
pub struct Group {
    owner: OwnerProcess,
    inner: Mutex<Inner>,
    switch: String,
    job: String,
}

struct Inner {
    /// `None` once it is closed.
    group: Option<tributary_net::group::Group>,
    /// Collectives whose memory must stay alive, even if Python has forgotten them.
    flights: Vec<Arc<Flight>>,
}

#[pymethods]
impl Group {
    #[staticmethod]
    #[pyo3(
        signature = (
            switch, job, rank, world_size, timeout, protocol, options, elements_per_packet=None, slots=None, trees=None,
            operators=Vec::new()
        )
    )]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn connect(
        py: Python<'_>,
        switch: &str,
        job: &str,
        rank: u16,
        world_size: u16,
        timeout: f64,
        protocol: &str,
        options: BTreeMap<String, String>,
        elements_per_packet: Option<u16>,
        slots: Option<u16>,
        trees: Option<u16>,
        operators: Vec<PyRef<'_, Operator>>,
    ) -> PyResult<Group> {
        let protocol = named(protocol)?;
        let operators = operator::shared(&operators);
        let options = operator::options(protocol, options, &operators)?;
        let options = ConnectOptions {
            switch: tributary_cli::parse_switch(switch).map_err(PyValueError::new_err)?,
            job: job.to_string(),
            rank,
            world: world_size,
            timeout: errors::seconds(timeout)?,
            protocol,
            options: protocol
                .options
                .read(&options)
                .map_err(|error| PyValueError::new_err(error.to_string()))?
                .provided(&operators),
            elements_per_packet,
            slots,
            trees,
        };
        let (switch, job) = (options.switch.clone(), options.job.clone());
        let group = connect_interruptibly(py, options)?;
        let inner = Mutex::new(Inner { group: Some(group), flights: Vec::new() });
        Ok(Group { owner: OwnerProcess::current(), inner, switch, job })
    }

    /// Submits an allreduce or, with a root, a reduce, whose output counts on that rank only.
    #[pyo3(signature = (input, output, dtype, op, timeout, root=None))]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn submit(
        &self,
        py: Python<'_>,
        input: Bound<'_, PyUntypedArray>,
        output: Bound<'_, PyUntypedArray>,
        dtype: &str,
        op: &str,
        timeout: f64,
        root: Option<u16>,
    ) -> PyResult<Pending> {
        let (dtype, op, timeout) = (dtype_named(dtype)?, op_named(op)?, errors::seconds(timeout)?);
        let elements = input.len();
        let (from, to) = (memory(&input, dtype, elements, false)?, memory(&output, dtype, elements, true)?);
        let owners = [input.unbind().into_any(), output.unbind().into_any()];
        let submission = submission(from, to, elements, dtype, op, timeout);
        // SAFETY: `memory` checked that both arrays are contiguous, aligned and long enough, and they own that memory.
        self.start(py, owners, |group| unsafe { reduction(group, submission, 0..elements, root) })
    }

    /// Sends a rank's array to all ranks, in place; element types do not matter.
    fn broadcast(
        &self,
        py: Python<'_>,
        data: Bound<'_, PyUntypedArray>,
        root: u16,
        timeout: f64,
        is_written: bool,
    ) -> PyResult<Pending> {
        let (address, bytes) = bytes_of(&data, is_written)?;
        let submission = of_bytes(address, bytes, errors::seconds(timeout)?);
        // SAFETY: `bytes_of` checked that the array is contiguous and may be written where it is; it owns its memory.
        self.start(py, [data.unbind().into_any(), py.None()], |group| unsafe {
            group.submit_broadcast(submission, root)
        })
    }

    /// Submits a reduce-scatter; the output is this rank's part.
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        input: Bound<'_, PyUntypedArray>,
        output: Bound<'_, PyUntypedArray>,
        dtype: &str,
        op: &str,
        timeout: f64,
    ) -> PyResult<Pending> {
        let (dtype, op, timeout) = (dtype_named(dtype)?, op_named(op)?, errors::seconds(timeout)?);
        let (whole, chunk) = (input.len(), output.len());
        let (from, to) = (memory(&input, dtype, whole, false)?, memory(&output, dtype, chunk, true)?);
        let submission = submission(from, to, chunk, dtype, op, timeout);
        let owners = [input.unbind().into_any(), output.unbind().into_any()];
        self.start(py, owners, |group| {
            group.check_chunks(whole, chunk)?;
            // SAFETY: `memory` checked that both arrays are contiguous, aligned and as long as they say, and the owners
            // own that memory.
            unsafe { group.submit_reduce_scatter(submission) }
        })
    }

    /// Submits an all-gather in place: the array has the parts of all ranks, of equal length, and this rank's part is
    /// filled in.
    fn all_gather(
        &self,
        py: Python<'_>,
        data: Bound<'_, PyUntypedArray>,
        part: usize,
        timeout: f64,
    ) -> PyResult<Pending> {
        let (address, bytes) = bytes_of(&data, true)?;
        let submission = of_bytes(address, part, errors::seconds(timeout)?);
        self.start(py, [data.unbind().into_any(), py.None()], |group| {
            group.check_chunks(bytes, part)?;
            // SAFETY: `bytes_of` checked that the array is contiguous and may be written; it owns its memory.
            unsafe { group.submit_all_gather(submission) }
        })
    }

    /// The same for memory at an address: a tensor that numpy does not know. The caller vouches for it.
    fn broadcast_raw(
        &self,
        py: Python<'_>,
        address: usize,
        bytes: usize,
        root: u16,
        timeout: f64,
        owner: Py<PyAny>,
    ) -> PyResult<Pending> {
        if address == 0 && bytes > 0 {
            return Err(PyValueError::new_err(format!("there are no {bytes} bytes at address 0")));
        }
        let submission = of_bytes(address as *mut u8, bytes, errors::seconds(timeout)?);
        // SAFETY: the package takes the address and the number of bytes from a contiguous tensor, which owns them.
        self.start(py, [owner, py.None()], |group| unsafe { group.submit_broadcast(submission, root) })
    }

    /// Like `submit`, for memory at addresses: tensors that numpy does not know. `owners` are held until the collective
    /// has ended. The output has the elements `kept` of the result, from the first to before the second. The caller
    /// vouches for what cannot be checked here: that the addresses have that many elements, and that the output is that
    /// part of the input or does not overlap it. With a root it is a reduce, and `kept` is everything on that rank.
    #[pyo3(signature = (input, output, elements, dtype, op, timeout, owners, kept, root=None))]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn submit_raw(
        &self,
        py: Python<'_>,
        input: usize,
        output: usize,
        elements: usize,
        dtype: &str,
        op: &str,
        timeout: f64,
        owners: (Py<PyAny>, Py<PyAny>),
        kept: (usize, usize),
        root: Option<u16>,
    ) -> PyResult<Pending> {
        let (dtype, op) = (dtype_named(dtype)?, op_named(op)?);
        let aligned = |address: usize| address != 0 && address.is_multiple_of(dtype.size());
        let kept = kept.0..kept.1;
        let addressed = (elements == 0 || aligned(input)) && (kept.is_empty() || aligned(output));
        if !addressed || kept.start > kept.end || kept.end > elements {
            return Err(PyValueError::new_err(format!(
                "these addresses cannot be those of {elements} {dtype} elements"
            )));
        }
        let timeout = errors::seconds(timeout)?;
        let submission = submission(input as *const u8, output as *mut u8, elements, dtype, op, timeout);
        // SAFETY: the package takes the addresses and the number of elements from contiguous tensors, which own them.
        self.start(py, owners.into(), |group| unsafe { reduction(group, submission, kept, root) })
    }

    /// Submits a sparse allreduce of copies of these arrays: indices, and the bytes of values of the type, big-endian.
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn submit_sparse(
        &self,
        py: Python<'_>,
        indices: PyReadonlyArray1<'_, i64>,
        values: PyReadonlyArray1<'_, u8>,
        size: usize,
        dtype: &str,
        op: &str,
        timeout: f64,
    ) -> PyResult<(Pending, SparseSum)> {
        let (dtype, op, timeout) = (dtype_named(dtype)?, op_named(op)?, errors::seconds(timeout)?);
        let inner = self.lock(py)?;
        let group = inner.group.as_ref().ok_or_else(|| errors::closed(py))?;
        let brought = Brought { indices, values, dtype, size };
        let (started, sum) = brought.submit(group, op, timeout)?.map_err(|error| errors::of_group(py, &error))?;
        let flight = Flight { started, _owners: [py.None(), py.None()] };
        Ok((Pending::new(keep(inner, flight)), sum))
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.lock(py)?;
        let group = inner.group.as_ref().ok_or_else(|| errors::closed(py))?;
        let info = group.info();
        let dict = PyDict::new(py);
        dict.set_item("switch", &self.switch)?;
        dict.set_item("job", &self.job)?;
        dict.set_item("rank", info.rank)?;
        dict.set_item("world_size", info.world)?;
        dict.set_item("protocol", info.protocol.name)?;
        dict.set_item("slots", info.slots)?;
        dict.set_item("elements_per_packet", info.elements_per_packet)?;
        dict.set_item("mtu", info.mtu)?;
        dict.set_item("shards", info.shards.len())?;
        dict.set_item("servers", PyTuple::new(py, info.servers.iter().map(ToString::to_string))?)?;
        dict.set_item("sparse", group.is_sparse())?;
        Ok(dict)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.lock(py)?;
        let group = inner.group.as_ref().ok_or_else(|| errors::closed(py))?;
        let stats = group.stats().map_err(|error| errors::of_group(py, &error))?;
        let drops = PyDict::new(py);
        for (reason, count) in stats.host.drops.iter().filter(|&(_, count)| count > 0) {
            drops.set_item(reason.name(), count)?;
        }
        let dict = PyDict::new(py);
        dict.set_item("packets_sent", stats.host.packets_sent)?;
        dict.set_item("retransmissions", stats.host.retransmissions)?;
        dict.set_item("packets_received", stats.host.packets_received)?;
        dict.set_item("in_network", stats.in_network())?;
        dict.set_item("blocks_at_hosts", stats.host.blocks_at_hosts)?;
        dict.set_item("where_summed", stats.where_summed(group.info()))?;
        dict.set_item("contributed", stats.host.contributed())?;
        dict.set_item("order", stats.host.order.map(|order| format!("{order:08x}")))?;
        dict.set_item("drops", drops)?;
        Ok(dict)
    }

    fn abandon(&self, py: Python<'_>) {
        self.end(py, tributary_net::group::Group::abandon);
    }

    fn close(&self, py: Python<'_>) {
        self.end(py, tributary_net::group::Group::close);
    }
}

impl Group {
    fn end(&self, py: Python<'_>, leave: fn(tributary_net::group::Group)) {
        // A fork leaves its parent's group alone.
        let Ok(group) = self.lock(py).map(|mut inner| inner.group.take()) else { return };
        if let Some(group) = group {
            py.detach(|| leave(group));
        }
        // No collective is under way any more. Flights are dropped outside the lock, because dropping arrays may run
        // Python code.
        let flights = self.lock(py).map(|mut inner| std::mem::take(&mut inner.flights));
        drop(flights);
    }

    /// Starts collectives over memory of the owners: the flight holds the owners, and the group holds the flight until
    /// the collectives have ended.
    fn start(
        &self,
        py: Python<'_>,
        owners: [Py<PyAny>; 2],
        submit: impl FnOnce(&tributary_net::group::Group) -> Result<Started, GroupError>,
    ) -> PyResult<Pending> {
        let inner = self.lock(py)?;
        let group = inner.group.as_ref().ok_or_else(|| errors::closed(py))?;
        let started = submit(group).map_err(|error| errors::of_group(py, &error))?;
        Ok(Pending::new(keep(inner, Flight { started, _owners: owners })))
    }

    /// Locks the state, only for moments that never wait for the interpreter. Refused in a fork, where a thread that
    /// does not exist there may hold the lock for ever.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        if !self.owner.is_current() {
            return Err(errors::forked(py, &self.job));
        }
        Ok(self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// Makes the group hold a flight, and releases the flights that have ended.
fn keep(mut inner: MutexGuard<'_, Inner>, flight: Flight) -> Arc<Flight> {
    let flight = Arc::new(flight);
    let ended: Vec<_> = inner.flights.extract_if(.., |flight| flight.is_done()).collect();
    inner.flights.push(Arc::clone(&flight));
    // Dropping arrays may run Python code, so not while the lock is held.
    drop(inner);
    drop(ended);
    flight
}

/// A collective of which Python code waits on another thread.
fn submission(
    input: *const u8,
    output: *mut u8,
    elements: usize,
    dtype: DType,
    op: ReduceOp,
    timeout: Duration,
) -> Submission {
    Submission { input, output, elements, dtype, op, timeout, drive: Drive::Background }
}

/// A collective in place that moves bytes.
fn of_bytes(data: *mut u8, bytes: usize, timeout: Duration) -> Submission {
    submission(data, data, bytes, DType::U8, ReduceOp::Sum, timeout)
}

/// Starts an allreduce or, with a root, a reduce.
///
/// # Safety
/// As for [`tributary_net::group::Group::submit_allreduce`].
unsafe fn reduction(
    group: &tributary_net::group::Group,
    submission: Submission,
    kept: Range<usize>,
    root: Option<u16>,
) -> Result<Started, GroupError> {
    // SAFETY: the caller's promise.
    unsafe {
        match root {
            None => group.submit_allreduce(submission, kept),
            Some(root) => group.submit_reduce(submission, root),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}
