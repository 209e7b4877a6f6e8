//! Starts collectives over memory by its address, and cuts tensors that are too large for one collective.
#![allow(unsafe_code)]

use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tributary_numeric::ReduceOp;
use tributary_proto::contract::ids::Rank;
use tributary_proto::contract::tensor::{Primitive, Spec};

use super::{Group, GroupError, MAX_ELEMENTS, Pending};
use crate::memory;

/// Bytes of the words that a broadcast moves.
const WORD: usize = 4;

impl Group {
    /// Starts a collective over memory by its address, and returns at once. Only the root gets the result of a reduce:
    /// under Canary the other ranks get no vector back, and under SwitchML they do not read theirs.
    ///
    /// # Safety
    /// Until the returned [`Pending`] is done: `input` must be readable and `output` writable for `spec.elements`
    /// elements of `spec.dtype`, and aligned for them; no other code may write the input or touch the output; the two
    /// must be the same memory or must not overlap. Without elements any addresses will do; so will any `output` on
    /// ranks that get no result, and any `input` on ranks that bring no data.
    pub unsafe fn submit(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        timeout: Duration,
    ) -> Result<Pending, GroupError> {
        self.start(input, output, spec, 0..spec.elements as usize, timeout, true)
    }

    /// Like [`Group::submit`], for `elements` elements, whatever `what` says of their number, in several collectives if
    /// they are too many for one. Of an allreduce's result this rank wants the elements `kept` only, and other ranks
    /// may keep others; of a reduce's result the root wants all.
    ///
    /// # Safety
    /// As for [`Group::submit`], until all returned values are done, with this difference: `output` must be writable
    /// for `kept.len()` elements, and must be that part of the input or not overlap it.
    pub unsafe fn submit_keeping(
        &self,
        input: *const u8,
        output: *mut u8,
        elements: usize,
        kept: Range<usize>,
        what: Spec,
        timeout: Duration,
    ) -> Result<Vec<Pending>, GroupError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_long(input, output, elements, kept, what, timeout, true) }
    }

    /// Starts a reduce-scatter: each rank gets its shard of the result. All shards have `shard` elements. The call is for
    /// the elements `range` of the input, the same on all ranks: a caller that has several groups can use each for a part.
    ///
    /// # Safety
    /// As for [`Group::submit_keeping`] with the shards of all ranks together, and `kept` as this rank's shard.
    pub unsafe fn submit_reduce_scatter(
        &self,
        input: *const u8,
        output: *mut u8,
        shard: usize,
        range: Range<usize>,
        what: Spec,
        timeout: Duration,
    ) -> Result<Vec<Pending>, GroupError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_reduce_scatter(input, output, shard, range, what, timeout, true) }
    }

    /// Starts an all-gather in place: `data` has `shard` bytes for each rank, including this rank's own. The call is for
    /// the bytes `range`, the same on all ranks.
    ///
    /// # Safety
    /// Until all returned values are done, `data` must be readable and writable for that many bytes, and no other code
    /// may touch it.
    pub unsafe fn submit_all_gather(
        &self,
        data: *mut u8,
        shard: usize,
        range: Range<usize>,
        timeout: Duration,
    ) -> Result<Vec<Pending>, GroupError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_all_gather(data, shard, range, timeout, true) }
    }

    /// Starts a broadcast of rank `root`'s bytes, in place; in several collectives if they are too many for one.
    ///
    /// # Safety
    /// Until all returned values are done, `data` must be readable on the root, and writable on other ranks, for
    /// `bytes`. No other code may write it, nor touch it on ranks other than the root. Without bytes any address will
    /// do.
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
    /// As for [`Group::submit_keeping`].
    #[allow(clippy::too_many_arguments)] // They are those of `submit_keeping`, and who drives.
    pub(super) unsafe fn start_long(
        &self,
        input: *const u8,
        output: *mut u8,
        elements: usize,
        kept: Range<usize>,
        what: Spec,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Vec<Pending>, GroupError> {
        if kept.start > kept.end || kept.end > elements {
            return Err(GroupError::Part { kept, elements });
        }
        let size = what.dtype.size();
        let most = MAX_ELEMENTS - MAX_ELEMENTS % self.granule(what.op);
        all_started((0..elements.max(1)).step_by(most).map(|start| {
            let end = elements.min(start + most);
            let spec = Spec { elements: (end - start) as u32, ..what };
            // The part of this piece that is kept, and where that part goes in the output.
            let (first, last) = (kept.start.clamp(start, end), kept.end.clamp(start, end));
            let output = output.wrapping_add(first.saturating_sub(kept.start) * size);
            let kept = first - start..last - start;
            self.start(input.wrapping_add(start * size), output, spec, kept, timeout, hand_over).map(iter::once)
        }))
    }

    /// If a reduce brings its result to the root only, this is one reduce for each rank. Otherwise it is one all-reduce,
    /// of which each rank keeps its shard.
    ///
    /// # Safety
    /// As for [`Group::submit_reduce_scatter`].
    #[allow(clippy::too_many_arguments)] // They are those of `submit_reduce_scatter`, and who drives.
    pub(super) unsafe fn start_reduce_scatter(
        &self,
        input: *const u8,
        output: *mut u8,
        shard: usize,
        range: Range<usize>,
        what: Spec,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Vec<Pending>, GroupError> {
        let (rank, size) = (self.info.rank, what.dtype.size());
        // Where an element of this rank's shard is written.
        let at = |element: usize| output.wrapping_add((element - usize::from(rank) * shard) * size);
        if !self.info.protocol.spares_others || range.is_empty() {
            let mine = shard_of(rank, shard, &range);
            let kept = mine.start - range.start..mine.end - range.start;
            let output = if mine.is_empty() { output } else { at(mine.start) };
            let input = input.wrapping_add(range.start * size);
            // SAFETY: the caller's promise: the range is of the input, and what is kept of it of this rank's shard.
            return unsafe { self.start_long(input, output, range.len(), kept, what, timeout, hand_over) };
        }
        let shards = (0..self.info.world).map(|root| (root, shard_of(root, shard, &range)));
        all_started(shards.filter(|(_, elements)| !elements.is_empty()).map(|(root, elements)| {
            let input = input.wrapping_add(elements.start * size);
            let output = if root == rank { at(elements.start) } else { output };
            let what = Spec { primitive: Primitive::Reduce(Rank(root)), ..what };
            // SAFETY: the caller's promise: the elements are of the input, and the root's output is its own shard.
            unsafe { self.start_long(input, output, elements.len(), 0..elements.len(), what, timeout, hand_over) }
        }))
    }

    /// # Safety
    /// As for [`Group::submit_all_gather`].
    pub(super) unsafe fn start_all_gather(
        &self,
        data: *mut u8,
        shard: usize,
        range: Range<usize>,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Vec<Pending>, GroupError> {
        let shards = (0..self.info.world).map(|root| (root, shard_of(root, shard, &range)));
        all_started(shards.filter(|(_, bytes)| shard == 0 || !bytes.is_empty()).map(|(root, bytes)| {
            // SAFETY: the caller's promise.
            unsafe { self.start_broadcast(data.wrapping_add(bytes.start), bytes.len(), root, timeout, hand_over) }
        }))
    }

    /// # Safety
    /// As for [`Group::submit_broadcast`].
    pub(super) unsafe fn start_broadcast(
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
        all_started((0..bytes.max(1)).step_by(PART).map(|start| {
            let bytes = (bytes - start).min(PART);
            let spec = Spec::broadcast(bytes.div_ceil(WORD) as u32, Rank(root));
            (self.info.protocol.can)(&spec, &self.info.options).map_err(GroupError::Refused)?;
            // SAFETY: the caller's promise.
            let tensor = unsafe { memory::words(data.wrapping_add(start), bytes, spec, is_root) };
            let completion = self.shared.submit(tensor, timeout, hand_over)?;
            Ok(iter::once(Pending { shared: Arc::clone(&self.shared), completion }))
        }))
    }

    /// The bytes that must stay together when a tensor is cut. They are those of one element of one of the job's own
    /// operators.
    fn granule(&self, op: ReduceOp) -> usize {
        let ReduceOp::Own(number) = op else { return 1 };
        self.info.options.operators().get(number).map_or(1, |operator| operator.element_size())
    }

    fn check_root(&self, primitive: Primitive) -> Result<(), GroupError> {
        let world = self.info.world;
        match primitive.root().filter(|root| root.0 >= world) {
            Some(Rank(root)) => Err(GroupError::NoRoot { root, world }),
            None => Ok(()),
        }
    }

    /// Starts one collective. A rank keeps the whole of a result that only some ranks get.
    fn start(
        &self,
        input: *const u8,
        output: *mut u8,
        spec: Spec,
        kept: Range<usize>,
        timeout: Duration,
        hand_over: bool,
    ) -> Result<Pending, GroupError> {
        self.check_root(spec.primitive)?;
        (self.info.protocol.can)(&spec, &self.info.options).map_err(GroupError::Refused)?;
        let (brings, gets) = (spec.primitive.brings(Rank(self.info.rank)), spec.primitive.gets(Rank(self.info.rank)));
        let kept = match spec.primitive {
            Primitive::Allreduce => kept,
            _ if gets => 0..spec.elements as usize,
            _ => 0..0,
        };
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
}

/// What a range has of a rank's shard: a part of both, empty if they have nothing in common.
fn shard_of(rank: u16, shard: usize, range: &Range<usize>) -> Range<usize> {
    let start = usize::from(rank) * shard;
    start.clamp(range.start, range.end)..(start + shard).clamp(range.start, range.end)
}

/// All collectives of one call. If one does not start, the earlier ones end first, so that the caller gets the memory
/// back.
fn all_started<P: IntoIterator<Item = Pending>>(
    parts: impl Iterator<Item = Result<P, GroupError>>,
) -> Result<Vec<Pending>, GroupError> {
    let mut started = Vec::with_capacity(parts.size_hint().0);
    for part in parts {
        match part {
            Ok(part) => started.extend(part),
            Err(error) => {
                let _ = wait_for_all(started);
                return Err(error);
            }
        }
    }
    Ok(started)
}

/// Waits until all collectives have let go of their memory. There is no limit, since each ends with its own deadline.
/// Returns the first error.
pub(super) fn wait_for_all(started: Vec<Pending>) -> Result<(), GroupError> {
    started.into_iter().map(|pending| pending.wait(None)).fold(Ok(()), Result::and)
}
