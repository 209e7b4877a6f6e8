//! One worker of a job: [`Group`].
//!
//! From the caller to the wire: `shared` decides which thread drives, `engine` is the machine with its collectives
//! under way, and `link` sends and receives packets in runs. `submit` starts collectives over memory by its address.
//! `connect` makes a group, and `pending` is a collective under way. `watch` hears from the switch which members are
//! gone, `outlook` judges which collectives can still complete, and `explain` says what an error means.

mod callers;
mod connect;
mod engine;
mod error;
mod explain;
mod link;
mod nic;
mod options;
mod outlook;
mod pending;
mod shared;
mod sparse;
mod submit;
mod survey;
mod watch;

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::metric::Metric;
use tributary_proto::contract::tensor::{Primitive, Spec};

pub use self::error::{ConnectError, GroupError};
pub use self::options::{ConnectOptions, GroupInfo, GroupStats};
pub use self::outlook::News;
pub use self::pending::Pending;
use self::shared::Shared;
pub use self::sparse::SparseSum;
use self::submit::wait_for_all;
pub use self::survey::Survey;
use crate::client::HttpRendezvous;
use crate::rendezvous::Rendezvous;

/// The most elements of one collective of a machine. A larger tensor is cut at multiples of this number into several
/// collectives.
pub const MAX_ELEMENTS: usize = 1 << 31;

/// One worker of a job. All ranks call the same collectives in the same order. Dropping the group leaves the job.
pub struct Group {
    shared: Arc<Shared>,
    info: GroupInfo,
    io_thread: Option<JoinHandle<()>>,
    /// True if the group leaves without waiting for peers.
    is_abandoned: bool,
}

impl Group {
    /// Joins a job at the switch that the options name; returns when all ranks are there.
    pub fn connect(options: &ConnectOptions) -> Result<Group, ConnectError> {
        let switch = connect::resolve(&options.switch)?;
        Group::connect_through(options, Arc::new(HttpRendezvous::new(switch)?))
    }

    /// Joins a job through a control plane of the caller's choice; returns when all ranks are there.
    pub fn connect_through(options: &ConnectOptions, rendezvous: Arc<dyn Rendezvous>) -> Result<Group, ConnectError> {
        let (shared, info) = connect::connect(options, rendezvous)?;
        let mut group = Group { shared, info, io_thread: None, is_abandoned: false };
        // On an error the group is dropped and so leaves the job.
        group.start_threads().map_err(|error| {
            ConnectError::Option(format!("cannot start the threads of a worker of job {}: {error}", group.info.job))
        })?;
        Ok(group)
    }

    /// Joins a job of one rank, tests what the way to its switch does to congestion marks and to the order of packets,
    /// and leaves.
    pub fn survey(options: &ConnectOptions) -> Result<Survey, ConnectError> {
        let switch = connect::resolve(&options.switch)?;
        survey::survey(options, &HttpRendezvous::new(switch)?)
    }

    fn start_threads(&mut self) -> io::Result<()> {
        let thread = |name| Builder::new().name(format!("{name}-{}", self.info.rank));
        let shared = Arc::clone(&self.shared);
        self.io_thread = Some(thread("worker").spawn(move || shared.run_io_thread())?);
        let (shared, rendezvous) = (Arc::downgrade(&self.shared), self.shared.rendezvous());
        let identity = self.shared.identity().clone();
        thread("watch").spawn(move || watch::run(&shared, &rendezvous, &identity))?;
        Ok(())
    }

    /// `output[i] <- op over all ranks of input[i]`. Blocks, for about `timeout` at most.
    pub fn allreduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        if input.len() != output.len() {
            return Err(GroupError::Lengths { input: input.len(), output: output.len() });
        }
        self.reduced(input.as_ptr(), output.as_mut_ptr(), input.len(), op, Primitive::Allreduce, timeout)
    }

    /// Like [`Group::allreduce`], over the same memory.
    pub fn allreduce_in_place<T: Element>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let output = data.as_mut_ptr();
        self.reduced(output.cast_const(), output, data.len(), op, Primitive::Allreduce, timeout)
    }

    /// `output[i] <- op over all ranks of input[i]`, on rank `root` only, which all ranks name alike. On other ranks
    /// the output does not change and may be empty.
    pub fn reduce<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        root: u16,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        if root == self.info.rank && input.len() != output.len() {
            return Err(GroupError::Lengths { input: input.len(), output: output.len() });
        }
        let primitive = Primitive::Reduce(Rank(root));
        self.reduced(input.as_ptr(), output.as_mut_ptr(), input.len(), op, primitive, timeout)
    }

    /// Brings rank `root`'s elements to all ranks, bit for bit. All ranks name the same root and bring as many bytes, to
    /// the next multiple of four.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: u16, timeout: Duration) -> Result<(), GroupError> {
        let bytes = size_of_val(data);
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collective.
        #[allow(unsafe_code)]
        let started = unsafe { self.start_broadcast(data.as_mut_ptr().cast(), bytes, root, timeout, false) }?;
        wait_for_all(started)
    }

    /// `output[i] <- op over all ranks of input[rank * output.len() + i]`: all ranks bring the whole, and each rank
    /// gets its part of the result. The input has as many times the output's length as there are ranks.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        self.check_parts(input.len(), output.len())?;
        let what = Spec::allreduce(0, T::DTYPE, op);
        let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collectives.
        #[allow(unsafe_code)]
        let started =
            unsafe { self.start_reduce_scatter(from, to, output.len(), 0..input.len(), what, timeout, false) }?;
        wait_for_all(started)
    }

    /// `output[rank * input.len() + i] <- that rank's input[i]`, for all ranks and bit for bit. The output has as many
    /// times the input's length as there are ranks.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T], timeout: Duration) -> Result<(), GroupError> {
        self.check_parts(output.len(), input.len())?;
        let place = usize::from(self.info.rank) * input.len();
        output[place..place + input.len()].copy_from_slice(input);
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collectives.
        #[allow(unsafe_code)]
        let started = unsafe {
            let whole = 0..size_of_val(output);
            self.start_all_gather(output.as_mut_ptr().cast(), size_of_val(input), whole, timeout, false)
        }?;
        wait_for_all(started)
    }

    /// Checks that the parts of all ranks, each as long as this rank's, make the whole of a reduce-scatter or an
    /// all-gather.
    pub fn check_parts(&self, whole: usize, part: usize) -> Result<(), GroupError> {
        let world = self.info.world;
        if Some(whole) == part.checked_mul(world.into()) {
            return Ok(());
        }
        Err(GroupError::Parts { whole, part, world })
    }

    /// Waits until every rank has called this.
    pub fn barrier(&self, timeout: Duration) -> Result<(), GroupError> {
        match self.is_sparse() {
            true => self.allreduce_sparse::<i32>(&[], &[], 0, ReduceOp::Sum, timeout).map(drop),
            false => self.allreduce_in_place::<i32>(&mut [], ReduceOp::Sum, timeout),
        }
    }

    /// The memory is borrowed by the callers above for as long as this call lasts.
    fn reduced<T: Element>(
        &self,
        input: *const T,
        output: *mut T,
        len: usize,
        op: ReduceOp,
        primitive: Primitive,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let what = Spec { primitive, ..Spec::allreduce(0, T::DTYPE, op) };
        // SAFETY: the callers above have borrowed the memory, and the wait ends with the collective.
        #[allow(unsafe_code)]
        let started = unsafe { self.start_long(input.cast(), output.cast(), len, 0..len, what, timeout, false) }?;
        wait_for_all(started)
    }

    /// The counters since the group was connected.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.shared.stats()
    }

    /// The protocol's own gauges at this worker, such as its windows; their names are the same at any time.
    pub fn metrics(&self) -> Result<Vec<Metric>, GroupError> {
        self.shared.metrics()
    }

    /// True if collectives were given up because somebody is gone whom they need.
    pub fn is_bereft(&self) -> bool {
        self.shared.is_bereft()
    }

    /// The group's settings.
    pub fn info(&self) -> &GroupInfo {
        &self.info
    }

    /// Leaves the job; collectives under way fail. Dropping the group does the same.
    pub fn close(self) {}

    /// Leaves the job at once. Peers that still need something of this worker fail. It is meant for jobs that are
    /// broken.
    pub fn abandon(mut self) {
        self.is_abandoned = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.shared.is_at_home() {
            // In a fork, the job goes on in the parent process. The thread is the parent's and cannot be joined here.
            std::mem::forget(self.io_thread.take());
            return;
        }
        self.shared.close(self.is_abandoned);
        if let Some(thread) = self.io_thread.take()
            && thread.join().is_err()
        {
            tracing::error!(job = self.info.job, rank = self.info.rank, "the worker's I/O thread panicked");
        }
    }
}
