//! One rank of a group whose ranks share a host's memory; or several hosts', whose leaders meet in the network.

use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use tributary_local::{Description, Group, Kind, Lent, LocalError, Operands, Pending};
use tributary_net::os::OwnerProcess;
use tributary_numeric::{DType, ReduceOp};

use crate::buffer::{Buffer, within};
use crate::errors;
use crate::group::Group as NetworkGroup;
use crate::hosts::{HostMemory, HostsFailure, OfHosts, Spanning, met, of_local};
use crate::pending::{SIGNAL_INTERVAL, wait_in_slices};
use crate::protocol::{dtype_named, op_named};

/// A rank; it leaves the group at the latest when it is collected.
#[pyclass(frozen, module = "tributary._core")]
pub struct LocalGroup {
    owner: OwnerProcess,
    /// Its own end would wait for a thread: a fork, which has no such thread, never ends it.
    members: ManuallyDrop<Members>,
    /// Collectives under way. Their memory must stay alive, even if Python has dropped their handles.
    pending: Mutex<Vec<Py<LocalPending>>>,
}

/// The ranks of one host, or of several.
enum Members {
    Here(Group),
    OnHosts(Spanning),
}

/// Python's handle of a collective.
#[pyclass(frozen, module = "tributary._core")]
pub struct LocalPending {
    owner: OwnerProcess,
    collective: Collective,
    /// Kept alive, and never used.
    _owners: [Py<PyAny>; 3],
}

/// A collective of either.
enum Collective {
    Here(Pending),
    OnHosts(OfHosts),
}

impl Collective {
    fn is_done(&self) -> bool {
        match self {
            Collective::Here(pending) => pending.is_done(),
            Collective::OnHosts(pending) => pending.is_done(),
        }
    }

    /// Waits for the end.
    fn wait(&self, timeout: Duration) -> Option<Result<(), Failure>> {
        match self {
            Collective::Here(pending) => pending.wait(timeout).map(|ended| ended.map_err(Failure::Here)),
            Collective::OnHosts(pending) => pending.wait(timeout).map(|ended| ended.map_err(Failure::OnHosts)),
        }
    }
}

enum Failure {
    Here(LocalError),
    OnHosts(HostsFailure),
}

#[pymethods]
impl LocalGroup {
    /// Meets the other ranks; `check` is called now and then, and an exception that it raises ends the wait.
    #[staticmethod]
    #[pyo3(signature = (name, rank, world_size, timeout, check=None))]
    fn meet(
        py: Python<'_>,
        name: &str,
        rank: usize,
        world_size: usize,
        timeout: f64,
        check: Option<Py<PyAny>>,
    ) -> PyResult<LocalGroup> {
        let (layout, processes) = met(py, name, rank, world_size, errors::seconds(timeout)?, check.as_ref())?;
        Ok(LocalGroup::new(Members::Here(Group::new(rank, world_size, layout, processes))))
    }

    /// The group whose hosts' leaders have met in the network: with the leader's workers, and on other ranks without any.
    #[staticmethod]
    fn span(
        py: Python<'_>,
        memory: &HostMemory,
        rank: usize,
        workers: Vec<Py<NetworkGroup>>,
        reports: Py<PyAny>,
    ) -> PyResult<LocalGroup> {
        Ok(LocalGroup::new(Members::OnHosts(memory.span(py, rank, workers, reports)?)))
    }

    /// Shares out a leader's large sums: which workers make them, the share of each, and the elements of a block. Nothing may
    /// be under way.
    fn share_out(
        &self,
        py: Python<'_>,
        workers: Vec<Py<NetworkGroup>>,
        shares: Vec<f64>,
        block: usize,
    ) -> PyResult<()> {
        match &*self.members {
            Members::OnHosts(group) if workers.len() == shares.len() => group.share_out(py, workers, shares, block),
            _ => Err(PyValueError::new_err("sums between hosts are shared out, with a share for each worker")),
        }
    }

    /// Starts an all-reduce; with a root it is a reduce. The output has the elements `kept` of the result, from the first
    /// to before the second, or all of them. What codes lose of a host's sum on its way to other hosts is written to `loss`,
    /// if that is given, on the host's leader.
    #[pyo3(signature = (input, output, dtype, op, timeout, kept=None, root=None, loss=None))]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn all_reduce(
        &self,
        py: Python<'_>,
        input: Buffer,
        output: Buffer,
        dtype: &str,
        op: &str,
        timeout: f64,
        kept: Option<(usize, usize)>,
        root: Option<u16>,
        loss: Option<Buffer>,
    ) -> PyResult<Py<LocalPending>> {
        let (dtype, op) = (dtype_named(dtype)?, op_named(op)?);
        let elements = input.elements(dtype)?;
        let kept = within(kept, elements)?;
        if loss.as_ref().is_some_and(|loss| loss.bytes != input.bytes) {
            return Err(PyValueError::new_err("a loss has as many elements as the input and the result"));
        }
        let kind = root.map_or(Kind::AllReduce, |root| Kind::Reduce { root });
        self.start(py, Description { kind, dtype, op, elements }, (input, Some(output), loss), kept, timeout)
    }

    /// Starts a broadcast of a rank's memory to all ranks, in place.
    fn broadcast(&self, py: Python<'_>, data: Buffer, root: u16, timeout: f64) -> PyResult<Py<LocalPending>> {
        let description = bytes(Kind::Broadcast { root }, data.bytes);
        let is_root = usize::from(root) == self.rank();
        let (input, output) = match (is_root, self.is_leader()) {
            (true, true) => (data.fragment(py, 0, data.bytes)?, Some(data)),
            (true, false) => (data, None),
            (false, _) => (Buffer::nothing(py), Some(data)),
        };
        self.start(py, description, (input, output, None), 0..0, timeout)
    }

    /// Starts a reduce-scatter: the output is this rank's shard of the result. The range is the whole input, as there is
    /// one memory only.
    #[pyo3(signature = (input, output, dtype, op, timeout, range=None))]
    #[allow(clippy::too_many_arguments)] // They are Python's arguments.
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        input: Buffer,
        output: Buffer,
        dtype: &str,
        op: &str,
        timeout: f64,
        range: Option<(usize, usize)>,
    ) -> PyResult<Py<LocalPending>> {
        let (dtype, op) = (dtype_named(dtype)?, op_named(op)?);
        let (elements, shard) = (input.elements(dtype)?, output.elements(dtype)?);
        is_whole(range, elements)?;
        let first = self.rank() * shard;
        let description = Description { kind: Kind::ReduceScatter, dtype, op, elements };
        self.start(py, description, (input, Some(output), None), first..first + shard, timeout)
    }

    /// Starts an all-gather in place: the memory has the shards of all ranks, and this rank's is filled in.
    #[pyo3(signature = (data, shard, timeout, range=None))]
    fn all_gather(
        &self,
        py: Python<'_>,
        data: Buffer,
        shard: usize,
        timeout: f64,
        range: Option<(usize, usize)>,
    ) -> PyResult<Py<LocalPending>> {
        is_whole(range, data.bytes)?;
        let input = data.fragment(py, self.rank() * shard, shard)?;
        self.start(py, bytes(Kind::AllGather, shard), (input, Some(data), None), 0..0, timeout)
    }

    /// Lets the group's own thread go on with what nobody waits for.
    fn go_on(&self) -> PyResult<()> {
        match &*self.members {
            Members::Here(group) => group.go_on().map_err(|error| PyOSError::new_err(error.to_string())),
            // It has threads that always go on.
            Members::OnHosts(_) => Ok(()),
        }
    }

    /// Waits until all collectives under way have ended, successfully or not.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let all = self.lock();
            let next = all.iter().find(|pending| !pending.get().is_done()).map(|pending| pending.clone_ref(py));
            drop(all);
            let Some(pending) = next else { return Ok(()) };
            while !pending.get().is_done() {
                py.detach(|| pending.get().collective.wait(SIGNAL_INTERVAL));
                py.check_signals()?;
            }
        }
    }

    /// Leaves the group; what is under way fails.
    fn close(&self, py: Python<'_>) {
        // A fork leaves its parent's group alone.
        if !self.owner.is_current() {
            return;
        }
        py.detach(|| match &*self.members {
            Members::Here(group) => group.close(),
            Members::OnHosts(group) => group.close(),
        });
        // Outside the lock, because to drop arrays may run Python code.
        let pending = std::mem::take(&mut *self.lock());
        drop(pending);
    }
}

impl LocalGroup {
    fn new(members: Members) -> LocalGroup {
        LocalGroup { owner: OwnerProcess::current(), members: ManuallyDrop::new(members), pending: Mutex::default() }
    }

    fn rank(&self) -> usize {
        match &*self.members {
            Members::Here(group) => group.rank(),
            Members::OnHosts(group) => group.rank(),
        }
    }

    /// True if this rank brings its host's results to the network, for which it needs memory even as a root.
    fn is_leader(&self) -> bool {
        matches!(&*self.members, Members::OnHosts(group) if group.leads())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Py<LocalPending>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a collective over memory of the buffers, which are kept alive until it has ended.
    fn start(
        &self,
        py: Python<'_>,
        description: Description,
        (input, output, loss): (Buffer, Option<Buffer>, Option<Buffer>),
        kept: std::ops::Range<usize>,
        timeout: f64,
    ) -> PyResult<Py<LocalPending>> {
        refuse_fork(py, self.owner)?;
        // SAFETY: `Buffer` is contiguous and as long as it says, and its owner is held until the collective has ended. The
        // package makes sure that the output is the same memory as those elements of the input or does not overlap it, and
        // Python code leaves both alone until then.
        #[allow(unsafe_code)]
        let (from, to, lost) = unsafe {
            let written = |buffer: &Option<Buffer>| match buffer {
                Some(buffer) => Ok::<_, PyErr>(Lent::new(buffer.target()?, buffer.bytes)),
                None => Ok(Lent::NONE),
            };
            (Lent::new(input.source().cast_mut(), input.bytes), written(&output)?, written(&loss)?)
        };
        let timeout = errors::seconds(timeout)?;
        let collective = match &*self.members {
            Members::Here(group) => {
                group.submit(description, Operands { input: from, output: to, kept }, timeout).map(Collective::Here)
            }
            Members::OnHosts(_) if description.kind == Kind::AllReduce && kept != (0..description.elements) => {
                return Err(PyValueError::new_err("ranks of several hosts get whole results, or a shard each"));
            }
            Members::OnHosts(group) => group.submit(description, from, to, lost, timeout).map(Collective::OnHosts),
        };
        let collective = collective.map_err(|error| of_local(py, &error))?;
        let [output, loss] = [output, loss].map(|buffer| buffer.map_or_else(|| py.None(), |buffer| buffer.owner));
        let owners = [input.owner, output, loss];
        let pending = Py::new(py, LocalPending { owner: self.owner, collective, _owners: owners })?;
        let mut all = self.lock();
        let ended: Vec<_> = all.extract_if(.., |pending| pending.get().is_done()).collect();
        all.push(pending.clone_ref(py));
        drop(all);
        // Outside the lock, as above.
        drop(ended);
        Ok(pending)
    }
}

#[pymethods]
impl LocalPending {
    /// True when the collective is complete, false if `timeout` seconds passed first; raises an exception if it failed.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        refuse_fork(py, self.owner)?;
        match wait_in_slices(py, timeout, |timeout| self.collective.wait(timeout))? {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(Failure::Here(error))) => Err(of_local(py, &error)),
            Some(Err(Failure::OnHosts(failure))) => Err(failure.raised(py)),
        }
    }

    /// True when the memory belongs to the caller again; also in a fork, for the fork's copy.
    fn is_done(&self) -> bool {
        self.collective.is_done() || !self.owner.is_current()
    }
}

/// A fork has none of its parent's threads, so a wait there would not end, and the memory is its parent's.
fn refuse_fork(py: Python<'_>, owner: OwnerProcess) -> PyResult<()> {
    let sentence = "this group was made before a fork; make a new one in the new process";
    if owner.is_current() { Ok(()) } else { Err(errors::raise(py, "TributaryError", (sentence,))) }
}

/// Why ranks that share a host cannot combine elements of this type this way, as a sentence; `None` if they can.
#[pyfunction]
pub(crate) fn local_refusal(dtype: &str, op: &str) -> PyResult<Option<String>> {
    let (dtype, op) = (dtype_named(dtype)?, op_named(op)?);
    Ok((!op.takes(dtype))
        .then(|| format!("a host's memory cannot do a {op} of {dtype}: band, bor and bxor are for integers")))
}

fn is_whole(range: Option<(usize, usize)>, all: usize) -> PyResult<()> {
    match range {
        Some(range) if range != (0, all) => Err(PyValueError::new_err(format!("{range:?} is not 0 to {all}"))),
        _ => Ok(()),
    }
}

fn bytes(kind: Kind, elements: usize) -> Description {
    Description { kind, dtype: DType::U8, op: ReduceOp::Sum, elements }
}

impl Drop for LocalGroup {
    fn drop(&mut self) {
        if self.owner.is_current() {
            Python::attach(|py| self.close(py));
            // SAFETY: nothing uses the group after this.
            #[allow(unsafe_code)]
            unsafe {
                ManuallyDrop::drop(&mut self.members);
            }
        }
    }
}
