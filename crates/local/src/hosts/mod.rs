//! A group that spans hosts with several ranks each: a host is one member of a job in the network.
//!
//! The ranks of a host combine their elements in memory; the first of them, the host's leader, brings the host's result
//! to the network and takes the network's result back into memory, where all ranks of the host get it. So a link between
//! hosts carries a tensor once each way, whatever the number of ranks. A host has two memories, one for each direction,
//! so that a later operation is combined while the result of an earlier one is still under way.
//!
//! From a call to a result: `plan` cuts the operation into fragments, and `leader` moves each from one level to the next.

mod leader;
mod plan;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_numeric::{DType, ReduceOp};

use crate::collective::{Description, Kind};
use crate::error::LocalError;
use crate::group::{Group, LONGEST, Pending as LocalPending};
use crate::memory::Lent;
use crate::work::Operands;

use self::leader::{Ended, Leader};
pub use self::plan::Hosts;
use self::plan::{Fragment, Gather, Operators, fragments};

/// How much longer than a rank its leader waits for other hosts, so that these can say which of their ranks lacks.
const GRACE: Duration = Duration::from_secs(2);
/// What ranks bring where they have no elements for each other, so that they agree on the operation.
const NOTHING: Description = Description { kind: Kind::AllReduce, dtype: DType::U8, op: ReduceOp::Sum, elements: 0 };

/// A job in the network whose members are hosts.
pub trait Network: Send + Sync + 'static {
    /// Why a collective failed.
    type Error: Clone + Send + Sync + 'static;
    /// A collective under way.
    type Pending: Send + 'static;

    /// Starts an all-reduce, a reduce or a broadcast, in place. The memory is lent until [`Network::wait`] has returned, and
    /// so is the loss, unless it is empty: there goes what an all-reduce in codes loses of the memory. Leaders start the
    /// same ones in the same order.
    fn start(
        &self,
        description: &Description,
        memory: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> Result<Self::Pending, Self::Error>;

    /// Waits until it has ended, which its timeout and [`Network::abandon`] bound.
    fn wait(&self, pending: Self::Pending) -> Result<(), Self::Error>;

    /// Leaves the job at once; what is under way fails. `lost`: a rank of this host is gone, so other hosts fail at once, too.
    fn abandon(&self, lost: bool);
}

/// Why an operation failed.
#[derive(Clone, Debug)]
pub enum HostsError<E> {
    /// In this host's memory.
    Memory(LocalError),
    /// Between hosts.
    Network(E),
}

/// What a leader says to the other ranks of its host when an operation has failed.
pub type OnFailure<E> = Box<dyn Fn(&HostsError<E>) -> Vec<u8> + Send + Sync>;

/// One rank of the group. All ranks start the same operations in the same order.
pub struct HostsGroup<N: Network> {
    hosts: Hosts,
    up: Arc<Group>,
    down: Arc<Group>,
    leader: Option<Leader<N>>,
}

/// An operation under way.
pub enum Pending<E> {
    /// On the leader.
    Leading(Arc<Ended<E>>),
    /// On other ranks.
    Following(Vec<LocalPending>),
}

impl<N: Network> HostsGroup<N> {
    /// A rank whose host's ranks have met twice: once for each direction. The leader has the network, and `on_failure` is
    /// called there before the other ranks get to know that something has failed.
    pub fn new(
        hosts: Hosts,
        up: Group,
        down: Group,
        network: Option<(N, OnFailure<N::Error>)>,
    ) -> std::io::Result<HostsGroup<N>> {
        let up = if hosts.are_alike() { up } else { up.averaging_over(hosts.ranks()) };
        let (up, down) = (Arc::new(up), Arc::new(down));
        up.go_on()?;
        down.go_on()?;
        let leader =
            network.map(|(network, on_failure)| Leader::start(network, on_failure, &hosts, &up, &down)).transpose()?;
        Ok(HostsGroup { hosts, up, down, leader })
    }

    /// Which rank is where.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Starts an operation behind those under way: its input, and memory for what this rank wants of its result, as for a
    /// host's [`Group`]. A leader that is the root of a broadcast lends the same memory as output. A leader may lend memory
    /// for what is lost of its host's result on its way to other hosts, as long as the input of an all-reduce.
    pub fn submit(
        &self,
        operation: Description,
        input: Lent,
        output: Lent,
        loss: Lent,
        timeout: Duration,
    ) -> Result<Pending<N::Error>, LocalError> {
        let all = fragments(&operation, &self.hosts);
        let timeout = timeout.min(LONGEST);
        let deadline = Instant::now() + timeout;
        let mut gathered = Vec::with_capacity(all.len());
        for (index, fragment) in all.iter().enumerate() {
            let (pending, staged) = self.gather(&operation, fragment, input, output, timeout, index == 0)?;
            let loss = if loss.is_empty() { loss } else { loss.fragment(fragment.input.clone()) };
            gathered.push((pending, leader::Staged { loss, ..staged }));
        }
        self.up.go_on().map_err(|_| LocalError::Fault)?;
        self.down.go_on().map_err(|_| LocalError::Fault)?;
        if let Some(leader) = &self.leader {
            return Ok(Pending::Leading(leader.submit(operation, all, gathered, deadline)));
        }
        let mut pending: Vec<LocalPending> = gathered.into_iter().filter_map(|(pending, _)| pending).collect();
        for fragment in all.iter().filter(|fragment| fragment.spreads) {
            let wanted = if fragment.wants { output.fragment(fragment.output.clone()) } else { Lent::NONE };
            pending.push(spread(&self.down, operation, fragment.output.len(), wanted, timeout + 2 * GRACE)?);
        }
        if !all.iter().any(|fragment| fragment.spreads) {
            // No rank goes on before the hosts agree.
            pending.push(spread(&self.down, operation, 0, Lent::NONE, timeout + 2 * GRACE)?);
        }
        Ok(Pending::Following(pending))
    }

    /// Brings this host's data of a fragment to its leader.
    fn gather(
        &self,
        operation: &Description,
        fragment: &Fragment,
        input: Lent,
        output: Lent,
        timeout: Duration,
        is_first: bool,
    ) -> Result<leader::Gathered, LocalError> {
        let bytes = fragment.input.len();
        let scratch = (self.leader.is_some() && !fragment.wants).then(|| crate::memory::Scratch::new(bytes));
        let memory = match (&scratch, self.leader.is_some()) {
            (Some(scratch), _) => scratch.lent(),
            (None, true) => output.fragment(fragment.output.clone()),
            (None, false) => Lent::NONE,
        };
        let (description, input) = match fragment.gather {
            Gather::Reduce => {
                let (dtype, op) = (operation.dtype, Operators::of(operation, &self.hosts).local);
                let elements = bytes / dtype.size();
                let kind = Kind::Reduce { root: 0 };
                (Description { kind, dtype, op, elements }, input.fragment(fragment.input.clone()))
            }
            Gather::From(root) => {
                let brings = usize::from(root) == self.up.rank();
                let input = if brings { input.fragment(fragment.input.clone()) } else { Lent::NONE };
                (copies(root, bytes), input)
            }
            Gather::Nothing if is_first => (NOTHING, Lent::NONE),
            Gather::Nothing => return Ok((None, leader::Staged { memory, loss: Lent::NONE, _scratch: scratch })),
        };
        let kept = if self.leader.is_some() && description.kind.reduces() { 0..description.elements } else { 0..0 };
        let to = if description.kind == NOTHING.kind { Lent::NONE } else { memory };
        let operands = Operands { input, output: to, kept };
        let pending = self.up.submit_of(*operation, description, operands, timeout)?;
        Ok((Some(pending), leader::Staged { memory, loss: Lent::NONE, _scratch: scratch }))
    }

    /// Lets nobody wait for this rank: what is under way fails.
    pub fn close(&self) {
        if let Some(leader) = &self.leader {
            leader.abandon();
        }
        self.up.close();
        self.down.close();
        if let Some(leader) = &self.leader {
            leader.join();
        }
    }
}

impl<N: Network> Drop for HostsGroup<N> {
    fn drop(&mut self) {
        self.close();
    }
}

fn copies(root: u16, bytes: usize) -> Description {
    Description { kind: Kind::Broadcast { root }, dtype: DType::U8, op: ReduceOp::Sum, elements: bytes }
}

/// Brings a result from the leader to the other ranks of a host: one rank's way in it.
fn spread(
    down: &Group,
    operation: Description,
    bytes: usize,
    memory: Lent,
    timeout: Duration,
) -> Result<LocalPending, LocalError> {
    let leads = down.rank() == 0;
    let (input, output) = if leads { (memory, Lent::NONE) } else { (Lent::NONE, memory) };
    down.submit_of(operation, copies(0, bytes), Operands { input, output, kept: 0..0 }, timeout)
}

impl<E: Clone> Pending<E> {
    /// True when the memory belongs to the caller again.
    pub fn is_done(&self) -> bool {
        match self {
            Pending::Leading(ended) => ended.is_done(),
            Pending::Following(all) => all.iter().all(LocalPending::is_done),
        }
    }

    /// Waits for the end; `None` if the time was over before.
    pub fn wait(&self, timeout: Duration) -> Option<Result<(), HostsError<E>>> {
        let all = match self {
            Pending::Leading(ended) => return ended.wait(timeout),
            Pending::Following(all) => all,
        };
        let until = Instant::now() + timeout;
        let mut outcome = Ok(());
        for pending in all {
            let ended = pending.wait(until.saturating_duration_since(Instant::now()))?;
            outcome = outcome.and(ended.map_err(HostsError::Memory));
        }
        Some(outcome)
    }
}
