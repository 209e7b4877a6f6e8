//! One worker of a job: [`Group`].
//!
//! From the caller to the wire: `submit` starts collectives over memory by its address, `driver` is what all threads share,
//! `core` decides which thread drives a core (`io_threads` are those that are not the caller's), `engine` is the machine
//! with its collectives under way (`completion`), and `link` sends and receives packets in runs. `connect` makes a group.
//! `watch` learns from the switch which members are gone (on the thread of `watches`), `failure_detector` decides which
//! collectives can still complete, and `explain` makes a sentence of an error.

mod completion;
mod connect;
mod core;
mod driver;
mod engine;
mod error;
mod explain;
mod failure_detector;
mod io_threads;
mod link;
mod options;
mod path_probe;
mod submit;
mod watch;
mod watches;

use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::metric::Metric;

use self::driver::{Driver, Identity, Leave};
pub use self::error::{ConnectError, GroupError};
pub use self::failure_detector::JobFailure;
pub use self::options::{ConnectOptions, GroupInfo, GroupStats};
pub use self::path_probe::PathReport;
pub use self::submit::{Drive, Pending, Submission};
use self::watches::Watch;
use crate::client::HttpRendezvous;
use crate::rendezvous::{LargeSums, Rendezvous};

/// The most elements of one collective of a machine. A larger tensor is split into several collectives.
pub const MAX_ELEMENTS: usize = 1 << 31;

/// The result of a sparse allreduce: ascending indices, and a value for each.
pub type SparseSum<T> = (Vec<u32>, Vec<T>);

/// One worker of a job. All ranks call the same collectives in the same order. Dropping the group leaves the job.
pub struct Group {
    driver: Arc<Driver>,
    info: GroupInfo,
    watch: Option<Watch>,
    /// How it leaves when it is dropped.
    leave: Leave,
}

impl Group {
    /// Joins a job at the switch that the options name; returns when all ranks are there.
    pub fn connect(options: &ConnectOptions) -> Result<Group, ConnectError> {
        let switch = connect::resolve(&options.switch)?;
        Group::connect_through(options, Arc::new(HttpRendezvous::new(switch)?))
    }

    /// Joins a job through a control plane of the caller's choice; returns when all ranks are there.
    pub fn connect_through(options: &ConnectOptions, rendezvous: Arc<dyn Rendezvous>) -> Result<Group, ConnectError> {
        let (driver, info) = connect::connect(options, rendezvous)?;
        let mut group = Group { driver, info, watch: None, leave: Leave::InOrder };
        // On an error the group is dropped and so leaves the job.
        group.start_threads().map_err(|error| {
            ConnectError::Option(format!("cannot start the threads of a worker of job {}: {error}", group.info.job))
        })?;
        Ok(group)
    }

    /// Joins a job of one rank, tests what the path to its switch does to congestion marks and to the order of packets,
    /// and leaves.
    pub fn probe_path(options: &ConnectOptions) -> Result<PathReport, ConnectError> {
        let switch = connect::resolve(&options.switch)?;
        path_probe::probe_path(options, &HttpRendezvous::new(switch)?)
    }

    fn start_threads(&mut self) -> io::Result<()> {
        self.driver.cores.iter().for_each(|core| core.begin());
        let (driver, rendezvous) = (Arc::downgrade(&self.driver), self.driver.rendezvous());
        self.watch = Some(watches::begin(watch::run(driver, rendezvous, self.driver.identity().clone()))?);
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
        self.reduce_borrowed(
            Submission { op, ..submission(input.as_ptr(), output.as_mut_ptr(), input.len(), timeout) },
            None,
        )
    }

    /// Like [`Group::allreduce`], over the same memory.
    pub fn allreduce_in_place<T: Element>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let output = data.as_mut_ptr();
        self.reduce_borrowed(Submission { op, ..submission(output.cast_const(), output, data.len(), timeout) }, None)
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
        let submission = submission(input.as_ptr(), output.as_mut_ptr(), input.len(), timeout);
        self.reduce_borrowed(Submission { op, ..submission }, Some(root))
    }

    fn reduce_borrowed(&self, submission: Submission, root: Option<u16>) -> Result<(), GroupError> {
        // SAFETY: the callers above have borrowed the memory, and the wait ends with the collective.
        #[allow(unsafe_code)]
        let started = unsafe {
            match root {
                None => self.submit_allreduce(submission, 0..submission.elements),
                Some(root) => self.submit_reduce(submission, root),
            }
        };
        started?.wait(None)
    }

    /// Brings rank `root`'s elements to all ranks, bit for bit. All ranks name the same root and bring as many bytes, to
    /// the next multiple of four.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: u16, timeout: Duration) -> Result<(), GroupError> {
        let submission = submission(std::ptr::null(), data.as_mut_ptr(), data.len(), timeout);
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collective.
        #[allow(unsafe_code)]
        let started = unsafe { self.submit_broadcast(submission, root) }?;
        started.wait(None)
    }

    /// `output[i] <- op over all ranks of input[rank * output.len() + i]`: each rank brings as many chunks as there are
    /// ranks, and gets its own chunk of the result.
    pub fn reduce_scatter<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        self.check_chunks(input.len(), output.len())?;
        let submission = submission(input.as_ptr(), output.as_mut_ptr(), output.len(), timeout);
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collectives.
        #[allow(unsafe_code)]
        let started = unsafe { self.submit_reduce_scatter(Submission { op, ..submission }, 0..input.len()) }?;
        started.wait(None)
    }

    /// `output[rank * input.len() + i] <- that rank's input[i]`, for all ranks and bit for bit. The output has a chunk of
    /// the input's length for each rank.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T], timeout: Duration) -> Result<(), GroupError> {
        self.check_chunks(output.len(), input.len())?;
        let own = usize::from(self.info.rank) * input.len();
        output[own..own + input.len()].copy_from_slice(input);
        let submission = submission(std::ptr::null(), output.as_mut_ptr(), input.len(), timeout);
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collectives.
        #[allow(unsafe_code)]
        let started = unsafe { self.submit_all_gather(submission, 0..output.len()) }?;
        started.wait(None)
    }

    /// Checks that chunks of this length, one for each rank, make the whole of a reduce-scatter or an all-gather.
    pub fn check_chunks(&self, whole: usize, chunk: usize) -> Result<(), GroupError> {
        let world_size = self.info.world_size;
        if Some(whole) == chunk.checked_mul(world_size.into()) {
            return Ok(());
        }
        Err(GroupError::ChunkLengths { whole, chunk, world_size })
    }

    /// At each index that any rank brings, the result of the operator over the values of all ranks. Averages are
    /// divided by the number of all ranks. Indices are ascending, distinct, and below `size`, which is the same on all
    /// ranks. Works only in a job of sparse tensors. Blocks, for about `timeout` at most.
    pub fn allreduce_sparse<T: Element>(
        &self,
        indices: &[i64],
        values: &[T],
        size: usize,
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<SparseSum<T>, GroupError> {
        let (pending, result) = self.submit_sparse(indices, values.to_vec(), size, op, timeout, Drive::Caller)?;
        pending.wait(None)?;
        Ok(result.take())
    }

    /// Waits until every rank has called this.
    pub fn barrier(&self, timeout: Duration) -> Result<(), GroupError> {
        match self.is_sparse() {
            true => self.allreduce_sparse::<i32>(&[], &[], 0, ReduceOp::Sum, timeout).map(drop),
            false => self.allreduce_in_place::<i32>(&mut [], ReduceOp::Sum, timeout),
        }
    }

    /// The counters since the group was connected.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.driver.stats()
    }

    /// The protocol's own gauges at this worker, such as its windows; their names are the same at any time.
    pub fn metrics(&self) -> Result<Vec<Metric>, GroupError> {
        self.driver.metrics()
    }

    /// Tells the switch where the job's large sums are made, for operators, and does not wait until it knows.
    pub fn report_sums(&self, sums: LargeSums) {
        let (rendezvous, identity) = (self.driver.rendezvous(), self.driver.identity());
        let &Identity { job_id, key, rank, .. } = identity;
        let report = move || rendezvous.report_sums(job_id, key, &sums);
        if let Err(error) = Builder::new().name(format!("report-{rank}")).spawn(report) {
            tracing::debug!(job = identity.job, %error, "the switch is not told where large sums are made");
        }
    }

    /// Members are hosts with several ranks: in sentences and errors, each is the first of its ranks, which these are. It is
    /// told once, before the first collective.
    pub fn name_hosts(&self, first_ranks: Vec<u16>) {
        self.driver.hosts.get_or_init(|| first_ranks);
    }

    /// True if collectives were given up because a member, server or switch that they need is gone.
    pub fn peer_lost(&self) -> bool {
        self.driver.peer_lost()
    }

    /// The group's settings.
    pub fn info(&self) -> &GroupInfo {
        &self.info
    }

    /// Leaves the job; collectives under way fail. Dropping the group does the same.
    pub fn close(self) {}

    /// Leaves the job at once, for jobs that have failed. Peers that still need something of this worker fail.
    pub fn abandon(mut self) {
        self.leave = Leave::AtOnce;
    }

    /// The same, for a worker that has lost what it needs to go on: peers fail at once, and need not find out that what
    /// this worker owes them is not on its way.
    pub fn abandon_as_lost(mut self) {
        self.leave = Leave::Lost;
    }
}

/// A collective of the caller's own elements, which the caller waits for.
fn submission<T: Element>(input: *const T, output: *mut T, elements: usize, timeout: Duration) -> Submission {
    let (input, output, op, drive) = (input.cast(), output.cast(), ReduceOp::Sum, Drive::Caller);
    let loss = std::ptr::null_mut();
    Submission { input, output, loss, elements, dtype: T::DTYPE, op, timeout, drive }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.driver.is_in_owner_process() {
            // In a fork, the job goes on in the parent process. The threads are the parent's and cannot be joined here.
            std::mem::forget(self.watch.take());
            return;
        }
        self.driver.close(self.leave);
        self.driver.cores.iter().for_each(|core| core.join_io_thread());
    }
}
