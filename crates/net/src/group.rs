//! One worker of a job: [`Group`].
//!
//! Below it, from the caller to the wire: `shared` (who drives), `engine` (the machine and its collectives under way),
//! `link` (packets in runs). `connect` is how it comes to be, `pending` a collective that is under way.
//! `watch` hears from the switch who is gone, `outlook` judges what can still complete, `explain` says what an error means.

mod connect;
mod engine;
mod error;
mod explain;
mod link;
mod options;
mod outlook;
mod pending;
mod shared;
mod sparse;
mod survey;
mod watch;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::{Primitive, Spec};

pub use self::error::{ConnectError, GroupError};
pub use self::options::{ConnectOptions, GroupInfo, GroupStats};
pub use self::outlook::News;
pub use self::pending::Pending;
use self::shared::Shared;
pub use self::sparse::SparseSum;
pub use self::survey::Survey;
use crate::client::HttpRendezvous;
use crate::memory;
use crate::rendezvous::Rendezvous;

/// Elements in one collective of a machine at most; larger tensors are several, cut at multiples of this.
pub const MAX_ELEMENTS: usize = 1 << 31;

/// Bytes of what a broadcast moves.
const WORD: usize = 4;

/// One worker of a job. Ranks call the same collectives in the same order. Dropping it leaves the job.
pub struct Group {
    shared: Arc<Shared>,
    info: GroupInfo,
    io_thread: Option<JoinHandle<()>>,
    /// No peer is waited for at the end.
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
        // On an error the group leaves the job as it is dropped.
        group.start_threads().map_err(|error| {
            ConnectError::Option(format!("cannot start the threads of a worker of job {}: {error}", group.info.job))
        })?;
        Ok(group)
    }

    /// Joins a job of one rank, asks its switch what the way there does to congestion marks and to the order of packets, and
    /// leaves.
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
        self.in_parts(input.as_ptr(), output.as_mut_ptr(), input.len(), op, Primitive::Allreduce, timeout)
    }

    /// As [`Group::allreduce`], over the same memory.
    pub fn allreduce_in_place<T: Element>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let output = data.as_mut_ptr();
        self.in_parts(output.cast_const(), output, data.len(), op, Primitive::Allreduce, timeout)
    }

    /// `output[i] <- op over all ranks of input[i]`, on rank `root` alone, which all ranks name alike; elsewhere the
    /// output is left as it is and may be empty.
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
        self.in_parts(input.as_ptr(), output.as_mut_ptr(), input.len(), op, primitive, timeout)
    }

    /// Brings rank `root`'s elements to all ranks, bit for bit. All ranks name the same root and bring as many bytes, to
    /// the next multiple of four.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: u16, timeout: Duration) -> Result<(), GroupError> {
        let bytes = size_of_val(data);
        // SAFETY: the memory is borrowed for as long as this call lasts, and the wait ends with the collective.
        #[allow(unsafe_code)]
        let started = unsafe { self.start_broadcast(data.as_mut_ptr().cast(), bytes, root, timeout, false) }?;
        started.into_iter().map(|pending| pending.wait(None)).fold(Ok(()), Result::and)
    }

    /// Waits until every rank is here.
    pub fn barrier(&self, timeout: Duration) -> Result<(), GroupError> {
        match self.is_sparse() {
            true => self.allreduce_sparse::<i32>(&[], &[], 0, ReduceOp::Sum, timeout).map(drop),
            false => self.allreduce_in_place::<i32>(&mut [], ReduceOp::Sum, timeout),
        }
    }

    /// The memory is borrowed by the caller's caller for as long as this call lasts.
    fn in_parts<T: Element>(
        &self,
        input: *const T,
        output: *mut T,
        len: usize,
        op: ReduceOp,
        primitive: Primitive,
        timeout: Duration,
    ) -> Result<(), GroupError> {
        let starts = (0..len.max(1)).step_by(MAX_ELEMENTS);
        let mut started = Vec::with_capacity(1);
        let mut result = Ok(());
        for start in starts {
            let elements = (len - start).min(MAX_ELEMENTS) as u32;
            let spec = Spec { elements, dtype: T::DTYPE, op, primitive };
            let (input, output) = (input.wrapping_add(start).cast(), output.wrapping_add(start).cast());
            match self.start(input, output, spec, self.whole(&spec), timeout, false) {
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

    /// Starts a collective over memory by its address, and returns at once. Of a reduce the result goes to its root alone:
    /// under Canary no vector comes back to the others, under SwitchML they do not look at theirs.
    ///
    /// # Safety
    /// Until the returned [`Pending`] is done, `input` is readable and `output` writable for `spec.elements` elements of
    /// `spec.dtype`, aligned for them; nobody writes the input nor touches the output; the two are the same or do not
    /// overlap. Without elements any addresses will do; so will any `output` on ranks that get no result, and any `input`
    /// on those that bring nothing.
    #[allow(unsafe_code)]
    pub unsafe fn submit(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        timeout: Duration,
    ) -> Result<Pending, GroupError> {
        self.start(input, output, spec, self.whole(&spec), timeout, true)
    }

    /// As [`Group::submit`] of an allreduce, of whose result this rank wants the elements `kept` only: its part of a
    /// reduce-scatter. Other ranks may keep others.
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
        let is_possible = whole || spec.primitive == Primitive::Allreduce;
        if kept.start > kept.end || kept.end > spec.elements || !is_possible {
            return Err(GroupError::Part { kept, elements: spec.elements, protocol: self.info.protocol.name });
        }
        self.start(input, output, spec, kept, timeout, true)
    }

    /// Starts a broadcast of rank `root`'s bytes, in place; in several collectives where they are too many for one.
    ///
    /// # Safety
    /// Until all of the returned are done, `data` is readable on the root and writable elsewhere for `bytes`, and nobody
    /// else writes it nor, elsewhere, touches it. Without bytes any address will do.
    #[allow(unsafe_code)]
    pub unsafe fn submit_broadcast(
        &self,
        data: *mut u8,
        bytes: usize,
        root: u16,
        timeout: Duration,
    ) -> Result<Vec<Pending>, GroupError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_broadcast(data, bytes, root, timeout, true) }
    }

    /// # Safety
    /// As for [`Group::submit_broadcast`].
    #[allow(unsafe_code)]
    unsafe fn start_broadcast(
        &self,
        data: *mut u8,
        bytes: usize,
        root: u16,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Vec<Pending>, GroupError> {
        const PART: usize = WORD * MAX_ELEMENTS;
        self.check_root(Primitive::Broadcast(Rank(root)))?;
        let is_root = root == self.info.rank;
        let mut started: Vec<Pending> = Vec::with_capacity(1);
        for start in (0..bytes.max(1)).step_by(PART) {
            let bytes = (bytes - start).min(PART);
            let spec = Spec::broadcast(bytes.div_ceil(WORD) as u32, Rank(root));
            // SAFETY: the caller's promise.
            let tensor = unsafe { memory::words(data.wrapping_add(start), bytes, spec, is_root) };
            match self.shared.submit(tensor, timeout, hand_over) {
                Ok(completion) => started.push(Pending { shared: Arc::clone(&self.shared), completion }),
                Err(error) => {
                    // What has begun must end before the caller has the memory back.
                    started.iter().for_each(|part| drop(part.wait(None)));
                    return Err(error);
                }
            }
        }
        Ok(started)
    }

    /// The elements of the result that this rank gets.
    fn whole(&self, spec: &Spec) -> Range<u32> {
        if spec.primitive.gets(Rank(self.info.rank)) { 0..spec.elements } else { 0..0 }
    }

    fn check_root(&self, primitive: Primitive) -> Result<(), GroupError> {
        let world = self.info.world;
        match primitive.root().filter(|root| root.0 >= world) {
            Some(Rank(root)) => Err(GroupError::NoRoot { root, world }),
            None => Ok(()),
        }
    }

    #[allow(unsafe_code)]
    fn start(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        kept: Range<u32>,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Pending, GroupError> {
        self.check_root(spec.primitive)?;
        (self.info.protocol.can)(&spec, &self.info.options).map_err(GroupError::Refused)?;
        let brings = spec.primitive.brings(Rank(self.info.rank));
        let kept = kept.start as usize..kept.end as usize;
        // SAFETY: the callers above promise the memory until the collective is done, and the engine drops the tensor
        // before it says so.
        let tensor = unsafe {
            match spec.primitive {
                Primitive::Broadcast(_) => {
                    let data = if brings { input.cast_mut() } else { output };
                    memory::words(data, WORD * spec.elements as usize, spec, brings)
                }
                _ if self.info.protocol.passes_results_on => memory::tensor_with_room(input, output, spec, kept),
                _ => memory::tensor(input, output, spec, kept),
            }
        };
        let completion = self.shared.submit(tensor, timeout, hand_over)?;
        Ok(Pending { shared: Arc::clone(&self.shared), completion })
    }

    /// What was counted since the group was connected.
    pub fn stats(&self) -> Result<GroupStats, GroupError> {
        self.shared.stats()
    }

    /// What the group is.
    pub fn info(&self) -> &GroupInfo {
        &self.info
    }

    /// Leaves the job; collectives under way fail. Dropping the group does the same.
    pub fn close(self) {}

    /// Leaves the job at once: peers that still need something of this worker fail. For jobs that are broken anyway.
    pub fn abandon(mut self) {
        self.is_abandoned = true;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.shared.is_at_home() {
            // The job goes on in the process that this one was forked from. Its thread is not here to be joined.
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
