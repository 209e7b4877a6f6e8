//! What a rank does with one chunk in each stage.

use std::sync::OnceLock;
use std::time::Instant;

use crate::collective::{Description, Kind, Plan, Share};
use crate::error::LocalError;
use crate::layout::Layout;
use crate::memory::Lent;
use crate::sum::{Adder, is_narrow};

/// The memory of a collective on one rank.
#[derive(Clone, Debug)]
pub struct Operands {
    /// This rank's contribution.
    pub input: Lent,
    /// Where results go: those of the elements `kept`, from the first.
    pub output: Lent,
    /// Elements of the result that this rank wants.
    pub kept: std::ops::Range<usize>,
}

/// A collective of one rank.
#[derive(Debug)]
pub struct Collective {
    pub(crate) plan: Plan,
    /// What the caller does, which ranks must agree on, too.
    pub(crate) operation: Description,
    pub(crate) operands: Operands,
    pub(crate) deadline: Instant,
    pub(crate) outcome: OnceLock<Result<(), LocalError>>,
}

/// A chunk of a collective on this rank.
pub struct Chunk<'a> {
    /// The group's memory.
    pub layout: &'a Layout,
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub ranks: usize,
    /// The chunk's number in the group.
    pub number: u32,
    /// Its index in its collective.
    pub index: u32,
    /// Its collective.
    pub plan: &'a Plan,
    /// The collective's memory.
    pub operands: &'a Operands,
}

impl Chunk<'_> {
    fn size(&self) -> usize {
        self.plan.description().dtype.size()
    }

    fn is_narrow(&self) -> bool {
        self.plan.description().kind.reduces() && is_narrow(self.plan.description().dtype)
    }

    /// Copies this rank's contribution into its slot.
    pub fn copy_in(&self) {
        let kind = self.plan.description().kind;
        if self.plan.has_shares() {
            // Others' shares; the own one is read where it lies, unless its bytes have another order in slots.
            for rank in (0..self.ranks).filter(|&rank| rank != self.rank || self.is_narrow()) {
                let Share { elements, offset } = self.plan.share(self.index, rank);
                self.to_slot(elements.start, elements.len(), offset);
            }
        } else if !matches!(kind, Kind::Broadcast { root } if usize::from(root) != self.rank) {
            let elements = self.plan.chunk(self.index);
            self.to_slot(elements.start, elements.len(), 0);
        }
    }

    fn to_slot(&self, first: usize, elements: usize, offset: usize) {
        let (at, len) = (first * self.size(), elements * self.size());
        let slot = self.layout.slot_mut(self.rank, self.number, offset, len);
        self.operands.input.read(at, slot);
        if self.is_narrow() {
            swap_pairs(slot);
        }
    }

    /// Reduces this rank's share.
    pub fn reduce(&self, adder: &mut Adder) {
        if !self.plan.has_shares() {
            return;
        }
        let Share { elements, offset } = self.plan.share(self.index, self.rank);
        let scatters = self.plan.description().kind == Kind::ReduceScatter;
        let size = self.size();
        for start in (0..elements.len()).step_by(adder.block()) {
            let count = adder.block().min(elements.len() - start);
            let (at, len) = (offset + start * size, count * size);
            let result = adder.combined(count, |rank| match rank == self.rank && !self.is_narrow() {
                true => self.operands.input.bytes((elements.start + start) * size, len),
                false => self.layout.slot(rank, self.number, at, len),
            });
            if !scatters {
                self.layout.slot_mut(self.rank, self.number, at, len).copy_from_slice(result);
            }
            self.keep(elements.start + start, result);
        }
    }

    /// Copies results out.
    pub fn copy_out(&self, adder: Option<&mut Adder>) {
        match self.plan.description().kind {
            Kind::AllReduce | Kind::Reduce { .. } if self.plan.has_shares() => {
                for rank in (0..self.ranks).filter(|&rank| rank != self.rank) {
                    let Share { elements, offset } = self.plan.share(self.index, rank);
                    let slot = self.layout.slot(rank, self.number, offset, elements.len() * self.size());
                    self.keep(elements.start, slot);
                }
            }
            Kind::AllReduce | Kind::Reduce { .. } if !self.operands.kept.is_empty() => {
                self.reduce_everything(adder.expect("a reduction has an adder"));
            }
            Kind::AllReduce | Kind::Reduce { .. } | Kind::ReduceScatter => {}
            Kind::AllGather => {
                let chunk = self.plan.chunk(self.index);
                for rank in 0..self.ranks {
                    let at = rank * self.plan.description().elements + chunk.start;
                    self.operands.output.write(at, self.layout.slot(rank, self.number, 0, chunk.len()));
                }
            }
            Kind::Broadcast { root } if usize::from(root) == self.rank || self.operands.output.is_empty() => {}
            Kind::Broadcast { root } => {
                let chunk = self.plan.chunk(self.index);
                let slot = self.layout.slot(usize::from(root), self.number, 0, chunk.len());
                self.operands.output.write(chunk.start, slot);
            }
        }
    }

    /// Reduces the whole of a small collective, from the slots of all ranks.
    fn reduce_everything(&self, adder: &mut Adder) {
        let (elements, size) = (self.plan.chunk(self.index).len(), self.size());
        for start in (0..elements).step_by(adder.block()) {
            let count = adder.block().min(elements - start);
            let result = adder.combined(count, |rank| self.layout.slot(rank, self.number, start * size, count * size));
            self.keep(start, result);
        }
    }

    /// Writes the results that this rank wants, of those from the element `first` on.
    fn keep(&self, first: usize, results: &[u8]) {
        let (kept, size) = (&self.operands.kept, self.size());
        let start = first.max(kept.start);
        let end = (first + results.len() / size).min(kept.end);
        if start >= end {
            return;
        }
        let results = &results[(start - first) * size..(end - first) * size];
        self.operands.output.write_narrow((start - kept.start) * size, results, self.is_narrow());
    }
}

/// Changes the byte order of elements of two bytes.
fn swap_pairs(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.reverse());
}

impl Lent {
    /// Copies to it; of narrow elements in the machine's byte order.
    fn write_narrow(&self, offset: usize, from: &[u8], is_narrow: bool) {
        if !is_narrow {
            return self.write(offset, from);
        }
        let mut block = [0; 1024];
        for (index, from) in from.chunks(block.len()).enumerate() {
            let block = &mut block[..from.len()];
            block.copy_from_slice(from);
            swap_pairs(block);
            self.write(offset + index * 1024, block);
        }
    }
}
