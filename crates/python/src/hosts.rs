//! Groups that span hosts with several ranks each: hosts' memories, and the leaders' jobs at switches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tributary_control::aggregation_plan::cuts;
use tributary_local::hosts::{Hosts, HostsError, HostsGroup, Network, OnFailure, Pending};
use tributary_local::meet::{MeetError, Met, Ranks, meet};
use tributary_local::{Description, Group as Memory, Kind, Lent, LocalError};
use tributary_net::group::{GroupError, Pending as Transfer};

use crate::errors;
use crate::group::Group;

/// The memories of this host that its ranks of a group share, one for each direction, before the hosts meet.
#[pyclass(frozen, module = "tributary._core")]
pub struct HostMemory {
    hosts: Hosts,
    memories: Mutex<Option<[Memory; 2]>>,
}

/// The leader's workers, one at each switch, which take collectives in turn, and those that share large sums.
pub struct AtSwitches {
    workers: Vec<Py<Group>>,
    turn: AtomicUsize,
    large_sums: Arc<Mutex<LargeSums>>,
}

/// Who makes the hosts' large sums, the share of each, and the elements of a block.
#[derive(Default)]
struct LargeSums {
    workers: Vec<Py<Group>>,
    shares: Vec<f64>,
    block: usize,
}

impl LargeSums {
    /// Starts a sum, if it is shared out: what has begun, and why not all of it has, if so.
    fn begin(
        &self,
        description: &Description,
        memory: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> (Vec<Transfer>, Option<BetweenError>) {
        let ranges = cuts(description.elements, &self.shares, self.block);
        let (mut begun, size) = (Vec::new(), description.dtype.size());
        if !description.kind.reduces() || ranges.len() < 2 {
            return (begun, None);
        }
        for (worker, range) in self.workers.iter().zip(ranges).filter(|(_, range)| !range.is_empty()) {
            let share = Description { elements: range.len(), ..*description };
            let bytes = range.start * size..range.end * size;
            let lost = if loss.is_empty() { loss } else { loss.fragment(bytes.clone()) };
            match begin(worker, &share, memory.fragment(bytes), lost, timeout) {
                Ok(transfer) => begun.push(transfer),
                Err(error) => return (begun, Some(error)),
            }
        }
        (begun, None)
    }
}

/// Starts a collective of a worker.
fn begin(
    worker: &Py<Group>,
    description: &Description,
    memory: Lent,
    loss: Lent,
    timeout: Duration,
) -> Result<Transfer, BetweenError> {
    let started = worker.get().start_in_place(description, memory, loss, timeout);
    started.ok_or(BetweenError::Closed)?.map_err(BetweenError::Group)
}

/// Why a collective between hosts failed.
#[derive(Clone, Debug)]
pub enum BetweenError {
    /// It was closed on this host.
    Closed,
    Group(GroupError),
}

impl Network for AtSwitches {
    type Error = BetweenError;
    type Pending = Vec<Transfer>;

    fn start(
        &self,
        description: &Description,
        memory: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> Result<Vec<Transfer>, BetweenError> {
        let (begun, error) = lock(&self.large_sums).begin(description, memory, loss, timeout);
        if let Some(error) = error {
            // The memory is in use until those have ended that have begun.
            self.abandon(false);
            let _ = self.wait(begun);
            return Err(error);
        }
        if !begun.is_empty() {
            return Ok(begun);
        }
        // All leaders start the same ones in the same order, so they choose alike.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        Ok(vec![begin(&self.workers[turn], description, memory, loss, timeout)?])
    }

    fn wait(&self, pending: Vec<Transfer>) -> Result<(), BetweenError> {
        // All must release their memory, even if the first one has failed.
        let mut outcome = Ok(());
        for transfer in pending {
            outcome = outcome.and(transfer.wait(None).map_err(BetweenError::Group));
        }
        outcome
    }

    fn abandon(&self, lost: bool) {
        let large_sums = lock(&self.large_sums);
        self.workers.iter().chain(&large_sums.workers).for_each(|worker| worker.get().abandon(lost));
    }
}

/// What the package makes of errors: `report(error, between_hosts)` is the message of this leader's for other ranks, and
/// `reported(message)` the error of such a message.
struct Reports {
    package: Py<PyAny>,
    /// What this leader has said.
    said: OnceLock<Vec<u8>>,
}

impl Reports {
    fn say(&self, error: &HostsError<BetweenError>) -> Vec<u8> {
        let said = Python::attach(|py| -> PyResult<Vec<u8>> {
            let between = matches!(error, HostsError::Network(_));
            let message = self.package.call_method1(py, "report", (raised(py, error), between))?;
            message.extract(py)
        });
        let message = said.unwrap_or_default();
        self.said.get_or_init(|| message).clone()
    }
}

/// A group that spans hosts, as this rank sees it.
pub struct Spanning {
    group: HostsGroup<AtSwitches>,
    rank: usize,
    reports: Arc<Reports>,
    large_sums: Arc<Mutex<LargeSums>>,
}

/// A collective of it.
pub struct OfHosts {
    pending: Pending<BetweenError>,
    reports: Arc<Reports>,
}

/// Why one failed.
pub struct HostsFailure {
    error: HostsError<BetweenError>,
    reports: Arc<Reports>,
}

#[pymethods]
impl HostMemory {
    /// Meets the other ranks of this rank's host; `hosts` has the number of each rank's host. `check` is called now and
    /// then, and an exception that it raises ends the wait.
    #[staticmethod]
    #[pyo3(signature = (name, hosts, rank, timeout, check=None))]
    fn meet(
        py: Python<'_>,
        name: &str,
        hosts: Vec<u16>,
        rank: u16,
        timeout: f64,
        check: Option<Py<PyAny>>,
    ) -> PyResult<HostMemory> {
        let hosts = Hosts::new(hosts, rank)
            .ok_or_else(|| PyValueError::new_err("hosts are numbered from 0, and each has ranks"))?;
        let (timeout, names, index) = (errors::seconds(timeout)?, hosts.ranks_of(hosts.own()), hosts.index(rank));
        let memory = |way: &str| {
            let name = format!("{name}/{}/{way}", hosts.own());
            let (layout, processes) = met(py, &name, index.into(), names.len(), timeout, check.as_ref())?;
            PyResult::Ok(Memory::named(index.into(), names.clone(), layout, processes))
        };
        let memories = [memory("up")?, memory("down")?];
        Ok(HostMemory { hosts, memories: Mutex::new(Some(memories)) })
    }

    /// True if this rank is the member of its host in the network.
    fn leads(&self) -> bool {
        self.hosts.leads()
    }

    /// Leaves it, if no group uses it.
    fn close(&self, py: Python<'_>) {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(memories));
    }
}

impl HostMemory {
    /// The group; the memory is in use from now on.
    pub(crate) fn span(
        &self,
        py: Python<'_>,
        rank: usize,
        workers: Vec<Py<Group>>,
        reports: Py<PyAny>,
    ) -> PyResult<Spanning> {
        let memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner).take();
        let [up, down] = memories.ok_or_else(|| PyValueError::new_err("the memory is in use by another group"))?;
        let reports = Arc::new(Reports { package: reports, said: OnceLock::new() });
        let (sayer, large_sums) = (Arc::clone(&reports), Arc::<Mutex<LargeSums>>::default());
        name_hosts(py, &self.hosts, &workers)?;
        let network = self.hosts.leads().then(|| {
            let say: OnFailure<BetweenError> = Box::new(move |error| sayer.say(error));
            (AtSwitches { workers, turn: AtomicUsize::new(0), large_sums: Arc::clone(&large_sums) }, say)
        });
        let group = HostsGroup::new(self.hosts.clone(), up, down, network);
        let group = group.map_err(|error| PyOSError::new_err(error.to_string()))?;
        Ok(Spanning { group, rank, reports, large_sums })
    }
}

impl Spanning {
    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn leads(&self) -> bool {
        self.group.hosts().leads()
    }

    /// Shares out the leader's large sums. Nothing is under way.
    pub fn share_out(&self, py: Python<'_>, workers: Vec<Py<Group>>, shares: Vec<f64>, block: usize) -> PyResult<()> {
        name_hosts(py, self.group.hosts(), &workers)?;
        let former = std::mem::replace(&mut *lock(&self.large_sums), LargeSums { workers, shares, block });
        // Outside the lock, because to drop workers may run Python code.
        drop(former);
        Ok(())
    }

    pub fn submit(
        &self,
        operation: Description,
        input: Lent,
        output: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> Result<OfHosts, LocalError> {
        let ranks = usize::from(self.group.hosts().ranks());
        if operation.kind == Kind::ReduceScatter && !operation.elements.is_multiple_of(ranks) {
            return Err(LocalError::Invalid(format!("{operation} of {ranks} ranks has no shards of one length")));
        }
        let pending = self.group.submit(operation, input, output, loss, timeout)?;
        Ok(OfHosts { pending, reports: Arc::clone(&self.reports) })
    }

    pub fn close(&self) {
        self.group.close();
    }
}

impl OfHosts {
    pub fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    pub fn wait(&self, timeout: Duration) -> Option<Result<(), HostsFailure>> {
        let ended = self.pending.wait(timeout)?;
        Some(ended.map_err(|error| HostsFailure { error, reports: Arc::clone(&self.reports) }))
    }
}

impl HostsFailure {
    /// It as an exception: what a leader has said, if one has.
    pub fn raised(&self, py: Python<'_>) -> PyErr {
        let message = match &self.error {
            HostsError::Memory(LocalError::Reported { message, .. }) => Some(message),
            _ => self.reports.said.get(),
        };
        let Some(message) = message else { return raised(py, &self.error) };
        match self.reports.package.call_method1(py, "reported", (PyBytes::new(py, message),)) {
            Ok(exception) => PyErr::from_value(exception.into_bound(py)),
            Err(error) => error,
        }
    }
}

fn raised(py: Python<'_>, error: &HostsError<BetweenError>) -> PyErr {
    match error {
        HostsError::Memory(error) => of_local(py, error),
        HostsError::Network(BetweenError::Group(error)) => errors::of_group(py, error),
        HostsError::Network(BetweenError::Closed) => errors::closed(py),
    }
}

/// Meets the other ranks of a host; `check` is called now and then, and an exception that it raises ends the wait.
pub(crate) fn met(
    py: Python<'_>,
    name: &str,
    rank: usize,
    ranks: usize,
    timeout: Duration,
    check: Option<&Py<PyAny>>,
) -> PyResult<Met> {
    let all = Ranks { name, rank, ranks, timeout };
    let mut poll = || {
        Python::attach(|py| {
            py.check_signals()?;
            check.map_or(Ok(()), |check| check.call0(py).map(drop))
        })
    };
    py.detach(|| meet(&all, &mut poll)).map_err(|error| match error {
        MeetError::Ended(error) => error,
        MeetError::Separate(sentence) => errors::raise(py, "SharedMemoryError", (sentence,)),
        MeetError::TimedOut(sentence) => errors::raise(py, "ConnectError", (sentence,)),
    })
}

/// Tells workers whose members are hosts which rank is the first of each, for errors.
fn name_hosts(py: Python<'_>, hosts: &Hosts, workers: &[Py<Group>]) -> PyResult<()> {
    let first_ranks: Vec<u16> = (0..hosts.count()).map(|host| hosts.ranks_of(host)[0]).collect();
    for worker in workers {
        worker.get().with_group(py, |group| {
            group.name_hosts(first_ranks.clone());
            Ok(())
        })?;
    }
    Ok(())
}

fn lock(large_sums: &Mutex<LargeSums>) -> MutexGuard<'_, LargeSums> {
    large_sums.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error in a host's memory as an exception.
pub(crate) fn of_local(py: Python<'_>, error: &LocalError) -> PyErr {
    let sentence = error.to_string();
    match error {
        LocalError::Mismatch { brought, .. } => {
            let of_rank = |&(rank, brought): &(u16, Description)| (rank, brought.elements, brought.dtype);
            errors::mismatch(py, sentence, brought.iter().map(of_rank))
        }
        LocalError::TimedOut { missing, .. } => {
            errors::raise(py, "CollectiveTimeoutError", (sentence, missing.clone()))
        }
        LocalError::Lost { missing, .. } => errors::raise(py, "RankLostError", (sentence, missing.clone())),
        LocalError::Closed => errors::raise(py, "ClosedError", (sentence,)),
        LocalError::Refused(_) => errors::raise(py, "UnsupportedError", (sentence,)),
        LocalError::Invalid(_) => PyValueError::new_err(sentence),
        LocalError::Aborted | LocalError::Fault | LocalError::Reported { .. } => {
            errors::raise(py, "CollectiveError", (sentence,))
        }
    }
}
