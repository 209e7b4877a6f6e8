//! One worker of a job: [`Group`].
//!
//! Below it, from the caller to the wire: `shared` (who drives), `engine` (the machine and its collectives under way),
//! `link` and `outbox` (packets in runs). `connect` is how it comes to be, `pending` a collective that is under way.
//! `watch` hears from the switch who is gone, `outlook` judges what can still complete.

mod connect;
mod engine;
mod error;
mod link;
mod options;
mod outbox;
mod outlook;
mod pending;
mod shared;
mod watch;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::ids::WorkerId;
use tributary_proto::tensor::Spec;

pub use self::error::{ConnectError, GroupError};
pub use self::options::{ConnectOptions, GroupInfo, GroupStats};
pub use self::outlook::News;
pub use self::pending::Pending;
use self::shared::Shared;
use crate::client::HttpRendezvous;
use crate::memory;
use crate::rendezvous::Rendezvous;

/// Elements in one collective of a machine at most; larger tensors are several, cut at multiples of this.
pub const MAX_ELEMENTS: usize = 1 << 31;

/// One worker of a job. Ranks call the same collectives in the same order. Dropping it leaves the job.
pub struct Group {
    shared: Arc<Shared>,
    info: GroupInfo,
    io_thread: Option<JoinHandle<()>>,
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
        let mut group = Group { shared, info, io_thread: None };
        // On an error the group leaves the job as it is dropped.
        group.start_threads().map_err(|error| {
            ConnectError::Option(format!("cannot start the threads of a worker of job {}: {error}", group.info.job))
        })?;
        Ok(group)
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
        self.reduce(input.as_ptr(), output.as_mut_ptr(), input.len(), op, timeout)
    }

    /// As [`Group::allreduce`], over the same memory.
    pub fn allreduce_in_place<T: Element>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let output = data.as_mut_ptr();
        self.reduce(output.cast_const(), output, data.len(), op, timeout)
    }

    /// The memory is borrowed by the caller's caller for as long as this call lasts.
    fn reduce<T: Element>(
        &self,
        input: *const T,
        output: *mut T,
        len: usize,
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let starts = (0..len.max(1)).step_by(MAX_ELEMENTS);
        let mut started = Vec::with_capacity(1);
        let mut result = Ok(());
        for start in starts {
            let elements = (len - start).min(MAX_ELEMENTS) as u32;
            let spec = Spec { elements, dtype: T::DTYPE, op };
            let (input, output) = (input.wrapping_add(start).cast(), output.wrapping_add(start).cast());
            match self.start(input, output, spec, (0..elements, None), timeout, false) {
                Ok(pending) => started.push(pending),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        // Every part that was started has let go of the memory before this returns: waits without a limit end only
        // with the collective, whose own deadline the machine keeps.
        for pending in started {
            result = result.and(pending.wait(None));
        }
        result
    }

    /// Starts a collective over memory by its address, and returns at once.
    ///
    /// # Safety
    /// Until the returned [`Pending`] is done, `input` is readable and `output` writable for `spec.elements` elements of
    /// `spec.dtype`, aligned for them; nobody writes the input nor touches the output; the two are the same or do not
    /// overlap. Without elements any addresses will do.
    #[allow(unsafe_code)]
    pub unsafe fn submit(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        timeout: Duration,
    ) -> Result<Pending, GroupError> {
        self.start(input, output, spec, (0..spec.elements, None), timeout, true)
    }

    /// As [`Group::submit`], of whose result this rank wants the elements `kept` only: its part of a reduce-scatter, or
    /// none where another rank is the root of a reduce. Other ranks may keep others.
    ///
    /// # Safety
    /// As for [`Group::submit`], but `output` is writable for `kept.len()` elements, and is that part of the input or
    /// does not overlap it.
    #[allow(unsafe_code)]
    pub unsafe fn submit_keeping(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        kept: Range<u32>,
        timeout: Duration,
    ) -> Result<Pending, GroupError> {
        let whole = kept == (0..spec.elements);
        if kept.start > kept.end || kept.end > spec.elements || !(whole || self.keeps_parts()) {
            return Err(GroupError::Part { kept, elements: spec.elements, protocol: self.info.protocol.name() });
        }
        self.start(input, output, spec, (kept, None), timeout, true)
    }

    /// Starts a reduce: the result is for rank `root` alone, which all ranks name alike. Under Canary that rank leads all
    /// blocks, and no vector comes back; under SwitchML the others do not look at theirs.
    ///
    /// # Safety
    /// As for [`Group::submit`] on the root; elsewhere nothing is written, and any `output` will do.
    #[allow(unsafe_code)]
    pub unsafe fn submit_reduce(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        root: u16,
        timeout: Duration,
    ) -> Result<Pending, GroupError> {
        if root >= self.info.world {
            return Err(GroupError::NoRoot { root, world: self.info.world });
        }
        let kept = if root == self.info.rank { 0..spec.elements } else { 0..0 };
        if !self.keeps_parts() {
            return Err(GroupError::Part { kept, elements: spec.elements, protocol: self.info.protocol.name() });
        }
        self.start(input, output, spec, (kept, Some(WorkerId(root))), timeout, true)
    }

    /// Whether [`Group::submit_keeping`] may keep less than all: where every host sums, each needs the room for the whole.
    pub fn keeps_parts(&self) -> bool {
        self.info.protocol.aggregates_in_switch() || self.info.protocol.every_hop()
    }

    #[allow(unsafe_code)]
    fn start(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        (kept, destination): (Range<u32>, Option<WorkerId>),
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Pending, GroupError> {
        let kept = kept.start as usize..kept.end as usize;
        // SAFETY: the callers above promise the memory until the collective is done, and the engine drops the tensor
        // before it says so.
        let tensor = unsafe { memory::tensor(input, output, spec, kept, destination) };
        let completion = self.shared.submit(tensor, timeout, hand_over)?;
        Ok(Pending { shared: Arc::clone(&self.shared), completion })
    }

    /// What was counted since the group was connected.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.shared.stats().ok_or_else(|| self.shared.driver_fault())
    }

    /// What the group is.
    pub fn info(&self) -> &GroupInfo {
        &self.info
    }

    /// Leaves the job; collectives under way fail. Dropping the group does the same.
    pub fn close(self) {}
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(thread) = self.io_thread.take()
            && thread.join().is_err()
        {
            tracing::error!(job = self.info.job, rank = self.info.rank, "the worker's I/O thread panicked");
        }
    }
}
