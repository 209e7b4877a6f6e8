//! Starts collectives over memory by its address, and splits tensors that are too large for one collective.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_numeric::{DType, Element, ReduceOp};
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::{Primitive, Spec, Tensor};
use tributary_proto::tensors::{SparseElements, SparseResult};

use super::completion::Completion;
use super::driver::{Driver, Tensors};
use super::{Group, GroupError, MAX_ELEMENTS};
use crate::memory::{self, Memory};

/// Bytes of the words that a broadcast moves.
const WORD: usize = 4;

/// Who drives the machine while a collective is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The group's own thread: the caller can do other work before it waits.
    Background,
    /// The caller, which waits at once. A small tensor is then not handed over between threads.
    Caller,
}

/// Memory of one rank by its address, and how a collective over it runs. The memory is borrowed until the [`Pending`] that
/// the operation returns is done.
#[derive(Clone, Copy, Debug)]
pub struct Submission {
    /// What the operation reads. Operations in place do not use it.
    pub input: *const u8,
    /// What the operation writes.
    pub output: *mut u8,
    /// Where an allreduce whose result is wanted as a whole writes what codes lose of this rank's elements; nowhere if it
    /// is null.
    pub loss: *mut u8,
    /// The number of elements, as the operation counts them.
    pub elements: usize,
    /// The type of the elements.
    pub dtype: DType,
    /// The operator. Operations that reduce nothing do not use it.
    pub op: ReduceOp,
    /// The collective fails after this time.
    pub timeout: Duration,
    /// Who drives the machine until then.
    pub drive: Drive,
}

/// A collective that was submitted; several, if its tensor was too large for one. Dropping this value does not end the
/// collective, nor free its memory.
pub struct Pending {
    driver: Arc<Driver>,
    collectives: Vec<Arc<Completion>>,
}

impl Pending {
    /// True once the collective has ended, well or not: its memory belongs to the caller again. It is also true in a
    /// fork, for the fork's copy.
    pub fn is_done(&self) -> bool {
        let ended = || self.driver.is_dead() || !self.driver.is_in_owner_process();
        self.collectives.iter().all(|one| one.is_done()) || ended()
    }

    /// Waits until the collective has ended, or `timeout` has passed. In the second case the error is
    /// [`GroupError::StillRunning`], and the caller must leave the memory alone until a later wait, or
    /// [`Pending::is_done`], says that the collective has ended. `None` waits for the end, which the collective's own
    /// timeout bounds.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), GroupError> {
        self.driver.refuse_fork()?;
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut outcome = Ok(());
        // All collectives must release their memory, even if the first one has failed. The first error is returned.
        for collective in &self.collectives {
            match self.driver.drive(collective, until) {
                Some(Ok(())) => {}
                Some(Err(error)) => outcome = outcome.and_then(|()| Err(self.driver.explain(error))),
                None if self.driver.is_dead() => return Err(self.driver.driver_fault()),
                None => return Err(self.driver.still_running()),
            }
        }
        outcome
    }
}

impl Group {
    /// Starts an allreduce of `elements`, of whose result this rank keeps the elements `kept` only; other ranks may keep
    /// others.
    ///
    /// # Safety
    /// Until the returned [`Pending`] is done: `input` must be readable for `elements` and `output` writable for
    /// `kept.len()` elements of the type, both aligned; no other code may write the input or touch the output; the output
    /// must be the part `kept` of the input or not overlap it. Without elements any address will do. The memory of the
    /// loss, unless it is null, must be as the output's for `elements`, and overlap neither.
    pub unsafe fn submit_allreduce(&self, submission: Submission, kept: Range<usize>) -> Result<Pending, GroupError> {
        self.start(&submission, || self.sums(&submission, Primitive::Allreduce, kept.clone()))
    }

    /// Starts a reduce of `elements`: only rank `root` gets the result.
    ///
    /// # Safety
    /// As for [`Group::submit_allreduce`], with `kept` as everything on the root and as nothing elsewhere.
    pub unsafe fn submit_reduce(&self, submission: Submission, root: u16) -> Result<Pending, GroupError> {
        self.start(&submission, || self.sums_for(&submission, root))
    }

    /// Starts a reduce-scatter: each rank gets a chunk of `elements` of the result, and brings as many chunks as there are
    /// ranks. The call is for the elements `range` of all chunks together, the same on all ranks: a caller that has several
    /// groups can use each of them for a part.
    ///
    /// # Safety
    /// As for [`Group::submit_allreduce`] with the chunks of all ranks together, and `kept` as this rank's chunk.
    pub unsafe fn submit_reduce_scatter(
        &self,
        submission: Submission,
        range: Range<usize>,
    ) -> Result<Pending, GroupError> {
        let (chunk, rank, size) = (submission.elements, self.info.rank, submission.dtype.size());
        // The collective over some elements. What this rank gets of them goes to where they are in its own chunk.
        let over = |elements: &Range<usize>| {
            let own = chunk_in(rank, chunk, elements);
            let skipped = if own.is_empty() { 0 } else { own.start - usize::from(rank) * chunk };
            Submission {
                input: submission.input.wrapping_add(elements.start * size),
                output: submission.output.wrapping_add(skipped * size),
                elements: elements.len(),
                ..submission
            }
        };
        // One reduce for each rank is cheaper where only the root gets the result of a reduce.
        if self.info.protocol.rooted_is_unicast && !range.is_empty() {
            return self.start(&submission, || {
                let chunks = (0..self.info.world_size).map(|root| (root, chunk_in(root, chunk, &range)));
                let some = chunks.filter(|(_, elements)| !elements.is_empty());
                all(some.map(|(root, elements)| self.sums_for(&over(&elements), root)))
            });
        }
        let own = chunk_in(rank, chunk, &range);
        let kept = own.start - range.start..own.end - range.start;
        self.start(&submission, || self.sums(&over(&range), Primitive::Allreduce, kept.clone()))
    }

    /// Starts an all-gather in place: the output has a chunk of `elements` for each rank, and this rank's is filled in. The
    /// call is for the elements `range` of all chunks together, the same on all ranks.
    ///
    /// # Safety
    /// Until the returned [`Pending`] is done, `output` must be readable and writable for the chunks of all ranks, and no
    /// other code may touch it.
    pub unsafe fn submit_all_gather(&self, submission: Submission, range: Range<usize>) -> Result<Pending, GroupError> {
        let (chunk, size) = (submission.elements, submission.dtype.size());
        self.start(&submission, || {
            let chunks = (0..self.info.world_size).map(|root| (root, chunk_in(root, chunk, &range)));
            let some = chunks.filter(|(_, elements)| chunk == 0 || !elements.is_empty());
            all(some.map(|(root, elements)| {
                let output = submission.output.wrapping_add(elements.start * size);
                self.moves(&Submission { output, elements: elements.len(), ..submission }, root)
            }))
        })
    }

    /// Starts a broadcast of rank `root`'s `elements`, in place.
    ///
    /// # Safety
    /// Until the returned [`Pending`] is done, `output` must be readable on the root, and writable on other ranks, for
    /// `elements`. No other code may write it, nor touch it on ranks other than the root. Without elements any address will
    /// do.
    pub unsafe fn submit_broadcast(&self, submission: Submission, root: u16) -> Result<Pending, GroupError> {
        self.start(&submission, || self.moves(&submission, root))
    }

    /// Starts [`Group::allreduce_sparse`]. The result is there once the collective is done.
    pub fn submit_sparse<T: Element>(
        &self,
        indices: &[i64],
        values: Vec<T>,
        size: usize,
        op: ReduceOp,
        timeout: Duration,
        drive: Drive,
    ) -> Result<(Pending, SparseResult<T>), GroupError> {
        self.check_sparse(&Spec::allreduce(0, T::DTYPE, op))?;
        let tensor = SparseElements::new(indices, values, size, op).map_err(GroupError::Sparse)?;
        self.check_sparse(&tensor.spec())?;
        let result = tensor.result();
        let collectives = self.driver.submit(vec![vec![Box::new(tensor)]], timeout, drive == Drive::Background)?;
        Ok((Pending { driver: Arc::clone(&self.driver), collectives }, result))
    }

    /// True in a job of sparse tensors: all its tensors are sparse.
    pub fn is_sparse(&self) -> bool {
        self.check_sparse(&Spec::NOTHING).is_ok()
    }

    fn check_sparse(&self, spec: &Spec) -> Result<(), GroupError> {
        self.info.protocol.check_sparse(spec, &self.info.options).map_err(GroupError::Refused)
    }

    /// Starts the collectives of an operation. Each core gets tensors over the same memory, and touches the blocks of its own
    /// slots.
    fn start(
        &self,
        submission: &Submission,
        tensors: impl Fn() -> Result<Tensors, GroupError>,
    ) -> Result<Pending, GroupError> {
        let tensors = self.driver.cores.iter().map(|_| tensors()).collect::<Result<_, _>>()?;
        let hand_over = submission.drive == Drive::Background;
        let collectives = self.driver.submit(tensors, submission.timeout, hand_over)?;
        Ok(Pending { driver: Arc::clone(&self.driver), collectives })
    }

    fn sums_for(&self, submission: &Submission, root: u16) -> Result<Tensors, GroupError> {
        let kept = if root == self.info.rank { submission.elements } else { 0 };
        self.sums(submission, Primitive::Reduce(Rank(root)), 0..kept)
    }

    /// The tensor of a reduction, or several if it has too many elements for one collective. As long as they exist, the
    /// memory is theirs.
    fn sums(&self, submission: &Submission, primitive: Primitive, kept: Range<usize>) -> Result<Tensors, GroupError> {
        let &Submission { input, output, loss, elements, dtype, op, .. } = submission;
        if kept.start > kept.end || kept.end > elements {
            return Err(GroupError::KeptRange { kept, elements });
        }
        self.check_root(primitive)?;
        let most = MAX_ELEMENTS - MAX_ELEMENTS % self.granule(op);
        let tensor = |start: usize| {
            let end = elements.min(start + most);
            let spec = Spec { primitive, ..Spec::allreduce((end - start) as u32, dtype, op) };
            (self.info.protocol.check)(&spec, &self.info.options).map_err(GroupError::Refused)?;
            // What this collective keeps, and where that lies in the output.
            let (first, last) = (kept.start.clamp(start, end), kept.end.clamp(start, end));
            let input = input.wrapping_add(start * dtype.size());
            let output = output.wrapping_add(first.saturating_sub(kept.start) * dtype.size());
            let loss = if loss.is_null() { loss } else { loss.wrapping_add(start * dtype.size()) };
            let (memory, kept) = (Memory { input, output, loss }, first - start..last - start);
            // SAFETY: the callers promise the memory until the collective is done, and the engine drops the tensor before
            // it says so.
            Ok(unsafe {
                match self.info.protocol.hosts_forward_results {
                    true => memory::tensor_with_bounce_buffer(memory, spec, kept),
                    false => memory::tensor(memory, spec, kept),
                }
            })
        };
        (0..elements.max(1)).step_by(most).map(tensor).collect()
    }

    /// The same of a broadcast.
    fn moves(&self, submission: &Submission, root: u16) -> Result<Tensors, GroupError> {
        const MOST_BYTES: usize = WORD * MAX_ELEMENTS;
        let root = Rank(root);
        self.check_root(Primitive::Broadcast(root))?;
        let (is_root, bytes) = (root.0 == self.info.rank, submission.elements * submission.dtype.size());
        let tensor = |start: usize| {
            let bytes = (bytes - start).min(MOST_BYTES);
            let spec = Spec::broadcast(bytes.div_ceil(WORD) as u32, root);
            (self.info.protocol.check)(&spec, &self.info.options).map_err(GroupError::Refused)?;
            // SAFETY: as for a reduction.
            Ok(unsafe { memory::words(submission.output.wrapping_add(start), bytes, spec, is_root) })
        };
        (0..bytes.max(1)).step_by(MOST_BYTES).map(tensor).collect()
    }

    /// The elements that must stay together when a tensor is split: the bytes of one element of a custom operator.
    fn granule(&self, op: ReduceOp) -> usize {
        let ReduceOp::Custom(number) = op else { return 1 };
        self.info.options.operators().get(number).map_or(1, |operator| operator.element_size())
    }

    fn check_root(&self, primitive: Primitive) -> Result<(), GroupError> {
        let world_size = self.info.world_size;
        match primitive.root().filter(|root| root.0 >= world_size) {
            Some(Rank(root)) => Err(GroupError::NoRoot { root, world_size }),
            None => Ok(()),
        }
    }
}

/// What a range has of a rank's chunk; empty if they have nothing in common.
fn chunk_in(rank: u16, chunk: usize, range: &Range<usize>) -> Range<usize> {
    let start = usize::from(rank) * chunk;
    start.clamp(range.start, range.end)..(start + chunk).clamp(range.start, range.end)
}

/// The tensors of all ranges of an operation, unless one is refused.
fn all(ranges: impl Iterator<Item = Result<Tensors, GroupError>>) -> Result<Tensors, GroupError> {
    Ok(ranges.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}
