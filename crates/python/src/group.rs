//! One worker of a job.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tributary_local::{Description, Kind, Lent};
use tributary_net::group::{ConnectOptions, Drive, GroupError, Pending as Collective, Submission};
use tributary_net::os::OwnerProcess;
use tributary_numeric::{DType, ReduceOp};
use tributary_proto::contract::custom_op::{CustomOp as _, CustomOpHash};

use crate::buffer::{Buffer, within};
use crate::connect::connect_interruptibly;
use crate::errors;
use crate::operator::{self, Op, Operator};
use crate::pending::Pending;
use crate::protocol::{dtype_named, named, op_named};
use crate::sparse::{Brought, SparseSum};

/// A worker; it leaves the job at the latest when it is collected.
#[pyclass(frozen, module = "tributary._core")]
pub struct Group {
    owner: OwnerProcess,
    inner: Mutex<Inner>,
    switch: String,
    job: String,
    /// The hashes of the job's custom operators, in the order of their numbers.
    operators: Vec<CustomOpHash>,
}

struct Inner {
    /// `None` once it is closed.
    group: Option<tributary_net::group::Group>,
    /// Collectives under way. Their memory must stay alive, even if Python has dropped their handles.
    pending: Vec<Py<Pending>>,
}

#[pymethods]
impl Group {
    #[staticmethod]
    #[pyo3(
        signature = (
            switch, job, rank, world_size, timeout, protocol, options, elements_per_packet=None, slots=None, trees=None,
            cores=None, operators=Vec::new(), check=None
        )
    )]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn connect(
        py: Python<'_>,
        switch: &str,
        job: &str,
        rank: i64,
        world_size: i64,
        timeout: f64,
        protocol: &str,
        options: BTreeMap<String, String>,
        elements_per_packet: Option<i64>,
        slots: Option<i64>,
        trees: Option<i64>,
        cores: Option<i64>,
        operators: Vec<PyRef<'_, Operator>>,
        check: Option<Py<PyAny>>,
    ) -> PyResult<Group> {
        let optional = |name, value: Option<i64>| value.map(|value| errors::count(name, value)).transpose();
        let protocol = named(protocol)?;
        let hashes = operators.iter().map(|operator| operator.0.hash()).collect();
        let operators = operator::shared(&operators);
        let options = operator::options(protocol, options, &operators)?;
        let options = ConnectOptions {
            switch: tributary_cli::parse_switch(switch).map_err(PyValueError::new_err)?,
            job: job.to_string(),
            rank: errors::count("rank", rank)?,
            world_size: errors::count("world_size", world_size)?,
            timeout: errors::seconds(timeout)?,
            protocol,
            options: protocol
                .options
                .read(&options)
                .map_err(|error| PyValueError::new_err(error.to_string()))?
                .provided(&operators),
            elements_per_packet: optional("elements_per_packet", elements_per_packet)?,
            slots: optional("slots", slots)?,
            trees: optional("trees", trees)?,
            cores: optional("cores", cores)?,
        };
        let (switch, job) = (options.switch.clone(), options.job.clone());
        let group = connect_interruptibly(py, options, check)?;
        let inner = Mutex::new(Inner { group: Some(group), pending: Vec::new() });
        Ok(Group { owner: OwnerProcess::current(), inner, switch, job, operators: hashes })
    }

    /// Starts an all-reduce; with a root it is a reduce, whose output is written on that rank only. The output has the
    /// elements `kept` of the result, from the first to before the second, or all of them. What codes lose of the input is
    /// written to `loss`, if that is given and all of the result is wanted.
    #[pyo3(signature = (input, output, dtype, op, timeout, kept=None, root=None, loss=None))]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn all_reduce(
        &self,
        py: Python<'_>,
        input: Buffer,
        output: Buffer,
        dtype: &str,
        op: Op<'_>,
        timeout: f64,
        kept: Option<(usize, usize)>,
        root: Option<u16>,
        loss: Option<Buffer>,
    ) -> PyResult<Py<Pending>> {
        let (dtype, op, timeout) = (dtype_named(dtype)?, self.reduce_op(&op)?, errors::seconds(timeout)?);
        let elements = input.elements(dtype)?;
        let kept = within(kept, elements)?;
        if kept.len() > output.elements(dtype)? {
            return Err(PyValueError::new_err(format!("the output has fewer than {} elements", kept.len())));
        }
        let (from, to) = (input.source(), if kept.is_empty() { std::ptr::null_mut() } else { output.target()? });
        let mut submission = submission(from, to, elements, dtype, op, timeout);
        let mut owners = vec![input.owner, output.owner];
        if let Some(loss) = loss {
            if loss.elements(dtype)? != elements || kept != (0..elements) {
                return Err(PyValueError::new_err("a loss has as many elements as the input and the result"));
            }
            submission.loss = loss.target()?;
            owners.push(loss.owner);
        }
        // SAFETY: `Buffer` is contiguous, aligned and as long as it says, and its owner is held until the collective has
        // ended. The package makes sure that the output is the part `kept` of the input or does not overlap it, and the
        // loss neither, and Python code leaves them alone until then.
        self.start(py, owners, |group| unsafe {
            match root {
                None => group.submit_allreduce(submission, kept),
                Some(root) => group.submit_reduce(submission, root),
            }
        })
    }

    /// Starts a broadcast of a rank's memory to all ranks, in place; element types do not matter.
    fn broadcast(&self, py: Python<'_>, data: Buffer, root: u16, timeout: f64) -> PyResult<Py<Pending>> {
        let is_root = self.with_group(py, |group| Ok(group.info().rank == root))?;
        let to = if is_root { data.source().cast_mut() } else { data.target()? };
        let submission = bytes(to, data.bytes, errors::seconds(timeout)?);
        // SAFETY: as above; the root's memory is only read.
        self.start(py, vec![data.owner], |group| unsafe { group.submit_broadcast(submission, root) })
    }

    /// Starts a reduce-scatter: the output is this rank's chunk of the result. With `range` it is for these elements of
    /// the input only; the chunks stay those of the whole input.
    #[pyo3(signature = (input, output, dtype, op, timeout, range=None))]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        input: Buffer,
        output: Buffer,
        dtype: &str,
        op: Op<'_>,
        timeout: f64,
        range: Option<(usize, usize)>,
    ) -> PyResult<Py<Pending>> {
        let (dtype, op, timeout) = (dtype_named(dtype)?, self.reduce_op(&op)?, errors::seconds(timeout)?);
        let (whole, chunk) = (input.elements(dtype)?, output.elements(dtype)?);
        let range = within(range, whole)?;
        let submission = submission(input.source(), output.target()?, chunk, dtype, op, timeout);
        self.start(py, vec![input.owner, output.owner], |group| {
            group.check_chunks(whole, chunk)?;
            // SAFETY: as for an all-reduce.
            unsafe { group.submit_reduce_scatter(submission, range) }
        })
    }

    /// Starts an all-gather in place: the memory has the chunks of all ranks, of `chunk` bytes each, and this rank's is
    /// filled in. With `range` it is for these bytes only.
    #[pyo3(signature = (data, chunk, timeout, range=None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        data: Buffer,
        chunk: usize,
        timeout: f64,
        range: Option<(usize, usize)>,
    ) -> PyResult<Py<Pending>> {
        let range = within(range, data.bytes)?;
        let submission = bytes(data.target()?, chunk, errors::seconds(timeout)?);
        self.start(py, vec![data.owner], |group| {
            group.check_chunks(data.bytes, chunk)?;
            // SAFETY: as for an all-reduce.
            unsafe { group.submit_all_gather(submission, range) }
        })
    }

    /// Starts an all-reduce of a copy of this sparse array: indices, and the bytes of values of the type, big-endian.
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn all_reduce_sparse(
        &self,
        py: Python<'_>,
        indices: PyReadonlyArray1<'_, i64>,
        values: PyReadonlyArray1<'_, u8>,
        size: usize,
        dtype: &str,
        op: &str,
        timeout: f64,
    ) -> PyResult<(Py<Pending>, SparseSum)> {
        let (dtype, op, timeout) = (dtype_named(dtype)?, op_named(op)?, errors::seconds(timeout)?);
        let brought = Brought { indices, values, dtype, size };
        let started = self.with_group(py, |group| brought.submit(group, op, timeout))?;
        let (collective, sum) = started.map_err(|error| errors::of_group(py, &error))?;
        Ok((self.keep(py, Pending::new(collective, Vec::new()))?, sum))
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let inner = self.lock(py)?;
        let group = inner.group.as_ref().ok_or_else(|| errors::closed(py))?;
        let info = group.info();
        let dict = PyDict::new(py);
        dict.set_item("switch", &self.switch)?;
        dict.set_item("job", &self.job)?;
        dict.set_item("rank", info.rank)?;
        dict.set_item("world_size", info.world_size)?;
        dict.set_item("protocol", info.protocol.name)?;
        dict.set_item("slots", info.slots)?;
        dict.set_item("elements_per_packet", info.elements_per_packet)?;
        dict.set_item("mtu", info.mtu)?;
        dict.set_item("shards", info.shards.len())?;
        dict.set_item("cores", info.cores)?;
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

    /// Waits until all collectives under way have ended, successfully or not.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let inner = self.lock(py)?;
            let next =
                inner.pending.iter().find(|pending| !pending.get().is_done()).map(|pending| pending.clone_ref(py));
            drop(inner);
            match next {
                Some(pending) => pending.get().await_end(py)?,
                None => return Ok(()),
            }
        }
    }

    fn abort(&self, py: Python<'_>) {
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
        // No collective is under way any more. Their arrays are dropped outside the lock, because that may run Python
        // code.
        let pending = self.lock(py).map(|mut inner| std::mem::take(&mut inner.pending));
        drop(pending);
    }

    /// The operator as the core knows it: a custom one by its number among the group's.
    fn reduce_op(&self, op: &Op<'_>) -> PyResult<ReduceOp> {
        let operator = match op {
            Op::Named(name) => return op_named(name),
            Op::Custom(operator) => operator,
        };
        let number = self.operators.iter().position(|hash| *hash == operator.0.hash());
        number.map(|number| ReduceOp::Custom(number as u8)).ok_or_else(|| {
            let name = operator.0.name();
            errors::config(operator.py(), format!("the group does not have {name}: give connect(..., operators=[op])"))
        })
    }

    /// Starts a collective in place that another thread of this process waits for; `None` if the group was closed.
    pub(crate) fn start_in_place(
        &self,
        description: &Description,
        memory: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> Option<Result<Collective, GroupError>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let group = inner.group.as_ref()?;
        let &Description { kind, dtype, op, elements } = description;
        let data = memory.address();
        let loss = if loss.is_empty() { std::ptr::null_mut() } else { loss.address() };
        let submission = Submission { loss, ..submission(data, data, elements, dtype, op, timeout) };
        // SAFETY: who lends the memory keeps it until the collective has ended, and nothing else uses it meanwhile.
        Some(unsafe {
            match kind {
                Kind::Broadcast { root } => group.submit_broadcast(submission, root),
                Kind::Reduce { root } => group.submit_reduce(submission, root),
                _ => group.submit_allreduce(submission, 0..elements),
            }
        })
    }

    /// Leaves the job at once, as a member that is `lost` or not; what is under way fails.
    pub(crate) fn abandon(&self, lost: bool) {
        let group = self.inner.lock().unwrap_or_else(PoisonError::into_inner).group.take();
        group.into_iter().for_each(|group| if lost { group.abandon_as_lost() } else { group.abandon() });
    }

    /// Does something with the group, unless it was closed.
    pub(crate) fn with_group<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&tributary_net::group::Group) -> PyResult<T>,
    ) -> PyResult<T> {
        work(self.lock(py)?.group.as_ref().ok_or_else(|| errors::closed(py))?)
    }

    /// Starts a collective over memory of the owners, which are kept alive until it has ended.
    fn start(
        &self,
        py: Python<'_>,
        owners: Vec<Py<PyAny>>,
        submit: impl FnOnce(&tributary_net::group::Group) -> Result<Collective, GroupError>,
    ) -> PyResult<Py<Pending>> {
        let collective = self.with_group(py, |group| submit(group).map_err(|error| errors::of_group(py, &error)))?;
        self.keep(py, Pending::new(collective, owners))
    }

    /// Holds a collective until it has ended, and releases those that have.
    fn keep(&self, py: Python<'_>, pending: Pending) -> PyResult<Py<Pending>> {
        let pending = Py::new(py, pending)?;
        let mut inner = self.lock(py)?;
        let ended: Vec<_> = inner.pending.extract_if(.., |pending| pending.get().is_done()).collect();
        inner.pending.push(pending.clone_ref(py));
        // Dropping arrays may run Python code, so not while the lock is held.
        drop(inner);
        drop(ended);
        Ok(pending)
    }

    /// Locks the state, only for moments that never wait for the interpreter. Refused in a fork, where the lock may be
    /// held by a thread that does not exist there.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Inner>> {
        if !self.owner.is_current() {
            return Err(errors::forked(py, &self.job));
        }
        Ok(self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

/// A collective for which Python code waits, maybe on another thread.
fn submission(
    input: *const u8,
    output: *mut u8,
    elements: usize,
    dtype: DType,
    op: ReduceOp,
    timeout: Duration,
) -> Submission {
    let (loss, drive) = (std::ptr::null_mut(), Drive::Background);
    Submission { input, output, loss, elements, dtype, op, timeout, drive }
}

/// A collective in place that moves bytes.
fn bytes(data: *mut u8, bytes: usize, timeout: Duration) -> Submission {
    submission(data, data, bytes, DType::U8, ReduceOp::Sum, timeout)
}

impl Drop for Group {
    fn drop(&mut self) {
        Python::attach(|py| self.close(py));
    }
}
